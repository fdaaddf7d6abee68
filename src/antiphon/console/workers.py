"""The workers of a store, its queue, and how many tasks ended in each hour. For operators.

A worker that runs answers a roll call. The leases in the store name the workers of earlier versions too, and
those that died a moment ago.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from antiphon.console.live import Live
from antiphon.console.routes import ConsoleRequest, Problem, Route
from antiphon.console.sources import Sources, StoreSource
from antiphon.errors import StoreError
from antiphon.runtime.tasks.roll_call import RollCall, SeenWorker
from antiphon.store.contract import HourlyTally, Lease, Tallies, TaskFilter

__all__ = ["WorkersApi"]

HOUR_MS = 3_600_000
MAX_HOURS = 14 * 24
_DEFAULT_HOURS = 24
_REFRESH_SECONDS = 2.0
"""How often the workers are asked at most."""
_ANSWER_SECONDS = 0.5
"""How long a roll call waits for answers. The page shows what it knows meanwhile."""
_LOST_MS = 15_000
"""After how long without an answer a worker counts as lost."""
_KINDS = ("created", "done", "failed", "cancelled", "ended")
_ENDS = ("done", "cancelled", "failed")
_SPANS = (("", "24 hours"), ("72", "3 days"), ("336", "14 days"))
_ASKING = ("Asking the workers…", "")
_NO_WORKER = ("No worker answers", "Start the server, or a worker of its own: antiphon worker FILE.")
_MAX_TOOLS = 20
"""How many tools the tables name."""


class WorkersApi:
    """The addresses of the workers and of the plots."""

    def __init__(self, sources: Sources, live: Live) -> None:
        self._sources = sources
        self._rolls: dict[str, _Roll] = {}

    def routes(self) -> Sequence[Route]:
        """Return the routes of the workers."""
        return [
            Route("GET", "/api/stores/{store}/workers", self._workers, operators=True),
            Route("GET", "/api/stores/{store}/hours", self._hours, operators=True),
        ]

    async def close(self) -> None:
        """Stop listening to workers."""
        for roll in self._rolls.values():
            await roll.close()

    async def _workers(self, request: ConsoleRequest) -> Any:
        source = self._sources.store(request.params["store"])
        roll = self._rolls.get(source.id)
        if roll is None:
            roll = self._rolls[source.id] = _Roll(source)
        is_refreshing = await roll.refresh()
        leases, tallies, oldest = await asyncio.gather(
            source.store.leases(),
            source.store.tallies(server=source.server),
            source.store.oldest_ready(server=source.server),
        )
        own = [lease for lease in leases if source.server is None or lease.server in ("", source.server)]
        return {
            "figures": _figures(tallies, own, oldest),
            "workers": _worker_rows(roll.workers(source.server), own, int(time.time() * 1000)),
            "columns": ["Worker", "Server", "Tools", "Running", "Started", "Last seen"],
            "empty": _ASKING if is_refreshing else _NO_WORKER,
            "isRefreshing": is_refreshing,
        }

    async def _hours(self, request: ConsoleRequest) -> Any:
        source = self._sources.store(request.params["store"])
        text = request.query.get("hours", str(_DEFAULT_HOURS))
        if not (text.isascii() and text.isdecimal() and len(text) < 5 and 0 < int(text) <= MAX_HOURS):
            raise Problem(400, f"Choose between 1 and {MAX_HOURS} hours.")
        count, now = int(text), int(time.time() * 1000)
        first = now // HOUR_MS * HOUR_MS - (count - 1) * HOUR_MS
        rows = await source.store.hourly_tallies(since=first, server=source.server)
        tool = request.query.get("tool", "")
        chosen = [row for row in rows if not tool or row.tool == tool]
        hours = [dict.fromkeys(_KINDS, 0) for _ in range(count)]
        for row in chosen:
            if 0 <= (at := (row.hour - first) // HOUR_MS) < count:
                hours[at][row.kind] += row.tasks
        names = {row.tool for row in rows} | {tool}
        return {
            "spans": _SPANS,
            "names": sorted(names - {""}),
            "plots": [_plot("Ended", hours, first, _ENDS), _plot("Created", hours, first, ("created",))],
            "columns": ["Tool", "Created", *map(str.capitalize, _ENDS)],
            "tools": _tool_rows(rows, source.id),
        }


class _Roll:
    """The roll call of one store. It is opened when a page asks for the first time."""

    def __init__(self, source: StoreSource) -> None:
        self._roll = RollCall(source.store)
        self._is_open = False
        self._opening = asyncio.Lock()
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def workers(self, server: str | None) -> Sequence[SeenWorker]:
        """Return the workers of a server, or of all servers, as far as they have answered."""
        found = self._roll.workers
        return [seen for seen in found if server is None or seen.report.server in ("", server)]

    async def refresh(self) -> bool:
        """Ask the workers, unless they were asked a moment ago; return whether answers are awaited."""
        async with self._opening:
            if not self._is_open:
                await self._roll.open()
                self._is_open = True
        if self._asking is None and time.monotonic() - self._asked_at > _REFRESH_SECONDS:
            self._asked_at = time.monotonic()
            self._asking = asyncio.create_task(self._ask())
        return self._asking is not None

    async def close(self) -> None:
        """Stop the roll call."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._is_open:
            await self._roll.close()

    async def _ask(self) -> None:
        try:
            with contextlib.suppress(StoreError):  # the leases say more: reading them fails too
                await self._roll.refresh(timeout=_ANSWER_SECONDS)
        finally:
            self._asking = None


def _figures(tallies: Tallies, leases: Sequence[Lease], oldest: int | None) -> list[list[Any]]:
    """Return the numbers of the queue, as cells and their words."""
    running = sum(lease.tasks for lease in leases if lease.left > 0)
    queued = max(tallies.count(TaskFilter(phase="ready")) - running, 0)
    return [
        [running, "running"],
        [queued, "queued"],
        [{"age": oldest} if oldest is not None and queued else "–", "age of the queue"],
        [tallies.count(TaskFilter(phase="waiting")), "waiting for answers, times or events"],
    ]


def _worker_rows(seen: Sequence[SeenWorker], leases: Sequence[Lease], now: int) -> list[list[Any]]:
    """Return the rows of the table, by name: workers that answered, and those that only the leases name."""
    held: dict[str, list[Lease]] = {}
    for lease in leases:
        held.setdefault(lease.worker, []).append(lease)
    rows = {each.report.name: _answered_row(each, now) for each in seen}
    for name, own in held.items():
        if name not in rows:
            rows[name] = _lease_row(name, own)
    return [rows[name] for name in sorted(rows)]


def _answered_row(seen: SeenWorker, now: int) -> list[Any]:
    report = seen.report
    note = f"{report.host}, process {report.pid}, version {report.version}"
    if not report.claims:
        note = f"{note}. Runs only the tasks of its own calls."
    is_lost = now - seen.seen > _LOST_MS
    return [
        {"status": ["failed" if is_lost else "working", report.name], "note": note},
        report.server,
        ", ".join(report.tools),
        [
            f"{report.running} of {report.max_running}",
            {"progress": [report.running, report.max_running or 1]},
        ],
        {"age": report.started},
        {"ago": seen.seen},
    ]


def _lease_row(name: str, leases: Sequence[Lease]) -> list[Any]:
    is_lost = all(lease.left <= 0 for lease in leases)
    note = "It does not answer: it is of an earlier version, or it has stopped."
    return [
        {"status": ["failed" if is_lost else "working", name], "note": note},
        leases[0].server,
        ", ".join(lease.tool for lease in leases),
        sum(lease.tasks for lease in leases),
        "",
        "its leases are over" if is_lost else "holds leases",
    ]


def _tool_rows(rows: Sequence[HourlyTally], store: str) -> list[list[Any]]:
    """Return the rows of the table of tools, those with the most failures first."""
    tools: dict[str, dict[str, int]] = {}
    for row in rows:
        tools.setdefault(row.tool, dict.fromkeys(_KINDS, 0))[row.kind] += row.tasks
    names = sorted(tools, key=lambda name: (-tools[name]["failed"], -sum(tools[name].values())))
    return [[name, *_tool_cells(name, tools[name], store)] for name in names[:_MAX_TOOLS]]


def _tool_cells(name: str, counts: dict[str, int], store: str) -> list[Any]:
    cells: list[Any] = [counts[kind] for kind in ("created", *_ENDS)]
    if counts["failed"]:
        address = f"tasks?{urlencode({'status': 'failed', 'tool': name, 'store': store})}"
        cells[-1] = {"link": [address, f"{counts['failed']:,}"]}
    return cells


def _plot(name: str, hours: Sequence[dict[str, int]], first: int, kinds: Sequence[str]) -> dict[str, Any]:
    """Return a plot: its series with their sums, the heights of the bars in percent, and a table."""
    times = [first + at * HOUR_MS for at in range(len(hours))]
    most = max(sum(hour[kind] for kind in kinds) for hour in hours)
    return {
        "name": name,
        "series": [[kind, f"{sum(hour[kind] for hour in hours):,} {kind}"] for kind in kinds],
        "most": f"at most {most:,} an hour",
        "hours": [
            {
                "at": at,
                "words": ", ".join(f"{hour[kind]:,} {kind}" for kind in kinds),
                "bars": [[kind, round(100 * hour[kind] / most, 2)] for kind in kinds if hour[kind]],
            }
            for at, hour in zip(times, hours, strict=True)
        ],
        "columns": ["Hour", *map(str.capitalize, kinds)],
        "rows": [
            [{"at": at}, *(hour[kind] for kind in kinds)]
            for at, hour in zip(times, hours, strict=True)
            if any(hour[kind] for kind in kinds)
        ],
    }
