"""Decides whether a new task is accepted, from the number of tasks that wait, and from the bytes of all logs.

Owns the counts, which are estimates: the store counts at intervals, and before a task is refused. In between,
each process adds the tasks that it creates, from the moment at which it accepts them. So one process never
exceeds a limit of tasks, and several processes together exceed one by the tasks that they create between two
counts. Bytes may exceed their limit by what running tasks write within a second.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from antiphon.errors import Busy
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.budget import share_of
from antiphon.runtime.limits import Limits
from antiphon.store.contract import Phase, Record, Store

__all__ = ["Admission"]

_RETRY_AFTER_SECONDS = 10
"""When a caller should try again after its task was refused because too many tasks wait."""
_COUNT_INTERVAL_TASKS = 100
"""How many tasks a process creates at most before it knows again how many wait in the store."""
_COUNT_EARLY_TASKS = 50
"""How many tasks a process creates before it asks the store again how many wait."""
COUNT_BYTES_SECONDS = 1.0
"""How old a count of bytes may be: tasks that run write too, and other processes do."""
_NEAR_PART = 0.875
"""From which part of a limit of bytes on the store is asked each time."""
_RETRY_BYTES_AFTER_SECONDS = 60
"""When a caller should try again after its task was refused because the logs are too large."""
_GROWTH_PART = 0.25
"""The part of a limit of bytes by which tasks may exceed it, to go on when no new one is accepted."""
_PHASES: tuple[tuple[Phase, str], ...] = (("ready", "a worker"), ("waiting", "an answer, a time or an event"))


class _Estimate:
    """A number of tasks, or of bytes: the last count of the store, and what was accepted since.

    `message` is what a caller reads whose task is refused, with places for the number and for the limit. With
    a `total` that includes these tasks, they need not be counted before the total reaches their limit.
    """

    __slots__ = (
        "_count",
        "_counted",
        "_counted_at",
        "_counting",
        "_created",
        "_since",
        "_total",
        "is_bytes",
        "message",
        "most",
        "pending",
    )

    def __init__(
        self,
        most: int,
        message: str,
        count: Callable[[], Awaitable[int]],
        *,
        total: _Estimate | None = None,
        is_bytes: bool = False,
    ) -> None:
        self.most = most
        self.message = message
        self.is_bytes = is_bytes
        self.pending = 0
        """What was accepted and is not in the store yet."""
        self._count = count
        self._total = total
        self._counted: int | None = None
        self._counted_at = 0.0
        self._counting = False
        """Whether the store is counting."""
        self._created = 0  # what this process has created in all
        self._since = 0  # how much of it when the last count began

    @property
    def number(self) -> int:
        """The number, or more: a task that was created during a count may count twice."""
        return (self._counted or 0) + self._created - self._since + self.pending

    def amount(self, size: int) -> int:
        """Return by how much a task with so many bytes makes the number larger."""
        return size if self.is_bytes else 1

    def is_clear(self, size: int) -> bool:
        """Return whether one more task is possible for sure, by a recent count."""
        return not (self._is_due or self._is_near(size)) and self.number + self.amount(size) <= self.most

    def is_full(self, size: int, *, extra: int = 0) -> bool:
        """Return whether one more task exceeds the limit and `extra`, as far as is known without a count."""
        return self.number + self.amount(size) > self.most + extra and self._matters(size)

    def is_old(self, size: int) -> bool:
        """Return whether the store has to count, because others may have created tasks or written to logs."""
        return (self._is_due or self._is_near(size)) and self._matters(size)

    @property
    def _is_due(self) -> bool:
        """Whether the store has not counted yet, or so long ago that it has to again.

        It is asked early, for one task that waits for the count: the others go on with the last one.
        """
        if self._counted is None:
            return True
        if self.is_bytes:
            age = time.monotonic() - self._counted_at
            return age >= (2 * COUNT_BYTES_SECONDS if self._counting else COUNT_BYTES_SECONDS)
        since = self._created - self._since
        return since >= (_COUNT_INTERVAL_TASKS if self._counting else _COUNT_EARLY_TASKS)

    def _is_near(self, size: int) -> bool:
        return self.is_bytes and self.number + size > self.most * _NEAR_PART

    def _matters(self, size: int) -> bool:
        return self._total is None or self._total.number + self.amount(size) > self.most

    async def count_again(self) -> None:
        """Ask the store. Of several counts at once, the one that began last decides."""
        since, at, self._counting = self._created, time.monotonic(), True
        try:
            found = await self._count()
        finally:
            self._counting = False
        if self._counted is None or at >= self._counted_at:
            self._counted, self._since, self._counted_at = found, since, at

    def finish(self, size: int, *, created: bool) -> None:
        """Note that a task that was accepted is in the store, or that it could not be created."""
        self.pending -= self.amount(size)
        if created:
            self.add(size)

    def add(self, size: int) -> None:
        """Count what the next count of the store will include."""
        self._created += self.amount(size)


class Admission:
    """Counts the tasks that wait and the bytes of logs, and refuses further ones.

    `server` is the name of the tasks' server. A caller with a share (see `Principal.share`) uses its part of
    each limit at most.
    """

    def __init__(self, store: Store, limits: Limits, *, server: str | None = None) -> None:
        self._store = store
        self._server = server
        most: dict[Phase, int] = {"ready": limits.max_queued_tasks, "waiting": limits.max_waiting_tasks}
        self._shares = {phase: share_of(number, limits.principal_share) for phase, number in most.items()}
        if limits.max_queued_tasks_per_principal is not None:
            self._shares["ready"] = limits.max_queued_tasks_per_principal
        self._most_bytes = share_of(limits.max_stored_task_bytes, limits.principal_share)
        self._totals = {
            phase: _Estimate(
                most[phase],
                f"Too many tasks wait for {awaited}, {{}} of at most {{}}: try again later.",
                self._total_counter(phase, most[phase]),
            )
            for phase, awaited in _PHASES
        }
        self._bytes = _Estimate(
            limits.max_stored_task_bytes,
            "The tasks of this server take {} of at most {} bytes in its store, and this needs {} more: try "
            "again when some have expired. The operator can raise `Limits.max_stored_task_bytes`.",
            lambda: store.stored_bytes(server=server),
            is_bytes=True,
        )
        self._of_all = (*self._totals.values(), self._bytes)
        self._by_share: dict[str, tuple[_Estimate, ...]] = {}
        self._by_tool: dict[str, _Estimate] = {}

    async def reserve(self, record: Record, tool: Tool | None, size: int) -> tuple[_Estimate, ...]:
        """Accept a task whose log begins with so many bytes, and return the estimates that count it.

        Call `finish` when it is in the store. Raises `Busy` if too many tasks wait, in all, of a caller with
        a share, or of the tool, or if their logs take too many bytes. Without a tool, its number is not
        limited: this process may not have it.
        """
        share, is_stranger = _sharer_of(record)
        has_limit = tool is not None and tool.max_queued is not None
        if not share and not has_limit and all(one.is_clear(size) for one in self._of_all):
            for estimate in self._of_all:
                estimate.pending += estimate.amount(size)
            return self._of_all

        def estimates() -> tuple[_Estimate, ...]:
            found = self._of(share, is_stranger=is_stranger)
            if tool is not None and tool.max_queued is not None:
                found = (*found, self._of_tool(tool.name, tool.max_queued))
            return found

        accepted = await self._checked(estimates, size)
        for estimate in accepted:  # nothing was awaited since the limits were compared
            estimate.pending += estimate.amount(size)
        return accepted

    @asynccontextmanager
    async def admitting(self, record: Record, size: int) -> AsyncIterator[None]:
        """Accept a task that is created in the context; raises `Busy` like `reserve`."""
        admitted, is_created = await self.reserve(record, None, size), False
        try:
            yield
            is_created = True
        finally:
            self.finish(admitted, size, created=is_created)

    @staticmethod
    def finish(estimates: tuple[_Estimate, ...], size: int, *, created: bool) -> None:
        """Note that a task that was accepted is in the store, or that it could not be created."""
        for estimate in estimates:
            estimate.finish(size, created=created)

    async def check_growth(self, record: Record, size: int) -> None:
        """Raise `Busy` if so many bytes more in the log of a task make the logs much too large.

        Tasks that there are may exceed a limit that new ones may not, so that those which wait can go on.
        """
        share, is_stranger = _sharer_of(record)

        def estimates() -> tuple[_Estimate, ...]:
            return tuple(one for one in self._of(share, is_stranger=is_stranger) if one.is_bytes)

        for estimate in await self._checked(estimates, size, extra=_GROWTH_PART):
            estimate.add(size)

    async def _checked(
        self, estimates: Callable[[], tuple[_Estimate, ...]], size: int, *, extra: float = 0.0
    ) -> tuple[_Estimate, ...]:
        """Return the estimates, none of which is full; raises `Busy`. The store counts where it has to."""
        counted: set[_Estimate] = set()
        while True:
            found = estimates()
            for wrong in found:
                if wrong.is_full(size, extra=int(wrong.most * extra)) or (
                    wrong.is_old(size) and wrong not in counted
                ):
                    break
            else:
                return found
            if wrong in counted:
                raise Busy(
                    wrong.message.format(wrong.number, wrong.most, size),
                    retry_after=_RETRY_BYTES_AFTER_SECONDS if wrong.is_bytes else _RETRY_AFTER_SECONDS,
                )
            if wrong in self._of_all:
                self._forget_shares()
            await wrong.count_again()
            counted.add(wrong)

    def _of(self, share: str, *, is_stranger: bool) -> tuple[_Estimate, ...]:
        """Return the estimates that the tasks of a caller concern."""
        if not share:
            return self._of_all
        if share not in self._by_share:
            phases = (self._of_share(share, phase, awaited, is_stranger) for phase, awaited in _PHASES)
            size = _Estimate(
                self._most_bytes,
                "Your tasks take {} of at most {} bytes in this server's store, and this needs {} more: let "
                "those that wait end, or cancel them, and try again when some have expired.",
                lambda: self._store.stored_bytes(share, server=self._server),
                total=self._bytes,
                is_bytes=True,
            )
            self._by_share[share] = (*self._of_all, *phases, size)
        return self._by_share[share]

    def _of_share(self, share: str, phase: Phase, awaited: str, is_stranger: bool) -> _Estimate:
        most, store = self._shares[phase], self._store
        count = store.count_of_sharer if is_stranger else store.count_of_principal
        return _Estimate(
            most,
            f"You have {{}} of at most {{}} tasks that wait for {awaited}: try again later.",
            lambda: count(share, phase, most=most),
            total=self._totals[phase],
        )

    def _of_tool(self, name: str, most: int) -> _Estimate:
        if name not in self._by_tool or self._by_tool[name].most != most:
            self._by_tool[name] = _Estimate(
                most,
                "Too many tasks of this tool wait for a worker, {} of at most {}: try again later.",
                lambda: self._store.count_queued(name, most=most, server=self._server),
            )
        return self._by_tool[name]

    def _forget_shares(self) -> None:
        """Forget the estimates of callers that create nothing now, so that they do not pile up."""
        self._by_share = {
            share: found
            for share, found in self._by_share.items()
            if any(one.pending for one in found[len(self._of_all) :])
        }

    def _total_counter(self, phase: Phase, most: int) -> Callable[[], Awaitable[int]]:
        async def count() -> int:
            found = await self._store.count(phase)
            if self._server is not None and found >= most:
                # Only now without the tasks of other servers, because the store counts those of one by one.
                found = await self._store.count(phase, server=self._server)
            return found

        return count


def _sharer_of(record: Record) -> tuple[str, bool]:
    """Return the key of the share that a task counts for, and whether it is the address of a stranger."""
    return record.sharer or record.principal, bool(record.sharer)
