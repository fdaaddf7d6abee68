"""Leases go by a clock that does not jump, although somebody sets the wall clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon import wall_clock
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite.clock import MachineClock, find_machine_clock

from .processes import child, next_report, send
from .support import Clock, task

HOUR = 3600.0


class Machine:
    """A machine whose wall clock the test sets, and whose other clock only goes forward."""

    def __init__(self, boot: str = "first", seconds: float = 100.0) -> None:
        self.wall = Clock()
        self.boot = boot
        self.seconds = seconds

    def forward(self, seconds: float) -> None:
        self.wall.forward(seconds)
        self.seconds += seconds

    def restart(self, *, wall_jump: float = 0.0) -> None:
        self.boot, self.seconds = f"{self.boot}, again", 1.0
        self.wall.forward(wall_jump)

    @asynccontextmanager
    async def store(self, path: Path, namespace: str = "") -> AsyncIterator[SQLiteStore]:
        """Open a store on this machine, like a process would."""
        clock = MachineClock(lambda: self.seconds, self.boot, namespace)
        store = SQLiteStore(path, clock=self.wall, machine_clock=clock)
        await store.open()
        yield store
        await store.close()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_jump_of_the_wall_clock_neither_loses_nor_postpones_a_task(
    machine: Machine, path: Path, jump: float
) -> None:
    async with machine.store(path) as store:
        await store.create(task(), [])
        (mine,) = await store.claim("one", lease=10, limit=1)
        machine.wall.forward(jump)
        assert await store.claim("two", lease=10, limit=1) == []
        machine.forward(9)
        assert await store.claim("two", lease=10, limit=1) == []
        assert await store.renew([("a", mine.token)], lease=10) == {"a"}
        machine.forward(10)
        assert len(await store.claim("two", lease=10, limit=1)) == 1


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_delay_after_a_release_does_not_jump(machine: Machine, path: Path, jump: float) -> None:
    async with machine.store(path) as store:
        claim = await store.create(task(), [], worker="one", lease=10)
        assert claim is not None
        await store.release("a", claim.token, delay=30)
        machine.wall.forward(jump)
        machine.forward(29.9)
        assert await store.claim("two", lease=10, limit=1) == []
        machine.forward(0.1)
        assert len(await store.claim("two", lease=10, limit=1)) == 1


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_process_that_starts_after_a_jump_agrees_with_those_before(
    machine: Machine, path: Path, jump: float
) -> None:
    async with machine.store(path) as before:
        await before.create(task("a"), [])
        await before.claim("one", lease=10, limit=1)
        machine.wall.forward(jump)
        async with machine.store(path) as after:
            assert await after.claim("two", lease=10, limit=1) == []
            await after.create(task("b"), [], worker="two", lease=5)
            machine.forward(5)
            assert [claim.record.id for claim in await before.claim("one", lease=10, limit=5)] == ["b"]
            machine.forward(5)
            assert [claim.record.id for claim in await after.claim("two", lease=9, limit=5)] == ["a"]


async def test_a_lease_keeper_goes_by_the_same_clock(machine: Machine, path: Path) -> None:
    async with machine.store(path) as store:
        claim = await store.create(task(), [], worker="one", lease=10)
        assert claim is not None
        keeper = store.lease_keeper()
        machine.wall.forward(-HOUR)
        machine.forward(8)
        assert keeper.renew([("a", claim.token)], lease=10) == {"a"}
        keeper.close()
        machine.forward(9)
        assert await store.claim("two", lease=10, limit=1) == []
        machine.forward(1)
        assert len(await store.claim("two", lease=10, limit=1)) == 1


@pytest.mark.parametrize("jump", [HOUR, 0.0, -HOUR])
async def test_a_restart_of_the_machine_ends_all_leases(machine: Machine, path: Path, jump: float) -> None:
    async with machine.store(path) as store:
        await store.create(task(), [], worker="one", lease=10 * HOUR)
    machine.restart(wall_jump=jump)
    async with machine.store(path) as store:
        (claim,) = await store.claim("two", lease=10, limit=1)
        machine.forward(9.9)
        assert await store.claim("three", lease=10, limit=1) == []
        machine.forward(0.1)
        (later,) = await store.claim("three", lease=10, limit=1)
        assert later.token > claim.token


async def test_processes_in_another_time_namespace_leave_the_leases_of_others_alone(
    machine: Machine, path: Path
) -> None:
    async with machine.store(path) as outside:
        await outside.create(task(), [], worker="one", lease=10)
        inside_machine = Machine(seconds=5000.0)
        inside_machine.wall = machine.wall
        async with inside_machine.store(path, "time:[2]") as inside:
            assert await inside.claim("two", lease=10, limit=1) == []
            machine.forward(10)
            inside_machine.seconds += 10
            assert len(await inside.claim("two", lease=10, limit=1)) == 1
            assert await outside.claim("one", lease=10, limit=1) == []


async def test_times_in_records_go_by_the_wall_clock(machine: Machine, path: Path) -> None:
    async with machine.store(path) as store:
        await store.create(task(phase="ended", expires=machine.wall.now + 1000), [])
        machine.wall.forward(HOUR)
        await store.create(task("b"), [("x", 1)])
        assert [entry.at for entry in await store.read("b")] == [machine.wall.now]
        assert [record.id for record in await store.expire()] == ["a"]


async def test_without_a_machine_clock_leases_go_by_the_wall_clock(path: Path, clock: Clock) -> None:
    store = SQLiteStore(path, clock=clock)
    await store.open()
    await store.create(task(), [], worker="one", lease=HOUR)
    clock.forward(HOUR)
    assert len(await store.claim("two", lease=1, limit=1)) == 1
    await store.close()


async def test_processes_of_one_machine_read_the_same_clock(path: Path) -> None:
    clock = find_machine_clock()
    if clock is None:
        pytest.skip("this system does not identify the start of the machine")
    again = find_machine_clock()
    assert again is not None
    assert (clock.boot, clock.namespace) == (again.boot, again.namespace)
    assert clock.seconds() <= again.seconds()
    store = SQLiteStore(path)
    await store.open()
    await store.create(task(), [], worker="one", lease=HOUR)
    async with child("claim", path) as other:
        assert await next_report(other) == ["ready"]
        send(other, "")
        assert await next_report(other) == [0]
        assert await store.renew([("a", 1)], lease=0) == {"a"}
        send(other, "")
        assert await next_report(other) == [1]
    await store.close()


async def test_the_memory_store_ignores_jumps_of_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await store.open()
    await store.create(task(), [], worker="one", lease=10)
    monkeypatch.setattr(wall_clock, "ahead", 2e9)
    assert await store.claim("two", lease=10, limit=1) == []
    await store.close()
