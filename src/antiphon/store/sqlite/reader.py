"""Reads batches of operations on a read-only connection. Runs on the reader's thread.

Each read sees all commits before it, of every process. Records that are requested together are looked up
together. The reader does not know the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from antiphon.store import rules, unavailable
from antiphon.store.contract import Entry, Page, Phase, Record
from antiphon.store.sqlite import statements
from antiphon.store.sqlite.batch_thread import BatchResult, OperationResult
from antiphon.store.sqlite.clock import StoreClock
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.free_space import FREE_PAGES, is_worth_releasing

__all__ = ["ReadOperation", "Reader"]

_records = msgspec.json.Decoder(list[Record])
_entries = msgspec.json.Decoder(list[Entry])
_positions = msgspec.json.Decoder(list[tuple[int, int]])


class ReadOperation(NamedTuple):
    """A read: a method of the reader to call, or the id of one task to look up."""

    run: Callable[[Reader], Any] | None = None
    id: str = ""


class Reader:
    """A read-only connection to the file."""

    def __init__(self, database: Database, clock: StoreClock) -> None:
        self._database = database
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
                results.append((None, error) if error else (records.get(operation.id), None))
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

    def page(self, principal: str | None, position: tuple[int, int], limit: int) -> Page:
        """Return a page of records."""
        values: dict[str, Any] = {"created": position[0], "key": position[1], "limit": limit + 1}
        values |= {"principal": principal, "now": self._clock.now()}
        text, newest_format, positions = self._one(statements.list_records(principal is not None), values)
        records = _records.decode(self._check_format(text, newest_format))
        if len(records) <= limit:
            return Page(tuple(records), None)
        return Page(tuple(records[:limit]), rules.encode_cursor(*_positions.decode(positions)[limit - 1]))

    def count(self, phase: Phase) -> int:
        """Return the number of tasks in a phase."""
        return int(self._one(statements.COUNT_TASKS, (phase,))[0])

    def count_of_principal(self, principal: str, phase: Phase, most: int) -> int:
        """Return the number of a principal's tasks in a phase, or `most` if there are more."""
        return int(self._one(statements.COUNT_OF_PRINCIPAL, (principal, phase, most))[0])

    def oldest_ready(self) -> int | None:
        """Return when the next task to be claimed last changed."""
        found = self._one(statements.OLDEST_READY, ())
        return None if found is None else int(found[0])

    def overdue(self, limit: int) -> list[Record]:
        """Return tasks that have not ended although their time has passed."""
        text, newest_format = self._one(statements.OVERDUE_TASKS, {"now": self._clock.now(), "limit": limit})
        return _records.decode(self._check_format(text, newest_format))

    def has_much_free_space(self) -> bool:
        """Return whether the file has so many free pages that some should be released."""
        free, pages, _, mode = self._one(FREE_PAGES, ())
        return is_worth_releasing(free, pages, mode)

    def has_key(self, key: str) -> bool:
        """Return whether a key is recorded."""
        return self._one(statements.PROBED_KEY, (key,)) is not None

    def _get(self, ids: list[str]) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for size, values in statements.padded_portions([(id,) for id in dict.fromkeys(ids)]):
            text, newest_format = self._one(statements.get_records(size), [*values, self._clock.now()])
            for record in _records.decode(self._check_format(text, newest_format)):
                found[record.id] = record
        return found

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
