"""What may be done with a task, and what it does to the task's row. Pure, and the same for every backend.

A row is the record and who holds it. The backends keep rows and entries; this module alone decides
whether a writer is too late, who holds a task, and when a task is over. It must not know where rows are
kept, and it has no clock: `now` is always given, in milliseconds since 1970.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import LeaseLost, NoTask, Stale
from antiphon.store.contract import Phase, Record

__all__ = [
    "Pair",
    "Row",
    "advance",
    "alive",
    "begin",
    "check",
    "encode",
    "free",
    "hold",
    "known_phase",
    "moment",
    "open_cursor",
    "record_of",
    "release",
    "renew",
    "some",
    "span",
    "to_cursor",
    "to_pairs",
]

Pair: TypeAlias = tuple[str, str]
"""A kind, and its data as JSON text."""

_LARGEST = 2**63 - 1
_PHASES = ("ready", "waiting", "ended")


class Row(msgspec.Struct, array_like=True):
    """A task as a store keeps it. The store that loaded it is its one owner."""

    key: int
    """Its number in this store: a later task has a larger one."""
    id: str
    principal: str
    tool: str
    phase: Phase
    version: int
    created: int
    updated: int
    expires: int | None
    token: int
    """The last token that was given out."""
    worker: str | None
    """Whose token is still good. It stays so after the lease has run out, until another has the task."""
    lease: int
    """Until when nobody else may have the task; 0 if anybody may."""
    head: str | None = None
    """JSON text; `None` if it was not loaded."""


def encode(data: Any) -> str:
    """Data as JSON text; raises `TypeError` for what is not JSON."""
    return msgspec.json.encode(data).decode()


def to_pairs(entries: Sequence[tuple[str, Any]]) -> list[Pair]:
    """Entries as they are kept; raises `TypeError` for what is not JSON."""
    return [(_text(kind), encode(data)) for kind, data in entries]


def moment(time: int) -> int:
    """The time; raises `ValueError` for one that cannot be kept."""
    if not -_LARGEST < time < _LARGEST:
        raise ValueError(f"{time} is no time in milliseconds since 1970.")
    return time


def span(seconds: float) -> int:
    """A lease in milliseconds; raises `ValueError` for one that is no time."""
    try:
        length = int(seconds * 1000)
    except (OverflowError, ValueError):
        length = -1
    if not 0 <= length < _LARGEST // 2:
        raise ValueError(f"A lease of {seconds} seconds is no time.")
    return length


def known_phase(phase: Phase) -> Phase:
    """The phase; raises `ValueError` for one that there is not."""
    if phase not in _PHASES:
        raise ValueError(f"There is no phase {phase!r}: it is one of {', '.join(_PHASES)}.")
    return phase


def some(limit: int) -> int:
    """The limit of a page; raises `ValueError` for one that lets nothing through."""
    if limit < 1:
        raise ValueError("A page holds at least one record: ask for a limit of 1 or more.")
    return limit


def begin(record: Record, count: int, *, key: int = 0, held: bool) -> Row:
    """The row of a new task with so many entries; raises `ValueError` for what cannot be kept."""
    known_phase(record.phase)
    if held and record.phase != "ready":
        raise ValueError("A worker can only hold a task that is ready.")
    return Row(
        key=key,
        id=_text(record.id),
        principal=_text(record.principal),
        tool=_text(record.tool),
        phase=record.phase,
        version=count,
        created=moment(record.created),
        updated=moment(record.updated),
        expires=None if record.expires is None else moment(record.expires),
        token=0,
        worker=None,
        lease=0,
        head=encode(record.head),
    )


def alive(row: Row, now: int) -> bool:
    """Whether a task's time is not over."""
    return row.expires is None or row.expires > now


def free(row: Row) -> bool:
    """Whether a worker may take the task, as far as the row says. A lease that ran out is ended first."""
    return row.phase == "ready" and not row.lease


def check(row: Row | None, id: str, *, expect: int, token: int | None, now: int) -> Row:
    """The row, if it may be appended to; raises `NoTask`, `LeaseLost` or `Stale`, in this order."""
    if row is None or not alive(row, now):
        raise NoTask(f"There is no task {id!r}, or no more.")
    if token is not None and not _holds(row, token):
        raise LeaseLost(f"The task {id!r} is no longer held with the token {token}: stop working on it.")
    if row.version != expect:
        raise Stale(f"The task {id!r} has {row.version} entries, not {expect}: read them, then decide again.")
    return row


def advance(row: Row, count: int, *, phase: Phase, now: int) -> None:
    """Note that so many entries were added. A phase other than `ready` ends the lease."""
    row.version += count
    row.phase = phase
    row.updated = now
    if phase != "ready":
        row.worker, row.lease = None, 0


def hold(row: Row, worker: str, until: int) -> int:
    """Give a task to a worker; returns the token, larger than all before."""
    row.token += 1
    row.worker, row.lease = worker, until
    return row.token


def renew(row: Row, token: int, *, until: int, now: int) -> bool:
    """Hold on to a task, if the token is still good."""
    if not alive(row, now) or not _holds(row, token):
        return False
    row.lease = until
    return True


def release(row: Row, token: int) -> bool:
    """Let go of a task, if the token is still good."""
    if not _holds(row, token):
        return False
    row.worker, row.lease = None, 0
    return True


def record_of(row: Row) -> Record:
    """The record of a row whose head is loaded."""
    return Record(
        id=row.id,
        principal=row.principal,
        tool=row.tool,
        phase=row.phase,
        version=row.version,
        created=row.created,
        updated=row.updated,
        expires=row.expires,
        head=msgspec.json.decode(row.head or "null"),
    )


def to_cursor(created: int, key: int) -> str:
    """Where a page ended."""
    return base64.urlsafe_b64encode(f"{created}.{key}".encode()).rstrip(b"=").decode()


def open_cursor(cursor: str | None) -> tuple[int, int]:
    """What a cursor says; before everything for none. Raises `ValueError` for one that is not ours."""
    if cursor is None:
        return _LARGEST, _LARGEST
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        created, key = (int(part) for part in text.split("."))
    except (binascii.Error, ValueError):
        raise ValueError("The cursor is not one that this store gave out: begin again without one.") from None
    if to_cursor(created, key) != cursor or not (-_LARGEST <= created <= _LARGEST and 0 <= key <= _LARGEST):
        raise ValueError("The cursor is not one that this store gave out: begin again without one.")
    return created, key


def _holds(row: Row, token: int) -> bool:
    return row.worker is not None and row.token == token


def _text(value: str) -> str:
    """The text, if it can be kept as UTF-8; half a surrogate pair cannot."""
    value.encode()
    return value
