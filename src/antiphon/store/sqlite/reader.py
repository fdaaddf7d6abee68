"""Reads batches of operations on a read-only connection. Runs on the reader's thread.

Each read sees all commits before it, of every process. Records that are requested together are looked up
together. The reader does not know the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store import rules, unavailable
from antiphon.store.contract import (
    Entry,
    Event,
    HourlyTally,
    KeptEvent,
    Lease,
    Page,
    Phase,
    Record,
    Tallies,
)
from antiphon.store.list_rules import (
    MAX_COUNTED_TASKS,
    SearchBy,
    TaskList,
    encode_cursor,
    possible_searches,
    search_by_tallies,
)
from antiphon.store.outcomes import OUTCOMES
from antiphon.store.sqlite import event_statements, statements, tally_statements
from antiphon.store.sqlite.batch_thread import BatchResult, OperationResult
from antiphon.store.sqlite.clock import StoreClock
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.free_space import FREE_PAGES, is_worth_releasing
from antiphon.store.tally_rules import MAX_EXPIRED_TASKS, hourly_tallies_of, tallies_of
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["ReadOperation", "Reader"]

_records = msgspec.json.Decoder(list[Record])
_entries = msgspec.json.Decoder(list[Entry])
_names = msgspec.json.Decoder(list[str])
_positions = msgspec.json.Decoder(list[tuple[int, int]])
_events = msgspec.json.Decoder(list[tuple[int, str, int, str]])
_tallies = msgspec.json.Decoder(list[tuple[str, str, str, int]])
_hourly_tallies = msgspec.json.Decoder(list[tuple[int, str, str, str, int]])
_leases = msgspec.json.Decoder(list[tuple[str, str, str, int, int]])
_kept_events = msgspec.json.Decoder(list[tuple[str, int, int, str, int, str]])

Read = TypeVar("Read", Entry, Event)
_Found: TypeAlias = dict[tuple[int, int], Record | None]
"""Records by their position; `None` for a record that cannot be read."""


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
        self._unreadable_events = UnreadableRecords(database.path, kind="event")
        self._clock = clock
        self.connection: sqlite3.Connection | None = None

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
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def read(self, id: str, after: int, limit: int) -> list[Entry]:
        """Return entries of one log."""

        def read(after: int, limit: int) -> list[Entry]:
            values = {"id": id, "after": after, "limit": limit, "now": self._clock.now()}
            text, newest_format = self._one(statements.READ_ENTRIES, values)
            return _entries.decode(self._check_format(text, newest_format))

        return _read_in_portions(read, after, limit)

    def read_events(self, topic: str, after: int, limit: int) -> list[Event]:
        """Return events of one topic. Those that cannot be read are left out."""

        def read(after: int, limit: int) -> list[Event]:
            values = {"topic": topic, "after": after, "limit": limit, "now": self._clock.now()}
            text, newest_format = self._one(event_statements.READ_EVENTS, values)
            rows = _events.decode(self._check_format(text, newest_format))
            events = (self._unreadable_events.attempt(row[1], _event_of, row) for row in rows)
            return [event for event in events if event is not None]

        return _read_in_portions(read, after, limit)

    def list_events(self, after: tuple[str, int], limit: int) -> list[KeptEvent]:
        """Return events of all topics after a topic and a number."""
        values = {"topic": after[0], "number": after[1], "limit": limit, "now": self._clock.now()}
        text, newest_format = self._one(event_statements.LIST_EVENTS, values)
        rows = _kept_events.decode(self._check_format(text, newest_format))
        events = (self._unreadable_events.attempt(row[3], _kept_event_of, row) for row in rows)
        return [event for event in events if event is not None]

    def page(self, wanted: TaskList) -> Page:
        """Return a page of records. Those that cannot be read are left out, so it may have fewer."""
        values = self._list_values(wanted, wanted.limit + 1)
        found: _Found = {}
        with self._snapshot():
            for search, value in self.searches(wanted):
                query = partial(statements.list_records, search, oldest_first=wanted.oldest_first)
                found |= self._find(query, [{**values, "value": value}])
        return _page_of(
            found, sorted(found, reverse=not wanted.oldest_first), wanted.limit, wanted.cursor_after
        )

    def count_listed(self, wanted: TaskList) -> int:
        """Return how many tasks a list has, up to its limit."""
        values, count = self._list_values(wanted, wanted.limit), 0
        with self._snapshot():
            for search, value in self.searches(wanted):
                query = statements.count_records(search)
                count += self._one(query, {**values, "value": value, "limit": wanted.limit - count})[0]
        return count

    def _list_values(self, wanted: TaskList, limit: int) -> dict[str, Any]:
        return {
            "created": wanted.position[0],
            "key": wanted.position[1],
            "limit": limit,
            "bound": wanted.bound,
            "now": self._clock.now(),
            "principal": wanted.principal,
            "servers": _encode_servers(wanted.servers),
            "tool": wanted.filter.tool,
            "phase": wanted.filter.phase,
            "outcome": wanted.filter.outcome,
        }

    def searches(self, wanted: TaskList) -> list[tuple[statements.Search, str | None]]:
        """Return searches that together find all tasks of a list, each task once.

        Each is the name of a search and its value. If several fields can be searched, the tallies say which
        one has the fewest tasks.
        """
        filter, field = wanted.filter, self._best_search(wanted)
        if field is None:
            return []
        if field == "principal":
            servers = wanted.servers
            if servers is None:
                servers = self._names(statements.SERVERS_OF_PRINCIPAL, {"principal": wanted.principal})
            return [("principal", server) for server in servers]
        if field == "tool":
            tools = self._names(statements.TOOLS, ()) if filter.tool is None else [filter.tool]
            return [("tool", tool) for tool in tools]
        if filter.outcome is not None:
            return [("ended", filter.outcome)]
        if filter.phase == "ended":
            return [("ended", outcome) for outcome in (*OUTCOMES, "")]
        named = {"phase": filter.phase}
        tools = self._names(statements.UNFINISHED_TOOLS, named) if filter.tool is None else [filter.tool]
        return [*(("unfinished", tool) for tool in tools), ("leased", filter.phase)]

    def _best_search(self, wanted: TaskList) -> SearchBy | None:
        """Return the field by which the fewest tasks have to be read; `None` if no task is in the list."""
        fields = possible_searches(wanted)
        if len(fields) == 1:
            return fields[0]
        rows = self._one_damaged(tally_statements.TALLIES, {"servers": None})[0]
        best = search_by_tallies(wanted, tallies_of(_tallies.decode(rows), ()))
        if best is None or wanted.principal is None:
            return best and best[0]
        most = min(best[1], MAX_COUNTED_TASKS)
        count = self._one(tally_statements.COUNT_OF_PRINCIPAL, (wanted.principal, most + 1))[0]
        return best[0] if count > most else "principal"

    def tallies(self, servers: Sequence[str] | None) -> Tallies:
        """Return the numbers of tasks, without those that have expired."""
        values = {
            "servers": _encode_servers(servers),
            "now": self._clock.now(),
            "limit": MAX_EXPIRED_TASKS + 1,
        }
        with self._snapshot():
            rows = self._one_damaged(tally_statements.TALLIES, values)[0]
            expired = self._one_damaged(tally_statements.EXPIRED_TALLIES, values)[0]
        return tallies_of(_tallies.decode(rows), _tallies.decode(expired))

    def hourly_tallies(self, since: int, servers: Sequence[str] | None) -> list[HourlyTally]:
        """Return the numbers of tasks by hour."""
        values = {"servers": _encode_servers(servers), "since": since}
        return hourly_tallies_of(
            _hourly_tallies.decode(self._one_damaged(tally_statements.HOURLY_TALLIES, values)[0])
        )

    def leases(self) -> list[Lease]:
        """Return which workers hold how many tasks."""
        now = self._clock.lease_now()
        rows = _leases.decode(self._one_damaged(tally_statements.LEASES, ())[0])
        return [
            Lease(worker, server, tool, tasks, (until - now) / 1000)
            for worker, server, tool, tasks, until in rows
        ]

    def tagged_page(self, tags: Sequence[str], position: tuple[int, int], limit: int) -> Page:
        """Return a page of the waiting tasks with one of the tags, without those that cannot be read."""
        values = {"created": position[0], "key": position[1], "limit": limit + 1}
        found = self._find(statements.tagged_records, ({**values, "tag": tag} for tag in tags))
        return _page_of(found, sorted(found), limit)

    def has_due_task(self, servers: Sequence[str] | None) -> bool:
        """Return whether a task has to be woken."""
        now = self._clock.now()
        if servers is None:
            servers = _names.decode(self._one(statements.WAKING_SERVERS, ())[0])
        return any(
            self._one(statements.HAS_DUE_TASK, {"server": server, "now": now})[0] for server in servers
        )

    def count(self, phase: Phase, servers: Sequence[str] | None = None) -> int:
        """Return the number of tasks in a phase."""
        if servers is None:
            return int(self._one(statements.COUNT_TASKS, (phase,))[0])
        values = {"phase": phase, "servers": rules.encode_json(servers)}
        return int(self._one(statements.COUNT_TASKS_OF_SERVERS, values)[0])

    def count_of_principal(self, principal: str, phase: Phase, most: int) -> int:
        """Return the number of a principal's tasks in a phase, or `most` if there are more."""
        return int(self._one(statements.COUNT_OF_PRINCIPAL, (principal, phase, most))[0])

    def count_of_sharer(self, sharer: str, phase: Phase, most: int) -> int:
        """Return the number of tasks of a sharer that wait in a phase, or `most` if there are more."""
        return int(self._one(statements.COUNT_OF_SHARER, (sharer, phase, most))[0])

    def stored_bytes(self, sharer: str, servers: Sequence[str] | None) -> int:
        """Return how many bytes the logs of a sharer's tasks have."""
        return int(
            self._one(statements.STORED_BYTES, {"sharer": sharer, "servers": _encode_servers(servers)})[0]
        )

    def count_queued(self, tool: str, most: int, servers: Sequence[str] | None) -> int:
        """Return the number of a tool's tasks that can be claimed, or `most` if there are more."""
        names = _encode_servers(servers)
        return int(self._one(statements.COUNT_QUEUED, {"tool": tool, "most": most, "servers": names})[0])

    def oldest_ready(self, servers: Sequence[str] | None = None) -> int | None:
        """Return when the next task to be claimed last changed."""
        names = _encode_servers(servers)
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

    def _find(self, query: Callable[..., str], queries: Iterable[Any]) -> _Found:
        """Return the records that a query finds with each of the values."""
        found: _Found = {}
        for values in queries:
            records, (positions,) = self._records(query, values)
            found |= zip(_positions.decode(positions), records, strict=True)
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
        text, newest_format, *others = self._one_damaged(query(as_rows=True), values)
        self._check_format(text, newest_format)
        rows = self._unreadable.decode_each(text)
        return [None if row is None else self._unreadable.record_of(row) for row in rows], others

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Let all reads in the block see the same state of the file."""
        self._one("BEGIN", ())
        try:
            yield
        finally:
            if self.connection is not None and self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _names(self, query: str, values: Any) -> list[str]:
        """Return the names in a JSON list. A damaged name is replaced by one that no task has."""
        return _names.decode(self._one_damaged(query, values)[0])

    def _one_damaged(self, query: str, values: Any) -> Any:
        """Return the row that a query finds, although some of its text may not be UTF-8."""
        if self.connection is None:
            self.connection = self._database.connect("read")
        self.connection.text_factory = _decode_damaged
        try:
            return self._one(query, values)
        finally:
            if self.connection is not None:
                self.connection.text_factory = str

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
        if self.connection is None:
            self.connection = self._database.connect("read")
        return self.connection.execute(query, values).fetchone()

    def _check_format(self, text: str, newest_format: int | None) -> str:
        """Return the text; raises `StoreUnavailable` if a newer version wrote part of it."""
        if newest_format is not None and newest_format > statements.FORMAT:
            raise unavailable.newer_format(self._database.path)
        return text


def _result(found: Record | StoreUnavailable | None) -> OperationResult:
    return (None, found) if isinstance(found, StoreUnavailable) else (found, None)


def _page_of(
    found: _Found,
    positions: Sequence[tuple[int, int]],
    limit: int,
    cursor_after: Callable[[int, int], str] = encode_cursor,
) -> Page:
    """Return the page of the first `limit` positions."""
    records = (found[position] for position in positions[:limit])
    cursor = cursor_after(*positions[limit - 1]) if len(positions) > limit else None
    return Page(tuple(record for record in records if record is not None), cursor)


def _encode_servers(servers: Sequence[str] | None) -> str | None:
    """Return the names of servers as JSON; `None` stands for all of them."""
    return None if servers is None else rules.encode_json(servers)


def _event_of(row: Sequence[Any]) -> Event:
    number, id, at, data = row
    return Event(number, id, at, msgspec.json.decode(data))


def _kept_event_of(row: tuple[str, int, int, str, int, str]) -> KeptEvent:
    topic, until, *event = row
    return KeptEvent(topic, _event_of(event), until)


def _read_in_portions(read: Callable[[int, int], list[Read]], after: int, limit: int) -> list[Read]:
    """Return what `read` returns, read in smaller portions if it exceeds the longest text of SQLite."""
    try:
        return read(after, limit)
    except sqlite3.DataError:
        if limit == 1:
            raise
        first = _read_in_portions(read, after, limit // 2)
        rest = _read_in_portions(read, first[-1].number, limit - len(first)) if first else []
        return first + rest


def _decode_damaged(text: bytes) -> str:
    """Decode text that may not be UTF-8, so that the rest of a row can be read."""
    return text.decode(errors="replace")
