"""The channel to a server that is a child process, over its standard streams.

The channel owns the process: it starts the process, notices its death, and stops it. The child inherits the
standard error of this process, and of its environment only the variables that are safe to hand on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence

from antiphon.errors import ProcessEnded, Unreachable
from antiphon.printable import printable, redacted_url
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.line_channel import LineChannel, LineConnection

__all__ = ["StdioChannel", "safe_environment"]

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
_LAST_OUTPUT_SECONDS = 1.0
"""How long the channel reads the remaining output of a process that has exited."""


def safe_environment(more: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of this process that a child may have: those of the user's login, and `more`."""
    safe = _SAFE_WINDOWS_VARIABLES if sys.platform == "win32" else _SAFE_VARIABLES
    found = {name: os.environ[name] for name in (*safe, *more) if name in os.environ}
    # A value that begins so is a function of the shell, which a child that is a shell would define.
    return {name: value for name, value in found.items() if not value.startswith("()")}


class StdioChannel(LineChannel):
    """A channel to the server that `command` starts; `env` is added to `safe_environment()`."""

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        max_message: int = 64 * 1024 * 1024,
        shutdown_timeout: float = 2.0,
    ) -> None:
        self._command = [os.fspath(part) for part in command]
        # An argument can be a URL with a password.
        super().__init__(printable(shlex.join(map(redacted_url, self._command))))
        self._env = {**safe_environment(), **(env or {})}
        self._cwd = cwd
        self._max_message = max_message
        self._shutdown_timeout = shutdown_timeout
        self._process: _Child | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, receive: Receiver) -> None:
        """Start the process."""
        loop = asyncio.get_running_loop()
        try:
            transport, child = await loop.subprocess_exec(
                lambda: _Child(loop),
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=None,
                env=self._env,
                cwd=self._cwd,
                start_new_session=sys.platform != "win32",  # so that its own children can be stopped with it
            )
        except (OSError, ValueError) as error:
            raise Unreachable(f"Cannot start {self.peer}: {error}.") from error
        child.transport = transport
        assert child.stdout is not None
        self._process = child
        self._lines = LineConnection(
            self.peer, child.stdout.read, self._write, receive, max_message=self._max_message
        )
        self._watching = asyncio.create_task(self._watch(child, self._lines))

    async def close(self) -> None:
        """Stop the process: close its input, then terminate it, then kill it."""
        child, self._process = self._process, None
        lines, self._lines = self._lines, None
        if child is None or lines is None or self._watching is None:
            return
        self._watching.cancel()
        await asyncio.wait({self._watching})
        await lines.close()
        try:
            assert child.stdin is not None
            child.stdin.close()
            for signal_number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
                if await child.exits_within(self._shutdown_timeout):
                    break
                _signal(child.transport, signal_number)
            else:
                await child.exits_within(self._shutdown_timeout)
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
            await child.exits_within(_LAST_OUTPUT_SECONDS)
            raise _ended(self.peer, child) from None

    async def _watch(self, child: _Child, lines: LineConnection) -> None:
        """Fail waiting requests when the process dies or closes its output."""
        exiting = asyncio.create_task(child.exited.wait())
        try:
            await asyncio.wait({exiting, lines.listening}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({exiting, lines.listening}, timeout=_LAST_OUTPUT_SECONDS)
        finally:
            exiting.cancel()
        lines.fail(_ended(self.peer, child))


class _Child(asyncio.subprocess.SubprocessStreamProtocol):
    """The child process.

    `asyncio.subprocess.Process.wait` of Python 3.11 also waits for the pipes, which a grandchild or unread
    output keeps open. This class knows when the process itself has exited.
    """

    transport: asyncio.SubprocessTransport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(_READ_AHEAD_BYTES, loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        """Record the exit; asyncio calls this."""
        super().process_exited()
        self.exited.set()

    async def exits_within(self, seconds: float) -> bool:
        """Wait for the exit of the process; returns whether it came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            return False
        return True


def _ended(peer: str, child: _Child) -> Unreachable:
    code = child.transport.get_returncode()
    if code is None:
        return Unreachable(f"{peer} has closed its output.")
    how = f"was killed by signal {-code}" if code < 0 else f"has exited with code {code}"
    return ProcessEnded(f"{peer} {how}: its standard error says why.", code)


def _signal(transport: asyncio.SubprocessTransport, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform != "win32":
            os.killpg(transport.get_pid(), number)
        else:
            transport.send_signal(number)
