"""Decides whether a new task is accepted, from the number of tasks that wait for a worker or for an answer.

Owns the counts, which are estimates: the store counts at intervals, and before a task is refused. In between,
each process adds the tasks that it creates, from the moment at which it accepts them. So one process never
exceeds a limit, and several processes together exceed one by the tasks that they create between two counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from antiphon.errors import Busy
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.budget import share_of
from antiphon.runtime.limits import Limits
from antiphon.store.contract import Phase, Store

__all__ = ["Admission"]

_RETRY_AFTER_SECONDS = 10
"""When a caller should try again after its task was refused because too many tasks wait."""
_COUNT_INTERVAL_TASKS = 100
"""How many tasks a process creates at most before it knows again how many wait in the store."""
_COUNT_EARLY_TASKS = 50
"""How many tasks a process creates before it asks the store again how many wait."""
_PHASES: tuple[tuple[Phase, str], ...] = (("ready", "a worker"), ("waiting", "an answer, a time or an event"))


class _Estimate:
    """A number of tasks: the last count of the store, and the tasks that were accepted since.

    `message` is what a caller reads whose task is refused, with places for the number and for the limit. With
    a `total` that includes these tasks, they need not be counted before the total reaches their limit.
    """

    __slots__ = (
        "_count",
        "_counted",
        "_counting",
        "_created",
        "_since",
        "_total",
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
    ) -> None:
        self.most = most
        self.message = message
        self.pending = 0
        """The tasks that were accepted and are not in the store yet."""
        self._count = count
        self._total = total
        self._counted: int | None = None
        self._counting = False
        """Whether the store is counting."""
        self._created = 0  # tasks that this process has created in all
        self._since = 0  # how many of them when the last count began

    @property
    def number(self) -> int:
        """The number of tasks, or more: a task that was created during a count may count twice."""
        return (self._counted or 0) + self._created - self._since + self.pending

    @property
    def is_clear(self) -> bool:
        """Whether one more task is possible for sure, by a recent count."""
        return not self._is_due and self.number < self.most

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached, as far as is known without another count."""
        return self.number >= self.most and self._matters

    @property
    def is_old(self) -> bool:
        """Whether the store has to count, because other processes may have created tasks."""
        return self._is_due and self._matters

    @property
    def _is_due(self) -> bool:
        """Whether the store has not counted yet, or so many tasks were created since that it has to again.

        It is asked early, for one task that waits for the count: the others go on with the last one.
        """
        since = self._created - self._since
        return self._counted is None or since >= (
            _COUNT_INTERVAL_TASKS if self._counting else _COUNT_EARLY_TASKS
        )

    @property
    def _matters(self) -> bool:
        return self._total is None or self._total.number >= self.most

    async def count_again(self) -> None:
        """Ask the store. Of several counts at once, the one that began last decides."""
        since, self._counting = self._created, True
        try:
            found = await self._count()
        finally:
            self._counting = False
        if self._counted is None or since >= self._since:
            self._counted, self._since = found, since

    def finish(self, *, created: bool) -> None:
        """Note that a task that was accepted is in the store, or that it could not be created."""
        self.pending -= 1
        self._created += created


class Admission:
    """Counts the tasks that wait, and refuses further ones. `server` is the name of the tasks' server."""

    def __init__(self, store: Store, limits: Limits, *, server: str | None = None) -> None:
        self._store = store
        self._server = server
        most: dict[Phase, int] = {"ready": limits.max_queued_tasks, "waiting": limits.max_waiting_tasks}
        self._shares = {phase: share_of(number, limits.principal_share) for phase, number in most.items()}
        if limits.max_queued_tasks_per_principal is not None:
            self._shares["ready"] = limits.max_queued_tasks_per_principal
        self._totals = {
            phase: _Estimate(
                most[phase],
                f"Too many tasks wait for {awaited}, {{}} of at most {{}}: try again later.",
                self._total_counter(phase, most[phase]),
            )
            for phase, awaited in _PHASES
        }
        self._of_all = tuple(self._totals.values())
        self._by_principal: dict[tuple[str, Phase], _Estimate] = {}
        self._by_tool: dict[str, _Estimate] = {}

    async def reserve(self, principal_id: str, tool: Tool | None = None) -> tuple[_Estimate, ...]:
        """Accept a task, and return the estimates that count it. Call `finish` when it is in the store.

        Raises `Busy` if too many tasks wait, in all, of an authenticated principal, or of the tool. Without
        a tool, its number is not limited: this process may not have it.
        """
        has_limit = tool is not None and tool.max_queued is not None
        if not principal_id and not has_limit and all(one.is_clear for one in self._of_all):
            for estimate in self._of_all:
                estimate.pending += 1
            return self._of_all
        counted: set[_Estimate] = set()
        while True:
            estimates = tuple(self._estimates(principal_id, tool))
            wrong = next(
                (one for one in estimates if one.is_full or (one.is_old and one not in counted)), None
            )
            if wrong is None:  # nothing was awaited since the limits were compared
                for estimate in estimates:
                    estimate.pending += 1
                return estimates
            if wrong in counted:
                raise Busy(wrong.message.format(wrong.number, wrong.most), retry_after=_RETRY_AFTER_SECONDS)
            if wrong in self._totals.values():
                self._forget_principals()
            await wrong.count_again()
            counted.add(wrong)

    @staticmethod
    def finish(estimates: tuple[_Estimate, ...], *, created: bool) -> None:
        """Note that a task that was accepted is in the store, or that it could not be created."""
        for estimate in estimates:
            estimate.finish(created=created)

    def _estimates(self, principal_id: str, tool: Tool | None) -> Iterator[_Estimate]:
        """Yield the estimates that a new task concerns."""
        yield from self._totals.values()
        if principal_id:
            for phase, awaited in _PHASES:
                yield self._of_principal(principal_id, phase, awaited)
        if tool is not None and tool.max_queued is not None:
            yield self._of_tool(tool.name, tool.max_queued)

    def _of_principal(self, principal_id: str, phase: Phase, awaited: str) -> _Estimate:
        key, most = (principal_id, phase), self._shares[phase]
        if key not in self._by_principal:
            self._by_principal[key] = _Estimate(
                most,
                f"You have {{}} of at most {{}} tasks that wait for {awaited}: try again later.",
                lambda: self._store.count_of_principal(principal_id, phase, most=most),
                total=self._totals[phase],
            )
        return self._by_principal[key]

    def _of_tool(self, name: str, most: int) -> _Estimate:
        if name not in self._by_tool or self._by_tool[name].most != most:
            self._by_tool[name] = _Estimate(
                most,
                "Too many tasks of this tool wait for a worker, {} of at most {}: try again later.",
                lambda: self._store.count_queued(name, most=most, server=self._server),
            )
        return self._by_tool[name]

    def _forget_principals(self) -> None:
        """Forget the estimates of principals that create nothing now, so that they do not pile up."""
        self._by_principal = {key: one for key, one in self._by_principal.items() if one.pending}

    def _total_counter(self, phase: Phase, most: int) -> Callable[[], Awaitable[int]]:
        async def count() -> int:
            found = await self._store.count(phase)
            if self._server is not None and found >= most:
                # Only now without the tasks of other servers, because the store counts those of one by one.
                found = await self._store.count(phase, server=self._server)
            return found

        return count
