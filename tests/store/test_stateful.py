"""Random sequences of operations have the same results in every store."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from antiphon.errors import StoreError
from antiphon.store.contract import UNSET, Claim, Count, Entry, Page, Store, Tallies, TaskFilter, UnsetType
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from tests.support.postgres import Postgres
from tests.support.sizes import size

from .support import START, Clock, task

pytestmark = pytest.mark.long

IDS = st.sampled_from("abcdef")
PHASES = st.sampled_from(["ready", "ready", "waiting", "ended"])
WORKERS = st.sampled_from(["one", "two"])
LEASES = st.sampled_from([0.0, 0.5, 2.0])
TOKENS = st.integers(0, 4)
STATES = st.sampled_from(["working", "done", "faulted", "cancelled"])
FILTERS = st.builds(
    TaskFilter,
    phase=st.none() | PHASES,
    tool=st.none() | st.sampled_from("xyz"),
    outcome=st.none() | st.sampled_from(["done", "failed", "cancelled"]),
    created_before=st.none() | st.integers(START - 1, START + 3000),
    created_since=st.none() | st.integers(START - 1, START + 3000),
)
TAGS = st.lists(st.sampled_from(["p", "q", 'r:["\0"]']), max_size=3)


class Stores(RuleBasedStateMachine):
    """Two stores, to which every operation is applied."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.stores: list[Store] = [
            MemoryStore(clock=self.clock),
            SQLiteStore(Path(self.folder.name) / "store.db", clock=self.clock),
        ]
        if self.url:
            # Runs with fewer examples, because PostgreSQL is slower.
            self.stores[1] = PostgresStore(f"{self.url}{secrets.token_hex(6)}", clock=self.clock)
        self.cursors: list[str | None] = [None, None]
        self.filter: TaskFilter | None = None
        self.oldest_first = False
        for store in self.stores:
            self.runner.run(store.open())

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()
        self.folder.cleanup()

    def both(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Run an operation in both stores, and check that the results are the same."""
        one, two = (self.runner.run(_result(store, method, arguments, options)) for store in self.stores)
        assert one == two, method
        return one

    @rule(
        id=IDS,
        tool=st.sampled_from("xyz"),
        principal=st.sampled_from(["ann", "bob"]),
        phase=PHASES,
        age=st.integers(0, 3),
        lives=st.none() | st.integers(0, 5000),
        count=st.integers(0, 3),
        worker=st.none() | WORKERS,
        lease=LEASES,
        sleeps=st.none() | st.integers(-2000, 3000),
        tags=TAGS,
    )
    def create(
        self,
        id: str,
        tool: str,
        principal: str,
        phase: str,
        age: int,
        lives: int | None,
        count: int,
        worker: str | None,
        lease: float,
        sleeps: int | None,
        tags: Any,
    ) -> None:
        now = self.clock.now
        expires = None if lives is None else now + lives
        fields: dict[str, Any] = {"tool": tool, "principal": principal, "phase": phase, "expires": expires}
        record = task(id, created=now - age, updated=now, **fields, **self._waits(phase, sleeps, tags))
        entries = [("made", [id, number]) for number in range(count)]
        self.both("create", record, entries, worker=worker, lease=lease)

    @rule(
        id=IDS,
        count=st.integers(0, 3),
        expect=st.none() | st.integers(0, 4),
        phase=PHASES,
        token=st.none() | TOKENS,
        lives=st.sampled_from([UNSET, UNSET, None, 0, 1000, 5000]),
        unwinds=st.sampled_from([None, None, None, 0, 3000]),
        state=STATES,
        sleeps=st.none() | st.integers(-2000, 3000),
        tags=TAGS,
    )
    def append(
        self,
        id: str,
        count: int,
        expect: int | None,
        phase: str,
        token: int | None,
        lives: int | UnsetType | None,
        unwinds: int | None,
        state: str,
        sleeps: int | None,
        tags: Any,
    ) -> None:
        record = self.both("get", id)
        seen = record.version if record and expect is None else expect or 0
        entries = [("said", {"at": self.clock.now, "n": number}) for number in range(count)]
        expires = self.clock.now + lives if isinstance(lives, int) else lives
        self.both(
            "append",
            id,
            entries,
            expect=seen,
            phase=phase,
            head={"state": state, "seen": seen},
            token=token,
            expires=expires,
            unwind_by=None if unwinds is None else self.clock.now + unwinds,
            **self._waits(phase, sleeps, tags),
        )

    def _waits(self, phase: str, sleeps: int | None, tags: Any) -> dict[str, Any]:
        """Return the fields of a task that waits; none for another task."""
        wakes = None if sleeps is None else self.clock.now + sleeps
        return {"wakes": wakes, "tags": tuple(dict.fromkeys(tags))} if phase == "waiting" else {}

    @rule(limit=st.integers(0, 3))
    def wake(self, limit: int) -> None:
        self.both("wake", ("woken", self.clock.now), limit=limit)

    @rule(limit=st.integers(0, 3), tags=TAGS)
    def wake_tagged(self, limit: int, tags: Any) -> None:
        self.both("wake_tagged", tags, ("woken", tags), limit=limit)

    @rule(limit=st.integers(1, 3), tags=TAGS)
    def list_tagged(self, limit: int, tags: Any) -> None:
        cursors: list[Any] = [None, None]
        while True:
            pages = [
                self.runner.run(store.list_tagged(tags, cursor=cursor, limit=limit))
                for store, cursor in zip(self.stores, cursors, strict=True)
            ]
            assert pages[0].records == pages[1].records
            cursors = [page.cursor for page in pages]
            assert (cursors[0] is None) == (cursors[1] is None)
            if cursors[0] is None:
                break

    @rule(
        topic=st.sampled_from("tu"), id=st.sampled_from("ij"), data=st.integers(), lasts=st.integers(0, 3000)
    )
    def add_event(self, topic: str, id: str, data: int, lasts: int) -> None:
        self.both("add_event", topic, id, data % 2**53, until=self.clock.now + lasts)

    @rule(topic=st.sampled_from("tu"), taken=st.integers(0, 2), limit=st.integers(0, 2))
    def read_events(self, topic: str, taken: int, limit: int) -> None:
        """Read events after some were taken; the numbers of events differ between stores."""
        read = []
        for store in self.stores:
            events = self.runner.run(store.read_events(topic))
            after = events[taken - 1].number if 0 < taken <= len(events) else 0
            rest = self.runner.run(store.read_events(topic, after=after, limit=limit))
            assert [event.number for event in rest] == sorted({event.number for event in rest})
            read.append([(event.id, event.at, event.data) for event in (*events, *rest)])
        assert read[0] == read[1]

    @rule(
        id=IDS, tool=st.sampled_from("xyz"), phase=PHASES, state=STATES, count=st.integers(0, 2), token=TOKENS
    )
    def restore(self, id: str, tool: str, phase: str, state: str, count: int, token: int) -> None:
        record = task(id, tool=tool, phase=phase, created=START + 7, head={"state": state})
        entries = [Entry(number + 1, "was", START - number, [id]) for number in range(count)]
        self.both("restore", record, entries, token=token)

    @rule(
        worker=WORKERS,
        lease=LEASES,
        limit=st.integers(0, 3),
        tools=st.none() | st.sets(st.sampled_from("xyz")),
    )
    def claim(self, worker: str, lease: float, limit: int, tools: set[str] | None) -> None:
        self.both("claim", worker, lease=lease, limit=limit, tools=tools)

    @rule(claims=st.lists(st.tuples(IDS, TOKENS), max_size=4), lease=LEASES)
    def renew(self, claims: list[tuple[str, int]], lease: float) -> None:
        self.both("renew", claims, lease=lease)

    @rule(id=IDS, token=TOKENS, delay=LEASES, requeue=st.booleans())
    def release(self, id: str, token: int, delay: float, requeue: bool) -> None:
        self.both("release", id, token, delay=delay, requeue=requeue)

    @rule(limit=st.integers(0, 3))
    def overdue(self, limit: int) -> None:
        self.both("overdue", limit=limit)

    @rule(limit=st.integers(0, 3))
    def expire(self, limit: int) -> None:
        self.both("expire", limit=limit)

    @rule(key=st.sampled_from("kl"), lasts=st.integers(0, 2000))
    def use_once(self, key: str, lasts: int) -> None:
        self.both("use_once", key, until=self.clock.now + lasts)

    @rule(id=IDS, after=st.integers(-1, 6), limit=st.integers(0, 3))
    def read(self, id: str, after: int, limit: int) -> None:
        self.both("read", id, after=after, limit=limit)

    @rule(
        principal=st.sampled_from(["ann", "bob", None]),
        limit=st.integers(1, 3),
        first=st.booleans(),
        filter=st.none() | FILTERS,
        oldest_first=st.booleans(),
    )
    def list(
        self, principal: str | None, limit: int, first: bool, filter: TaskFilter | None, oldest_first: bool
    ) -> None:
        cursors = [None, None] if first else self.cursors
        if first:  # a cursor is for the filter and the order of its page
            self.filter, self.oldest_first = filter, oldest_first
        options: dict[str, Any] = {"filter": self.filter, "oldest_first": self.oldest_first}
        pages = [
            self.runner.run(store.list(principal, cursor=cursor, limit=limit, **options))
            for store, cursor in zip(self.stores, cursors, strict=True)
        ]
        assert pages[0].records == pages[1].records
        self.cursors = [page.cursor for page in pages]
        assert (self.cursors[0] is None) == (self.cursors[1] is None)

    @rule(principal=st.sampled_from(["ann", None]), filter=st.none() | FILTERS, most=st.integers(1, 9))
    def count_listed(self, principal: str | None, filter: TaskFilter | None, most: int) -> None:
        found = self.both("count_listed", principal, filter=filter, most=most)
        listed = self.both("list", principal, filter=filter, limit=100).records
        assert found.tasks == (len(listed) if found.is_exact else most)

    @rule()
    def hourly_tallies(self) -> None:
        self.both("hourly_tallies", since=0)
        self.both("leases")

    @rule(seconds=st.sampled_from([-3.0, -0.1, 0.001, 0.5, 2.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now = max(self.clock.now + int(seconds * 1000), START)

    @rule()
    def reopen(self) -> None:
        self.both("close")
        self.both("open")

    @invariant()
    def they_agree(self) -> None:
        one, two = (self.runner.run(_contents(store)) for store in self.stores)
        assert one == two
        tallies, listed = two[:2]
        assert sum(row.tasks for row in tallies.rows) == len(listed.records)


async def _contents(store: Store) -> list[Any]:
    """Return the numbers, the list and the records of a store, read in one turn of the event loop."""
    numbers = _result(store, "tallies", (), {}), _result(store, "list", (None,), {"limit": 100})
    counts = (_result(store, "count", (phase,), {}) for phase in ("ready", "waiting", "ended"))
    records = (_result(store, "get", (id,), {}) for id in "abcdef")
    sizes = (_result(store, "stored_bytes", (sharer,), {}) for sharer in ("", "ann", "bob"))
    return await asyncio.gather(*numbers, *counts, *records, *sizes)


async def _result(store: Store, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result of an operation, or the type and message of its error."""
    try:
        value = await getattr(store, method)(*arguments, **options)
    except (StoreError, ValueError) as error:
        return type(error), str(error)
    return (
        value
        if value is None or isinstance(value, (int, set, Claim, Count, Page, Tallies))
        else _plain(value)
    )


def _plain(value: Any) -> Any:
    return [*value] if isinstance(value, (tuple, [].__class__)) else value


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=size(30, long=60), stateful_step_count=40, deadline=None)


def test_postgresql_agrees_with_memory(database: Postgres) -> None:
    class Both(Stores):
        url = f"{database.dsn}?schema=s"

    run_state_machine_as_test(
        Both, settings=settings(max_examples=size(5, long=10), stateful_step_count=40, deadline=None)
    )
