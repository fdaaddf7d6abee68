"""A server that is a child process and speaks on its standard streams: the client's side of stdio.

The channel owns the process: it starts it, notices when it dies, and does not leave it behind. The
child's standard error is this process's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

from antiphon.errors import Unreachable
from antiphon.transport.channel import Receiver
from antiphon.transport.duplex import Duplex
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.speaker import Message

__all__ = ["ProcessChannel"]

_LAST_WORDS = 1.0
"""Seconds in which what a dead process had written must have been read."""


class ProcessChannel:
    """A way to the server that `command` starts; `env` is added to this process's environment."""

    has_streams = False
    has_headers = False

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        max_message: int = 64 * 1024 * 1024,
        grace: float = 2.0,
    ) -> None:
        self._command = [os.fspath(part) for part in command]
        self._env = None if env is None else {**os.environ, **env}
        self._cwd = cwd
        self._max_message = max_message
        self._grace = grace
        self._process: asyncio.subprocess.Process | None = None
        self._duplex: Duplex | None = None
        self._watching: asyncio.Task[None] | None = None
        self.peer = shlex.join(self._command)

    async def open(self, receive: Receiver) -> None:
        """Start the process."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=self._env,
                cwd=self._cwd,
                start_new_session=sys.platform != "win32",  # so that its own children can be stopped with it
            )
        except (OSError, ValueError) as error:
            raise Unreachable(f"Cannot start {self.peer}: {error}.") from error
        assert process.stdout is not None
        self._process = process
        self._duplex = Duplex(
            self.peer, process.stdout.read, self._write, receive, max_message=self._max_message
        )
        self._watching = asyncio.create_task(self._watch(process, self._duplex))

    async def request(self, message: Message) -> Frame:
        """Send a request and wait for its response."""
        return await self._open_duplex().request(message)

    async def send(self, message: Message) -> None:
        """Send a notification or a response."""
        await self._open_duplex().send(message)

    async def listen(self, headers: Mapping[str, str]) -> None:
        """There is one stream, and it is open."""

    async def end(self, headers: Mapping[str, str]) -> None:
        """The session is the process."""

    async def close(self) -> None:
        """Stop the process: by closing its input, then by asking it, then by force."""
        process, self._process = self._process, None
        if process is None or self._duplex is None or self._watching is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        for forced in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if forced is not None:
                _signal(process, forced)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self._grace)
                break
        self._watching.cancel()
        await asyncio.wait({self._watching})
        await self._duplex.close()
        # A grandchild may still hold the pipes; asyncio has no public way to let go of them.
        cast(Any, process)._transport.close()

    def _open_duplex(self) -> Duplex:
        if self._process is None or self._duplex is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        return self._duplex

    async def _write(self, line: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        try:
            process.stdin.write(line)
            await process.stdin.drain()
        except (ConnectionError, RuntimeError):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _LAST_WORDS)
            raise Unreachable(_epitaph(self.peer, process)) from None

    async def _watch(self, process: asyncio.subprocess.Process, duplex: Duplex) -> None:
        """Fail what waits when the process dies or closes its output."""
        waiting = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({waiting, duplex.listening}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({waiting, duplex.listening}, timeout=_LAST_WORDS)
        finally:
            waiting.cancel()
        duplex.fail(Unreachable(_epitaph(self.peer, process)))


def _epitaph(peer: str, process: asyncio.subprocess.Process) -> str:
    code = process.returncode
    if code is None:
        return f"{peer} has closed its output."
    how = f"was ended by signal {-code}" if code < 0 else f"has exited with code {code}"
    return f"{peer} {how}: its standard error says why."


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform != "win32":
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
