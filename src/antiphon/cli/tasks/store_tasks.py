"""Tasks on a store, as its operator sees them: everyone's, with their logs.

What is written goes through the rules that servers write by, in the name of whoever the task belongs to.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from antiphon.cli.call.questions import Asker
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.tasks.questions import Questions
from antiphon.cli.tasks.report import Shown
from antiphon.errors import StoreUnavailable, TaskEnded, TaskNotFound
from antiphon.model.identity import Principal
from antiphon.model.question import Question
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks.claimed_task import task_of
from antiphon.runtime.tasks.service import TaskService
from antiphon.runtime.tasks.worker import Worker
from antiphon.store import open_store
from antiphon.store.contract import Entry, Record

__all__ = ["Operator"]

_PAGE = 100


class Operator:
    """The operator of a store; enter it to open the store."""

    def __init__(self, url: str) -> None:
        try:
            self._store = open_store(url)
        except ValueError as error:
            raise CommandError(str(error)) from None
        if url.startswith("memory:"):
            raise CommandError(
                "Tasks in the memory of a server can be seen by that server alone: use its URL."
            )
        path = Path(url.partition(":///")[2])
        if url.startswith("sqlite:") and not path.exists():
            raise CommandError(f"There is no store at {path}.")
        self._relay = Relay("")

    async def __aenter__(self) -> Operator:
        try:
            await self._store.open()
        except StoreUnavailable as error:
            raise CommandError(f"The store cannot be opened: {error}", UNREACHABLE) from None
        limits = Limits()
        # It never runs anything: the rules of writing want to tell it that a task has stopped.
        await self._relay.open(self._store)
        worker = Worker(self._store, limits, _none, _none, claims=False)
        self._promises = TaskService(self._store, worker, limits, self._relay)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._relay.close()
        await self._store.close()

    async def list(self, limit: int) -> Sequence[Shown]:
        """Everyone's tasks."""
        found: list[Shown] = []
        cursor: str | None = None
        while len(found) < limit:
            page = await self._store.list(None, cursor=cursor, limit=min(limit - len(found), _PAGE))
            found += map(Shown.kept, page.records)
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def show(self, id: str) -> tuple[Shown, Sequence[Entry] | None]:
        """A task with its whole log."""
        record = await self._record(id)
        log: list[Entry] = []
        while more := await self._store.read(id, after=len(log)):
            log += more
        return await self._whole(record), log

    async def follow(self, id: str) -> AsyncIterator[Shown]:
        """A task, and then each change that can be seen."""
        record = await self._record(id)
        before: Any = None
        async for _ in self._promises.follow(id, Principal(record.principal)):
            task = await self._whole(await self._record(id))
            seen = (task.status, task.message, tuple(task.questions))
            if seen != before:
                before = seen
                yield task

    async def answer(self, id: str, asker: Asker, key: str | None) -> Sequence[str]:
        """Answer what a task asks, in the name of its principal."""
        record = await self._record(id)
        task = Shown.kept(record)
        if not task.questions:
            raise CommandError(f"The task {id} asks nothing: it is {task.status}.")
        asker.server = task.tool or asker.server
        questions: dict[str, Question] = dict(task.questions)
        responses = await Questions(asker).answer(questions, key)
        await self._promises.answer(id, Principal(record.principal), responses)
        return list(responses)

    async def cancel(self, id: str) -> str:
        """Cancel a task, in the name of its principal; how it stands then."""
        record = await self._record(id)
        with contextlib.suppress(TaskEnded):
            await self._promises.cancel(id, Principal(record.principal))
        return Shown.kept(await self._record(id)).status

    async def expire(self) -> int:
        """Forget the tasks whose time is over; how many there were."""
        count = 0
        while gone := await self._store.expire():
            count += len(gone)
        return count

    async def _whole(self, record: Record) -> Shown:
        return Shown.kept(record, await self._promises.whole(task_of(record)))

    async def _record(self, id: str) -> Record:
        record = await self._store.get(id)
        if record is None:
            raise TaskNotFound(f"There is no task {id} on this store, or no more.")
        return record


def _none(*_: Any) -> Any:
    raise NotImplementedError
