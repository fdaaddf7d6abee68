"""All tasks of a store, with their logs, as the operator of the store sees them.

Answers and cancellations follow the same rules as on a server, and are made as the principal of the task.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.tasks.questions import answer_questions
from antiphon.cli.tasks.report import TaskView
from antiphon.errors import InvalidParams, StoreUnavailable, TaskEnded, TaskNotFound
from antiphon.model.identity import Principal
from antiphon.model.question import Question
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks.claimed_task import task_of
from antiphon.runtime.tasks.expiry import end_overdue
from antiphon.runtime.tasks.service import TaskService
from antiphon.runtime.tasks.worker import Worker
from antiphon.store import open_store
from antiphon.store.contract import Entry, Record

__all__ = ["StoreTasks"]

PAGE_SIZE = 100


class StoreTasks:
    """The tasks of a store. Enter it to open the store."""

    target = None

    def __init__(self, url: str) -> None:
        try:
            self._store = open_store(url)
        except ValueError as error:
            raise CommandError(str(error)) from None
        if url.startswith("memory:"):
            raise CommandError(
                "Tasks in the memory of a server are visible to that server only. Use the server's URL."
            )
        path = Path(url.partition(":///")[2])
        if url.startswith("sqlite:") and not path.exists():
            raise CommandError(f"There is no store at {path}.")
        self._relay = Relay("")

    async def __aenter__(self) -> StoreTasks:
        try:
            await self._store.open()
        except StoreUnavailable as error:
            raise CommandError(f"Cannot open the store: {error}", UNREACHABLE) from None
        limits = Limits()
        await self._relay.open(self._store)
        # The service notifies its worker when a task stops. This worker claims no tasks.
        worker = Worker(self._store, limits, _unused, Environment(ThreadExecutor(1)), claims=False)
        self._service = TaskService(self._store, worker, limits, self._relay)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._relay.close()
        await self._store.close()

    async def list(self, limit: int, *, failed: bool = False) -> Sequence[TaskView]:
        """Return the tasks of all principals, newest first; with `failed`, only those that have failed."""
        found: list[TaskView] = []
        cursor: str | None = None
        while len(found) < limit:
            wanted = PAGE_SIZE if failed else min(limit - len(found), PAGE_SIZE)
            page = await self._store.list(None, cursor=cursor, limit=wanted)
            tasks = map(TaskView.from_record, page.records)
            found += [task for task in tasks if task.has_failed or not failed]
            cursor = page.cursor
            if cursor is None:
                break
        return found[:limit]

    async def show(self, id: str) -> tuple[TaskView, Sequence[Entry]]:
        """Return a task and its whole log."""
        record = await self._record(id)
        log: list[Entry] = []
        while more := await self._store.read(id, after=len(log)):
            log += more
        return await self._view(record), log

    async def follow(self, id: str) -> AsyncIterator[TaskView]:
        """Yield a task, then each visible change until the task ends."""
        record = await self._record(id)
        before: Any = None
        async for _ in self._service.follow(id, Principal(record.principal)):
            task = await self._view(await self._record(id))
            visible = (task.status, task.message, tuple(task.questions))
            if visible != before:
                before = visible
                yield task

    async def answer(self, id: str, handler: ElicitationHandler, key: str | None) -> Sequence[str]:
        """Answer the open questions of a task as its principal. Return their keys."""
        record = await self._record(id)
        task = TaskView.from_record(record)
        if not task.questions:
            raise CommandError(f"Task {id} has no open question: its status is {task.status}.")
        handler.server_name = task.tool or handler.server_name
        questions: dict[str, Question] = dict(task.questions)
        responses = await answer_questions(handler, questions, key)
        await self._service.answer(id, Principal(record.principal), responses)
        return list(responses)

    async def cancel(self, id: str) -> str:
        """Cancel a task as its principal. Return its status afterwards."""
        record = await self._record(id)
        with contextlib.suppress(TaskEnded):
            await self._service.cancel(id, Principal(record.principal))
        return TaskView.from_record(await self._record(id)).status

    async def retry(self, id: str) -> str:
        """Queue a failed task again. Return its status afterwards."""
        record = await self._record(id)
        try:
            await self._service.retry(id, Principal(record.principal))
        except InvalidParams as error:
            raise CommandError(f"{error} Its status is {TaskView.from_record(record).status}.") from None
        return TaskView.from_record(await self._record(id)).status

    async def remove_expired(self) -> int:
        """Remove the expired tasks. Return how many there were.

        A task that waits for an answer is cancelled first, and stays until a worker has unwound its function.
        """
        await end_overdue(self._store, lambda _: None)
        count = 0
        while removed := await self._store.expire():
            count += len(removed)
        return count

    async def _view(self, record: Record) -> TaskView:
        """Return a task with its whole result: the log holds a streamed result as segments."""
        return TaskView.from_record(record, await self._service.with_content(task_of(record)))

    async def _record(self, id: str) -> Record:
        record = await self._store.get(id)
        if record is None:
            raise TaskNotFound(f"There is no task {id} in this store. It may have expired.")
        return record


def _unused(*_: Any) -> Any:
    raise NotImplementedError
