"""Decides what may be done with a task and how that changes its row. Pure, and the same for every store.

A row is a task's record and its claim. The stores keep rows and entries; this module alone decides whether
a writer is too late, who holds a task, and whether a task has expired. It does not know where rows are
kept, and it has no clock: callers pass `now`, in milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, overload

import msgspec

from antiphon.errors import LeaseLost, NoTask, Stale, TooLate
from antiphon.store.contract import UNSET, Entry, KeptEvent, Phase, Record, UnsetType
from antiphon.store.outcomes import status_of

__all__ = [
    "ENTRY_BYTES",
    "MAX_INT64",
    "TURN_MILLISECONDS",
    "EncodedEntry",
    "Row",
    "apply_append",
    "check_append",
    "check_expires",
    "check_phase",
    "check_tags",
    "check_text",
    "check_timestamp",
    "claim",
    "created_record",
    "decode_tags",
    "encode_entries",
    "encode_event",
    "encode_json",
    "encode_restored",
    "encode_waits",
    "extend",
    "id_in_use",
    "is_claimable",
    "is_live",
    "is_queued_again",
    "is_stopping",
    "is_valid_token",
    "lease_milliseconds",
    "new_row",
    "next_event_number",
    "next_turn",
    "queue_position",
    "record_of",
    "release",
    "renew",
    "restored_row",
    "servers_of",
    "size_of",
    "wake_time",
    "with_totals",
]

EncodedEntry: TypeAlias = tuple[str, str]
"""An entry's kind, and its data as JSON text."""

ENTRY_BYTES = 128
"""What an entry takes beside its kind and its data, about; the triggers of the databases have it too."""
MAX_INT64 = 2**63 - 1
"""The largest integer that a database column holds."""
TURN_MILLISECONDS = 3_600_000
"""The distance between the turns of two tasks that one principal has queued; `wake.sql` has the same number.

A new principal's first task comes before the second task of everybody whose queue is younger than this.
"""
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
    turn: int | None = None
    """The task's place in the order of claims (see `next_turn`); `None` for its creation time."""
    wakes: int | None = None
    """When a waiting task wakes; `None` for never, and for a task that does not wait."""
    tags: str | None = None
    """The tags of a waiting task as JSON text; `None` for no tags."""
    sharer: str = ""
    """Whose share of the store the task uses; empty for the principal's."""
    bytes: int = 0
    """How many bytes the log has (see `size_of`)."""
    tallied: str = ""
    """The status under which the task is counted (see `tally_rules.py`)."""
    head: str | None = None
    """JSON text; `None` if the head was not loaded."""


_tags = msgspec.json.Decoder(tuple[str, ...])


def encode_json(data: Any) -> str:
    """Encode data as JSON text; raises `TypeError` for data that is not JSON."""
    return msgspec.json.encode(data).decode()


def encode_entries(entries: Sequence[tuple[str, Any]]) -> list[EncodedEntry]:
    """Encode entries for storage; raises `TypeError` for data that is not JSON."""
    return [(check_text(kind), encode_json(data)) for kind, data in entries]


def size_of(entries: Sequence[EncodedEntry]) -> int:
    """Return how many bytes entries add to a log. The triggers of the databases compute the same."""
    size = 0
    for kind, data in entries:
        is_ascii = kind.isascii() and data.isascii()
        size += ENTRY_BYTES + (len(kind) + len(data) if is_ascii else len(kind.encode()) + len(data.encode()))
    return size


def with_totals(added: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return bytes by server and sharer, and for each server those of all sharers, under an empty name."""
    found = dict(added)
    for (server, sharer), size in added.items():
        if sharer:
            found[server, ""] = found.get((server, ""), 0) + size
    return found


def encode_restored(entries: Sequence[Entry]) -> list[tuple[str, int, str]]:
    """Encode entries of another store: their kind, time and data."""
    return [(check_text(entry.kind), check_timestamp(entry.at), encode_json(entry.data)) for entry in entries]


def encode_event(kept: KeptEvent) -> tuple[str, str, int, int, str, int]:
    """Return the topic, id, number, time, data and end of an event; raises `ValueError` if one is invalid."""
    event = kept.event
    numbers = check_timestamp(event.number), check_timestamp(event.at)
    texts = check_text(kept.topic), check_text(event.id)
    return *texts, *numbers, encode_json(event.data), check_timestamp(kept.until)


def encode_waits(phase: Phase, wakes: int | None, tags: Collection[str]) -> tuple[int | None, str | None]:
    """Return when a task of this phase wakes, and its tags as JSON text or `None` for no tags.

    Raises `ValueError` for a task that does not wait, and for an invalid time.
    """
    if wakes is None and not tags:
        return None, None
    if phase != "waiting":
        raise ValueError(f"A {phase} task cannot have `wakes` or `tags`: give them to a waiting task.")
    return None if wakes is None else check_timestamp(wakes), encode_json(check_tags(tags)) if tags else None


def check_tags(tags: Iterable[str]) -> list[str]:
    """Return the different tags, in order; raises `UnicodeEncodeError` for a lone surrogate."""
    return [check_text(tag) for tag in dict.fromkeys(tags)]


def decode_tags(text: str | None) -> tuple[str, ...]:
    """Return the tags in a row; raises `msgspec.MsgspecError` if they are damaged."""
    return () if text is None else _tags.decode(text)


def wake_time(wakes: int | None, now: int) -> int | None:
    """Return when a task wakes that begins to wait now: not in the past.

    So a search for tasks whose time has come may begin where the last one ended.
    """
    return None if wakes is None else max(wakes, now)


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


def new_row(record: Record, count: int, *, key: int = 0, held: bool) -> Row:
    """Return the row of a new task with `count` entries; raises `ValueError` for an invalid record."""
    check_phase(record.phase)
    if held and record.phase != "ready":
        raise ValueError(f"A worker can only hold a task that is ready, and this one is {record.phase}.")
    wakes, tags = encode_waits(record.phase, record.wakes, record.tags)
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
        wakes=wakes,
        tags=tags,
        sharer=check_text(record.sharer),
        tallied=status_of(record.phase, record.head),
        head=encode_json(record.head),
    )


def restored_row(record: Record, entries: Sequence[Entry], token: int, *, key: int = 0) -> Row:
    """Return the row of a task from another store; raises `ValueError` for an invalid record or log."""
    if [entry.number for entry in entries] != list(range(1, len(entries) + 1)):
        raise ValueError(f"The entries of the task {record.id!r} are not numbered from 1 on without gaps.")
    if not 0 <= token < MAX_INT64:
        raise ValueError(f"Invalid token {token}: use 0 or a token that a store issued.")
    row = new_row(record, len(entries), key=key, held=False)
    row.token = token
    return row


def extend(row: Row, fresh: Row, *, expect: int, expect_token: int, now: int) -> bool:
    """Make a row the one of a task that has gone on in another store; return false if it has gone on here."""
    if row.version != expect or row.token != expect_token or row.worker is not None or row.lease:
        return False
    row.phase, row.version, row.updated, row.expires = (
        fresh.phase,
        fresh.version,
        fresh.updated,
        fresh.expires,
    )
    row.token, row.head, row.tags, row.wakes = (
        fresh.token,
        fresh.head,
        fresh.tags,
        wake_time(fresh.wakes, now),
    )
    return True


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


def is_queued_again(row: Row, before: Phase) -> bool:
    """Return whether a task that was in another phase has to wait for a worker again."""
    return before != "ready" and is_claimable(row)


def next_turn(since: int, reached: int) -> int:
    """Return the turn of a task that has to wait for a worker.

    `since` is when a new task was created, or when a task that waited for something else became ready.
    `reached` is the largest turn that a worker has claimed on the task's server, or the turn of the last task
    that the principal has queued there, whichever is larger. So claims go round the principals: each task of
    a principal is one round behind the one before, and a new principal begins with the next round.

    A task that a worker holds from the start has no turn. A task that a worker releases, or whose lease ends,
    keeps its turn.
    """
    return max(since, reached + TURN_MILLISECONDS)


def next_event_number(now: int, last: int) -> int:
    """Return the number of a new event; `last` is the largest number that the store, or the topic, has used.

    Numbers are times in microseconds, so that they grow also for a task that moves to another store.
    """
    return max(now * 1000, last + 1)


def queue_position(row: Row) -> tuple[int, int]:
    """Return the turn and the key of a task: workers claim the task with the smallest ones first."""
    return (row.created if row.turn is None else row.turn), row.key


def check_append(
    row: Row | None, id: str, *, expect: int, token: int | None, now: int, before: int | None = None
) -> Row:
    """Return the row if the append is allowed.

    Raises `NoTask`, `LeaseLost`, `Stale` or `TooLate`, in this order.
    """
    if row is None or not is_live(row, now):
        raise NoTask(f"There is no task {id!r}: it never existed or has expired.")
    if token is not None and not is_valid_token(row, token):
        raise LeaseLost(f"The task {id!r} is no longer held with the token {token}: stop working on it.")
    if row.version != expect:
        raise Stale(
            f"The task {id!r} has {row.version} entries, but the writer expected {expect}: "
            "read the log and decide again."
        )
    if before is not None and now >= before:
        raise TooLate(f"The time to write this entry to the task {id!r} is over.")
    return row


def apply_append(
    row: Row,
    count: int,
    *,
    phase: Phase,
    now: int,
    expires: int | UnsetType | None = UNSET,
    unwind_by: int | None = None,
    wakes: int | None = None,
    tags: str | None = None,
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
    row.wakes, row.tags = (wake_time(wakes, now), tags) if phase == "waiting" else (None, None)


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
    if not is_valid_token(row, token):
        return False
    row.lease = until
    return True


def release(row: Row, token: int, *, until: int = 0) -> bool:
    """Take the task from its worker if the token is valid, and return whether it was.

    No worker can claim the task before `until`, which works like the end of a lease; 0 for at once.
    """
    if not is_valid_token(row, token):
        return False
    row.worker, row.lease = None, until
    return True


def record_of(row: Row) -> Record:
    """Return the record of a row whose head is loaded."""
    waits = row.phase == "waiting"  # another task may have what a process of an earlier version left there
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
        wakes=row.wakes if waits else None,
        tags=decode_tags(row.tags) if waits else (),
        sharer=row.sharer,
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


def is_valid_token(row: Row, token: int) -> bool:
    return row.worker is not None and row.token == token


def check_text(value: str) -> str:
    """Return the text; raises `UnicodeEncodeError` for a lone surrogate, which UTF-8 cannot encode."""
    value.encode()
    return value
