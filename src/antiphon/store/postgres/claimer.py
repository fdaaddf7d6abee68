"""Claims tasks, and remembers where the next search for claimable tasks begins.

A search from the start reads the index entries of all tasks that were claimed since the last vacuum. They are
many while another transaction is open for long, such as the one of `pg_dump`. So a search has limits.

The limits only save time: a search from the start finds the same tasks. This module owns the limits of one
process. It does not know the callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import msgspec

from antiphon.errors import StoreError
from antiphon.store.contract import Claim
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.statements import escape_text, escape_texts, record_of, sql
from antiphon.store.rules import MAX_INT64, Row, is_claimable, next_turn
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
"""Tasks of them that were not claimed. If there are more, the next search begins at the first of them."""
_RECORD_TURNS_SECONDS = 1.0
"""How often the largest turns that were claimed are recorded for other processes. If each claim recorded
them, the processes would wait for each other."""
_MAX_SEARCHES = 16
"""Sets of queues whose limits are kept. A worker has one, which changes with the tools of its server."""
_START = (-MAX_INT64, 0)
"""A turn and key below those of every task."""


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

    first: dict[_Queue, tuple[int, int]]
    """The turn and key of the first claimable task of a queue; no entry if there is none."""
    since: int | None = None
    """The first transaction whose tasks `first` does not cover; `None` for a search from the start."""
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
        self.limits_by_queues: dict[tuple[_Queue, ...], _Limits] = {}
        self._last_time = 0
        self._turns: dict[str, int] = {}  # the largest turns that this process has claimed, by server
        self._recorded_turns: dict[str, int] = {}
        self._record_turns_at = time.monotonic() + _RECORD_TURNS_SECONDS

    def note_time(self, now: int) -> None:
        """Begin all searches at the start again if the clock went back: a lease may end before the limits."""
        if now < self._last_time:
            self.limits_by_queues.clear()
        self._last_time = now

    async def claim(self, operation: ClaimTasks) -> list[Claim]:
        """Claim the claimable tasks with the smallest turns; raises `StoreUnavailable`.

        A task that cannot be read is claimed too, so that it leaves the front of the queue for a while, but
        it is not returned.
        """
        values = (self._clock(), escape_text(operation.worker), operation.lease, operation.limit)
        tools, servers = escape_texts(operation.tools), escape_texts(operation.servers)
        if tools is None or servers is None:
            rows = await self._connection.fetch(sql("claim"), *values, tools, servers)
            now = rows[0]["now"] if rows else 0
        else:
            now, rows = await self._claim_by_tool(values, tuple(product(servers, tools)))
        rows.sort(key=_queue_position)
        for row in rows:
            if (turn := row["turn"]) is not None:
                self._turns[row["server"]] = max(turn, self._turns.get(row["server"], 0))
        records = ((self._unreadable.attempt(row["id"], record_of, row), row["token"]) for row in rows)
        return [Claim(record, token, now) for record, token in records if record is not None]

    async def next_turns(self, rows: Sequence[Row | None]) -> list[int | None]:
        """Return the turns of new tasks, `None` for `None` and for a task that is not claimable.

        Asks nothing if no task is claimable. Raises `StoreUnavailable`.
        """
        queues = [None if row is None or not is_claimable(row) else _principal_queue(row) for row in rows]
        reached = await self._reached_turns({queue for queue in queues if queue is not None})
        turns: list[int | None] = []
        for row, queue in zip(rows, queues, strict=True):
            if row is not None and queue is not None:
                reached[queue] = next_turn(row.created, reached[queue])
            turns.append(None if queue is None else reached[queue])
        return turns

    async def _reached_turns(self, queues: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return the turns behind which new tasks are queued, by server and principal (see `next_turn`)."""
        if not queues:
            return {}
        servers, principals = zip(*queues, strict=True)
        claimed = [self._turns.get(server, 0) for server in servers]
        rows = await self._connection.fetch(sql("reached_turns"), servers, principals, claimed, retry=True)
        return dict(zip(queues, (row[0] for row in rows), strict=True))

    async def record_turns(self, *, at_once: bool = False) -> None:
        """Record the largest turns that this process has claimed, for other processes, about once a second.

        An error is ignored: the other processes go by older turns until the next attempt.
        """
        now, turns = time.monotonic(), dict(self._turns)
        if turns == self._recorded_turns or (now < self._record_turns_at and not at_once):
            return
        self._record_turns_at = now + _RECORD_TURNS_SECONDS
        with suppress(StoreError, asyncpg.PostgresError):
            await self._connection.fetch(sql("increase_turns"), [*turns], [*turns.values()], retry=True)
            self._recorded_turns = turns

    async def _claim_by_tool(
        self, values: tuple[Any, ...], queues: tuple[_Queue, ...]
    ) -> tuple[int, list[Any]]:
        """Claim tasks of some queues; return the time and the rows of the tasks."""
        connection, began = await self._connection.connect(), time.monotonic()
        limits = self.limits_by_queues.pop(queues, None)
        if limits is None or limits.connection is not connection or began >= limits.full_search_at:
            limits = _from_start(queues)
        found, claimed = await self._search(values, queues, limits)
        if found["is_partial"]:
            limits = _from_start(queues)
            found, claimed = await self._search(values, queues, limits)
        full_search_at = next_full_search(began) if limits.since is None else limits.full_search_at
        while len(self.limits_by_queues) >= _MAX_SEARCHES:
            del self.limits_by_queues[next(iter(self.limits_by_queues))]
        self.limits_by_queues[queues] = _next_limits(found, connection, full_search_at)
        self.note_time(found["now"])
        return found["now"], claimed

    async def _search(
        self, values: tuple[Any, ...], queues: tuple[_Queue, ...], limits: _Limits
    ) -> tuple[Any, list[Any]]:
        """Return the row with the limits of the next search, and the rows of the claimed tasks."""
        servers, tools = [server for server, _ in queues], [tool for _, tool in queues]
        values = (*values, tools, limits.since, limits.ended_after, _MAX_ARRIVED_TASKS)
        if limits.first:
            first = [limits.first.get(queue, (None, None)) for queue in queues]
            columns = [turn for turn, _ in first], [key for _, key in first]
            rows = await self._connection.fetch(sql("claim_by_tool"), *values, *columns, servers)
        else:
            rows = await self._connection.fetch(sql("claim_arrived"), *values, servers)
        (found,) = (row for row in rows if row["key"] is None)
        return found, [row for row in rows if row["key"] is not None]


def _queue_position(row: Any) -> tuple[int, int]:
    return (row["created"] if row["turn"] is None else row["turn"]), row["key"]


def _principal_queue(row: Row) -> tuple[str, str]:
    return escape_text(row.server), escape_text(row.principal)


def _from_start(queues: tuple[_Queue, ...]) -> _Limits:
    return _Limits(dict.fromkeys(queues, _START))


def _next_limits(found: Any, connection: asyncpg.Connection, full_search_at: float) -> _Limits:
    """Return the limits after a search on this connection that found this row."""
    first = {(server, tool): (turn, key) for server, tool, turn, key in found["next_search"] or ()}
    remaining, since = found["remaining"] or (), found["settled"]
    if len(remaining) > _MAX_REMAINING_TASKS:
        for server, tool, turn, key in remaining:
            queue, position = (server, tool), (turn, key)
            first[queue] = min(first.get(queue, position), position)
    elif remaining:
        since = min(since, found["first_freed"])
    ended_after = found["now"] - _LEASE_SLACK_MILLISECONDS
    if found["first_ended"] is not None:
        ended_after = min(ended_after, found["first_ended"] - 1)
    return _Limits(first, since, ended_after, connection, full_search_at)
