"""Which tasks a person asks for: filters in the address of the page, cursors, and the counts beside them.

Owns the rule that people who are not operators see their own tasks only. Knows the store, and no page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.console.routes import ConsoleRequest, ConsoleUser, Problem
from antiphon.console.sources import Sources, StoreSource
from antiphon.model.age import parse_age
from antiphon.runtime.tasks.records import has_expired
from antiphon.store.contract import Count, Page, Record, Tallies, TaskFilter
from antiphon.store.outcomes import matches

__all__ = [
    "STATUSES",
    "TaskQuery",
    "count_tasks",
    "list_tasks",
    "may_see",
    "principal_of",
    "visible_part",
    "visible_task",
]

STATUSES: Mapping[str, Mapping[str, str]] = {
    "working": {"phase": "ready"},
    "waiting": {"phase": "waiting"},
    "done": {"outcome": "done"},
    "failed": {"outcome": "failed"},
    "cancelled": {"outcome": "cancelled"},
}
"""The statuses by which a list can be filtered, and the fields of the store's filter for each."""
MAX_COUNTED = 200
"""Up to how many tasks are counted one by one, if the store does not keep their number."""
_AGE_FIELDS = {"newer": "created_since", "older": "created_before"}
_NOT_FOUND = "This task does not exist, or it has expired."


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of tasks, as the address of the page has it."""

    status: str = ""
    tool: str = ""
    principal: str = ""
    age: str = ""
    """Only tasks that were created since a time, such as `newer:2h`, or longer ago, such as `older:7d`."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TaskQuery:
        """Read a filter from a query or from JSON; raises `Problem`."""
        given = {name: values[name] for name in cls.__struct_fields__ if values.get(name)}
        try:
            query = msgspec.convert(given, cls)
        except msgspec.ValidationError as error:
            raise Problem(400, f"Invalid filter: {error}.") from None
        if query.status and query.status not in STATUSES:
            raise Problem(400, f"Unknown status {query.status!r}: use one of {', '.join(STATUSES)}.")
        query.filter(0)
        return query

    @property
    def fields(self) -> dict[str, str]:
        """The fields that are not empty."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}

    @property
    def is_counted_by_store(self) -> bool:
        """Whether the store keeps the number of these tasks, if they are of all principals."""
        return not (self.principal or self.age)

    def filter(self, now: int, status: str | None = None) -> TaskFilter:
        """Return the filter of the store, with ages counted from `now`; raises `Problem`."""
        fields: dict[str, Any] = dict(STATUSES.get(self.status if status is None else status, {}))
        if self.tool:
            fields["tool"] = self.tool
        if self.age:
            side, _, text = self.age.partition(":")
            try:
                fields[_AGE_FIELDS[side]] = now - parse_age(text)
            except (KeyError, ValueError):
                raise Problem(
                    400, f"Invalid age {self.age!r}: use newer: or older: and an age, such as older:2h."
                ) from None
        return TaskFilter(**fields)


async def visible_task(sources: Sources, request: ConsoleRequest) -> tuple[StoreSource, Record]:
    """Return the task that a path names; raises `Problem` if the person may not see it."""
    source = sources.store(request.params["store"])
    record = await source.store.get(request.params["id"])
    if record is None or not await may_see(source, request.user, record):
        raise Problem(404, _NOT_FOUND)
    return source, record


async def may_see(source: StoreSource, user: ConsoleUser, record: Record) -> bool:
    """Return whether a person may see a task: an operator all, everybody else their own.

    Like a caller over MCP, a person also needs the scopes of the task's tool.
    """
    if source.server is not None and record.server not in ("", source.server):
        return False
    if user.may_operate:
        return True
    principal = user.principal
    if principal is None or not principal.id or principal.id != record.principal:
        return False
    return not has_expired(record) and await source.allows(principal, record)


def principal_of(query: TaskQuery, user: ConsoleUser) -> str | None:
    """Return the principal whose tasks a list has; `None` for those of all, empty for nobody's."""
    if user.may_operate:
        return query.principal or None
    return "" if user.principal is None else user.principal.id


async def list_tasks(
    source: StoreSource,
    query: TaskQuery,
    user: ConsoleUser,
    *,
    cursor: str,
    limit: int,
    oldest_first: bool = False,
) -> tuple[Page, str | None, int]:
    """Return a page of tasks, the cursor of the next page, and the time from which ages are counted.

    Ages are counted from the time of the first page, so that the pages of a list belong together. Raises
    `Problem` for an invalid cursor.
    """
    at, _, rest = cursor.partition(".")
    if cursor and not (at.isascii() and at.isdecimal() and len(at) < 16 and rest):
        raise Problem(400, "This page of the list is gone. Start with the first page.")
    now = int(at) if cursor else int(time.time() * 1000)
    principal = principal_of(query, user)
    if principal == "":
        return Page((), None), None, now
    try:
        page = await source.store.list(
            principal,
            cursor=rest or None,
            limit=limit,
            server=source.server,
            filter=query.filter(now),
            oldest_first=oldest_first,
        )
    except ValueError:
        raise Problem(400, "This page of the list is gone. Start with the first page.") from None
    page = await visible_part(source, user, page)
    return page, None if page.cursor is None else f"{now}.{page.cursor}", now


async def count_tasks(
    source: StoreSource, query: TaskQuery, user: ConsoleUser, now: int
) -> tuple[dict[str, Count], Tallies | None]:
    """Return how many tasks there are of each status, under `all` too, and the store's own numbers.

    The status of the query does not matter: it chooses one of the numbers.
    """
    principal = principal_of(query, user)
    filters = {name or "all": query.filter(now, name) for name in ("", *STATUSES)}
    if principal is None and query.is_counted_by_store:
        tallies = await source.store.tallies(server=source.server)
        return {
            name: Count(tallies.count(filter), tallies.is_exact) for name, filter in filters.items()
        }, tallies
    if not user.may_operate:
        return await _count_visible(source, user, principal or "", filters), None
    counts = await asyncio.gather(
        *(
            source.store.count_listed(principal, server=source.server, filter=filter, most=MAX_COUNTED)
            for filter in filters.values()
        )
    )
    return dict(zip(filters, counts, strict=True)), None


async def visible_part(source: StoreSource, user: ConsoleUser, page: Page) -> Page:
    """Return a page without the tasks that the person may not see."""
    if user.may_operate:
        return page
    visible = [record for record in page.records if await may_see(source, user, record)]
    return Page(tuple(visible), page.cursor)


async def _count_visible(
    source: StoreSource, user: ConsoleUser, principal: str, filters: Mapping[str, TaskFilter]
) -> dict[str, Count]:
    """Return how many tasks of each filter a person sees who is no operator.

    The tasks are read, because the store knows neither the scopes of the person nor what has expired. Of more
    than `MAX_COUNTED` tasks, only the newest ones are read.
    """

    async def newest(filter: TaskFilter) -> Page:
        if not principal:
            return Page((), None)
        page = await source.store.list(principal, limit=MAX_COUNTED, server=source.server, filter=filter)
        return await visible_part(source, user, page)

    whole = await newest(filters["all"])
    if whole.cursor is None:
        return {
            name: Count(sum(matches(filter, each) for each in whole.records))
            for name, filter in filters.items()
        }
    pages = [whole, *[await newest(filter) for name, filter in filters.items() if name != "all"]]
    return {
        name: Count(len(page.records), page.cursor is None) for name, page in zip(filters, pages, strict=True)
    }
