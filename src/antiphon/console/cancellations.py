"""Cancels many tasks at once, after a person has confirmed their number.

Owns the jobs of this process. A job works in batches, goes on if the page is closed, and keeps which tasks it
could not cancel. It cancels as the principal of each task, by the same rules as a caller.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from antiphon.console.routes import ConsoleUser, Problem
from antiphon.console.sources import StoreSource
from antiphon.console.task_queries import STATUSES, TaskQuery, may_see, principal_of, visible_part
from antiphon.console.task_rows import task_or_none
from antiphon.errors import AntiphonError, RequestError, TaskEnded, TaskNotFound
from antiphon.model.identity import Principal
from antiphon.store.contract import Record, TaskFilter

__all__ = ["MAX_TASKS", "Cancellations"]

logger = logging.getLogger("antiphon")

MAX_TASKS = 10_000
"""How many tasks one job cancels at most."""
MAX_SELECTED = 200
"""How many tasks a person can select by hand."""
TYPED_TASKS = 10
"""From how many tasks on a person types their number to confirm it."""
BATCH_TASKS = 50
"""How many tasks are cancelled together."""
MAX_OWN_TASKS = 200
"""How many of their own tasks people cancel at once who are not operators. Each one is checked."""
_PAGE_TASKS = 200
_MAX_OWN_PAGES = 5
"""How many pages are searched for tasks that a person may see."""
_MAX_JOBS = 20
"""How many jobs are kept, including those that have ended."""
_MAX_PROBLEMS = 50
"""How many tasks that could not be cancelled a job names."""
_NOT_ENDED = ("ready", "waiting")


class Job:
    """The cancellation of some tasks."""

    def __init__(self, owner: str, ids: Sequence[str]) -> None:
        self.id = secrets.token_hex(8)
        self.owner = owner
        self.ids = ids
        self.cancelled = 0
        self.ended_before = 0
        self.not_cancelled = 0
        self.problems: dict[str, str] = {}
        self.is_done = False
        self.changed = asyncio.Event()

    @property
    def progress(self) -> dict[str, Any]:
        """How far the job is."""
        total, words = len(self.ids), f"{self.cancelled:,} of {_tasks(len(self.ids))} cancelled."
        if self.ended_before:
            words = f"{words} {_tasks(self.ended_before)} had ended before."
        if self.not_cancelled:
            named = "; ".join(f"{id}: {message}" for id, message in self.problems.items())
            words = f"{words} {_tasks(self.not_cancelled)} could not be cancelled: {named}"
        return {
            "total": total,
            "finished": self.cancelled + self.ended_before + self.not_cancelled,
            "words": words,
            "isDone": self.is_done,
        }

    def note(self) -> None:
        """Wake those who follow the job."""
        self.changed.set()
        self.changed = asyncio.Event()


class Cancellations:
    """The jobs of this process, newest last."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop the jobs that have not ended."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def count(
        self, source: StoreSource, query: TaskQuery, user: ConsoleUser, selected: int = 0
    ) -> dict[str, Any]:
        """Return how many tasks of a filter have not ended, and the time before which they were created.

        Returns the words of the page too. `selected` is the number of tasks that the person has selected.
        """
        before = int(time.time() * 1000) + 1
        most = _most(user)
        count = selected or await _count(source, query, user, before)
        more = "More tasks may match: these are the oldest. " if count == most and not selected else ""
        return {
            "count": count,
            "before": before,
            "action": f"Cancel {_tasks(count)}",
            "text": f"{more}They stop. What they have done stays done.",
            "isTyped": count >= TYPED_TASKS,
        }

    async def start(
        self, source: StoreSource, query: TaskQuery, user: ConsoleUser, *, count: int, before: int
    ) -> dict[str, Any]:
        """Begin to cancel the tasks of a filter that were created before a time, the oldest first.

        Raises `Problem` if there are more of them than the person confirmed. There may be fewer: some may
        have ended meanwhile.
        """
        ids = await _find(source, query, user, before, max(min(count + 1, _most(user)), 1))
        if len(ids) > count:
            raise Problem(
                409,
                "More tasks match the filter than you confirmed. Look at the list again, and confirm the "
                "new number.",
            )
        return self._start(source, user, ids)

    async def start_selected(
        self, source: StoreSource, user: ConsoleUser, ids: Sequence[str], count: int
    ) -> dict[str, Any]:
        """Begin to cancel the tasks that a person selected; raises `Problem`."""
        ids = list(dict.fromkeys(ids))
        if len(ids) != count:
            raise Problem(409, f"You confirmed {count} tasks, and selected {len(ids)}.")
        if len(ids) > MAX_SELECTED:
            raise Problem(400, f"Select at most {MAX_SELECTED} tasks, or use a filter.")
        return self._start(source, user, ids)

    async def follow(self, id: str, user: ConsoleUser) -> AsyncIterator[tuple[str, Any]]:
        """Yield the progress of a job until it is done; raises `Problem` for the job of somebody else."""
        job = self._jobs.get(id)
        if job is None or job.owner != user.name:
            raise Problem(404, "This cancellation is not known here.")
        while True:
            changed = job.changed
            yield "progress", job.progress
            if job.is_done:
                return
            await changed.wait()

    def _start(self, source: StoreSource, user: ConsoleUser, ids: Sequence[str]) -> dict[str, Any]:
        if len(self._running) >= _MAX_JOBS:
            raise Problem(429, "Too many cancellations run at the same time. Wait until one has ended.")
        job = Job(user.name, ids)
        self._jobs[job.id] = job
        ended = [each.id for each in self._jobs.values() if each.is_done]
        for old in ended[: max(len(self._jobs) - _MAX_JOBS, 0)]:
            del self._jobs[old]
        logger.info("%s cancels %d tasks of the store %s.", user.name, len(ids), source.name)
        task = asyncio.create_task(self._run(job, source, user))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return {"job": job.id, "total": len(ids)}

    async def _run(self, job: Job, source: StoreSource, user: ConsoleUser) -> None:
        try:
            for at in range(0, len(job.ids), BATCH_TASKS):
                batch = job.ids[at : at + BATCH_TASKS]
                await asyncio.gather(*(_cancel(job, source, id, user) for id in batch))
                job.note()
        finally:
            job.is_done = True
            job.note()


def _most(user: ConsoleUser) -> int:
    """Return how many tasks of a filter a person cancels at once."""
    return MAX_TASKS if user.may_operate else MAX_OWN_TASKS


async def _count(source: StoreSource, query: TaskQuery, user: ConsoleUser, before: int) -> int:
    """Return how many tasks of a filter have not ended. Reads at most a page, however many there are.

    If there are more than a page, the number is the store's. It contains the tasks that are stopping, and
    tasks that are created at this moment: a filter without a time is one whose tasks the store has counted.
    """
    if user.may_operate:
        counts = [
            await source.store.count_listed(
                principal_of(query, user), server=source.server, filter=filter, most=MAX_TASKS
            )
            for filter in _not_ended(query, query.filter(before, ""))
        ]
        if (total := sum(each.tasks for each in counts)) > _PAGE_TASKS:
            return min(total, MAX_TASKS)
    return len(await _find(source, query, user, before, _PAGE_TASKS))


async def _find(
    source: StoreSource, query: TaskQuery, user: ConsoleUser, before: int, most: int
) -> list[str]:
    """Return the ids of up to `most` tasks of a filter that have not ended, the oldest first."""
    filter = query.filter(before, "")
    created_before = before if filter.created_before is None else min(before, filter.created_before)
    found: list[str] = []
    for each in _not_ended(query, msgspec.structs.replace(filter, created_before=created_before)):
        found += await _list_ids(source, each, query, user, most - len(found))
    return found


def _not_ended(query: TaskQuery, filter: TaskFilter) -> list[TaskFilter]:
    """Return the filters of the store for the tasks of a filter that have not ended."""
    return [
        msgspec.structs.replace(filter, phase=phase)
        for phase in _NOT_ENDED
        if not query.status or STATUSES[query.status].get("phase") == phase
    ]


async def _list_ids(
    source: StoreSource, filter: TaskFilter, query: TaskQuery, user: ConsoleUser, most: int
) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    principal, pages = principal_of(query, user), 0
    while len(found) < most and principal != "" and (user.may_operate or pages < _MAX_OWN_PAGES):
        page = await source.store.list(
            principal,
            cursor=cursor,
            limit=_PAGE_TASKS,
            server=source.server,
            filter=filter,
            oldest_first=True,
        )
        cursor, pages = page.cursor, pages + 1
        page = await visible_part(source, user, page)
        found += [record.id for record in page.records if not _has_ended(record)]
        if cursor is None:
            break
    return found[:most]


def _tasks(count: int) -> str:
    return f"{count:,} task{'' if count == 1 else 's'}"


def _has_ended(record: Record) -> bool:
    """Return whether a task has ended for its caller. A worker may still unwind its function."""
    task = task_or_none(record)
    return task is not None and task.has_ended


async def _cancel(job: Job, source: StoreSource, id: str, user: ConsoleUser) -> None:
    """Cancel one task, and note what came of it."""
    try:
        record = await source.store.get(id)
        if record is None or not await may_see(source, user, record):
            raise TaskNotFound("The task does not exist any more.")
        await source.service.cancel(id, Principal(record.principal))
        job.cancelled += 1
    except (TaskEnded, TaskNotFound):
        job.ended_before += 1
    except Exception as error:
        if not isinstance(error, AntiphonError):
            logger.error("Cannot cancel task %s.", id, exc_info=error)
        job.not_cancelled += 1
        if len(job.problems) < _MAX_PROBLEMS:
            job.problems[id] = error.message if isinstance(error, RequestError) else str(error)
