"""Reads lines from the user's terminal while the event loop keeps running.

Prompts and messages go to standard error, so that standard output holds nothing but the result. The
terminal stays in its line mode: the terminal itself lets the user edit a line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Literal

from antiphon.printable import printable, printable_text

__all__ = ["NoAnswer", "Terminal"]

READ_BYTES = 4096


class NoAnswer(Exception):
    """The user does not answer a question. `action` says whether the user declined or cancelled it."""

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        super().__init__(action)
        self.action = action


class Terminal:
    """The terminal of the user."""

    def __init__(self) -> None:
        self._buffer = b""

    @staticmethod
    def is_interactive() -> bool:
        """Return whether the user can read prompts and type answers."""
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()

    def show(self, text: str, style: str = "") -> None:
        """Print a text of one or more lines. Control characters are removed."""
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True).print(Text(printable_text(text), style=style), soft_wrap=True)

    async def read_line(self, prompt: str) -> str:
        """Return the line that the user types. Raises `NoAnswer` on Ctrl-D.

        Ctrl-C is not an answer: it ends the command, as at any other time.
        """
        try:
            return await self._read(printable(prompt))
        except NoAnswer:
            self._buffer = b""
            print(file=sys.stderr)
            raise
        except asyncio.CancelledError:
            print(file=sys.stderr)
            raise

    async def _read(self, prompt: str) -> str:
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str] = loop.create_future()
        print(prompt, end="", file=sys.stderr, flush=True)
        try:
            loop.add_reader(0, self._on_input, line)
        except NotImplementedError:  # Windows
            typed: str = await asyncio.to_thread(sys.stdin.readline)
            if not typed:
                raise NoAnswer("decline") from None
            return typed.rstrip("\r\n")
        try:
            return await line
        finally:
            loop.remove_reader(0)

    def _on_input(self, line: asyncio.Future[str]) -> None:
        if line.done():
            return
        try:
            data = os.read(0, READ_BYTES)
        except OSError:  # the terminal was closed
            line.set_exception(NoAnswer("cancel"))
            return
        self._buffer += data
        if b"\n" in self._buffer:
            typed, _, self._buffer = self._buffer.partition(b"\n")
            line.set_result(typed.decode(errors="replace").rstrip("\r"))
        elif not data:
            line.set_exception(NoAnswer("decline"))
