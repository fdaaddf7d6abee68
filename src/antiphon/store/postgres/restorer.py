"""Creates tasks with the logs that they had in another store. Does not know where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from antiphon.store.postgres.connection import WriteContext
from antiphon.store.postgres.statements import FORMAT, columns, escape_tags, escape_text, sql
from antiphon.store.rules import Row

__all__ = ["Extend", "Restore", "Restorer"]


class Restore(NamedTuple):
    """Creates a task with the log that it had in another store."""

    row: Row
    entries: Sequence[tuple[str, int, str]]


class Extend(NamedTuple):
    """Brings a task up to date with the one in the other store, unless it has gone on in this one."""

    row: Row
    entries: Sequence[tuple[str, int, str]]
    expect: int
    expect_token: int


class Restorer:
    """Restores tasks on the connection that writes."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context

    async def restore(self, operations: Sequence[Restore], turns: Sequence[int | None]) -> list[Any]:
        """Create tasks with their turns, and return rows with the ids of those whose id was free."""
        context = self._context
        values = (
            *columns((_task_row(operation.row) for operation in operations), 13),
            *columns(_entry_rows(operations), 5),
        )
        return await context.connection.fetch(
            sql("restore"),
            context.clock(),
            FORMAT,
            *values,
            context.slot(),
            context.schema,
            context.origin,
            turns,
            [escape_text(operation.row.sharer) for operation in operations],
        )

    async def extend(self, operation: Extend) -> list[Any]:
        """Bring a task up to date; return a row, or none if the task has gone on here."""
        context, (row, entries, expect, expect_token) = self._context, operation
        texts = escape_text(row.id), row.phase
        numbers = row.version, row.updated, row.expires, row.token
        values = (*texts, *numbers, row.head, row.wakes, escape_tags(row.tags), expect, expect_token)
        added = [(escape_text(kind), at, data) for kind, at, data in entries]
        return await context.connection.fetch(
            sql("extend"),
            context.clock(),
            FORMAT,
            *values,
            *columns(added, 3),
            context.slot(),
            context.schema,
            context.origin,
        )


def _task_row(row: Row) -> tuple[Any, ...]:
    texts = (escape_text(row.id), escape_text(row.principal), escape_text(row.tool))
    numbers = (row.version, row.created, row.updated, row.expires, row.token)
    return (*texts, row.phase, *numbers, row.head, escape_text(row.server), row.wakes, escape_tags(row.tags))


def _entry_rows(operations: Sequence[Restore]) -> list[tuple[Any, ...]]:
    return [
        (escape_text(row.id), number, escape_text(kind), at, data)
        for row, entries in operations
        for number, (kind, at, data) in enumerate(entries, 1)
    ]
