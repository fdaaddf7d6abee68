"""Decides how many tasks a worker claims, and of which tools.

Owns the room of one worker: how many tasks may run at once, in all, of each principal, and of each tool. It
must not know how a claimed task runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from antiphon.errors import StoreError
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.limits import Limits
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.claims import give_back
from antiphon.runtime.tasks.lease_thread import RunningTask
from antiphon.store.contract import Claim, Store, Watch

__all__ = ["Capacity"]

_CLAIM_BATCH_TASKS = 50
"""How many tasks are claimed in one operation."""
_REQUEUE_DELAY_SECONDS = 0.25
"""How long a task cannot be claimed after it was given back, because too many tasks of its principal run."""


class _Group(NamedTuple):
    """Tools whose tasks are claimed in one operation."""

    tools: Collection[str]
    room: int | None
    """How many more of their tasks may run; `None` for no limit of their own."""


class Capacity:
    """The room of one worker. `running` has the tasks that it runs, by id."""

    def __init__(
        self, limits: Limits, find_tool: Callable[[str], Tool], running: Mapping[str, RunningTask]
    ) -> None:
        self._max_running = limits.max_running_tasks
        self._max_of_principal = limits.max_running_tasks_per_principal
        self._find_tool = find_tool
        self._running = running
        self._run_ended = asyncio.Event()
        self._reserved = 0  # tasks that are being created and will run here
        self._claiming = 0  # tasks that a claim may return, or has returned and that do not run yet
        self._has_queue = False  # whether tasks may wait for this worker
        self._has_queued = False  # whether a task was sent to the queue since the last claim began
        self._batch = _CLAIM_BATCH_TASKS  # how many tasks the next claim may claim
        self._has_excess = False  # whether the last claim gave back tasks
        self._first_group = 0
        self._is_full = False  # whether the last claim left out tasks because too many run

    @property
    def room(self) -> int:
        """How many more tasks may run."""
        room = self._max_running - len(self._running) - self._reserved - self._claiming
        return room if room > 0 else room + len(self._running) - sum(1 for _ in self._active())

    def _active(self) -> Iterator[ClaimedTask]:
        """Yield the tasks whose functions run. `Limits.max_held_runs` bounds those that wait here."""
        running = (claimed for claimed, _ in self._running.values())
        return (claimed for claimed in running if claimed.held is None and not claimed.is_ending)

    def reserve(self, principal_id: str) -> bool:
        """Reserve room for a new task; return false if the task has to wait in the queue.

        While other tasks wait, so does a new one: otherwise a caller who creates many would overtake them. So
        does every task of a principal whose tasks have to be counted.
        """
        if self._max_of_principal is not None and principal_id:
            return False
        if self._has_queue or self.room <= 0:
            self._has_queue = self._has_queued = True
            return False
        self._reserved += 1
        return True

    def unreserve(self) -> None:
        """Give back room that was reserved, because the task runs or could not be created."""
        self._reserved -= 1

    def note_end(self) -> None:
        """Note that a run has ended."""
        self._run_ended.set()

    async def wait_for_tasks(self, ready: Watch, timeout: float) -> None:
        """Wait until a task becomes ready, or a run ends that left no room for others."""
        if not self._is_full:
            await ready.wait(timeout)
            return
        if self._has_excess:
            timeout = min(timeout, _REQUEUE_DELAY_SECONDS)
        waits = asyncio.create_task(ready.wait(timeout)), asyncio.create_task(self._run_ended.wait())
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @contextlib.asynccontextmanager
    async def claim(
        self, store: Store, tools: Collection[str], *, worker: str, lease: float, server: str | None
    ) -> AsyncIterator[Sequence[Claim]]:
        """Claim as many tasks of these tools as may run, but not too many at once.

        Within the context, the tasks have their room, and `reserve` does not give it to others. Raises
        `StoreError`, but not once a task is claimed, because that task must run.
        """
        room = min(self.room, self._batch)
        self._claiming = max(room, 0)
        try:
            yield await self._claim(store, tools, room, worker=worker, lease=lease, server=server)
        finally:
            self._claiming = 0

    async def _claim(
        self,
        store: Store,
        tools: Collection[str],
        room: int,
        *,
        worker: str,
        lease: float,
        server: str | None,
    ) -> Sequence[Claim]:
        self._run_ended.clear()
        self._is_full, self._has_queued = room <= 0, False
        claims: list[Claim] = []
        for group in self._groups(tools) if room > 0 else ():
            limit = room - len(claims) if group.room is None else min(room - len(claims), group.room)
            if limit <= 0:
                break
            try:
                claims += await store.claim(
                    worker, lease=lease, limit=limit, tools=group.tools, server=server
                )
            except StoreError:
                if not claims:
                    raise
                break
        if room > 0:
            self._has_queue, self._claiming = self._has_queued or len(claims) >= room, len(claims)
        if self._max_of_principal is None:
            return claims
        return await self._give_back_excess(store, claims, self._max_of_principal)

    async def _give_back_excess(self, store: Store, claims: Sequence[Claim], most: int) -> Sequence[Claim]:
        """Return the claims of principals that may run more tasks, and give back the others."""
        running = Counter(claimed.owner.id for claimed in self._active())
        kept: list[Claim] = []
        excess: list[Claim] = []
        for claim in claims:
            principal_id = claim.record.principal
            running[principal_id] += 1
            (excess if principal_id and running[principal_id] > most else kept).append(claim)
        # They go to the end of their queues: at the front, more and more of them would delay the others.
        await asyncio.gather(
            *(give_back(store, claim, delay=_REQUEUE_DELAY_SECONDS, requeue=True) for claim in excess)
        )
        self._has_excess = bool(excess)
        self._is_full = self._is_full or self._has_excess
        # The next claim is smaller, because it may get tasks of the same principals. Later ones grow again.
        self._batch = max(len(kept), 1) if excess else min(2 * self._batch, _CLAIM_BATCH_TASKS)
        return kept

    def _groups(self, tools: Collection[str]) -> Sequence[_Group]:
        """Return the tools without a limit as one group, and each tool with a limit and with room by itself.

        Another group comes first each time, so that each of them gets its part of the room.
        """
        limits = {name: limit for name in tools if (limit := self._find_tool(name).max_running) is not None}
        unlimited = [name for name in tools if name not in limits] if limits else tools
        groups = [_Group(unlimited, None)] if unlimited else []
        for name, limit in limits.items():
            running = sum(claimed.task.tool == name for claimed in self._active())
            if running < limit:
                groups.append(_Group((name,), limit - running))
            else:
                self._is_full = True
        self._first_group += 1
        start = self._first_group % len(groups) if groups else 0
        return groups[start:] + groups[:start]
