"""Decides what may be done with a task and how that changes its row. Pure, and the same for every store.

A row is a task's record and its claim. The stores keep rows and entries; this module alone decides whether
a writer is too late, who holds a task, and whether a task has expired. It does not know where rows are
kept, and it has no clock: callers pass `now`, in milliseconds since 1970.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeAlias, overload

import msgspec

from antiphon.errors import LeaseLost, NoTask, Stale
from antiphon.store.contract import UNSET, Phase, Record, UnsetType

__all__ = [
    "MAX_INT64",
    "EncodedEntry",
    "Row",
    "apply_append",
    "check_append",
    "check_expires",
    "check_page_limit",
    "check_phase",
    "check_text",
    "check_timestamp",
    "claim",
    "created_record",
    "decode_cursor",
    "encode_cursor",
    "encode_entries",
    "encode_json",
    "id_in_use",
    "is_claimable",
    "is_live",
    "is_stopping",
    "lease_milliseconds",
    "new_row",
    "record_of",
    "release",
    "renew",
    "servers_of",
]

EncodedEntry: TypeAlias = tuple[str, str]
"""An entry's kind, and its data as JSON text."""

MAX_INT64 = 2**63 - 1
"""The largest integer that a database column holds."""
_PHASES = ("ready", "waiting", "ended")
_STOPPING_WORKER = ""
"""Stands in a row for the worker whose token is valid, and that has to stop. No worker has this name."""


class Row(msgspec.Struct, array_like=True):
    """A task as a store keeps it. The store that loaded the row owns it."""

    key: int
    """The task's number in this store: a later task has a larger one."""
    id: str
    principal: str
    tool: str
    phase: Phase
    version: int
    created: int
    updated: int
    expires: int | None
    token: int
    """The last token that was issued."""
    worker: str | None
    """The worker whose token is valid. It stays valid after the lease, until another worker's claim.

    Empty for a worker that has to stop.
    """
    lease: int
    """When the lease, or the delay after a release, ends; 0 for neither."""
    server: str = ""
    """The name of the server that the task belongs to; empty for every server."""
    head: str | None = None
    """JSON text; `None` if the head was not loaded."""


def encode_json(data: Any) -> str:
    """Encode data as JSON text; raises `TypeError` for data that is not JSON."""
    return msgspec.json.encode(data).decode()


def encode_entries(entries: Sequence[tuple[str, Any]]) -> list[EncodedEntry]:
    """Encode entries for storage; raises `TypeError` for data that is not JSON."""
    return [(check_text(kind), encode_json(data)) for kind, data in entries]


def check_expires(expires: int | UnsetType | None) -> int | UnsetType | None:
    """Return the time of expiry; raises `ValueError` if it does not fit into a column."""
    return check_timestamp(expires) if isinstance(expires, int) else expires


def check_timestamp(time: int) -> int:
    """Return the timestamp; raises `ValueError` if it does not fit into a column."""
    if not -MAX_INT64 < time < MAX_INT64:
        raise ValueError(f"Invalid timestamp {time}: use milliseconds since 1970.")
    return time


def lease_milliseconds(seconds: float, *, kind: str = "lease") -> int:
    """Convert a lease or a delay to milliseconds; raises `ValueError` if it is negative or too long."""
    try:
        length = int(seconds * 1000)
    except (OverflowError, ValueError):
        length = -1
    if not 0 <= length < MAX_INT64 // 2:
        raise ValueError(f"Invalid {kind} of {seconds} seconds: use a finite number, 0 or more.")
    return length


def check_phase(phase: Phase) -> Phase:
    """Return the phase; raises `ValueError` for an unknown phase."""
    if phase not in _PHASES:
        raise ValueError(f"Unknown phase {phase!r}: use one of {', '.join(_PHASES)}.")
    return phase


def check_page_limit(limit: int) -> int:
    """Return the limit of a page; raises `ValueError` if it is below 1."""
    if limit < 1:
        raise ValueError(f"Invalid page limit {limit}: a page holds at least one record.")
    return limit


def new_row(record: Record, count: int, *, key: int = 0, held: bool) -> Row:
    """Return the row of a new task with `count` entries; raises `ValueError` for an invalid record."""
    check_phase(record.phase)
    if held and record.phase != "ready":
        raise ValueError(f"A worker can only hold a task that is ready, and this one is {record.phase}.")
    return Row(
        key=key,
        id=check_text(record.id),
        principal=check_text(record.principal),
        tool=check_text(record.tool),
        phase=record.phase,
        version=count,
        created=check_timestamp(record.created),
        updated=check_timestamp(record.updated),
        expires=None if record.expires is None else check_timestamp(record.expires),
        token=0,
        worker=None,
        lease=0,
        server=check_text(record.server),
        head=encode_json(record.head),
    )


def created_record(record: Record, count: int) -> Record:
    """Return the record of a task that was created with `count` entries."""
    return record if record.version == count else msgspec.structs.replace(record, version=count)


def id_in_use(id: str) -> Stale:
    """Return the error for creating a task whose id is in use."""
    return Stale(f"The task id {id!r} is in use: choose another id.")


def is_live(row: Row, now: int) -> bool:
    """Return whether a task has not expired. A task that has not ended never expires."""
    return row.phase != "ended" or row.expires is None or row.expires > now


def is_claimable(row: Row) -> bool:
    """Return whether a worker may claim the task. The caller ends expired leases first."""
    return row.phase == "ready" and not row.lease


def check_append(row: Row | None, id: str, *, expect: int, token: int | None, now: int) -> Row:
    """Return the row if the append is allowed; raises `NoTask`, `LeaseLost` or `Stale`, in this order."""
    if row is None or not is_live(row, now):
        raise NoTask(f"There is no task {id!r}: it never existed or has expired.")
    if token is not None and not _is_valid_token(row, token):
        raise LeaseLost(f"The task {id!r} is no longer held with the token {token}: stop working on it.")
    if row.version != expect:
        raise Stale(
            f"The task {id!r} has {row.version} entries, but the writer expected {expect}: "
            "read the log and decide again."
        )
    return row


def apply_append(
    row: Row,
    count: int,
    *,
    phase: Phase,
    now: int,
    expires: int | UnsetType | None = UNSET,
    unwind_by: int | None = None,
) -> None:
    """Update a row after `count` entries were appended. A phase other than `ready` ends the lease."""
    row.version += count
    row.updated = now
    if expires is not UNSET:
        row.expires = expires
    if unwind_by is not None and row.token:
        phase = "ready"
        row.expires = None if row.expires is None else max(row.expires, unwind_by)
        row.worker = None if row.worker is None else _STOPPING_WORKER
    row.phase = phase
    if phase != "ready":
        row.worker, row.lease = None, 0


def is_stopping(row: Row) -> bool:
    """Return whether the worker that holds a task has to stop."""
    return row.worker == _STOPPING_WORKER


def claim(row: Row, worker: str, until: int) -> int:
    """Give a task to a worker, and return a token that is larger than all earlier ones."""
    row.token += 1
    row.worker, row.lease = worker, until
    return row.token


def renew(row: Row, token: int, *, until: int) -> bool:
    """Extend the lease if the token is valid, and return whether it was."""
    if not _is_valid_token(row, token):
        return False
    row.lease = until
    return True


def release(row: Row, token: int, *, until: int = 0) -> bool:
    """Take the task from its worker if the token is valid, and return whether it was.

    No worker can claim the task before `until`, which works like the end of a lease; 0 for at once.
    """
    if not _is_valid_token(row, token):
        return False
    row.worker, row.lease = None, until
    return True


def record_of(row: Row) -> Record:
    """Return the record of a row whose head is loaded."""
    return Record(
        id=row.id,
        principal=row.principal,
        tool=row.tool,
        phase=row.phase,
        version=row.version,
        created=row.created,
        updated=row.updated,
        expires=row.expires,
        head=msgspec.json.decode("null" if row.head is None else row.head),
        server=row.server,
    )


@overload
def servers_of(server: str) -> tuple[str, ...]: ...
@overload
def servers_of(server: str | None) -> tuple[str, ...] | None: ...
def servers_of(server: str | None) -> tuple[str, ...] | None:
    """Return the names that tasks of a server have: its own, and the empty one of earlier versions.

    Returns `None`, which means all servers, for `None`.
    """
    if server is None:
        return None
    return ("", check_text(server)) if server else ("",)


def encode_cursor(created: int, key: int) -> str:
    """Return the cursor of the page after the task with this creation time and key."""
    return base64.urlsafe_b64encode(f"{created}.{key}".encode()).rstrip(b"=").decode()


def decode_cursor(cursor: str | None) -> tuple[int, int]:
    """Return the creation time and key in a cursor; raises `ValueError` for an invalid cursor.

    Without a cursor, the result is larger than every task, so that the first page follows.
    """
    if cursor is None:
        return MAX_INT64, MAX_INT64
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        created, key = (int(part) for part in text.split("."))
    except (binascii.Error, ValueError):
        raise _invalid_cursor() from None
    in_range = -MAX_INT64 <= created <= MAX_INT64 and 0 <= key <= MAX_INT64
    if encode_cursor(created, key) != cursor or not in_range:
        raise _invalid_cursor()
    return created, key


def _invalid_cursor() -> ValueError:
    return ValueError("Invalid cursor: this store did not issue it. Start again without a cursor.")


def _is_valid_token(row: Row, token: int) -> bool:
    return row.worker is not None and row.token == token


def check_text(value: str) -> str:
    """Return the text; raises `UnicodeEncodeError` for a lone surrogate, which UTF-8 cannot encode."""
    value.encode()
    return value
