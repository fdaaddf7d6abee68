"""The channel to a server that is a child process, over its standard streams.

The channel owns the process: it starts the process, notices its death, and stops it together with the
processes that it started. The child gets only those variables of the environment that are safe to hand on.
Its standard error is the one of this process, unless the channel keeps the last lines of it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, cast

from antiphon.errors import ProcessEnded, Unreachable
from antiphon.printable import printable, redacted_url
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.line_channel import LineChannel, LineConnection

__all__ = ["Ending", "StdioChannel", "safe_environment"]

Ending: TypeAlias = Literal["by itself", "after SIGTERM", "after SIGKILL"]
"""How the process of a closed channel ended. By itself: before a signal, when its input was closed."""

# The same variables as in the official SDK. Others may be secrets of this process.
_SAFE_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
_SAFE_WINDOWS_VARIABLES = (
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
)
_READ_AHEAD_BYTES = 64 * 1024
LAST_OUTPUT_SECONDS = 1.0
"""How long the channel reads the remaining output of a process that has exited."""
_KEPT_ERROR_BYTES = 8 * 1024
"""How much of the standard error the channel keeps."""
_MAX_PEER_CHARACTERS = 200
"""How much of a command error messages show."""
_POLL_SECONDS = 0.02
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


def safe_environment(more: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of this process that a child may have: those of the user's login, and `more`."""
    safe = _SAFE_WINDOWS_VARIABLES if sys.platform == "win32" else _SAFE_VARIABLES
    found = {name: os.environ[name] for name in (*safe, *more) if name in os.environ}
    # A value that begins so is a function of the shell, which a child that is a shell would define.
    return {name: value for name, value in found.items() if not value.startswith("()")}


class StdioChannel(LineChannel):
    """A channel to the server that `command` starts; `env` is added to `safe_environment()`.

    With `keep_errors`, the standard error of the process goes to `last_errors`.
    """

    transport = "pipe"

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        max_message: int = 64 * 1024 * 1024,
        shutdown_timeout: float = 2.0,
        keep_errors: bool = False,
    ) -> None:
        self._command = [os.fspath(part) for part in command]
        # An argument can be a URL with a password.
        shown = shlex.join(map(redacted_url, self._command))
        super().__init__(printable(shown, _MAX_PEER_CHARACTERS))
        self._env = {**safe_environment(), **(env or {})}
        self._cwd = cwd
        self._max_message = max_message
        self._shutdown_timeout = shutdown_timeout
        self._keeps_errors = keep_errors
        self._errors = b""
        self._process: _Child | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self.ending: Ending | None = None
        """How the process ended; `None` while it runs."""
        self.stray_line: str | None = None
        """After the end: the beginning of the first line of output that was no message, if there was one."""

    @property
    def last_errors(self) -> str:
        """The end of the standard error of the process, as it was printed. Clean it before you show it."""
        return self._errors.decode(errors="replace")

    @property
    def remark(self) -> str:
        """What may explain why the server does not answer."""
        if self._lines is not None and self._lines.is_silent:
            return "It has printed nothing to its standard output: check that it serves MCP over stdio."
        return super().remark

    async def open(self, receive: Receiver) -> None:
        """Start the process."""
        loop = asyncio.get_running_loop()
        try:
            _, child = await loop.subprocess_exec(
                lambda: _Child(loop, self._shutdown_timeout),
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE if self._keeps_errors else None,
                env=self._env,
                cwd=self._cwd,
                start_new_session=sys.platform != "win32",  # so that its own children can be stopped with it
            )
        except (OSError, ValueError) as error:
            raise Unreachable(f"Cannot start {self.peer}: {self._start_problem(error)}") from error
        assert child.stdout is not None
        self._process = child
        self._lines = LineConnection(
            self.peer,
            child.stdout.read,
            self._write,
            receive,
            max_message=self._max_message,
            quotes_output=self.quotes_output,
        )
        keeping = asyncio.create_task(self._keep_errors(child))
        self._tasks = (asyncio.create_task(self._watch(child, self._lines, keeping)), keeping)

    async def close(self) -> None:
        """Stop the process and its children: close its input, then terminate them, then kill them."""
        child, self._process = self._process, None
        lines, self._lines = self._lines, None
        if child is None or lines is None:
            return
        try:
            watching, keeping = self._tasks
            watching.cancel()
            await asyncio.wait({watching})
            await lines.close()
            self.stray_line = lines.first_unreadable
            self.ending = await child.stop()
            keeping.cancel()
            await asyncio.wait({keeping})
        except BaseException:
            child.signal(_KILL)  # the caller does not wait any longer
            raise
        finally:
            child.transport.close()

    async def _write(self, line: bytes) -> None:
        child = self._process
        if child is None or child.stdin is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        try:
            child.stdin.write(line)
            await child.stdin.drain()
        except (ConnectionError, RuntimeError):
            await child.exits_within(LAST_OUTPUT_SECONDS)
            # The last output may say why: it is read before the error is made.
            await asyncio.wait(self._tasks, timeout=LAST_OUTPUT_SECONDS)
            raise self._ended(child) from None

    async def _watch(self, child: _Child, lines: LineConnection, keeping: asyncio.Task[None]) -> None:
        """Fail waiting requests when the process dies or closes its output."""
        exiting = asyncio.create_task(child.exited.wait())
        try:
            await asyncio.wait({exiting, lines.listening}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({exiting, lines.listening, keeping}, timeout=LAST_OUTPUT_SECONDS)
        finally:
            exiting.cancel()
        lines.fail(self._ended(child))

    async def _keep_errors(self, child: _Child) -> None:
        """Read the standard error to its end, and keep the last part."""
        if child.stderr is not None:
            while chunk := await child.stderr.read(_READ_AHEAD_BYTES):
                self._errors = (self._errors + chunk)[-_KEPT_ERROR_BYTES:]

    def _ended(self, child: _Child) -> Unreachable:
        stray = super().remark
        remark = f" {stray}" if stray else ""
        code = child.transport.get_returncode()
        if code is None:
            closed = Unreachable(f"{self.peer} has closed its output.{remark}")
            closed.was_closed = True
            return closed
        how = f"was killed by signal {-code}" if code < 0 else f"has exited with code {code}"
        reason = "" if self._keeps_errors else ": its standard error says why"
        return ProcessEnded(f"{self.peer} {how}{reason}.{remark}", code)

    def _start_problem(self, error: OSError | ValueError) -> str:
        """Return why a process cannot be started, and what to do."""
        program = printable(self._command[0], _MAX_PEER_CHARACTERS)
        if isinstance(error, FileNotFoundError) and self._cwd is not None and not os.path.isdir(self._cwd):
            return f"there is no folder {os.fspath(self._cwd)}."
        if isinstance(error, FileNotFoundError):
            return f"there is no program {program!r}. Check its name, or pass its full path."
        if isinstance(error, PermissionError):
            return f"{program!r} is not executable. Start a script with its interpreter, such as python."
        return f"{error}."


class _Child(asyncio.subprocess.SubprocessStreamProtocol):
    """The child process, and the processes that it started.

    `asyncio.subprocess.Process.wait` of Python 3.11 also waits for the pipes, which a grandchild or unread
    output keeps open. This class knows when the process itself has exited.
    """

    transport: asyncio.SubprocessTransport

    def __init__(self, loop: asyncio.AbstractEventLoop, shutdown_timeout: float) -> None:
        super().__init__(_READ_AHEAD_BYTES, loop)
        self.exited = asyncio.Event()
        self._shutdown_timeout = shutdown_timeout
        self._stopping_others: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport; asyncio calls this."""
        self.transport = cast(asyncio.SubprocessTransport, transport)
        super().connection_made(transport)

    def process_exited(self) -> None:
        """Record the exit, and stop the processes left behind; asyncio calls this."""
        super().process_exited()
        self.exited.set()
        # At once: later, the number of the process group may belong to other processes.
        if self.signal(signal.SIGTERM):
            self._stopping_others = asyncio.ensure_future(self._stop_others())

    async def exits_within(self, seconds: float) -> bool:
        """Wait for the exit of the process; returns whether it came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> Ending:
        """Close the input of the process, and end it with signals if it does not exit."""
        assert self.stdin is not None
        self.stdin.close()
        ending: Ending = "by itself"
        if not await self.exits_within(self._shutdown_timeout):
            ending = "after SIGTERM"
            self.signal(signal.SIGTERM)
            if not await self.exits_within(self._shutdown_timeout):
                ending = "after SIGKILL"
                self.signal(_KILL)
                await self.exits_within(self._shutdown_timeout)
        if self._stopping_others is not None:
            await asyncio.wait({self._stopping_others})
        return ending

    async def _stop_others(self) -> None:
        """Kill the processes left behind that have not ended in time."""
        try:
            async with asyncio.timeout(self._shutdown_timeout):
                while self.signal(0):  # noqa: ASYNC110 - the system reports no exit of a grandchild
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            self.signal(_KILL)

    def signal(self, number: int) -> bool:
        """Send a signal to the process and the processes that it started; returns whether there is one."""
        try:
            if sys.platform != "win32":
                os.killpg(self.transport.get_pid(), number)
            elif self.exited.is_set():
                return False
            else:
                self.transport.send_signal(number)
        except (ProcessLookupError, PermissionError):
            return False
        return True
