"""`antiphon call --task`: the id at once, then a line on the terminal that says how the task stands."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from antiphon.cli import render
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import Target
from antiphon.errors import TaskCancelled
from antiphon.model.outcome import Result

if TYPE_CHECKING:
    from antiphon.client import TaskHandle

__all__ = ["Following"]

_EVERY = 0.5
_WIDTH = 100


class Following:
    """Follows one task. The line is rewritten in place, and is gone when there is something else to read."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._shows = sys.stderr.isatty()
        self._hidden = 0
        self._began = time.monotonic()
        self._text = "working"

    def aside(self, ask: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """The same, with the line out of the way while it asks."""

        async def asking(question: Any) -> Any:
            self._hidden += 1
            self._clear()
            try:
                return await ask(question)
            finally:
                self._hidden -= 1

        return asking

    async def result(self, handle: TaskHandle) -> Result:
        """What the task gives; raises `CommandError` where it was cancelled."""
        if handle.id is None:
            return await handle.result(check=False)
        print(f"Task: {render.clean(handle.id)}", file=sys.stderr, flush=True)
        lines = [asyncio.create_task(self._listen(handle)), asyncio.create_task(self._draw())]
        try:
            return await handle.result(check=False)
        except TaskCancelled as error:
            raise CommandError(str(error), FAILED) from None
        except BaseException:
            self._clear()
            if isinstance(self._target.place, str):
                hint = f"antiphon tasks watch {self._target.place} {render.clean(handle.id)}"
                print(f"The task goes on without you: {hint}", file=sys.stderr)
            raise
        finally:
            for line in lines:
                line.cancel()
            await asyncio.gather(*lines, return_exceptions=True)
            self._clear()

    async def _listen(self, handle: TaskHandle) -> None:
        if self._shows:
            async for status in handle.updates():
                self._text = f"{status.status}{f': {status.message}' if status.message else ''}"
                self._write()

    async def _draw(self) -> None:
        while self._shows:
            self._write()
            await asyncio.sleep(_EVERY)

    def _write(self) -> None:
        if not self._hidden:
            spent = int(time.monotonic() - self._began)
            text = render.clean(f"{spent} s, {self._text}").replace("\n", " ")[:_WIDTH]
            print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shows:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
