"""Serves the segments of a task: as a stream, or as one page of the segments after a number.

Owns the order of messages on such a stream. All segments come from the task's log, so that every reader sees
the same segments under the same numbers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon.errors import TaskNotFound
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import StreamTask
from antiphon.model.segment import SegmentPage, Segments
from antiphon.model.task import Task, TaskChanged, TaskView, load_result
from antiphon.runtime.execution.call import Call
from antiphon.runtime.tasks.service import TaskService

__all__ = ["SegmentStreams"]

_CANCELLED_MESSAGE = "The task was cancelled."
_EXPIRED_MESSAGE = "The task expired before it ended."


class SegmentStreams:
    """Streams the segments of a server's tasks. `ask_caller` asks a task's questions on a connection."""

    def __init__(
        self, service: TaskService, ask_caller: Callable[[Call[Any], Task], Awaitable[None]]
    ) -> None:
        self._service = service
        self._ask_caller = ask_caller

    async def follow(self, call: Call[StreamTask]) -> TaskView:
        """Send segments and changes as they come, and return the task when it has ended."""
        call.work.deadline = float("inf")
        id, shown = call.request.task_id, None
        async for update in self._service.stream(id, call.principal, call.request.after):
            if isinstance(update, Segments):
                await call.caller.notify(update)
                continue
            task = update
            if not task.has_ended:
                if task.visible_state != shown and (shown is not None or task.state == "waiting"):
                    await call.caller.notify(TaskChanged(task))
                shown = task.visible_state
        rest = _content_after_segments(task, call.request.after)
        if rest.blocks:
            await call.caller.notify(rest)
        return TaskView(await self._service.with_content(task))

    async def stream(self, call: Call[Any], id: str, after: int, task: Task | None = None) -> SegmentPage:
        """Send segments as they come, and return the last page.

        `task` is a task that this request created; the first message carries it. A caller that can answer on
        the connection is asked the task's questions; for any other caller, the stream ends with them.
        """
        call.work.deadline = float("inf")
        last = after
        try:
            async for update in self._service.stream(id, call.principal, after):
                if isinstance(update, Segments):
                    await call.caller.notify(msgspec.structs.replace(update, task=task))
                    last, task = update.first + len(update.blocks) - 1, None
                elif update.has_ended:
                    ended = update
                elif update.state == "waiting" and call.carrier.returns_questions:
                    stopped = InputRequired(update.open_questions)
                    task = None if task is None else update
                    return SegmentPage(last + 1, (), id, is_complete=False, stopped=stopped, task=task)
                elif task is not None:  # no segments yet: tell the caller the id of its task
                    await call.caller.notify(Segments(last + 1, (), id, task))
                    task = None
                if isinstance(update, Task) and update.state == "waiting" and call.caller.can_ask:
                    await self._ask_caller(call, update)
        except TaskNotFound:
            if last == after and task is None:
                raise
            return SegmentPage(last + 1, (), id, is_complete=True, is_error=True, message=_EXPIRED_MESSAGE)
        return _last_page(ended, last, task)

    async def page(self, call: Call[Any], id: str, after: int) -> SegmentPage:
        """Return the segments after a number that are in the log now, and the questions of a task that waits.

        A caller that has all segments, and can answer on the connection, is asked the questions first.
        """
        task, blocks = await self._service.segments(id, call.principal, after)
        if task.state == "waiting" and not blocks and call.caller.can_ask:
            await self._ask_caller(call, task)
            task, blocks = await self._service.segments(id, call.principal, after)
        if not task.has_ended:
            stopped = None
            if task.state == "waiting" and call.carrier.returns_questions:
                stopped = InputRequired(task.open_questions)
            return SegmentPage(after + 1, blocks, id, is_complete=False, stopped=stopped)
        end = _last_page(task, after + len(blocks), None)
        return msgspec.structs.replace(end, first=after + 1, blocks=(*blocks, *end.blocks))


def _content_after_segments(task: Task, after: int) -> Segments:
    """Return the content of a task's result that follows its segments, starting after a number."""
    content = () if task.result is None else task.result["content"]
    first = max(task.segments, after) + 1
    return Segments(first, content[first - 1 - task.segments :], task.id)


def _last_page(task: Task, last: int, created: Task | None) -> SegmentPage:
    """Return the last page of a task that has ended, for a caller that has its segments up to `last`."""
    rest = _content_after_segments(task, last)
    end: Result | None = None
    message: str | None = None
    if task.result is not None:
        end = load_result(task.result)
    else:
        message = (task.message or _CANCELLED_MESSAGE) if task.fault is None else task.fault.message
    return SegmentPage(
        rest.first,
        rest.blocks,
        task.id,
        is_complete=True,
        is_error=task.failed or end is None,
        end=end,
        # The fields of a last page do not say that a task was cancelled, so the task itself says so.
        task=task if created is not None or task.state == "cancelled" else None,
        message=message,
    )
