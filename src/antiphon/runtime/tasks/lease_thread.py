"""Renews leases from a thread, so that a tool that blocks the event loop does not lose the tasks beside it.

Owns the thread and its connection to the store. It also watches the event loop, and names the tool that
blocks it. It must not know what tasks do; the worker decides what happens to a task whose lease was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from antiphon.errors import StoreError
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.clocks import lease_clock
from antiphon.store.contract import LeaseKeeper

__all__ = ["LeaseThread", "Outages", "RunningTask", "extend_leases"]

logger = logging.getLogger("antiphon")

RunningTask: TypeAlias = tuple[ClaimedTask, asyncio.Task[None]]
"""A claimed task, and the asyncio task that runs it."""

_TICK_SECONDS = 0.25
"""How often the thread looks whether the event loop turns, while tasks run."""
_BLOCKED_WARNING_SECONDS = 1.0
"""How long the event loop may be blocked before a warning names the tool."""
_MAX_BLOCKED_SECONDS = 600.0
"""How long leases are renewed while the event loop is blocked: after that, other workers take the tasks."""
_BUSY_SHARE = 0.5
"""The share of a time in which a process that is not stopped works at least, if the thread gets no turn."""
_JOIN_SECONDS = 5.0
"""How long closing waits for a renewal that is under way."""
_LIBRARY_FOLDERS = tuple(
    f"{folder}{os.sep}" for folder in (Path(os.__file__).parent, Path(__file__).parents[2])
)
"""The folders of Python and of this library: a warning names the author's line, which is in neither."""


class Outages:
    """Knows when this process could not renew its leases although it lived.

    The store was away, or the process was stopped and goes on. A function that holds the interpreter so that
    the thread cannot renew is no outage: the process works meanwhile.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last = -math.inf
        self._turned_at = math.inf  # when the thread had its last turn
        self._worked = 0.0  # how long the process had worked by then
        self._asked_at = math.inf  # when the thread asked the store that has not answered yet

    def note_turn(self) -> None:
        """Note that the thread turns."""
        if self._was_stopped():
            self._last = lease_clock()
        self._turned_at, self._worked = lease_clock(), time.process_time()

    def _was_stopped(self) -> bool:
        """Return whether the thread did not turn for long, and nothing else in the process worked."""
        missed, worked = lease_clock() - self._turned_at, time.process_time() - self._worked
        return missed >= self._interval and worked < missed * _BUSY_SHARE

    def rest(self) -> None:
        """Note that the thread does not turn until it has work."""
        self._turned_at = math.inf

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Note an outage if the store fails to renew leases, or takes long to do so."""
        self._asked_at = since = lease_clock()
        try:
            yield
            if lease_clock() - since >= self._interval:
                self._last = lease_clock()
        except StoreError:
            self._last = lease_clock()
            raise
        finally:
            self._asked_at = math.inf

    def explain(self, claimed: ClaimedTask) -> bool:
        """Return whether there was an outage since the lease of a task was renewed last."""
        if self._last >= claimed.renewed_at or self._was_stopped():
            return True
        return lease_clock() - self._asked_at >= self._interval  # the store has not answered yet


class LeaseThread:
    """Renews the leases of running tasks every `interval` seconds, if the store has a `keeper` for it.

    `running` returns the tasks that run now. `on_lost` is called in the event loop with the tasks whose
    leases were lost. Create it in the event loop.
    """

    def __init__(
        self,
        keeper: LeaseKeeper | None,
        *,
        lease: float,
        interval: float,
        running: Callable[[], Sequence[RunningTask]],
        on_lost: Callable[[Sequence[RunningTask]], None],
        outages: Outages,
    ) -> None:
        self._outages = outages
        self._keeper = keeper
        self._lease = lease
        self._interval = interval
        self._running = running
        self._on_lost = on_lost
        self._tick = min(_TICK_SECONDS, interval / 2)
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._has_work = threading.Event()
        self._closing = threading.Event()
        self._pinged = False
        self._missed_ticks = 0
        self._is_failing = False
        self._renew_at = 0.0
        self._thread = threading.Thread(target=self._work, name="antiphon-leases", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Start to watch and to renew: a task runs again after a time without any."""
        self._has_work.set()

    async def close(self) -> None:
        """End the thread, and close its connection to the store."""
        self._closing.set()
        self._has_work.set()
        await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    # Everything below runs in the thread, except `_answer`

    def _work(self) -> None:
        try:
            while not (self._closing.is_set() or self._loop.is_closed()):
                try:
                    self._work_once()
                except Exception:
                    if not self._loop.is_closed():
                        logger.exception("Unexpected error in the thread that renews leases; continuing.")
                        self._closing.wait(self._tick)
        finally:
            if self._keeper is not None:
                self._keeper.close()

    def _work_once(self) -> None:
        """Watch the event loop and, if it is time, renew the leases; without tasks, wait for one."""
        self._has_work.clear()  # before looking, so that no task is overlooked
        running = () if self._closing.is_set() else self._running()
        if not running:
            self._missed_ticks = 0
            self._outages.rest()
            self._renew_at = lease_clock() + self._interval
            if not self._closing.is_set():
                self._has_work.wait()
            return
        self._outages.note_turn()
        self._watch_loop(running)
        if self._keeper is not None and lease_clock() >= self._renew_at:
            self._renew_at = lease_clock() + self._interval
            self._renew(self._keeper, running)
        self._closing.wait(self._tick)

    def _renew(self, keeper: LeaseKeeper, running: Sequence[RunningTask]) -> None:
        """Renew the leases, unless the event loop has been blocked for so long that nobody may rely on it."""
        if self._missed_ticks * self._tick > _MAX_BLOCKED_SECONDS:
            return
        claims = [claimed.claim for claimed, _ in running if claimed.keeps_lease]
        since = lease_clock()
        try:
            with self._outages.watch():
                held = keeper.renew(claims, lease=self._lease) if claims else set[str]()
        except StoreError as error:
            if not self._is_failing:
                logger.warning("Cannot renew the leases of %d tasks; trying again: %s", len(claims), error)
            self._is_failing = True
            self._renew_at = lease_clock() + self._tick
            return
        self._is_failing = False
        if lost := extend_leases(running, held, since):
            self._loop.call_soon_threadsafe(self._on_lost, lost)

    def _watch_loop(self, running: Sequence[RunningTask]) -> None:
        """Ask the event loop for a sign, and warn once if it gives none for a while."""
        if not self._pinged:
            self._pinged, self._missed_ticks = True, 0
            self._loop.call_soon_threadsafe(self._answer)
            return
        # Ticks and not seconds: after the whole process was stopped, the loop deserves its time.
        self._missed_ticks += 1
        if self._missed_ticks == round(_BLOCKED_WARNING_SECONDS / self._tick):
            logger.warning(
                "The event loop has been blocked for %g s by %s, at %s. Everything else in this process "
                "waits. Call blocking code in a function that is not async, or with asyncio.to_thread.",
                _BLOCKED_WARNING_SECONDS,
                self._blocker(running),
                _describe(sys._current_frames().get(self._loop_thread)),
            )

    def _answer(self) -> None:
        """Show that the event loop turns. Runs in the event loop."""
        self._pinged = False

    def _blocker(self, running: Sequence[RunningTask]) -> str:
        """Return which task the event loop is running, if it is one of ours."""
        current = asyncio.current_task(self._loop)
        for claimed, task in running:
            if task is current:
                return f"the tool {claimed.task.tool!r} in task {claimed.task.id}"
        return "code outside of tasks"


def extend_leases(
    running: Sequence[RunningTask], held: Collection[str], since: float
) -> Sequence[RunningTask]:
    """Extend the leases that were renewed by a request sent at `since`; return the runs that lost theirs."""
    for claimed, _ in running:
        if claimed.task.id in held:
            claimed.extend(since)
    return [found for found in running if found[0].stopped is not None or found[0].task.id not in held]


def _describe(frame: FrameType | None) -> str:
    """Return the innermost line of the author's code, or the innermost line if there is none."""
    found = frame
    while found is not None and found.f_code.co_filename.startswith(_LIBRARY_FOLDERS):
        found = found.f_back
    found = frame if found is None else found
    if found is None:
        return "an unknown line"
    return f"{found.f_code.co_filename}:{found.f_lineno} in {found.f_code.co_name}"
