"""The list of tasks: filters, counts that agree with the list, and the cancellation of many tasks.

Owns the addresses of the list. One task has addresses of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from antiphon.console.cancellations import Cancellations
from antiphon.console.live import Live
from antiphon.console.routes import ConsoleRequest, EventStream, Problem, Route
from antiphon.console.sources import Sources, StoreSource
from antiphon.console.task_queries import TaskQuery, count_tasks, list_tasks
from antiphon.console.task_rows import table_of
from antiphon.store.contract import Count, Page, Tallies

__all__ = ["TasksApi", "watch_store"]

PAGE_TASKS = 100
"""How many tasks a page of the list has."""
AGES = (
    ("", "Any age"),
    ("newer:1h", "Last hour"),
    ("newer:1d", "Last day"),
    ("newer:7d", "Last 7 days"),
    ("older:1h", "Older than an hour"),
    ("older:1d", "Older than a day"),
    ("older:7d", "Older than 7 days"),
)
"""The ages that the page offers, and their words."""
_EMPTY = ("No tasks yet", "A call of a tool that runs as a task appears here by itself.")
_FILTERED = ("No task matches", "Clear the filters to see all tasks.")
_MAX_TOOLS = 200
"""How many tools the filter offers."""
_MAX_TIME = 2**53
_WATCH_SECONDS = 30.0
"""How long a watch waits for a change before it looks whether the page is still there."""


class TasksApi:
    """The addresses of the list of tasks."""

    def __init__(self, sources: Sources, live: Live) -> None:
        self._sources = sources
        self._live = live
        self._cancellations = Cancellations()

    def routes(self) -> Sequence[Route]:
        """Return the routes of the list."""
        return [
            Route("GET", "/api/stores/{store}/tasks", self._list),
            Route("GET", "/api/stores/{store}/cancellable", self._count_cancellable),
            Route("POST", "/api/stores/{store}/cancellations", self._cancel, writes=True),
            Route("GET", "/api/stores/{store}/cancellations/{job}", self._follow_cancellation),
        ]

    async def open(self) -> None:
        """Report changes of all stores to the pages."""
        for source in self._sources.stores.values():
            self._live.watch("tasks", partial(watch_store, source))

    async def close(self) -> None:
        """Stop cancelling."""
        await self._cancellations.close()

    async def _list(self, request: ConsoleRequest) -> Any:
        source = self._sources.store(request.params["store"])
        query, user = TaskQuery.of(request.query), request.user
        cursor = request.query.get("cursor", "")
        oldest_first = request.query.get("order") == "oldest"
        counts: dict[str, Count] = {}
        for _ in range(2):  # a task may change its status between the two reads
            page, following, now = await list_tasks(
                source, query, user, cursor=cursor, limit=PAGE_TASKS, oldest_first=oldest_first
            )
            counts, tallies = await count_tasks(source, query, user, now)
            if _agree(counts, query, page, is_whole=not cursor and following is None):
                break
        chosen, listed = query.status or "all", len(page.records)
        if not cursor and following is None:
            # A row that cannot be read is in no list, but the store counts it.
            counts[chosen] = Count(listed)
        elif counts[chosen].tasks < listed:  # only the newest tasks of a person are counted
            counts[chosen] = Count(listed, is_exact=False)
        return {
            **table_of(page.records, source.id, query.fields if user.may_operate else None),
            "empty": _FILTERED if query.fields else _EMPTY,
            "cursor": following,
            "counts": {
                name: f"{count.tasks:,}{'' if count.is_exact else '+'}" for name, count in counts.items()
            },
            "tools": _tools(tallies, page, query.tool),
            "ages": AGES
            if query.age in dict(AGES)
            else [*AGES, (query.age, query.age.replace(":", " than "))],
            "mayCancel": query.status in ("", "working", "waiting")
            and counts["working"].tasks + counts["waiting"].tasks > 0,
        }

    # Cancelling many tasks

    async def _count_cancellable(self, request: ConsoleRequest) -> Any:
        """Return how many tasks a cancellation would end now, and the time up to which they were created."""
        source = self._sources.store(request.params["store"])
        query = TaskQuery.of(request.query)
        text = request.query.get("selected", "")
        selected = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else 0
        return await self._cancellations.count(source, query, request.user, selected)

    async def _cancel(self, request: ConsoleRequest) -> Any:
        """Begin to cancel the tasks of a filter, or those that a person selected."""
        source = self._sources.store(request.params["store"])
        try:
            wanted = msgspec.convert(await request.json(), CancelRequest)
        except msgspec.ValidationError as error:
            raise Problem(400, f"Invalid request: {error}.") from None
        if wanted.ids is not None:
            return await self._cancellations.start_selected(source, request.user, wanted.ids, wanted.count)
        query = TaskQuery.of(wanted.filter)
        return await self._cancellations.start(
            source, query, request.user, count=wanted.count, before=wanted.before
        )

    async def _follow_cancellation(self, request: ConsoleRequest) -> EventStream:
        return EventStream(self._cancellations.follow(request.params["job"], request.user))


class CancelRequest(msgspec.Struct, rename="camel"):
    """Which tasks to cancel: those with these ids, or those of a filter that were created before a time."""

    count: int
    """The number of tasks that the person confirmed."""
    ids: list[str] | None = None
    filter: dict[str, str] = {}
    before: Annotated[int, msgspec.Meta(ge=0, lt=_MAX_TIME)] = 0


async def watch_store(source: StoreSource) -> AsyncIterator[None]:
    """Yield after every change of a store's tasks."""
    async with source.store.watch_all() as watch:
        while True:
            if await watch.wait(_WATCH_SECONDS):
                yield


def _agree(counts: Mapping[str, Count], query: TaskQuery, page: Page, *, is_whole: bool) -> bool:
    count = counts[query.status or "all"].tasks
    return count == len(page.records) if is_whole else count >= len(page.records)


def _tools(tallies: Tallies | None, page: Page, chosen: str) -> list[str]:
    """Return the tools that the filter offers: those of the store, or else of the page."""
    sizes: dict[str, int] = dict.fromkeys((record.tool for record in page.records), 1)
    if tallies is not None:
        for row in tallies.rows:
            sizes[row.tool] = sizes.get(row.tool, 0) + row.tasks
    largest = sorted(sizes, key=lambda tool: -sizes[tool])[:_MAX_TOOLS]
    return sorted({*largest, chosen} - {""})
