"""Skips tasks whose rows cannot be read, because somebody damaged them, and logs each of them once.

One damaged row must not take the other tasks down with it. Owns the ids that were logged; does not know
where rows are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store import rules
from antiphon.store.contract import Record
from antiphon.store.rules import Row

__all__ = ["UnreadableRecords"]

Loaded = TypeVar("Loaded")
Result = TypeVar("Result")

logger = logging.getLogger("antiphon")

_rows = msgspec.json.Decoder(list[Row])
_raw_rows = msgspec.json.Decoder(list[msgspec.Raw])
_row = msgspec.json.Decoder(Row)

_MAX_LOGGED_IDS = 1000
"""How many ids are remembered as logged. After more, the log may repeat itself."""


class UnreadableRecords:
    """The tasks, or other things of a `kind`, of one store that could not be read."""

    def __init__(self, store: str, *, kind: str = "task") -> None:
        self._store = store
        self._kind = kind
        self._logged: set[str] = set()

    def log(self, id: str, reason: object) -> None:
        """Log a task that cannot be read, the first time only."""
        if id in self._logged:
            return
        if len(self._logged) >= _MAX_LOGGED_IDS:
            self._logged.clear()
        self._logged.add(id)
        logger.error(
            "Skipping %s %r: its row in the store %s cannot be read: %s. The others are not affected. "
            "Restore the row from a backup, or delete it.",
            self._kind,
            id,
            self._store,
            reason,
        )

    @staticmethod
    def error(id: str) -> StoreUnavailable:
        """Return the error for somebody who asks for a task that cannot be read."""
        return StoreUnavailable(
            f"The task {id!r} cannot be read: its row in the store is damaged. Restore it from a backup."
        )

    def decode_rows(self, text: str) -> list[Row]:
        """Return the rows in a JSON list that can be read."""
        return [row for row in self.decode_each(text) if row is not None]

    def decode_each(self, text: str) -> list[Row | None]:
        """Return the rows in a JSON list, with `None` for each that cannot be read."""
        try:
            return list(_rows.decode(text))
        except msgspec.ValidationError:
            return [self._decode(raw) for raw in _raw_rows.decode(text)]

    def _decode(self, raw: msgspec.Raw) -> Row | None:
        try:
            return _row.decode(raw)
        except msgspec.ValidationError as error:
            self.log(msgspec.json.decode(raw)[1], error)
            return None

    def record_of(self, row: Row) -> Record | None:
        """Return the record of a row whose head is loaded; log and return `None` if it cannot be read."""
        return self.attempt(row.id, rules.record_of, row)

    def attempt(self, id: str, load: Callable[[Loaded], Result], row: Loaded) -> Result | None:
        """Return the object that `load` makes of a row; log and return `None` if the row cannot be read."""
        try:
            return load(row)
        except (msgspec.MsgspecError, ValueError) as error:
            self.log(id, error)
            return None

    def expired_records_of(self, rows: Iterable[Row]) -> list[Record]:
        """Return the records of deleted tasks. The record of a task that cannot be read has no head."""
        return [self.record_of(row) or rules.record_of(_without_head(row)) for row in rows]


def _without_head(row: Row) -> Row:
    return msgspec.structs.replace(row, head=None)
