"""A thread that does an event loop's work in batches. It knows no SQL, and not what the work is.

What is asked for while the loop is busy goes to the thread together: when the loop has nothing more to
ask for, or after a few milliseconds. Otherwise the thread would begin with the first few, and fight with
the loop over the interpreter; with fewer and larger batches both get through with less. While the thread
is busy, more comes together; it takes all of it as its next batch. A batch wakes the loop once, when all
of it is done.

A loop that is busy without pause can keep a thread from the interpreter for seconds: it lets go of the
interpreter's lock often, but takes it again before the thread has woken up. So when a batch takes longer
than it should, the loop stands still for a moment, until the batch is done or the moment is over.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from antiphon.errors import StoreUnavailable

__all__ = ["Done", "Lane", "Outcome"]

Work = TypeVar("Work")

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What came of one piece of work: a value, or an error."""


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a batch: an outcome for each piece, in order, and what watchers should hear of."""

    outcomes: Sequence[Outcome]
    touched: Collection[str] = ()
    ready: bool = False


_GATHERED = 0.004
"""Seconds after which work is handed over even if there comes more in every turn of the loop."""
_QUIET = 2
"""Turns of the loop without new work after which the work there is is handed over."""
_PATIENCE = 0.005
"""Seconds that a batch may take before the loop first stands still for it; twice as many each time after."""
_MOST_PATIENCE = 0.04
"""Seconds between two such moments, at most: the disk may be slow, and the loop has other work."""
_MOMENT = 0.002
"""Seconds that the loop stands still, at most."""


class Lane(Generic[Work]):
    """One thread, and what waits for it. Everything but `run` happens on the loop it was made on."""

    def __init__(
        self,
        name: str,
        run: Callable[[list[Work]], Done],
        *,
        told: Callable[[Collection[str], bool], None] = lambda touched, ready: None,
        batch: int,
        bound: int,
    ) -> None:
        self._run = run
        self._told = told
        self._batch = batch
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._fresh: list[tuple[Work, asyncio.Future[Any]]] = []
        self._queue: SimpleQueue[list[tuple[Work, asyncio.Future[Any]]] | None] = SimpleQueue()
        self._begun = 0.0
        self._gathered = 0
        self._quiet = 0
        self._waiting = 0
        self._watched = False
        self._since = 0.0
        self._patience = _PATIENCE
        self._batch_done = threading.Event()
        self._closed = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> asyncio.Future[Any]:
        """Have some work done; raises `StoreUnavailable` if too much waits already."""
        if self._closed:
            raise StoreUnavailable("The store is closed: open it again, or do not use it any more.")
        if self._waiting >= self._bound:
            raise StoreUnavailable(
                f"The store is behind: {self._waiting} operations wait for it. Try again, or ask less of it."
            )
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting += 1
        if not self._fresh:
            self._begun, self._gathered, self._quiet = self._loop.time(), 0, 0
            self._loop.call_soon(self._gather)
        self._fresh.append((work, future))
        return future

    async def close(self) -> None:
        """End the thread, after everything that was asked for is done."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _gather(self) -> None:
        """Hand over what is asked for, once it does not get more from turn to turn."""
        grown, self._gathered = len(self._fresh) > self._gathered, len(self._fresh)
        self._quiet = 0 if grown else self._quiet + 1
        if self._closed or self._quiet == _QUIET or self._loop.time() - self._begun >= _GATHERED:
            self._hand_over()
        else:
            self._loop.call_soon(self._gather)

    def _hand_over(self) -> None:
        if not self._fresh:
            return
        self._queue.put(self._fresh)
        self._fresh = []
        if not self._watched:
            self._watched, self._since = True, self._loop.time()
            self._loop.call_later(_PATIENCE, self._look_after)

    def _look_after(self) -> None:
        """Stand still for a moment if nothing has been delivered for too long."""
        if not self._waiting:
            self._watched = False
            return
        if self._loop.time() - self._since >= self._patience:
            self._batch_done.clear()
            self._batch_done.wait(_MOMENT)
            self._since = self._loop.time()
            self._patience = min(self._patience * 2, _MOST_PATIENCE)
        self._loop.call_later(_PATIENCE, self._look_after)

    def _work(self) -> None:
        """The thread's life."""
        pending: deque[tuple[Work, asyncio.Future[Any]]] = deque()
        more = True
        while more or pending:
            more = more and self._take(pending)
            jobs = [pending.popleft() for _ in range(min(len(pending), self._batch))]
            wanted = [job for job in jobs if not job[1].cancelled()]
            if jobs:
                self._call(self._deliver, wanted, self._do(wanted), len(jobs))
                self._batch_done.set()
        self._call(self._ended.set_result, None)

    def _do(self, jobs: list[tuple[Work, asyncio.Future[Any]]]) -> Done:
        try:
            return self._run([work for work, _ in jobs])
        except Exception as error:  # nobody may wait for ever because of a defect of ours
            return Done([(None, StoreUnavailable(f"The store failed: {error!r}. Report this."))] * len(jobs))

    def _take(self, pending: deque[tuple[Work, asyncio.Future[Any]]]) -> bool:
        """Take all that waits, and wait if nothing does; false once nothing more will come."""
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
        except RuntimeError:  # the loop is closed: nobody is left to be told
            pass

    def _deliver(self, jobs: list[tuple[Work, asyncio.Future[Any]]], done: Done, count: int) -> None:
        self._waiting -= count
        self._since, self._patience = self._loop.time(), _PATIENCE
        for (_, future), (value, error) in zip(jobs, done.outcomes, strict=True):
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        self._told(done.touched, done.ready)
