"""A thread that runs the operations of an event loop in batches. It knows no SQL and no operation.

The loop hands operations to the thread together: once no new ones arrive, or after a few milliseconds. If
the thread started with the first operation, it would compete with the loop for the interpreter lock; fewer
and larger batches are faster for both. Operations that arrive while the thread is busy wait for its next
batch, and so do those that callers start when the last batch is done: otherwise the callers would fall apart
into two groups, with half of the batch each. A batch wakes the loop once, when all of its operations are
done.

A loop that is busy without pause can keep a thread waiting for the interpreter lock for seconds: the loop
releases the lock often, but takes it again before the thread has woken up. So when a batch takes too long,
the loop blocks for a moment, until the batch is done or the moment is over.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from antiphon.backoff import Backoff
from antiphon.errors import StoreUnavailable
from antiphon.store import unavailable

__all__ = ["BatchResult", "BatchThread", "OperationResult"]

Work = TypeVar("Work")

OperationResult: TypeAlias = tuple[Any, BaseException | None]
"""The result of one operation: a value, or an error."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The results of a batch, one for each operation in order, and the changes to notify watchers of."""

    results: Sequence[OperationResult]
    touched: Collection[str] = ()
    ready: bool = False


MAX_GATHER_SECONDS = 0.004
"""How long operations are gathered if new ones keep arriving: about the duration of a commit."""
_FIRST_STALL_SECONDS = 0.005
"""How long a batch may take before the loop first blocks for it. The time doubles after each block."""
_LONGEST_STALL_SECONDS = 0.04
"""The longest time between two blocks: the disk may be slow, and the loop has other work."""
_MAX_BLOCK_SECONDS = 0.002
"""How long the loop blocks at most: enough for the thread to get the interpreter lock."""


class BatchThread(Generic[Work]):
    """One thread and its queue of operations. Everything except `run` happens on the loop that created it.

    Calls `notify` with the changed tasks of each batch. Takes up to `max_batch` operations into a batch, and
    refuses operations while `max_queued` are queued. After `idle_turns` turns of the loop without a new
    operation, the gathered ones are handed over.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[list[Work]], BatchResult],
        *,
        notify: Callable[[Collection[str], bool], None] = lambda touched, ready: None,
        max_batch: int,
        max_queued: int,
        idle_turns: int = 2,
    ) -> None:
        self._run = run
        self._notify = notify
        self._max_batch = max_batch
        self._max_queued = max_queued
        self._max_idle_turns = idle_turns
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[Work, asyncio.Future[Any]]] = []
        self._queue: SimpleQueue[list[tuple[Work, asyncio.Future[Any]]] | None] = SimpleQueue()
        self._gathering_since = 0.0
        self._gathered_before = 0
        self._idle_turns = 0
        self._queued = 0
        self._is_checking = False
        self._waiting_since = 0.0
        self._stall = Backoff(_FIRST_STALL_SECONDS, _LONGEST_STALL_SECONDS)
        self._batch_done = threading.Event()
        self._closed = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """The number of operations that are not done yet."""
        return self._queued

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Queue an operation; raises `StoreUnavailable` if the queue is full or closed."""
        if self._closed:
            raise unavailable.closed()
        if self._queued >= self._max_queued:
            raise unavailable.overloaded(self._queued)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queued += 1
        self._gathered.append((work, future))
        if self._queued == 1:  # the thread is idle
            self._begin_gathering()
        return future

    async def close(self) -> None:
        """End the thread after all queued operations are done."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _begin_gathering(self) -> None:
        self._gathering_since, self._gathered_before, self._idle_turns = self._loop.time(), 0, 0
        self._loop.call_soon(self._gather)

    def _gather(self) -> None:
        """Hand the operations over once a turn of the loop brings no new ones."""
        has_grown = len(self._gathered) > self._gathered_before
        self._gathered_before = len(self._gathered)
        self._idle_turns = 0 if has_grown else self._idle_turns + 1
        elapsed = self._loop.time() - self._gathering_since
        if self._closed or self._idle_turns == self._max_idle_turns or elapsed >= MAX_GATHER_SECONDS:
            self._hand_over()
        else:
            self._loop.call_soon(self._gather)

    def _hand_over(self) -> None:
        if not self._gathered:
            return
        self._queue.put(self._gathered)
        self._gathered = []
        if not self._is_checking:
            self._is_checking, self._waiting_since = True, self._loop.time()
            self._loop.call_later(_FIRST_STALL_SECONDS, self._check_stall)

    def _check_stall(self) -> None:
        """Block the loop for a moment if no batch has ended for too long."""
        if not self._queued:
            self._is_checking = False
            return
        if self._loop.time() - self._waiting_since >= self._stall.delay:
            self._batch_done.clear()
            self._batch_done.wait(_MAX_BLOCK_SECONDS)
            self._waiting_since = self._loop.time()
            self._stall.next_delay()
        self._loop.call_later(_FIRST_STALL_SECONDS, self._check_stall)

    def _work(self) -> None:
        """Run batches until the queue is closed and empty. This is the thread's function."""
        pending: deque[tuple[Work, asyncio.Future[Any]]] = deque()
        is_open = True
        while is_open or pending:
            is_open = is_open and self._fill(pending)
            jobs = [pending.popleft() for _ in range(min(len(pending), self._max_batch))]
            wanted = [job for job in jobs if not job[1].cancelled()]
            if jobs:
                self._call(self._deliver, wanted, self._run_batch(wanted), len(jobs))
                self._batch_done.set()
        self._call(self._ended.set_result, None)

    def _run_batch(self, jobs: list[tuple[Work, asyncio.Future[Any]]]) -> BatchResult:
        try:
            return self._run([work for work, _ in jobs])
        except Exception as error:  # a defect of ours must not leave a caller waiting for ever
            failure = StoreUnavailable(
                f"The store failed because of a defect in Antiphon: {error!r}. Report this."
            )
            return BatchResult([(None, failure)] * len(jobs))

    def _fill(self, pending: deque[tuple[Work, asyncio.Future[Any]]]) -> bool:
        """Take all queued operations, waiting if there are none; return false if the queue was closed."""
        try:
            while True:
                jobs = self._queue.get_nowait() if pending else self._queue.get()
                if jobs is None:
                    return False
                pending.extend(jobs)
        except Empty:
            return True

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed, so no caller is waiting
            pass

    def _deliver(self, jobs: list[tuple[Work, asyncio.Future[Any]]], batch: BatchResult, count: int) -> None:
        self._queued -= count
        self._waiting_since = self._loop.time()
        self._stall.reset()
        if self._gathered and self._queued == len(self._gathered):  # the thread is idle
            self._begin_gathering()
        for (_, future), (value, error) in zip(jobs, batch.results, strict=True):
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        self._notify(batch.touched, batch.ready)
