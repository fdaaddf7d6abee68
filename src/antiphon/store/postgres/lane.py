"""Work that comes together, done together. Belongs to one event loop, and does not know what the work is.

What is asked for in one turn of the loop makes a batch. While as many batches as may be are under way,
more comes together; all of it is the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from antiphon.errors import StoreUnavailable

__all__ = ["Job", "Lane"]

Work = TypeVar("Work")


class Job(Generic[Work]):
    """Some work, and who waits for it."""

    __slots__ = ("future", "work")

    def __init__(self, work: Work, future: asyncio.Future[Any]) -> None:
        self.work = work
        self.future = future

    def done(self, value: Any) -> None:
        """It was done."""
        if not self.future.done():
            self.future.set_result(value)

    def failed(self, error: BaseException) -> None:
        """It was refused, or could not be done."""
        if not self.future.done():
            self.future.set_exception(error)


class Lane(Generic[Work]):
    """What waits, and the batches under way. `run` ends each job of a batch, or raises for all of them.

    No two jobs of a batch have one of their `subjects` in common.
    """

    def __init__(
        self,
        run: Callable[[list[Job[Work]]], Awaitable[None]],
        *,
        batch: int,
        bound: int,
        width: int = 1,
        subjects: Callable[[Work], tuple[str, ...]] = lambda work: (),
    ) -> None:
        self._run = run
        self._batch = batch
        self._bound = bound
        self._width = width
        self._subjects = subjects
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Job[Work]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._soon = False
        self._closed = False

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Have some work done; raises `StoreUnavailable` if too much waits already."""
        if self._closed:
            raise StoreUnavailable("The store is closed: open it again, or do not use it any more.")
        if len(self._waiting) >= self._bound:
            raise StoreUnavailable(
                f"The store is behind: {len(self._waiting)} operations wait. Try again, or ask less of it."
            )
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(Job(work, future))
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._begin)
        return future

    async def close(self) -> None:
        """End, after everything that was asked for is done."""
        self._closed = True
        self._begin()
        while self._under_way:
            await asyncio.wait(set(self._under_way))

    def _begin(self) -> None:
        self._soon = False
        while self._waiting and len(self._under_way) < self._width:
            jobs = self._pick()
            if not jobs:
                continue
            task = self._loop.create_task(self._do(jobs))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _pick(self) -> list[Job[Work]]:
        """The next batch. Of those that are about the same, the second waits for the batch after it."""
        jobs: list[Job[Work]] = []
        later: list[Job[Work]] = []
        taken: set[str] = set()
        while self._waiting and len(jobs) < self._batch and len(later) < self._batch:
            job = self._waiting.popleft()
            if job.future.cancelled():
                continue
            subjects = self._subjects(job.work)
            if taken.isdisjoint(subjects):
                jobs.append(job)
            else:
                later.append(job)
            taken.update(subjects)
        self._waiting.extendleft(reversed(later))
        return jobs

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._begin()

    async def _do(self, jobs: list[Job[Work]]) -> None:
        try:
            await self._run(jobs)
        except asyncio.CancelledError:
            for job in jobs:
                job.failed(StoreUnavailable("The store was stopped: open it again."))
            raise
        except Exception as error:  # nobody may wait for ever, a defect of ours or not
            for job in jobs:
                job.failed(error)
