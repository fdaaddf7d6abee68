"""Lines from the person at the terminal, read while the event loop goes on.

What is shown goes to the standard error, so that the standard output has nothing on it but the result. The
terminal stays in the mode it is in: editing a line is its own business.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from antiphon.cli import render

__all__ = ["Left", "Terminal"]

_CHUNK = 4096


class Left(Exception):
    """The person does not answer: `decline` says no, `cancel` goes away."""

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        super().__init__(action)
        self.action = action


class Terminal:
    """The person's end of a command."""

    def __init__(self) -> None:
        self._buffer = b""

    @staticmethod
    def there() -> bool:
        """Whether someone is there who can read what is asked and type an answer."""
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()

    def show(self, text: str, style: str = "") -> None:
        """Print a line for the person; control characters in it are left out."""
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True).print(Text(render.clean(text), style=style), soft_wrap=True)

    async def line(self, prompt: str) -> str:
        """What the person types; raises `Left` on Ctrl-D and Ctrl-C."""
        try:
            return await self._read(render.clean(prompt))
        except Left:
            self._buffer = b""
            print(file=sys.stderr)
            raise

    async def _read(self, prompt: str) -> str:
        loop = asyncio.get_running_loop()
        came: asyncio.Future[str] = loop.create_future()
        with _interrupts(loop, came):
            print(prompt, end="", file=sys.stderr, flush=True)
            try:
                loop.add_reader(0, self._take, came)
            except NotImplementedError:  # Windows
                line: str = await asyncio.to_thread(sys.stdin.readline)
                if not line:
                    raise Left("decline") from None
                return line.rstrip("\r\n")
            try:
                return await came
            finally:
                loop.remove_reader(0)

    def _take(self, came: asyncio.Future[str]) -> None:
        if came.done():
            return
        try:
            data = os.read(0, _CHUNK)
        except OSError:  # the terminal is gone
            came.set_exception(Left("cancel"))
            return
        self._buffer += data
        if b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            came.set_result(line.decode(errors="replace").rstrip("\r"))
        elif not data:
            came.set_exception(Left("decline"))


@contextmanager
def _interrupts(loop: asyncio.AbstractEventLoop, came: asyncio.Future[str]) -> Iterator[None]:
    """While it waits, Ctrl-C is about the question and not about the command."""

    def interrupt() -> None:
        if not came.done():
            came.set_exception(Left("cancel"))

    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except NotImplementedError:  # Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
