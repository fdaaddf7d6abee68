"""Reads how many tasks there are, and chooses by these numbers how a list is searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.store.contract import HourlyTally, Lease, Tallies
from antiphon.store.list_rules import (
    MAX_COUNTED_TASKS,
    SearchBy,
    TaskList,
    possible_searches,
    search_by_tallies,
)
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.statements import escape_text, escape_texts, sql, unescape_text
from antiphon.store.tally_rules import MAX_EXPIRED_TASKS, hourly_tallies_of, tallies_of

__all__ = ["best_search", "fetch_hourly_tallies", "fetch_leases", "fetch_tallies"]


async def fetch_tallies(
    connection: ReconnectingConnection,
    now: int | None,
    servers: Sequence[str] | None,
    *,
    max_expired: int = MAX_EXPIRED_TASKS + 1,
) -> Tallies:
    """Return the numbers of tasks, without up to `max_expired` tasks that have expired."""
    values = (escape_texts(servers), now, max_expired)
    rows = await connection.fetch(sql("tallies"), *values, retry=True)
    numbers: tuple[list[Any], list[Any]] = ([], [])
    for is_expired, server, tool, status, tasks in rows:
        numbers[is_expired].append((unescape_text(server), unescape_text(tool), status, tasks))
    return tallies_of(*numbers)


async def fetch_hourly_tallies(
    connection: ReconnectingConnection, since: int, servers: Sequence[str] | None
) -> list[HourlyTally]:
    """Return the numbers of tasks by hour."""
    rows = await connection.fetch(sql("hourly_tallies"), since, escape_texts(servers), retry=True)
    return hourly_tallies_of(
        (hour, unescape_text(server), unescape_text(tool), kind, tasks)
        for hour, server, tool, kind, tasks in rows
    )


async def fetch_leases(connection: ReconnectingConnection, now: int | None) -> list[Lease]:
    """Return which workers hold how many tasks."""
    return [
        Lease(unescape_text(worker), unescape_text(server), unescape_text(tool), tasks, left / 1000)
        for worker, server, tool, tasks, left in await connection.fetch(sql("leases"), now, retry=True)
    ]


async def best_search(connection: ReconnectingConnection, wanted: TaskList) -> SearchBy | None:
    """Return the field by which the fewest tasks have to be read; `None` if no task is in the list."""
    fields = possible_searches(wanted)
    if len(fields) == 1:
        return fields[0]
    best = search_by_tallies(wanted, await fetch_tallies(connection, None, None, max_expired=0))
    if best is None or wanted.principal is None:
        return best and best[0]
    most = min(best[1], MAX_COUNTED_TASKS)
    values = (escape_text(wanted.principal), most + 1)
    rows = await connection.fetch(sql("count_all_of_principal"), *values, retry=True)
    return best[0] if rows[0][0] > most else "principal"
