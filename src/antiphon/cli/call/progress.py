"""What a call says of itself while it goes on: a bar on a terminal, a line for each step in a pipe.

Everything goes to the standard error. Owns the bar, which is out of the way while something is asked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from antiphon.cli import render
from antiphon.model.notification import Log, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["Meter"]


class Meter:
    """Shows how far one call has come. With `live` false, or without a terminal, it prints lines."""

    def __init__(self, *, live: bool = True) -> None:
        self._live = live and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._bar: Bar | None = None
        self._asking = 0

    def progress(self, progress: Progress) -> None:
        """A step further."""
        message = render.clean(progress.message or "").replace("\n", " ")
        if not self._live:
            print(f"[{_counted(progress)}] {message}".rstrip(), file=sys.stderr, flush=True)
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task("", total=None)
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=progress.progress, total=progress.total, description=message)
        self._bar.update(task, counted=_counted(progress))
        if not self._asking:
            self._bar.start()

    def log(self, log: Log) -> None:
        """A message of the server's, above the bar."""
        text = log.data if isinstance(log.data, str) else render.compact(log.data)
        line = render.clean(f"{log.level}: {text}")
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def aside(self, ask: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """The same, with the bar out of the way while it asks."""

        async def asking(question: Any) -> Any:
            self._asking += 1
            self.close()
            try:
                return await ask(question)
            finally:
                self._asking -= 1

        return asking

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        BarColumn(),
        TextColumn("{task.fields[counted]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _counted(progress: Progress) -> str:
    of = f"/{_number(progress.total)}" if progress.total is not None else ""
    return f"{_number(progress.progress)}{of}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"
