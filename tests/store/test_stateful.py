"""Random sequences of operations have the same results in every store."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from antiphon.errors import StoreError
from antiphon.store.contract import UNSET, Claim, Page, Store, UnsetType
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from tests.support.postgres import Postgres

from .support import START, Clock, task

IDS = st.sampled_from("abcdef")
PHASES = st.sampled_from(["ready", "ready", "waiting", "ended"])
WORKERS = st.sampled_from(["one", "two"])
LEASES = st.sampled_from([0.0, 0.5, 2.0])
TOKENS = st.integers(0, 4)


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
    ) -> None:
        now = self.clock.now
        expires = None if lives is None else now + lives
        record = task(
            id, tool=tool, principal=principal, phase=phase, created=now - age, updated=now, expires=expires
        )
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
            head=[id, seen],
            token=token,
            expires=expires,
            unwind_by=None if unwinds is None else self.clock.now + unwinds,
        )

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

    @rule(id=IDS, token=TOKENS, delay=LEASES)
    def release(self, id: str, token: int, delay: float) -> None:
        self.both("release", id, token, delay=delay)

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

    @rule(principal=st.sampled_from(["ann", "bob", None]), limit=st.integers(1, 3), first=st.booleans())
    def list(self, principal: str | None, limit: int, first: bool) -> None:
        cursors = [None, None] if first else self.cursors
        pages = [
            self.runner.run(store.list(principal, cursor=cursor, limit=limit))
            for store, cursor in zip(self.stores, cursors, strict=True)
        ]
        assert pages[0].records == pages[1].records
        self.cursors = [page.cursor for page in pages]
        assert (self.cursors[0] is None) == (self.cursors[1] is None)

    @rule(seconds=st.sampled_from([-3.0, -0.1, 0.001, 0.5, 2.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now = max(self.clock.now + int(seconds * 1000), START)

    @rule()
    def reopen(self) -> None:
        self.both("close")
        self.both("open")

    @invariant()
    def they_agree(self) -> None:
        for phase in ("ready", "waiting", "ended"):
            self.both("count", phase)
        for id in "abcdef":
            self.both("get", id)


async def _result(store: Store, method: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the result of an operation, or the type and message of its error."""
    try:
        value = await getattr(store, method)(*arguments, **options)
    except (StoreError, ValueError) as error:
        return type(error), str(error)
    return value if value is None or isinstance(value, (int, set, Claim, Page)) else _plain(value)


def _plain(value: Any) -> Any:
    return [*value] if isinstance(value, (tuple, [].__class__)) else value


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_postgresql_agrees_with_memory(database: Postgres) -> None:
    class Both(Stores):
        url = f"{database.dsn}?schema=s"

    run_state_machine_as_test(Both, settings=settings(max_examples=10, stateful_step_count=40, deadline=None))
