"""The one that reads: a connection that writes nothing. Lives on the reader's thread.

Each read sees what was committed before it began, by whatever process. Records that are asked for at the
same time are looked up together. It must not know the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store import rules
from antiphon.store.contract import Entry, Page, Phase, Record
from antiphon.store.sqlite import sql
from antiphon.store.sqlite.connection import Database
from antiphon.store.sqlite.lane import Done, Outcome

__all__ = ["Reader", "Reading"]

_records = msgspec.json.Decoder(list[Record])
_entries = msgspec.json.Decoder(list[Entry])
_places = msgspec.json.Decoder(list[tuple[int, int]])


class Reading(NamedTuple):
    """Something to be read: a query of the reader's, or the record of one task."""

    run: Callable[[Reader], Any] | None = None
    id: str = ""


class Reader:
    """Reads one file for one process."""

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._connection: sqlite3.Connection | None = None

    def run(self, readings: list[Reading]) -> Done:
        """Read all of it; each gets its own outcome."""
        ids = [reading.id for reading in readings if reading.run is None]
        records, error = self._outcome(lambda reader: reader._get(ids)) if ids else ({}, None)
        outcomes: list[Outcome] = []
        for reading in readings:
            if reading.run is not None:
                outcomes.append(self._outcome(reading.run))
            else:
                outcomes.append((None, error) if error else (records.get(reading.id), None))
        return Done(outcomes)

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def read(self, id: str, after: int, limit: int) -> list[Entry]:
        """Entries of one log."""
        values = {"id": id, "after": after, "limit": limit, "now": self._now()}
        try:
            text, form = self._one(sql.READ, values)
        except sqlite3.DataError:  # more than SQLite can put into one text
            if limit == 1:
                raise
            first = self.read(id, after, limit // 2)
            rest = self.read(id, first[-1].number, limit - len(first)) if first else []
            return first + rest
        return _entries.decode(self._known(text, form))

    def page(self, principal: str | None, place: tuple[int, int], limit: int) -> Page:
        """A page of records."""
        values: dict[str, Any] = {"created": place[0], "key": place[1], "limit": limit + 1}
        values |= {"principal": principal, "now": self._now()}
        text, form, places = self._one(sql.page(principal is not None), values)
        records = _records.decode(self._known(text, form))
        if len(records) <= limit:
            return Page(tuple(records), None)
        return Page(tuple(records[:limit]), rules.to_cursor(*_places.decode(places)[limit - 1]))

    def count(self, phase: Phase) -> int:
        """How many tasks are in a phase."""
        return int(self._one(sql.COUNT, (phase,))[0])

    def oldest(self) -> int | None:
        """Since when the task waits that is next."""
        found = self._one(sql.OLDEST, {"now": self._now()})
        return None if found is None else int(found[0])

    def _get(self, ids: list[str]) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for size, values in sql.padded([(id,) for id in dict.fromkeys(ids)]):
            text, form = self._one(sql.get(size), [*values, self._now()])
            for record in _records.decode(self._known(text, form)):
                found[record.id] = record
        return found

    def _outcome(self, run: Callable[[Reader], Any]) -> Outcome:
        try:
            return run(self), None
        except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
            self.close()
            return None, self._database.explain(error, "read")
        except Exception as error:
            return None, error

    def _one(self, query: str, values: Any) -> Any:
        if self._connection is None:
            self._connection = self._database.connect("read")
        return self._connection.execute(query, values).fetchone()

    def _known(self, text: str, form: int | None) -> str:
        """The text, if this version knows how it is written."""
        if form is not None and form > sql.FORMAT:
            raise StoreUnavailable(
                f"The store {self._database.path} holds what a newer Antiphon has written: install that."
            )
        return text

    def _now(self) -> int:
        return int(self._clock() * 1000)
