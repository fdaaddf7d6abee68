"""One transaction's worth of work: load the rows, decide in Python, write what changed.

The operations of a batch come from callers that do not know of each other. One that is refused has
changed nothing, and the others go on. All rows are loaded by one statement and written by one, whatever
the size of the batch. The batch owns its rows; it neither begins nor commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import Stale
from antiphon.store import rules
from antiphon.store.contract import Claim, Phase, Record
from antiphon.store.rules import Pair, Row
from antiphon.store.sqlite import sql

__all__ = ["Batch", "Operation"]

_LAPSED = 1000
"""Leases that one claim ends, at most, if they ran out."""
_SWEPT = 4
"""Old keys forgotten for each new one."""
_FORGOTTEN = 5000
"""Entries that one `expire` deletes in one transaction, about: a long log goes at once, but alone."""
_KEPT = 512
"""Commits and messages that others can look back on; who is further behind takes all as changed."""
_TRIMMED = 64

_rows = msgspec.json.Decoder(list[Row])
_names = msgspec.json.Decoder(list[str])


class Operation(NamedTuple):
    """Something to be done in a batch, and the tasks that it must find loaded."""

    run: Callable[[Batch], Any]
    ids: tuple[str, ...] = ()
    queries: bool = False
    """Whether it looks for tasks by itself; if so it comes last, after the others are written."""


class Batch:
    """The rows that a transaction has loaded, and what is to be written."""

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self._rows: dict[str, Row] = {}
        self._last = 0
        self._new: dict[int, Row] = {}
        self._changed: dict[int, Row] = {}
        self._entries: list[Sequence[Any]] = []
        self._counts: dict[str, int] = {"ready": 0, "waiting": 0, "ended": 0}
        self._said: list[tuple[str, str]] = []
        self.touched: set[str] = set()
        self.ready = False

    def load(self, ids: Iterable[str]) -> None:
        """Load the rows of these tasks, as far as there are any."""
        for size, values in sql.padded([(id,) for id in dict.fromkeys(ids)]):
            found, self._last = self._connection.execute(sql.load(size), values).fetchone()
            for row in _rows.decode(found):
                self._rows[row.id] = row

    def create(self, row: Row, pairs: Sequence[Pair], worker: str | None, lease: int) -> Claim | None:
        """Begin a log; raises `Stale`."""
        if row.id in self._rows:
            raise Stale(f"There is a task {row.id!r} already: take another id.")
        row = copy(row)  # the operation may have to be done again
        self._last += 1
        row.key = self._last
        self._rows[row.id] = self._new[row.key] = row
        if worker is not None:
            rules.hold(row, worker, self._now + lease)
        self._add(row, 1, pairs)
        self._counts[row.phase] += 1
        return None if worker is None else Claim(rules.record_of(row), row.token)

    def append(
        self, id: str, pairs: Sequence[Pair], expect: int, phase: Phase, head: str, token: int | None
    ) -> int:
        """Add to a log; raises `NoTask`, `LeaseLost` or `Stale`."""
        row = rules.check(self._rows.get(id), id, expect=expect, token=token, now=self._now)
        if row.phase != phase:
            self._counts[row.phase] -= 1
            self._counts[phase] += 1
        first = row.version + 1
        rules.advance(row, len(pairs), phase=phase, now=self._now)
        row.head = head
        self._add(row, first, pairs)
        self._change(row)
        return row.version

    def renew(self, claims: Collection[tuple[str, int]], lease: int) -> set[str]:
        """Hold on to tasks; returns those that are held."""
        held: set[str] = set()
        for id, token in claims:
            row = self._rows.get(id)
            if row and rules.renew(row, token, until=self._now + lease, now=self._now):
                self._change(row)
                held.add(id)
        return held

    def release(self, id: str, token: int) -> None:
        """Let go of a task."""
        row = self._rows.get(id)
        if row and rules.release(row, token):
            self._change(row)
            self.ready = self.ready or rules.free(row)

    def claim(self, worker: str, lease: int, limit: int, tools: Collection[str] | None) -> list[Claim]:
        """Take the oldest tasks that are free."""
        if limit < 1:
            return []
        self._flush()
        self._connection.execute(sql.LAPSE, {"now": self._now, "limit": _LAPSED})
        names = _names.decode(self._one(sql.ALL_TOOLS)) if tools is None else sorted(set(tools))
        found = [
            _rows.decode(self._one(sql.FREE, {"tool": tool, "now": self._now, "limit": limit}))
            for tool in names
        ]
        claims = []
        for row in islice(merge(*found, key=lambda row: (row.created, row.key)), limit):
            claims.append(Claim(rules.record_of(row), rules.hold(row, worker, self._now + lease)))
            row.head = None  # it stays what it is
            self._rows[row.id] = row
            self._change(row)
        return claims

    def expire(self, limit: int) -> list[Record]:
        """Forget some tasks whose time is over; fewer than `limit` if their logs are long."""
        self._flush()
        found = _rows.decode(self._one(sql.DUE, {"now": self._now, "limit": limit}))
        rows: list[Row] = []
        entries = 0
        for row in found:
            entries += row.version
            if rows and entries > _FORGOTTEN:
                break
            rows.append(row)
            self._rows.pop(row.id, None)
            self._counts[row.phase] -= 1
            self.touched.add(row.id)
        for size, keys in sql.padded([(row.key,) for row in rows]):
            self._connection.execute(sql.delete_entries(size), keys)
            self._connection.execute(sql.delete_tasks(size), keys)
        return [rules.record_of(row) for row in rows]

    def use_once(self, key: str, until: int) -> bool:
        """Note a key, unless it is noted already."""
        self._connection.execute(sql.SWEEP_KEYS, {"now": self._now, "limit": _SWEPT})
        cursor = self._connection.execute(sql.NOTE_KEY, {"key": key, "until": until, "now": self._now})
        return cursor.rowcount == 1

    def publish(self, topic: str, data: str) -> None:
        """Say something to other processes."""
        self._said.append((topic, data))

    def finish(self, origin: str) -> None:
        """Write all that is not written yet, and what other processes should know of it."""
        self._flush()
        if any(self._counts.values()):
            self._connection.execute(sql.RECOUNT, self._counts)
        for topic, data in self._said:
            number = self._connection.execute(sql.SAY, (origin, topic, data)).lastrowid or 0
            if number % _TRIMMED == 0:
                self._connection.execute(sql.TRIM_MESSAGES, (number - _KEPT,))
        if self.touched or self.ready:
            touched = rules.encode(sorted(self.touched))
            number = self._connection.execute(sql.NOTE_COMMIT, (origin, touched, self.ready)).lastrowid or 0
            if number % _TRIMMED == 0:
                self._connection.execute(sql.TRIM_COMMITS, (number - _KEPT,))

    def _add(self, row: Row, first: int, pairs: Sequence[Pair]) -> None:
        for number, (kind, data) in enumerate(pairs, first):
            self._entries.append((row.key, number, kind, self._now, sql.FORMAT, data))
        self.touched.add(row.id)
        self.ready = self.ready or rules.free(row)

    def _change(self, row: Row) -> None:
        if row.key not in self._new:
            self._changed[row.key] = row

    def _flush(self) -> None:
        """Write rows and entries, so that queries find them."""
        self._write(sql.insert_tasks, [_whole(row) for row in self._new.values()])
        self._write(sql.update_tasks, [_mutable(row) for row in self._changed.values()])
        self._write(sql.insert_entries, self._entries)
        self._new, self._changed, self._entries = {}, {}, []

    def _write(self, statement: Callable[[int], str], rows: Sequence[Sequence[Any]]) -> None:
        for size, values in sql.padded(rows):
            self._connection.execute(statement(size), values)

    def _one(self, query: str, values: dict[str, Any] | tuple[()] = ()) -> str:
        return str(self._connection.execute(query, values).fetchone()[0])


def _whole(row: Row) -> Sequence[Any]:
    *columns, head = msgspec.structs.astuple(row)
    return (*columns, sql.FORMAT, head)


def _mutable(row: Row) -> Sequence[Any]:
    return row.key, row.phase, row.version, row.updated, row.token, row.worker, row.lease, row.head
