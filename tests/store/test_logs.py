"""The contract of logs: a writer that knows the current version may append."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.errors import LeaseLost, NoTask, Stale, StoreUnavailable, TooLate
from antiphon.store.contract import Entry, Store

from .support import START, Clock, task

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


async def test_a_created_task_has_as_many_entries_as_it_was_given(store: Store, clock: Clock) -> None:
    assert await store.create(task(version=99), [("begun", {"n": 1}), ("step", None)]) is None
    assert await store.get("a") == task(version=2)
    assert await store.read("a") == [Entry(1, "begun", START, {"n": 1}), Entry(2, "step", START, None)]


async def test_a_task_may_begin_with_an_empty_log(store: Store) -> None:
    await store.create(task(), [])
    assert await store.get("a") == task(version=0)
    assert await store.read("a") == []


async def test_an_id_can_be_used_only_once(store: Store) -> None:
    await store.create(task(), [("begun", 1)])
    with pytest.raises(Stale, match="another id"):
        await store.create(task(tool="other"), [("begun", 2), ("begun", 3)])
    assert await store.get("a") == task(version=1)
    assert await store.count("ready") == 1


async def test_appending_adds_entries_and_sets_phase_and_head(store: Store, clock: Clock) -> None:
    await store.create(task(), [("begun", 1)])
    clock.forward(1.5)
    version = await store.append("a", [("x", 2), ("y", 3)], expect=1, phase="waiting", head={"asks": ["q"]})
    assert version == 3
    expected = task(version=3, phase="waiting", updated=START + 1500, head={"asks": ["q"]})
    assert await store.get("a") == expected
    assert [(e.number, e.kind, e.at, e.data) for e in await store.read("a", after=1)] == [
        (2, "x", START + 1500, 2),
        (3, "y", START + 1500, 3),
    ]


@pytest.mark.parametrize("expect", [0, 1, 3])
async def test_a_writer_that_has_not_seen_the_last_entry_is_refused(store: Store, expect: int) -> None:
    await store.create(task(), [("begun", 1), ("more", 2)])
    with pytest.raises(Stale, match="2 entries"):
        await store.append("a", [("x", 1)], expect=expect, phase="ended", head=None)
    assert await store.get("a") == task(version=2)
    assert len(await store.read("a")) == 2
    assert await store.count("ended") == 0


async def test_appending_to_an_unknown_task_is_refused(store: Store) -> None:
    with pytest.raises(NoTask, match="'nobody'"):
        await store.append("nobody", [("x", 1)], expect=0, phase="ready", head=None)
    assert await store.get("nobody") is None
    assert await store.read("nobody") == []


async def test_one_of_a_hundred_concurrent_writers_wins(store: Store) -> None:
    await store.create(task(), [])

    async def write(writer: int) -> int | None:
        try:
            return await store.append("a", [("by", writer)], expect=0, phase="ready", head=writer)
        except Stale:
            return None

    won = [version for version in await asyncio.gather(*map(write, range(100))) if version]
    assert won == [1]
    (entry,) = await store.read("a")
    record = await store.get("a")
    assert record is not None
    assert record.head == entry.data


async def test_writers_that_retry_all_succeed(store: Store) -> None:
    await store.create(task(), [])

    async def write(writer: int) -> None:
        while True:
            record = await store.get("a")
            assert record is not None
            try:
                await store.append("a", [("by", writer)], expect=record.version, phase="ready", head=None)
            except Stale:
                continue
            return

    await asyncio.gather(*map(write, range(20)))
    entries = await store.read("a")
    assert [entry.number for entry in entries] == list(range(1, 21))
    assert sorted(entry.data for entry in entries) == list(range(20))


async def test_a_refused_write_does_not_affect_concurrent_ones(store: Store) -> None:
    for id in "abc":
        await store.create(task(id), [("begun", 1)])
    results = await asyncio.gather(
        store.append("a", [("x", 1)], expect=1, phase="ready", head=1),
        store.append("b", [("x", 1)], expect=7, phase="ready", head=1),
        store.append("c", [("x", 1)], expect=1, phase="ready", head=1, token=5),
        store.create(task("a"), [("begun", 1)]),
        store.append("nobody", [("x", 1)], expect=1, phase="ready", head=1),
        store.create(task("d"), [("begun", 1)]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, Stale, LeaseLost, Stale, NoTask, type(None)]
    assert [len(await store.read(id)) for id in "abcd"] == [2, 1, 1, 1]


async def test_reading_starts_after_a_number_and_stops_at_a_limit(store: Store) -> None:
    await store.create(task(), [("n", n) for n in range(1, 11)])
    assert [entry.data for entry in await store.read("a", after=3, limit=4)] == [4, 5, 6, 7]
    assert [entry.data for entry in await store.read("a", after=9)] == [10]
    assert await store.read("a", after=10) == []
    assert await store.read("a", limit=0) == []


async def test_logs_do_not_mix(store: Store) -> None:
    await store.create(task("a"), [("n", 1)])
    await store.create(task("b"), [("n", 2)])
    await store.append("a", [("n", 3)], expect=1, phase="ready", head=None)
    assert [entry.data for entry in await store.read("a")] == [1, 3]
    assert [entry.data for entry in await store.read("b")] == [2]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=JSON, head=JSON, name=st.text(min_size=1))
async def test_json_is_read_back_as_it_was_written(store: Store, data: Any, head: Any, name: str) -> None:
    id = f"{name}{await store.count('ready')}"
    await store.create(task(id, principal=name, tool=name, head=head), [(name, data)])
    (entry,) = await store.read(id)
    record = await store.get(id)
    assert (entry.kind, entry.data) == (name, data)
    assert record == task(id, principal=name, tool=name, head=head, version=1)


async def test_entries_do_not_change_with_the_writers_objects(store: Store) -> None:
    mine: dict[str, list[int]] = {"list": [1]}
    await store.create(task(head=mine), [("x", mine)])
    mine["list"].append(2)
    (entry,) = await store.read("a")
    record = await store.get("a")
    assert entry.data == {"list": [1]}
    assert record is not None
    assert record.head == {"list": [1]}


async def test_data_that_is_not_json_is_refused_before_anything_is_written(store: Store) -> None:
    with pytest.raises(TypeError):
        await store.create(task(), [("x", 1), ("y", object())])
    assert await store.get("a") is None


@pytest.mark.parametrize("wrong", [{"phase": "lost"}, {"expires": 2**80}, {"id": "\ud800"}])
async def test_an_invalid_record_is_refused(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        await store.create(task(**wrong), [("x", 1)])
    assert await store.count("ready") == 0


async def test_an_invalid_lease_is_refused(store: Store) -> None:
    for lease in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="Invalid lease"):
            await store.claim("w", lease=lease, limit=1)


async def test_counts_follow_the_phases(store: Store) -> None:
    for id in "abc":
        await store.create(task(id), [])
    await store.create(task("d", phase="waiting"), [])
    await store.append("a", [], expect=0, phase="ended", head=None)
    await store.append("b", [], expect=0, phase="waiting", head=None)
    assert [await store.count(phase) for phase in ("ready", "waiting", "ended")] == [1, 2, 1]


async def test_the_tasks_of_a_principal_are_counted_up_to_a_limit(store: Store) -> None:
    for n in range(6):
        await store.create(task(f"t{n}", principal="ann" if n % 2 else "bob"), [])
    await store.append("t1", [], expect=0, phase="waiting", head=None)
    await store.append("t3", [], expect=0, phase="ended", head=None)
    assert await store.count_of_principal("ann", "ready", most=10) == 1
    assert await store.count_of_principal("ann", "waiting", most=10) == 1
    assert await store.count_of_principal("bob", "ready", most=10) == 3
    assert await store.count_of_principal("bob", "ready", most=2) == 2
    assert await store.count_of_principal("eve", "ready", most=10) == 0


async def test_a_key_that_expires_at_once_only_asks_whether_it_is_recorded(store: Store) -> None:
    assert await store.use_once("a key", until=0)
    assert await store.use_once("a key", until=0)
    assert await store.use_once("a key", until=START + 10**9)
    assert not await store.use_once("a key", until=0)


async def test_a_closed_store_refuses_operations_and_may_be_closed_twice(store: Store) -> None:
    await store.create(task(), [])
    await store.close()
    await store.close()
    for use in (store.get("a"), store.create(task("b"), []), store.claim("w", lease=1, limit=1)):
        with pytest.raises(StoreUnavailable, match="open"):
            await use
    with pytest.raises(StoreUnavailable, match="open"):
        store.watch("a")
    await store.open()
    assert await store.get("a") == task()


async def test_an_entry_is_not_written_after_its_time(store: Store, clock: Clock) -> None:
    await store.create(task(), [("begun", 1)])
    options: dict[str, Any] = {"phase": "waiting", "head": None, "before": START + 1000}
    assert await store.append("a", [("x", 1)], expect=1, **options) == 2
    with pytest.raises(Stale):
        await store.append("a", [("x", 2)], expect=1, **options)
    clock.forward(1)
    with pytest.raises(TooLate):
        await store.append("a", [("x", 2)], expect=2, **options)
    assert [entry.kind for entry in await store.read("a")] == ["begun", "x"]
