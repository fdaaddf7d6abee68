"""Claims tasks, and remembers where the next search for claimable tasks begins.

A search from the start reads the index entries of all tasks that were claimed since the last vacuum. They are
many while another transaction is open for long, such as the one of `pg_dump`. So a search has limits.

The limits only save time: a search from the start finds the same tasks. This module owns the limits of one
process. It does not know the callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import msgspec

from antiphon.store.contract import Claim
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.statements import escape_text, escape_texts, record_of, sql
from antiphon.store.rules import MAX_INT64
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["ClaimTasks", "Claimer", "next_full_search"]

_FULL_SEARCH_SECONDS = 60.0
"""How often a search begins at the start. It finds tasks that the limits of a search leave out, such as a
task that an operator restored from a copy."""
_FULL_SEARCH_SHARE = 0.005
"""The share of the time that searches from the start may take. If they take long, they are less frequent."""
_LEASE_SLACK_MILLISECONDS = 2000
"""How long after the end of a lease the transaction that wrote it may be committed; the statements have the
same number. Only a search from the start finds the lease of a later one."""
_MAX_ARRIVED_TASKS = 1000
"""Tasks that became claimable since the last claim. If there are more, a search from the start is cheaper."""
_MAX_REMAINING_TASKS = 100
"""Tasks of them that were not claimed. If there are more, the next search begins at the oldest of them."""
_MAX_SEARCHES = 16
"""Sets of queues whose limits are kept. A worker has one, which changes with the tools of its server."""
_START = (-MAX_INT64, 0)
"""A creation time and key below those of every task."""


_Queue: TypeAlias = tuple[str, str]
"""The claimable tasks of a server and a tool."""


class ClaimTasks(NamedTuple):
    """Claims tasks."""

    worker: str
    lease: int
    limit: int
    tools: Sequence[str] | None
    servers: Sequence[str] | None = None


class _Limits(msgspec.Struct, frozen=True):
    """Where the next search for tasks of some queues begins."""

    oldest: dict[_Queue, tuple[int, int]]
    """The creation time and key of the oldest claimable task of a queue; no entry if there is none."""
    since: int | None = None
    """The first transaction whose tasks `oldest` does not cover; `None` for a search from the start."""
    ended_after: int = 0
    """The time before which all leases that ended were looked at."""
    connection: asyncpg.Connection | None = None
    """The connection of the search. Another one may lead to a database that was restored from a copy."""
    full_search_at: float = 0.0
    """When a search has to begin at the start again."""


def next_full_search(began: float) -> float:
    """Return when a search has to begin at the start again, after one that began at `began` and ends now."""
    now = time.monotonic()
    return now + max(_FULL_SEARCH_SECONDS, (now - began) / _FULL_SEARCH_SHARE)


class Claimer:
    """Claims tasks on the connection that writes."""

    def __init__(
        self,
        connection: ReconnectingConnection,
        clock: Callable[[], int | None],
        unreadable: UnreadableRecords,
    ) -> None:
        self._connection = connection
        self._unreadable = unreadable
        self._clock = clock
        self._limits_by_queues: dict[tuple[_Queue, ...], _Limits] = {}
        self._last_time = 0

    def note_time(self, now: int) -> None:
        """Begin all searches at the start again if the clock went back: a lease may end before the limits."""
        if now < self._last_time:
            self._limits_by_queues.clear()
        self._last_time = now

    async def claim(self, operation: ClaimTasks) -> list[Claim]:
        """Claim the oldest claimable tasks; raises `StoreUnavailable`.

        A task that cannot be read is claimed too, so that it leaves the front of the queue for a while, but
        it is not returned.
        """
        values = (self._clock(), escape_text(operation.worker), operation.lease, operation.limit)
        tools, servers = escape_texts(operation.tools), escape_texts(operation.servers)
        if tools is None or servers is None:
            rows = await self._connection.fetch(sql("claim"), *values, tools, servers)
        else:
            rows = await self._claim_by_tool(values, tuple(product(servers, tools)))
        rows.sort(key=lambda row: (row["created"], row["key"]))
        records = ((self._unreadable.attempt(row["id"], record_of, row), row["token"]) for row in rows)
        return [Claim(record, token) for record, token in records if record is not None]

    async def _claim_by_tool(self, values: tuple[Any, ...], queues: tuple[_Queue, ...]) -> list[Any]:
        connection, began = await self._connection.connect(), time.monotonic()
        limits = self._limits_by_queues.pop(queues, None)
        if limits is None or limits.connection is not connection or began >= limits.full_search_at:
            limits = _from_start(queues)
        found, claimed = await self._search(values, queues, limits)
        if found["is_partial"]:
            limits = _from_start(queues)
            found, claimed = await self._search(values, queues, limits)
        full_search_at = next_full_search(began) if limits.since is None else limits.full_search_at
        while len(self._limits_by_queues) >= _MAX_SEARCHES:
            del self._limits_by_queues[next(iter(self._limits_by_queues))]
        self._limits_by_queues[queues] = _next_limits(found, connection, full_search_at)
        self.note_time(found["now"])
        return claimed

    async def _search(
        self, values: tuple[Any, ...], queues: tuple[_Queue, ...], limits: _Limits
    ) -> tuple[Any, list[Any]]:
        """Return the row with the limits of the next search, and the rows of the claimed tasks."""
        servers, tools = [server for server, _ in queues], [tool for _, tool in queues]
        values = (*values, tools, limits.since, limits.ended_after, _MAX_ARRIVED_TASKS)
        if limits.oldest:
            oldest = [limits.oldest.get(queue, (None, None)) for queue in queues]
            columns = [created for created, _ in oldest], [key for _, key in oldest]
            rows = await self._connection.fetch(sql("claim_by_tool"), *values, *columns, servers)
        else:
            rows = await self._connection.fetch(sql("claim_arrived"), *values, servers)
        (found,) = (row for row in rows if row["key"] is None)
        return found, [row for row in rows if row["key"] is not None]


def _from_start(queues: tuple[_Queue, ...]) -> _Limits:
    return _Limits(dict.fromkeys(queues, _START))


def _next_limits(found: Any, connection: asyncpg.Connection, full_search_at: float) -> _Limits:
    """Return the limits after a search on this connection that found this row."""
    oldest = {(server, tool): (created, key) for server, tool, created, key in found["next_search"] or ()}
    remaining, since = found["remaining"] or (), found["settled"]
    if len(remaining) > _MAX_REMAINING_TASKS:
        for server, tool, created, key in remaining:
            queue, position = (server, tool), (created, key)
            oldest[queue] = min(oldest.get(queue, position), position)
    elif remaining:
        since = min(since, found["first_freed"])
    ended_after = found["now"] - _LEASE_SLACK_MILLISECONDS
    if found["first_ended"] is not None:
        ended_after = min(ended_after, found["first_ended"] - 1)
    return _Limits(oldest, since, ended_after, connection, full_search_at)
