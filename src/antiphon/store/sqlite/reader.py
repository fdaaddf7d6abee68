"""Reads batches of operations on a read-only connection. Runs on the reader's thread.

Each read sees all commits before it, of every process. Records that are requested together are looked up
together. The reader does not know the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store import rules, unavailable
from antiphon.store.contract import Entry, Page, Phase, Record
from antiphon.store.sqlite import statements
from antiphon.store.sqlite.batch_thread import BatchResult, OperationResult
from antiphon.store.sqlite.clock import StoreClock
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.free_space import FREE_PAGES, is_worth_releasing
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["ReadOperation", "Reader"]

_records = msgspec.json.Decoder(list[Record])
_entries = msgspec.json.Decoder(list[Entry])
_names = msgspec.json.Decoder(list[str])
_positions = msgspec.json.Decoder(list[tuple[int, int]])


class ReadOperation(NamedTuple):
    """A read: a method of the reader to call, or the id of one task to look up."""

    run: Callable[[Reader], Any] | None = None
    id: str = ""


class Reader:
    """A read-only connection to the file."""

    def __init__(
        self, database: Database, clock: StoreClock, unreadable: UnreadableRecords | None = None
    ) -> None:
        self._database = database
        self._unreadable = unreadable or UnreadableRecords(database.path)
        self._clock = clock
        self._connection: sqlite3.Connection | None = None

    def run(self, operations: list[ReadOperation]) -> BatchResult:
        """Run all reads; each gets its own result."""
        ids = [operation.id for operation in operations if operation.run is None]
        records, error = self._try(lambda reader: reader._get(ids)) if ids else ({}, None)
        results: list[OperationResult] = []
        for operation in operations:
            if operation.run is not None:
                results.append(self._try(operation.run))
            else:
                results.append((None, error) if error else _result(records.get(operation.id)))
        return BatchResult(results)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def read(self, id: str, after: int, limit: int) -> list[Entry]:
        """Return entries of one log."""
        values = {"id": id, "after": after, "limit": limit, "now": self._clock.now()}
        try:
            text, newest_format = self._one(statements.READ_ENTRIES, values)
        except sqlite3.DataError:  # the entries exceed the longest text that SQLite can return
            if limit == 1:
                raise
            first = self.read(id, after, limit // 2)
            rest = self.read(id, first[-1].number, limit - len(first)) if first else []
            return first + rest
        return _entries.decode(self._check_format(text, newest_format))

    def page(
        self,
        principal: str | None,
        position: tuple[int, int],
        limit: int,
        servers: Sequence[str] | None = None,
    ) -> Page:
        """Return a page of records. Those that cannot be read are left out, so it may have fewer."""
        values: dict[str, Any] = {"created": position[0], "key": position[1], "limit": limit + 1}
        values |= {"principal": principal, "now": self._clock.now()}
        if servers is None and principal is not None:
            servers = _names.decode(self._one(statements.SERVERS_OF_PRINCIPAL, {"principal": principal})[0])
        query = partial(statements.list_records, principal is not None, servers is not None)
        found: list[tuple[tuple[int, int], Record | None]] = []
        for server in (None,) if servers is None else servers:
            records, (positions,) = self._records(query, {**values, "server": server})
            found += zip(_positions.decode(positions), records, strict=True)
        found.sort(key=lambda item: item[0], reverse=True)
        page = tuple(record for _, record in found[:limit] if record is not None)
        return Page(page, rules.encode_cursor(*found[limit - 1][0]) if len(found) > limit else None)

    def count(self, phase: Phase, servers: Sequence[str] | None = None) -> int:
        """Return the number of tasks in a phase."""
        if servers is None:
            return int(self._one(statements.COUNT_TASKS, (phase,))[0])
        values = {"phase": phase, "servers": rules.encode_json(servers)}
        if phase == "ready":
            return int(self._one(statements.COUNT_READY_TASKS_OF_SERVERS, values)[0])
        return int(self._one(statements.COUNT_TASKS_OF_SERVERS, values)[0])

    def count_of_principal(self, principal: str, phase: Phase, most: int) -> int:
        """Return the number of a principal's tasks in a phase, or `most` if there are more."""
        return int(self._one(statements.COUNT_OF_PRINCIPAL, (principal, phase, most))[0])

    def oldest_ready(self, servers: Sequence[str] | None = None) -> int | None:
        """Return when the next task to be claimed last changed."""
        names = None if servers is None else rules.encode_json(servers)
        found = self._one(statements.OLDEST_READY, {"servers": names})
        return None if found is None else int(found[0])

    def overdue(self, limit: int, servers: Sequence[str] | None = None) -> list[Record]:
        """Return tasks that have not ended although their time has passed."""
        values = {"now": self._clock.now(), "limit": limit}
        query = partial(statements.overdue_records, servers is not None)
        found: list[Record] = []
        for server in (None,) if servers is None else servers:
            records, _ = self._records(query, {**values, "server": server})
            found += [record for record in records if record is not None]
        found.sort(key=lambda record: record.expires or 0)
        return found[:limit]

    def has_much_free_space(self) -> bool:
        """Return whether the file has so many free pages that some should be released."""
        free, pages, _, mode = self._one(FREE_PAGES, ())
        return is_worth_releasing(free, pages, mode)

    def has_key(self, key: str) -> bool:
        """Return whether a key is recorded."""
        return self._one(statements.PROBED_KEY, (key,)) is not None

    def _get(self, ids: list[str]) -> dict[str, Record | StoreUnavailable]:
        """Return records by id, and an error in place of a record that cannot be read."""
        found: dict[str, Record | StoreUnavailable] = {}
        for size, values in statements.padded_portions([(id,) for id in dict.fromkeys(ids)]):
            query = partial(statements.get_records, size)
            records, _ = self._records(query, [*values, self._clock.now()])
            for record in records:
                if record is not None:
                    found[record.id] = record
            if None in records:
                for id in values[: len(ids)]:
                    found.setdefault(id, self._unreadable.error(id))
        return found

    def _records(self, query: Callable[..., str], values: Any) -> tuple[list[Record | None], list[Any]]:
        """Return the records that a query finds, `None` for one that cannot be read, and its other columns.

        Asks again, in a form that takes longer, if a record cannot be read.
        """
        try:
            text, newest_format, *others = self._one(query(), values)
            return list(_records.decode(self._check_format(text, newest_format))), others
        except (msgspec.MsgspecError, sqlite3.OperationalError) as error:
            if isinstance(error, sqlite3.OperationalError) and "UTF-8" not in str(error):
                raise
        assert self._connection is not None
        self._connection.text_factory = _decode_damaged
        try:
            text, newest_format, *others = self._one(query(as_rows=True), values)
        finally:
            self._connection.text_factory = str
        self._check_format(text, newest_format)
        rows = self._unreadable.decode_each(text)
        return [None if row is None else self._unreadable.record_of(row) for row in rows], others

    def _try(self, run: Callable[[Reader], Any]) -> OperationResult:
        try:
            return run(self), None
        except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
            self.close()
            return None, self._database.explain(error, "read")
        except Exception as error:
            return None, error

    def _one(self, query: str, values: Any) -> Any:
        self._database.file.verify()
        if self._connection is None:
            self._connection = self._database.connect("read")
        return self._connection.execute(query, values).fetchone()

    def _check_format(self, text: str, newest_format: int | None) -> str:
        """Return the text; raises `StoreUnavailable` if a newer version wrote part of it."""
        if newest_format is not None and newest_format > statements.FORMAT:
            raise unavailable.newer_format(self._database.path)
        return text


def _result(found: Record | StoreUnavailable | None) -> OperationResult:
    return (None, found) if isinstance(found, StoreUnavailable) else (found, None)


def _decode_damaged(text: bytes) -> str:
    """Decode text that may not be UTF-8, so that the rest of a row can be read."""
    return text.decode(errors="replace")
