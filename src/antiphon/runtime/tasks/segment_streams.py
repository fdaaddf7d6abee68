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
from antiphon.model.task import Task, TaskChanged, TaskView, load_questions, load_result
from antiphon.runtime.execution.call import Call
from antiphon.runtime.tasks.service import TaskService

__all__ = ["SegmentStreams"]


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
                    stopped = InputRequired(load_questions(update.questions))
                    return SegmentPage(last + 1, (), id, is_complete=False, stopped=stopped, task=task)
                elif task is not None:  # no segments yet: tell the caller the id of its task
                    await call.caller.notify(Segments(last + 1, (), id, task))
                    task = None
                if isinstance(update, Task) and update.state == "waiting" and call.caller.can_ask:
                    await self._ask_caller(call, update)
        except TaskNotFound:
            if last == after and task is None:
                raise
            # The task expired before it ended.
            return SegmentPage(last + 1, (), id, is_complete=True, is_error=True)
        return _last_page(ended, last, task)

    async def page(self, call: Call[Any], id: str, after: int) -> SegmentPage:
        """Return the segments after a number that are in the log now."""
        task, blocks = await self._service.segments(id, call.principal, after)
        if not task.has_ended:
            return SegmentPage(after + 1, blocks, id, is_complete=False)
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
    if task.result is not None:
        end = load_result(task.result)
    elif task.fault is not None and not task.segments:
        end = Result(task.fault.message, is_error=True)
    return SegmentPage(
        rest.first,
        rest.blocks,
        task.id,
        is_complete=True,
        is_error=task.failed or task.fault is not None,
        end=end,
        task=None if created is None else task,
    )
