"""The requests of the console's pages, as calls on a store: from the handler to the JSON, without HTTP."""

from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from antiphon.console.inbox.api import InboxApi
from antiphon.console.live import Live
from antiphon.console.routes import ConsoleUser, RouteTable
from antiphon.console.sources import Sources, StoreSource
from antiphon.console.task_view import TaskApi
from antiphon.console.tasks import TasksApi
from antiphon.console.workers import WorkersApi
from antiphon.model.identity import Principal
from antiphon.store.contract import Store

__all__ = ["PAGES"]

OPERATOR = ConsoleUser("operator", None, may_operate=True, may_write=True)
PERSON = ConsoleUser("most", Principal("most"), may_operate=False, may_write=True)
"""A person who has half of all tasks."""

_routes: dict[Store, RouteTable] = {}


async def routes_of(store: Store) -> RouteTable:
    """Return the routes of a console of one store, which is open."""
    if store not in _routes:
        sources, live = Sources(), Live()
        sources.add_store(StoreSource("s", "the store", store, is_own=False))
        await sources.open()
        parts = [kind(sources, live) for kind in (InboxApi, TasksApi, TaskApi, WorkersApi)]
        _routes[store] = RouteTable([route for part in parts for route in part.routes()])
    return _routes[store]


def page(
    path: str, user: ConsoleUser = OPERATOR, *, below: str = "api/stores/s/", **query: str
) -> Callable[[Store], Awaitable[Any]]:
    """Return the call for one request of a page."""

    async def call(store: Store) -> bytes:
        found = (await routes_of(store)).find("GET", f"{below}{path}".split("/"))
        assert found is not None
        route, params = found
        request: Any = SimpleNamespace(params=params, query=query, user=user)
        return msgspec.json.encode(await route.handler(request))

    return call


PAGES: Mapping[str, Callable[[Store], Awaitable[Any]]] = {
    "page: tasks": page("tasks"),
    "page: failed tasks": page("tasks", status="failed"),
    "page: tasks of a tool": page("tasks", tool="tool3"),
    "page: tasks of a principal": page("tasks", principal="most"),
    "page: tasks of the last days": page("tasks", age="newer:6d"),
    "page: waiting tasks, oldest first": page("tasks", status="waiting", age="older:1d", order="oldest"),
    "page: one task": page("tasks/t500"),
    "page: a task with a long log": page("tasks/long"),
    "page: the timeline of a long log": page("tasks/long/timeline"),
    "page: the end of a long log": page("tasks/long/log"),
    "page: a person's tasks": page("tasks", PERSON),
    "page: a person's waiting tasks": page("tasks", PERSON, status="waiting"),
    "page: the inbox": page("inbox", below="api/"),
    "page: a person's inbox": page("inbox", PERSON, below="api/"),
    "page: the number beside a person's inbox": page("inbox/count", PERSON, below="api/"),
    "page: how many tasks would be cancelled": page("cancellable"),
    "page: how many of a person's tasks would be cancelled": page("cancellable", PERSON),
    "page: workers": page("workers"),
    "page: hours": page("hours"),
}
