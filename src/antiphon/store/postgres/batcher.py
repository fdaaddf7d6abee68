"""Groups operations into batches. Belongs to one event loop, and does not know what the operations do.

The operations of one turn of the loop form a batch. While the allowed number of batches is running, further
operations are queued; together they form the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from antiphon.errors import StoreUnavailable
from antiphon.store import unavailable

__all__ = ["Batcher", "Job"]

Operation = TypeVar("Operation")


class Job(Generic[Operation]):
    """An operation, and the future of the caller that waits for it."""

    __slots__ = ("future", "operation")

    def __init__(self, operation: Operation, future: asyncio.Future[Any]) -> None:
        self.operation = operation
        self.future = future

    def succeed(self, value: Any) -> None:
        """Give the caller a result, unless the caller was cancelled."""
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Raise an error in the caller, unless the caller was cancelled."""
        if not self.future.done():
            self.future.set_exception(error)


class Batcher(Generic[Operation]):
    """A queue of operations and the batches that are running.

    `run` ends every job of a batch, or raises an error for all of them. A batch has up to `max_batch` jobs,
    and up to `max_running` batches run at a time. Two operations with a common key in `conflict_keys` never
    share a batch. While `max_queued` operations are queued, further ones are refused.
    """

    def __init__(
        self,
        run: Callable[[list[Job[Operation]]], Awaitable[None]],
        *,
        max_batch: int,
        max_queued: int,
        max_running: int = 1,
        conflict_keys: Callable[[Operation], tuple[str, ...]] = lambda operation: (),
    ) -> None:
        self._run = run
        self._max_batch = max_batch
        self._max_queued = max_queued
        self._max_running = max_running
        self._conflict_keys = conflict_keys
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Job[Operation]] = deque()
        self.running: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._closed = False

    def submit(self, operation: Operation) -> asyncio.Future[Any]:
        """Queue an operation; raises `StoreUnavailable` if the queue is full or closed."""
        if self._closed:
            raise unavailable.closed()
        if len(self._queue) >= self._max_queued:
            raise unavailable.overloaded(len(self._queue))
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.append(Job(operation, future))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start_batches)
        return future

    async def close(self) -> None:
        """Refuse new operations, and wait until all queued ones are done."""
        self._closed = True
        self._start_batches()
        while self.running:
            await asyncio.wait(set(self.running))

    def _start_batches(self) -> None:
        self._is_scheduled = False
        while self._queue and len(self.running) < self._max_running:
            jobs = self._next_batch()
            if not jobs:
                continue
            task = self._loop.create_task(self._run_batch(jobs))
            self.running.add(task)
            task.add_done_callback(self._batch_ended)

    def _next_batch(self) -> list[Job[Operation]]:
        """Take the next batch from the queue. Operations that conflict with an earlier one stay queued."""
        jobs: list[Job[Operation]] = []
        postponed: list[Job[Operation]] = []
        taken: set[str] = set()
        while self._queue and len(jobs) < self._max_batch and len(postponed) < self._max_batch:
            job = self._queue.popleft()
            if job.future.cancelled():
                continue
            keys = self._conflict_keys(job.operation)
            if taken.isdisjoint(keys):
                jobs.append(job)
            else:
                postponed.append(job)
            taken.update(keys)
        self._queue.extendleft(reversed(postponed))
        return jobs

    def _batch_ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self._start_batches()

    async def _run_batch(self, jobs: list[Job[Operation]]) -> None:
        try:
            await self._run(jobs)
        except asyncio.CancelledError:
            for job in jobs:
                job.fail(StoreUnavailable("The store was stopped during the operation: open it again."))
            raise
        except Exception as error:  # a defect of ours must not leave a caller waiting for ever
            for job in jobs:
                job.fail(error)
