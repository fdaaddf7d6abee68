"""A clock that a test moves: sleeps, deadlines, lifetimes and retries end without waiting.

Moves the time of day of this process and the time of its event loop. Knows the event loop of asyncio, and
which of its work is done by threads of a store. It does not know why a task waits.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from antiphon import wall_clock
from antiphon.server import Server
from antiphon.store.contract import Phase, Record, Store, TaskFilter

__all__ = ["Clock"]

_MAX_STEPS = 50
"""How many timers of the event loop `advance` stops at, at most. It stops at the times of all tasks."""
_ROUNDING_SECONDS = 1e-6
"""A rest of the time that is a rounding error."""
_MAX_RECORDS = 1000
"""How many tasks of each phase `advance` looks at."""
_QUIET_TURNS = 4
"""How many turns of the event loop without any work mean that it has nothing to do."""
_SETTLE_SECONDS = 30.0
"""How long this process works before `settle` gives up: a process that gets no processor may take longer."""
_MAX_LOOKS = 1500
"""How often `settle` sees functions in threads asleep before it takes them for blocked, and goes on.

These are looks and not seconds, about a second in all, because a thread that gets no processor looks as
blocked as one that waits for ever. A look counts only if nothing else could go on.
"""
_HAND_OVER_SECONDS = 0.0002
"""How long the event loop lets threads work, while it waits for them."""
_READY = (b"R", b"D")
"""The states of threads that work or could, and of those that a disk keeps waiting."""


class Clock:
    """A clock that a test moves, inside `with Clock(server) as clock`.

    The time goes on as usual, and `advance` moves it ahead: tasks that sleep wake up, and deadlines,
    lifetimes and retries end. Pass the servers of the test, in memory or on SQLite. Leases, and code that
    asks Python itself for the time of day, go by the real time.

    Raises `RuntimeError` if another clock is in use, and `ValueError` for a server whose tasks are in
    PostgreSQL, which has a clock of its own.
    """

    def __init__(self, *servers: Server) -> None:
        self._servers = servers
        self._is_open = False
        self._blocked = 0  # how many functions in threads did not end although `settle` waited

    def __enter__(self) -> Self:
        if wall_clock.is_moved:
            raise RuntimeError("Another Clock is in use: use one at a time, and pass all servers to it.")
        for server in self._servers:
            _check_store(server)
        self._is_open = wall_clock.is_moved = True
        return self

    def __exit__(self, *error: object) -> None:
        # The event loop stays ahead: a timer that was set meanwhile would otherwise be late by as much.
        self._is_open = wall_clock.is_moved = False
        wall_clock.ahead = 0.0

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.fromtimestamp(wall_clock.now(), UTC)

    async def advance(self, duration: timedelta | float = 0.0, **length: float) -> None:
        """Move the time ahead, by a number of seconds, a `timedelta`, or its parts: `advance(days=1)`.

        Stops at each time at which a task wakes or ends, and lets the servers finish their work there.
        Raises `ValueError` for a negative or endless duration, and the errors of `settle`.
        """
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        seconds += timedelta(**length).total_seconds()
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"The time cannot move by {seconds:g} s: pass a finite duration of at least 0 seconds."
            )
        await self.settle()
        loop = self._running_loop()
        moved = _moved_time(loop)
        target, shortest = wall_clock.ahead + seconds, seconds / _MAX_STEPS
        while (left := target - wall_clock.ahead) > _ROUNDING_SECONDS:
            step = max(_until_timer(loop), shortest)
            if (due := await self._until_task()) is not None:
                step = min(step, due)
            step = min(step, left)
            wall_clock.ahead += step
            moved.ahead += step
            for server in self._servers:
                await server.engine.tasks.check_times()
            await self.settle()

    async def settle(self) -> None:
        """Wait until the servers have done all that they can do before more time passes.

        Raises `AssertionError` if their work takes more than 30 seconds of the processor's time, and
        `RuntimeError` in an event loop that is not the one of asyncio.
        """
        loop = self._running_loop()
        jobs = _moved_time(loop).jobs
        began, quiet, looks = time.process_time(), 0, 0
        while quiet < _QUIET_TURNS:
            await asyncio.sleep(0)
            functions = len(jobs) + sum(server.engine.threads.running for server in self._servers)
            self._blocked = functions if looks > _MAX_LOOKS else min(functions, self._blocked)
            pending = self._pending()
            if in_threads := pending > 0 or functions > self._blocked:
                _let_threads_work()
            quiet = 0 if in_threads or loop._ready else quiet + 1
            if in_threads and not (pending or loop._ready or _is_thread_ready()):
                looks += 1
            if time.process_time() - began > _SETTLE_SECONDS:
                raise AssertionError(
                    f"The servers are busy after {_SETTLE_SECONDS:g} s of work: "
                    "a function may poll without pause."
                )

    def _running_loop(self) -> Any:
        """Return the running event loop; raises `RuntimeError` if its time cannot be moved."""
        if not self._is_open:
            raise RuntimeError("The clock is not in use: write `with Clock(server) as clock`.")
        loop: Any = asyncio.get_running_loop()
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise RuntimeError(
                f"A Clock cannot move the time of an event loop of {type(loop).__module__}: "
                "use the event loop of asyncio in this test."
            )
        return loop

    async def _until_task(self) -> float | None:
        """Return the seconds until the next task wakes or is over; `None` for never."""
        now, times = int(wall_clock.now() * 1000), []
        for store in self._stores():
            for phase in ("waiting", "ready"):
                times += [
                    at - now for record in await _records(store, phase) for at in _times(record) if at > now
                ]
        return min(times) / 1000 if times else None

    def _stores(self) -> Iterator[Store]:
        for server in self._servers:
            if (store := server.engine.tasks.store) is not None:
                yield store

    def _pending(self) -> int:
        """Return how many operations the threads of stores have not done."""
        return sum(getattr(store, "pending", 0) for store in self._stores())


class _MovedTime:
    """The time of an event loop, which can be moved ahead, and the functions that it runs in threads."""

    def __init__(self, loop: asyncio.BaseEventLoop) -> None:
        self._time, self._run_in_executor = loop.time, loop.run_in_executor
        self.ahead = 0.0
        self.jobs: set[asyncio.Future[Any]] = set()

    def time(self) -> float:
        return self._time() + self.ahead

    def run_in_executor(self, *arguments: Any) -> asyncio.Future[Any]:
        job: asyncio.Future[Any] = self._run_in_executor(*arguments)
        self.jobs.add(job)
        job.add_done_callback(self.jobs.discard)
        return job


def _moved_time(loop: Any) -> _MovedTime:
    """Return the time of an event loop, after making it movable."""
    found = getattr(loop.time, "__self__", None)
    if isinstance(found, _MovedTime):
        return found
    moved = _MovedTime(loop)
    vars(loop).update(time=moved.time, run_in_executor=moved.run_in_executor)
    return moved


def _until_timer(loop: Any) -> float:
    """Return the seconds until the next timer of an event loop; 0 if there is none."""
    times = (timer.when() - loop.time() for timer in loop._scheduled if not timer.cancelled())
    return float(max(min(times, default=0.0), 0.0))


def _check_store(server: Server) -> None:
    store = server.store
    if (isinstance(store, str) and store.startswith("postgres")) or type(store).__name__ == "PostgresStore":
        raise ValueError(
            f"The clock cannot move the time of the server {server.name!r}, whose tasks are in PostgreSQL. "
            "Use a store in memory or on SQLite in this test."
        )


async def _records(store: Store, phase: Phase) -> list[Record]:
    """Return the tasks of a phase."""
    found: list[Record] = []
    cursor: str | None = None
    while True:
        page = await store.list(None, cursor=cursor, filter=TaskFilter(phase=phase))
        found += page.records
        cursor = page.cursor
        if cursor is None or len(found) >= _MAX_RECORDS:
            return found


def _times(record: Record) -> Iterator[int]:
    return (at for at in (record.wakes, record.expires) if at is not None)


def _let_threads_work() -> None:
    time.sleep(_HAND_OVER_SECONDS)


def _is_thread_ready() -> bool:
    """Return whether a thread could go on, if it had a processor. Only Linux tells: `False` elsewhere."""
    own = threading.get_native_id()
    return any(
        _state(thread.native_id) in _READY for thread in threading.enumerate() if thread.native_id != own
    )


def _state(thread: int | None) -> bytes:
    """Return the state of a thread: see proc_pid_stat(5)."""
    try:
        # Opening the file lets go of the interpreter: a thread that waited for it is ready in what is read.
        status = Path(f"/proc/self/task/{thread}/stat").read_bytes()
    except OSError:
        return b""
    return status.rpartition(b") ")[2][:1]
