"""The work of one transaction: load the rows, apply the operations in Python, write the changed rows.

The operations of a batch come from independent callers. A refused operation changes nothing, and the others
continue. One statement loads all rows and one writes them, whatever the size of the batch. The batch owns
its rows; it neither begins nor commits the transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store import rules
from antiphon.store.contract import UNSET, Claim, Phase, Record, UnsetType
from antiphon.store.list_rules import decode_cursor
from antiphon.store.rules import EncodedEntry, Row
from antiphon.store.sqlite import event_statements, statements, tally_statements
from antiphon.store.sqlite.free_space import FREE_PAGES
from antiphon.store.sqlite.message_retention import MessageRetention
from antiphon.store.tally_rules import KEPT_MILLISECONDS, TallyCounter
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["Batch", "Operation"]

_MAX_ENDED_LEASES = 1000
"""Expired leases that one claim ends, so that a claim after a long pause does not block other writers."""
_OLD_KEYS_PER_NEW_KEY = 4
"""Expired keys deleted for each new key: more than one, so that the table shrinks."""
_MAX_EXPIRED_ENTRIES = 5000
"""Entries that `expire` deletes in one transaction. A task with a longer log is deleted alone."""
_OLD_EVENTS_PER_NEW_EVENT = 4
"""Expired events deleted for each new event: more than one, so that the table shrinks."""
_MAX_OLD_EVENTS = 1000
"""Expired events that `expire` deletes in one transaction."""
_MIN_FREE_PAGES = 16
"""Pages that must be free for a probe to succeed: about what a new task and its indexes may take."""
_RETAINED_COMMITS = 512
"""Commits kept for the pollers of other processes. A poller that is further behind treats every task as
changed."""
_DELETE_EVERY_ROWS = 64
"""Rows inserted between two deletions of old rows, so that most commits do not pay for a deletion."""

_queues = msgspec.json.Decoder(list[tuple[str, str]])
_servers = msgspec.json.Decoder(list[str])
_turns = msgspec.json.Decoder(list[tuple[str, str, int]])


class Operation(NamedTuple):
    """An operation of a batch, and the ids of the tasks whose rows it needs."""

    run: Callable[[Batch], Any]
    ids: tuple[str, ...] = ()
    is_search: bool = False
    """Whether the operation searches for tasks. Searches run last, after the other changes are written."""
    queue: tuple[str, str] | None = None
    """The server and the principal of a new task that has to wait for a worker; `None` for no such task."""


class Batch:
    """The rows that a transaction has loaded, and its unwritten changes."""

    def __init__(
        self, connection: sqlite3.Connection, now: int, lease_now: int, unreadable: UnreadableRecords
    ) -> None:
        self._connection = connection
        self._unreadable = unreadable
        self._now = now
        self.lease_now = lease_now
        self._rows: dict[str, Row] = {}
        self._turns: dict[tuple[str, str], int] = {}  # by server and principal
        self._last_key = 0
        self._new: dict[int, Row] = {}
        self._changed: dict[int, Row] = {}
        self._waits: dict[int, Row] = {}
        self._entries: list[Sequence[Any]] = []
        self._counts: dict[str, int] = {"ready": 0, "waiting": 0, "ended": 0}
        self._tallies = TallyCounter()
        self._usages: dict[tuple[str, str], int] = {}  # bytes, by server and sharer
        self._messages: list[tuple[str, str]] = []
        self.last_message = 0
        """The number of the last message that was published; 0 if there is none."""
        self.touched: set[str] = set()
        """The ids of the tasks whose watchers must be notified."""
        self.ready = False
        """Whether a task became claimable."""

    def load(self, ids: Iterable[str]) -> None:
        """Load the rows of the tasks with these ids, if they exist."""
        for size, values in statements.padded_portions([(id,) for id in dict.fromkeys(ids)]):
            query = statements.load_rows(size)
            found, self._last_key = self._connection.execute(query, values).fetchone()
            for row in self._unreadable.decode_rows(found):
                self._rows[row.id] = row

    def load_turns(self, queues: Collection[tuple[str, str]]) -> None:
        """Load the turns behind which new tasks of these servers and principals are queued."""
        for size, values in statements.padded_portions(tuple(queues)):
            found = self._connection.execute(statements.load_turns(size), values).fetchone()[0]
            for server, principal, turn in _turns.decode(found):
                self._turns[server, principal] = turn

    def create(
        self, row: Row, entries: Sequence[EncodedEntry], worker: str | None, lease: int
    ) -> tuple[int, int] | None:
        """Create a task, and return the token of its worker and the time; raises `Stale` if its id is in use.

        Returns `None` if no worker holds the task.
        """
        if row.id in self._rows:
            raise rules.id_in_use(row.id)
        row = self._add_row(row, is_queued=worker is None)
        token = None if worker is None else rules.claim(row, worker, self.lease_now + lease)
        self._add_entries(row, 1, entries)
        return None if token is None else (token, self._now)

    def restore(self, row: Row, entries: Sequence[tuple[str, int, str]]) -> bool:
        """Create a task with the log that it had in another store; return false if its id is in use."""
        if row.id in self._rows:
            return False
        row = self._add_row(row, is_queued=True)
        self._add_restored(row, 1, entries)
        return True

    def extend(
        self, fresh: Row, entries: Sequence[tuple[str, int, str]], expect: int, expect_token: int
    ) -> bool:
        """Bring a restored task up to date; return false if it has gone on here."""
        row = self._rows.get(fresh.id)
        if row is None:
            return False
        before = row.phase
        if not rules.extend(row, fresh, expect=expect, expect_token=expect_token, now=self._now):
            return False
        self._counts[before] -= 1
        self._counts[row.phase] += 1
        self._tallies.change(row, fresh.tallied)
        self._waits[row.key] = row
        if rules.is_queued_again(row, before):
            self._assign_turn(row, self._now)
        self._mark_changed(row)
        self._add_restored(row, expect + 1, entries[expect:])
        return True

    def _add_restored(self, row: Row, first: int, entries: Sequence[tuple[str, int, str]]) -> None:
        """Add entries that keep their times."""
        for number, (kind, at, data) in enumerate(entries, first):
            self._entries.append((row.key, number, kind, at, statements.COUNTED_FORMAT, data))
        self._note_grown(row, [(kind, data) for kind, _, data in entries])

    def append(
        self,
        id: str,
        entries: Sequence[EncodedEntry],
        expect: int,
        phase: Phase,
        head: str,
        token: int | None,
        expires: int | UnsetType | None = UNSET,
        unwind_by: int | None = None,
        wakes: int | None = None,
        tags: str | None = None,
        before: int | None = None,
        outcome: str = "ended",
    ) -> int:
        """Append to a log; raises `NoTask`, `LeaseLost`, `Stale` or `TooLate`.

        `outcome` is the status under which the task is counted if it ends.
        """
        row = rules.check_append(
            self._rows.get(id), id, expect=expect, token=token, now=self._now, before=before
        )
        old_phase, first, old_wakes, old_tags = row.phase, row.version + 1, row.wakes, row.tags
        rules.apply_append(
            row,
            len(entries),
            phase=phase,
            now=self._now,
            expires=expires,
            unwind_by=unwind_by,
            wakes=wakes,
            tags=tags,
        )
        if row.phase != old_phase:
            self._counts[old_phase] -= 1
            self._counts[row.phase] += 1
        self._tallies.change(row, outcome if row.phase == "ended" else row.phase)
        if row.wakes != old_wakes or row.tags != old_tags:
            self._waits[row.key] = row
        row.head = head
        if rules.is_queued_again(row, old_phase):
            self._assign_turn(row, self._now)
        self._add_entries(row, first, entries)
        self._mark_changed(row)
        return row.version

    def renew(self, claims: Collection[tuple[str, int]], lease: int) -> set[str]:
        """Extend leases, and return the ids that are still held."""
        held: set[str] = set()
        for id, token in claims:
            row = self._rows.get(id)
            if row and rules.renew(row, token, until=self.lease_now + lease):
                self._mark_changed(row)
                if not rules.is_stopping(row):
                    held.add(id)
        return held

    def release(self, id: str, token: int, delay: int = 0, requeue: bool = False) -> None:
        """Give up a claim, so that the task can be claimed after `delay` milliseconds.

        With `requeue`, the task goes behind the other tasks that its principal has queued.
        """
        row = self._rows.get(id)
        if row and rules.release(row, token, until=self.lease_now + delay if delay else 0):
            if requeue:
                self._assign_turn(row, row.created)
            self._mark_changed(row)
            self.ready = self.ready or rules.is_claimable(row)

    def claim(
        self,
        worker: str,
        lease: int,
        limit: int,
        tools: Collection[str] | None,
        servers: Sequence[str] | None = None,
    ) -> list[Claim]:
        """Claim the claimable tasks with the smallest turns.

        A task that cannot be read is claimed too, so that it leaves the front of the queue for a while, but
        it is not returned.
        """
        if limit < 1:
            return []
        self._flush()
        values = {"now": self.lease_now, "limit": _MAX_ENDED_LEASES}
        self._connection.execute(statements.END_EXPIRED_LEASES, values)
        names = None if servers is None else rules.encode_json(servers)
        found = _queues.decode(self._fetch_text(statements.READY_QUEUES, {"servers": names}))
        queues = [
            self._claimable(server, tool, limit) for server, tool in found if tools is None or tool in tools
        ]
        claims, turns = [], dict[str, int]()
        for row in islice(merge(*queues, key=rules.queue_position), limit):
            if row.turn is not None:
                turns[row.server] = row.turn
            record = self._unreadable.record_of(row)
            token = rules.claim(row, worker, self.lease_now + lease)
            if record is not None:
                claims.append(Claim(record, token, self._now))
            row.head = None  # unchanged, so it is not written
            self._rows[row.id] = row
            self._mark_changed(row)
        for server, turn in turns.items():
            self._connection.execute(statements.INCREASE_TURN, {"server": server, "turn": turn})
        return claims

    def wake(self, entry: EncodedEntry, limit: int, servers: Sequence[str] | None) -> list[str]:
        """Make waiting tasks ready whose time has passed, earliest first, and return their ids."""
        self._flush()
        if servers is None:
            servers = _servers.decode(self._fetch_text(statements.WAKING_SERVERS))
        rows: list[Row] = []
        for server in servers:
            values = {"server": server, "now": self._now, "limit": limit}
            rows += self._unreadable.decode_rows(self._fetch_text(statements.DUE_TASKS, values))
        rows.sort(key=lambda row: (row.wakes, row.key))
        return self._wake(rows[:limit], entry)

    def wake_tagged(self, tags: Sequence[str], entry: EncodedEntry, limit: int) -> list[str]:
        """Make waiting tasks ready that have one of the tags, oldest first, and return their ids."""
        self._flush()
        created, key = decode_cursor(None, oldest_first=True)
        rows: dict[int, Row] = {}
        for tag in tags:
            values = {"tag": tag, "created": created, "key": key, "limit": limit}
            found = self._unreadable.decode_rows(self._fetch_text(statements.TAGGED_TASKS, values))
            rows |= {row.key: row for row in found}
        oldest = sorted(rows.values(), key=lambda row: (row.created, row.key))
        return self._wake(oldest[:limit], entry)

    def add_event(self, topic: str, id: str, data: str, until: int) -> bool:
        """Add an event; return false if the topic has an event of this id."""
        last = self._connection.execute(event_statements.LAST_EVENT_NUMBER).fetchone()[0]
        number = rules.next_event_number(self._now, last)
        return self._insert_event(topic, id, number, self._now, data, until)

    def restore_event(self, topic: str, id: str, number: int, at: int, data: str, until: int) -> bool:
        """Add an event of another store; return false if the topic has an event of this id."""
        while self._connection.execute(event_statements.HAS_EVENT_NUMBER, (number,)).fetchone()[0]:
            number += 1
        return self._insert_event(topic, id, number, at, data, until)

    def _insert_event(self, topic: str, id: str, number: int, at: int, data: str, until: int) -> bool:
        execute = self._connection.execute
        execute(event_statements.DELETE_EXPIRED_EVENT, (topic, id, self._now))
        execute(event_statements.DELETE_OLD_EVENTS, {"now": self._now, "limit": _OLD_EVENTS_PER_NEW_EVENT})
        values = (number, topic, id, at, until, statements.FORMAT, data)
        return execute(event_statements.INSERT_EVENT, values).rowcount == 1

    def expire(self, limit: int) -> list[Record]:
        """Delete expired events and expired tasks; fewer tasks than `limit` if their logs are long."""
        self._flush()
        self._connection.execute(
            event_statements.DELETE_OLD_EVENTS, {"now": self._now, "limit": _MAX_OLD_EVENTS}
        )
        self._connection.execute(tally_statements.DELETE_OLD_HOURS, (self._now - KEPT_MILLISECONDS,))
        values = {"now": self._now, "limit": limit}
        found = self._unreadable.decode_rows(self._fetch_text(statements.EXPIRED_TASKS, values))
        rows: list[Row] = []
        entries = 0
        for row in found:
            entries += row.version
            if rows and entries > _MAX_EXPIRED_ENTRIES:
                break
            rows.append(row)
            self._rows.pop(row.id, None)
            self._counts[row.phase] -= 1
            self.touched.add(row.id)
        for size, keys in statements.padded_portions([(row.key,) for row in rows]):
            self._connection.execute(statements.delete_entries(size), keys)
            self._connection.execute(statements.delete_tags(size), keys)
            self._connection.execute(statements.delete_tasks(size), keys)
        return self._unreadable.expired_records_of(rows)

    def use_once(self, key: str, until: int) -> bool:
        """Record a key; return false if it is already recorded."""
        execute = self._connection.execute
        execute(statements.DELETE_OLD_KEYS, {"now": self._now, "limit": _OLD_KEYS_PER_NEW_KEY})
        cursor = execute(statements.INSERT_KEY, {"key": key, "until": until, "now": self._now})
        return cursor.rowcount == 1

    def probe(self, key: str, until: int) -> None:
        """Record a key again, so that something is written; raises `StoreUnavailable` if the file is full."""
        execute = self._connection.execute
        free, size, largest, _ = execute(FREE_PAGES).fetchone()
        if largest - size + free < _MIN_FREE_PAGES:
            raise StoreUnavailable(
                f"The store is full: its file has {size} pages of at most {largest}. "
                "Raise the store's max_bytes."
            )
        execute(statements.DELETE_OLD_KEYS, {"now": self._now, "limit": _OLD_KEYS_PER_NEW_KEY})
        execute(statements.PROBE_KEY, {"key": key, "until": until})

    def publish(self, topic: str, data: str) -> None:
        """Add a message for other processes."""
        self._messages.append((topic, data))

    @property
    def message_bytes(self) -> int:
        """The size of the messages, about."""
        return sum(len(topic) + len(data) for topic, data in self._messages)

    def finish(self, origin: str, retention: MessageRetention) -> None:
        """Write the remaining changes, and record them for the pollers of other processes."""
        self._flush()
        if any(self._counts.values()):
            self._connection.execute(statements.UPDATE_COUNTS, self._counts)
        changes = [(*key, tasks) for key, tasks in self._tallies.numbers.items() if tasks]
        self._write(tally_statements.add_to_tallies, changes)
        execute = self._connection.execute
        for topic, data in self._messages:
            self.last_message = execute(statements.INSERT_MESSAGE, (origin, topic, data)).lastrowid or 0
        if self._messages:
            old = retention.last_old_number(self.last_message - len(self._messages) + 1, self.lease_now)
            if old is not None:
                execute(statements.DELETE_OLD_MESSAGES, (old,))
        if self.touched or self.ready:
            touched = rules.encode_json(sorted(self.touched))
            number = execute(statements.INSERT_COMMIT, (origin, touched, self.ready)).lastrowid or 0
            if number % _DELETE_EVERY_ROWS == 0:
                execute(statements.DELETE_OLD_COMMITS, (number - _RETAINED_COMMITS,))

    def _claimable(self, server: str, tool: str, limit: int) -> list[Row]:
        values = {"server": server, "tool": tool, "limit": limit}
        return self._unreadable.decode_rows(self._fetch_text(statements.CLAIMABLE_TASKS, values))

    def _wake(self, rows: Sequence[Row], entry: EncodedEntry) -> list[str]:
        """Make waiting tasks ready, and return their ids."""
        ids: list[str] = []
        self.load_turns({(row.server, row.principal) for row in rows} - self._turns.keys())
        for row in rows:
            self._rows[row.id] = self._waits[row.key] = row
            if row.phase != "waiting":  # a process of schema 4 has changed it, so it does not wake
                row.wakes = row.tags = None
                continue
            rules.apply_append(row, 1, phase="ready", now=self._now)
            self._counts["waiting"] -= 1
            self._counts["ready"] += 1
            self._tallies.change(row, "ready")
            self._assign_turn(row, self._now)
            self._add_entries(row, row.version, [entry])
            self._mark_changed(row)
            ids.append(row.id)
        return ids

    def _add_row(self, row: Row, *, is_queued: bool) -> Row:
        """Add a new task, and return its row with its key, and with a turn if it has to wait for a worker."""
        row = copy(row)  # the operation may have to run again, with an unchanged row
        self._last_key += 1
        row.key = self._last_key
        if is_queued and rules.is_claimable(row):
            self._assign_turn(row, row.created)
        self._rows[row.id] = self._new[row.key] = row
        if row.wakes is not None or row.tags is not None:
            row.wakes = rules.wake_time(row.wakes, self._now)
            self._waits[row.key] = row
        self._counts[row.phase] += 1
        self._tallies.add(row)
        return row

    def _assign_turn(self, row: Row, since: int) -> None:
        """Put a task behind the others of its principal (see `rules.next_turn`)."""
        queue = row.server, row.principal
        if queue not in self._turns:
            self.load_turns([queue])
        row.turn = self._turns[queue] = rules.next_turn(since, self._turns[queue])

    def _add_entries(self, row: Row, first: int, entries: Sequence[EncodedEntry]) -> None:
        for number, (kind, data) in enumerate(entries, first):
            self._entries.append((row.key, number, kind, self._now, statements.COUNTED_FORMAT, data))
        self._note_grown(row, entries)

    def _note_grown(self, row: Row, entries: Sequence[EncodedEntry]) -> None:
        """Count the bytes of entries, notify the watchers of a task, and workers if it can be claimed."""
        if entries:
            added = rules.size_of(entries)
            row.bytes += added
            key = row.server, row.sharer or row.principal
            self._usages[key] = self._usages.get(key, 0) + added
        self.touched.add(row.id)
        self.ready = self.ready or rules.is_claimable(row)

    def _mark_changed(self, row: Row) -> None:
        if row.key not in self._new:
            self._changed[row.key] = row

    def _flush(self) -> None:
        """Write rows and entries, so that searches find them."""
        self._write(statements.insert_tasks, [_all_columns(row) for row in self._new.values()])
        self._write(statements.update_tasks, [_changing_columns(row) for row in self._changed.values()])
        self._write(statements.insert_entries, self._entries)
        self._new, self._changed, self._entries = {}, {}, []
        if self._usages:
            usages, self._usages = rules.with_totals(self._usages), {}
            self._write(statements.add_to_usages, [(*key, added) for key, added in usages.items()])
        if self._waits:
            self._flush_waits()

    def _flush_waits(self) -> None:
        """Write when tasks wake, and their tags."""
        rows, self._waits = list(self._waits.values()), {}
        tags = [(tag, row.created, row.key) for row in rows for tag in rules.decode_tags(row.tags)]
        self._write(statements.update_waits, [(row.key, row.wakes, row.tags) for row in rows])
        self._write(statements.delete_tags, [(row.key,) for row in rows])
        self._write(statements.insert_tags, tags)

    def _write(self, statement: Callable[[int], str], rows: Sequence[Sequence[Any]]) -> None:
        for size, values in statements.padded_portions(rows):
            self._connection.execute(statement(size), values)

    def _fetch_text(self, query: str, values: dict[str, Any] | tuple[()] = ()) -> str:
        return str(self._connection.execute(query, values).fetchone()[0])


def _all_columns(row: Row) -> Sequence[Any]:
    *columns, _wakes, _tags, sharer, size, tallied, head = msgspec.structs.astuple(row)
    # `_flush_waits` writes the waits.
    return (*columns, sharer, size, tallied, statements.FORMAT, head)


def _changing_columns(row: Row) -> Sequence[Any]:
    return (
        row.key,
        row.phase,
        row.version,
        row.updated,
        row.expires,
        row.token,
        row.worker,
        row.lease,
        row.turn,
        row.bytes,
        row.tallied,
        row.head,
    )
