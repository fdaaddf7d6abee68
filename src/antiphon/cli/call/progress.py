"""Shows the progress and the log messages of a running call.

On a terminal this is a progress bar with the messages above it; in a pipe, one line for each message.
Everything goes to standard error. Owns the bar and hides it while the user answers a question.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from antiphon.cli import render
from antiphon.model.notification import Log, Progress
from antiphon.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress as ProgressBar

__all__ = ["ProgressDisplay"]


class ProgressDisplay:
    """Shows the progress of one call. With `live=False`, or without a terminal, it prints lines."""

    def __init__(self, *, live: bool = True) -> None:
        self._live = live and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._bar: ProgressBar | None = None
        self._open_questions = 0

    def progress(self, progress: Progress) -> None:
        """Show a progress notification."""
        message = printable(progress.message or "")
        if not self._live:
            print(f"[{_count(progress)}] {message}".rstrip(), file=sys.stderr, flush=True)
            return
        if self._bar is None:
            self._bar = _create_bar()
            self._bar.add_task("", total=None)
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=progress.progress, total=progress.total, description=message)
        self._bar.update(task, count=_count(progress))
        if not self._open_questions:
            self._bar.start()

    def log(self, log: Log) -> None:
        """Show a log message of the server, above the bar."""
        text = log.data if isinstance(log.data, str) else render.compact(log.data)
        line = printable(f"{log.level}: {text}")
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def hidden_during(self, ask: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """Wrap a callback so that the bar is hidden while the callback runs."""

        async def ask_without_bar(question: Any) -> Any:
            self._open_questions += 1
            self.close()
            try:
                return await ask(question)
            finally:
                self._open_questions -= 1

        return ask_without_bar

    def close(self) -> None:
        """Remove the bar from the screen."""
        if self._bar is not None:
            self._bar.stop()


def _create_bar() -> ProgressBar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _count(progress: Progress) -> str:
    total = f"/{_number(progress.total)}" if progress.total is not None else ""
    return f"{_number(progress.progress)}{total}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"
