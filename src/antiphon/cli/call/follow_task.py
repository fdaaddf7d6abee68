"""`antiphon call --task`: prints the ID of a task, then waits for its result, or prints its stream.

On a terminal, one line shows the status of the task and is rewritten in place.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import Target
from antiphon.errors import AntiphonError, RequestError, TaskCancelled, TaskLost
from antiphon.model.notification import Progress
from antiphon.model.outcome import Result
from antiphon.model.task import TaskProgress
from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.client import Stream, TaskHandle

__all__ = [
    "GIVE_UP_SECONDS",
    "TaskFollower",
    "current_status",
    "print_question_hint",
    "print_task_hint",
    "raise_if_failed",
]

REDRAW_SECONDS = 0.5
GIVE_UP_SECONDS = 2.0
"""How long a command that ends tries to find out about its task, or to cancel it."""
LOST = "lost"
"""The status of a task that the server does not know. It is not a status of MCP."""
MAX_LINE_CHARACTERS = 100
_CLEAR_LINE = "\r\x1b[2K"


async def current_status(handle: TaskHandle, error: BaseException) -> str | None:
    """Return the status of a task, for a command that `error` ends; `None` if the server does not respond.

    If the server does not know the task, the status is `LOST`.
    """
    if isinstance(error, TaskLost):
        return LOST
    try:
        async with asyncio.timeout(GIVE_UP_SECONDS):
            return (await handle.status()).status
    except TaskLost:
        return LOST
    except (AntiphonError, TimeoutError):
        return None


def raise_if_failed(status: str | None, error: BaseException) -> None:
    """Raise `CommandError` for the error that a task has ended with. Other errors concern the connection."""
    if status == "failed" and isinstance(error, RequestError):
        raise CommandError(f"The task failed: {error.message} (code {error.code})", FAILED) from None


def print_question_hint(target: Target, handle: TaskHandle) -> None:
    """Print how to answer a task whose question the user has left open."""
    print(f"The question is still open. To answer it: {_command('answer', target, handle)}", file=sys.stderr)


def _command(action: str, target: Target, handle: TaskHandle) -> str:
    """Return a command that a user can copy into a shell, whatever the server calls its tasks."""
    words = ("antiphon", "tasks", action, target.name, printable(handle.id or ""))
    return " ".join(map(shlex.quote, words))


def print_task_hint(target: Target, handle: TaskHandle, says: str) -> None:
    """Print what became of a task that may be running, and how to follow it."""
    print(f"{says} To follow it: {_command('watch', target, handle)}", file=sys.stderr)


class TaskFollower:
    """Follows one task to its end. The status line is hidden while the user answers a question."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.has_line = sys.stderr.isatty()
        """Whether there is a terminal, so that the status line is shown."""
        self._open_questions = 0
        self._started = time.monotonic()
        self._status = "working"

    def hidden_during(self, ask: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """Wrap a callback so that the status line is hidden while the callback runs."""

        async def ask_without_line(question: Any) -> Any:
            self._open_questions += 1
            self._clear()
            try:
                return await ask(question)
            finally:
                self._open_questions -= 1

        return ask_without_line

    def progress(self, progress: Progress) -> None:
        """Show progress in the status line."""
        text = TaskProgress(progress.progress, progress.total, progress.message).text
        self._status = f"working: {text}"
        self._draw()

    async def wait_for_result(self, handle: TaskHandle) -> Result:
        """Return the result of the task. Raises `CommandError` if the task is cancelled."""
        if handle.id is None:  # the server has responded with a result, not with a task
            return await handle.result(check=False)
        print(f"Task: {printable(handle.id)}", file=sys.stderr, flush=True)
        drawing = [asyncio.create_task(self._follow_status(handle)), asyncio.create_task(self._redraw())]
        try:
            async with self._explaining(handle):
                return await handle.result(timeout=self._target.limit, check=False)
        finally:
            for task in drawing:
                task.cancel()
            await asyncio.gather(*drawing, return_exceptions=True)
            self._clear()

    async def wait_for_stream(
        self, handle: TaskHandle, read: Callable[[Stream], Awaitable[Result]]
    ) -> Result:
        """Let `read` read the stream of the task, and return its result. There is no status line.

        Raises `CommandError` if the task is cancelled.
        """
        if handle.id is not None:
            print(f"Task: {printable(handle.id)}", file=sys.stderr, flush=True)
        async with self._explaining(handle):
            return await read(handle.stream(timeout=self._target.limit, check=False))

    @asynccontextmanager
    async def _explaining(self, handle: TaskHandle) -> AsyncIterator[None]:
        """Raise `CommandError` for the end of a task. If the command ends first, print how to go on."""
        try:
            yield
        except TaskCancelled as error:
            raise CommandError(str(error), FAILED) from None
        except BaseException as error:
            self._clear()
            status = await current_status(handle, error)
            raise_if_failed(status, error)
            if self._target.is_remote:
                self._print_hint(handle, status)
            raise

    def _print_hint(self, handle: TaskHandle, status: str | None) -> None:
        """Print how to go on with a task that has not ended, as far as is known."""
        if status == "input_required":
            print_question_hint(self._target, handle)
        elif status == "working":
            print_task_hint(self._target, handle, "The task is still running.")
        elif status is None:
            print_task_hint(self._target, handle, "The task may still be running.")

    async def _follow_status(self, handle: TaskHandle) -> None:
        if self.has_line:
            async for status in handle.updates():
                self._status = f"{status.status}{f': {status.message}' if status.message else ''}"
                self._draw()

    async def _redraw(self) -> None:
        """Keep the elapsed seconds up to date."""
        while self.has_line:
            self._draw()
            await asyncio.sleep(REDRAW_SECONDS)

    def _draw(self) -> None:
        if not self._open_questions:
            seconds = int(time.monotonic() - self._started)
            line = printable(f"{seconds} s, {self._status}")
            print(f"{_CLEAR_LINE}{line[:MAX_LINE_CHARACTERS]}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self.has_line:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)
