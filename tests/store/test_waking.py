"""The contract of waiting tasks that wake at a time, or that can be found by a tag."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.errors import Stale, StoreUnavailable
from antiphon.store.contract import Record, Store

from .support import START, Clock, task

WOKEN = ("woken", {"by": "time"})


async def park(
    store: Store, id: str = "a", *, wakes: int | None = None, tags: Any = (), **fields: Any
) -> None:
    """Create a task, and let it wait until `wakes` seconds after the start."""
    await store.create(task(id, **fields), [("begun", 1)])
    when = None if wakes is None else START + wakes * 1000
    await store.append(id, [("parked", 2)], expect=1, phase="waiting", head="head", wakes=when, tags=tags)


async def record_of(store: Store, id: str = "a") -> Record:
    record = await store.get(id)
    assert record is not None
    return record


async def tagged(store: Store, *tags: str, limit: int = 100) -> list[list[str]]:
    """Return the ids of all pages of the tasks with one of the tags."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while not pages or cursor:
        page = await store.list_tagged(tags, cursor=cursor, limit=limit)
        pages.append([record.id for record in page.records])
        cursor = page.cursor
    return pages


async def test_a_task_wakes_when_its_time_has_passed(store: Store, clock: Clock) -> None:
    await park(store, wakes=5)
    assert (await record_of(store)).wakes == START + 5000
    clock.forward(4.999)
    assert await store.wake(WOKEN) == []
    clock.forward(0.001)
    assert list(await store.wake(WOKEN)) == ["a"]
    assert await record_of(store) == task(version=3, updated=START + 5000, head="head")
    last = (await store.read("a"))[-1]
    assert (last.number, last.kind, last.at, last.data) == (3, "woken", START + 5000, {"by": "time"})
    assert await store.wake(WOKEN) == []
    (claim,) = await store.claim("w", lease=10, limit=5)
    assert (claim.record.id, claim.record.version, claim.record.head) == ("a", 3, "head")


async def test_tasks_wake_earliest_first(store: Store, clock: Clock) -> None:
    for id, seconds in {"late": 9, "third": 3, "first": 1, "tie": 3, "second": 2}.items():
        await park(store, id, wakes=seconds)
    clock.forward(5)
    assert list(await store.wake(WOKEN, limit=2)) == ["first", "second"]
    assert list(await store.wake(WOKEN, limit=0)) == []
    assert list(await store.wake(WOKEN)) == ["third", "tie"]
    assert [await store.count(phase) for phase in ("ready", "waiting", "ended")] == [4, 1, 0]


async def test_more_tasks_wake_than_fit_into_one_transaction(store: Store, clock: Clock) -> None:
    ids = [f"t{n:04}" for n in range(1500)]
    await asyncio.gather(*(park(store, id, wakes=n // 500) for n, id in enumerate(ids)))
    clock.forward(9)
    assert list(await store.wake(WOKEN, limit=1200)) == ids[:1200]
    assert list(await store.wake(WOKEN)) == ids[1200:]
    assert [await store.count(phase) for phase in ("ready", "waiting")] == [1500, 0]


async def test_a_task_without_a_time_does_not_wake(store: Store, clock: Clock) -> None:
    await park(store)
    clock.forward(10**6)
    assert await store.wake(WOKEN) == []


async def test_an_answer_ends_the_wait(store: Store, clock: Clock) -> None:
    await park(store, wakes=1, tags=["x"])
    await store.append("a", [("answer", 1)], expect=2, phase="ready", head=None)
    record = await record_of(store)
    assert (record.wakes, record.tags) == (None, ())
    clock.forward(2)
    assert await store.wake(WOKEN) == []
    assert await tagged(store, "x") == [[]]
    assert await store.wake_tagged(["x"], WOKEN) == []


async def test_the_last_time_counts(store: Store, clock: Clock) -> None:
    await park(store, wakes=1)
    await store.append("a", [], expect=2, phase="waiting", head=1, wakes=START + 9000)
    clock.forward(5)
    assert await store.wake(WOKEN) == []
    await store.append("a", [], expect=2, phase="waiting", head=1, wakes=START + 7000)
    clock.forward(2)
    assert list(await store.wake(WOKEN)) == ["a"]
    clock.forward(9)
    assert await store.wake(WOKEN) == []


async def test_an_append_without_a_time_removes_it(store: Store, clock: Clock) -> None:
    await park(store, wakes=1, tags=["x", "y"])
    await store.append("a", [], expect=2, phase="waiting", head=1, tags=["y", "z"])
    record = await record_of(store)
    assert (record.wakes, record.tags) == (None, ("y", "z"))
    clock.forward(9)
    assert await store.wake(WOKEN) == []
    assert [await tagged(store, tag) for tag in "xyz"] == [[[]], [["a"]], [["a"]]]


async def test_a_task_may_wait_again(store: Store, clock: Clock) -> None:
    await park(store, wakes=1)
    for turn in range(1, 4):
        clock.forward(1)
        assert list(await store.wake(WOKEN)) == ["a"]
        (claim,) = await store.claim("w", lease=10, limit=1)
        await store.append(
            "a",
            [("parked", turn)],
            expect=claim.record.version,
            phase="waiting",
            head=1,
            token=claim.token,
            wakes=clock.now + 1000,
        )
    assert await store.count("waiting") == 1


async def test_a_time_in_the_past_becomes_the_present(store: Store, clock: Clock) -> None:
    clock.forward(100)
    await park(store, wakes=1)
    assert (await record_of(store)).wakes == clock.now
    assert list(await store.wake(WOKEN)) == ["a"]


async def test_a_clock_that_goes_back_postpones_a_wake(store: Store, clock: Clock) -> None:
    await park(store, "a", wakes=10)
    clock.forward(20)
    await park(store, "b", wakes=21)
    await park(store, "c", wakes=15)
    clock.back(15)
    assert await store.wake(WOKEN) == []
    await park(store, "d", wakes=1)
    assert list(await store.wake(WOKEN)) == ["d"]
    clock.forward(5)
    assert list(await store.wake(WOKEN)) == ["a"]
    clock.forward(11)
    assert list(await store.wake(WOKEN)) == ["c", "b"]


async def test_a_task_may_be_created_waiting(store: Store, clock: Clock) -> None:
    await store.create(task(phase="waiting", wakes=START + 1000, tags=("x", "y")), [])
    assert await record_of(store) == task(phase="waiting", wakes=START + 1000, tags=("x", "y"))
    assert await tagged(store, "y") == [["a"]]
    clock.forward(1)
    assert list(await store.wake(WOKEN)) == ["a"]
    assert await tagged(store, "y") == [[]]


@pytest.mark.parametrize("waits", [{"wakes": START}, {"tags": ("x",)}])
@pytest.mark.parametrize("phase", ["ready", "ended"])
async def test_only_a_waiting_task_has_a_time_or_tags(store: Store, phase: Any, waits: Any) -> None:
    with pytest.raises(ValueError, match=f"A {phase} task cannot have"):
        await store.create(task(phase=phase, **waits), [])
    await store.create(task(), [])
    with pytest.raises(ValueError, match=f"A {phase} task cannot have"):
        await store.append("a", [], expect=0, phase=phase, head=None, **waits)


async def test_an_invalid_time_is_refused(store: Store) -> None:
    await store.create(task(), [])
    with pytest.raises(ValueError, match="timestamp"):
        await store.append("a", [], expect=0, phase="waiting", head=None, wakes=2**70)
    with pytest.raises(UnicodeEncodeError):
        await store.append("a", [], expect=0, phase="waiting", head=None, tags=["\ud800"])


async def test_a_refused_append_changes_neither_time_nor_tags(store: Store, clock: Clock) -> None:
    await park(store, wakes=1, tags=["x"])
    with pytest.raises(Stale):
        await store.append("a", [], expect=7, phase="waiting", head=1, wakes=START + 9000, tags=["y"])
    record = await record_of(store)
    assert (record.wakes, record.tags) == (START + 1000, ("x",))
    assert [await tagged(store, tag) for tag in "xy"] == [[["a"]], [[]]]


async def test_a_task_that_has_to_unwind_stops_waiting(store: Store, clock: Clock) -> None:
    await store.create(task(), [], worker="w", lease=10)
    await store.append("a", [], expect=0, phase="waiting", head=1, token=1, wakes=START + 1000, tags=["x"])
    await store.append("a", [("end", 1)], expect=0, phase="ended", head=2, unwind_by=START + 9000)
    record = await record_of(store)
    assert (record.phase, record.wakes, record.tags) == ("ready", None, ())
    clock.forward(2)
    assert await store.wake(WOKEN) == []
    assert await tagged(store, "x") == [[]]


async def test_a_server_wakes_its_own_tasks_and_those_without_a_server(store: Store, clock: Clock) -> None:
    for id, server in {"b2": "b", "a2": "a", "none1": "", "a1": "a"}.items():
        await park(store, id, wakes=int(id[-1]), server=server)
    clock.forward(5)
    assert list(await store.wake(WOKEN, server="a")) == ["none1", "a1", "a2"]
    assert list(await store.wake(WOKEN, server="c")) == []
    assert list(await store.wake(WOKEN)) == ["b2"]


async def test_concurrent_calls_wake_each_task_once(store: Store, clock: Clock) -> None:
    await asyncio.gather(*(park(store, f"t{n}", wakes=n % 3, tags=["x"]) for n in range(100)))
    clock.forward(5)
    woken = await asyncio.gather(
        *(store.wake(WOKEN, limit=30) for _ in range(4)),
        *(store.wake_tagged(["x"], WOKEN, limit=30) for _ in range(4)),
    )
    woken.append(await store.wake(WOKEN))
    ids = [id for part in woken for id in part]
    assert len(ids) == len(set(ids)) == 100
    assert [await store.count(phase) for phase in ("ready", "waiting")] == [100, 0]
    assert {(await record_of(store, id)).version for id in ids} == {3}


async def test_a_wake_and_an_answer_do_not_both_succeed(store: Store, clock: Clock) -> None:
    for n in range(20):
        await park(store, f"t{n}", wakes=0)

    async def answer(id: str) -> bool:
        try:
            await store.append(id, [("answer", 1)], expect=2, phase="ready", head=1)
        except Stale:
            return False
        return True

    woken, *answered = await asyncio.gather(store.wake(WOKEN), *(answer(f"t{n}") for n in range(20)))
    woken = [*woken, *await store.wake(WOKEN)]
    assert len(woken) + answered.count(True) == 20
    assert {(await record_of(store, f"t{n}")).version for n in range(20)} == {3}


async def test_watchers_learn_that_a_task_woke(store: Store, clock: Clock) -> None:
    await park(store, "a", wakes=1)
    await park(store, "b", tags=["x"])
    clock.forward(1)
    for id, wake in (("a", store.wake(WOKEN)), ("b", store.wake_tagged(["x"], WOKEN))):
        async with store.watch(id) as watch, store.watch_ready() as ready:
            assert list(await wake) == [id]
            assert await watch.wait(30)
            assert await ready.wait(30)


async def test_a_tagged_task_is_found_and_woken(store: Store, clock: Clock) -> None:
    await park(store, "a", tags=["x", "y", "x"], created=START + 2)
    await park(store, "b", tags={"y"}, created=START + 1)
    await park(store, "c", tags=["z"], wakes=9)
    assert (await record_of(store, "a")).tags == ("x", "y")
    assert await tagged(store, "x") == [["a"]]
    assert await tagged(store, "y", "x", "y") == [["b", "a"]]
    assert await tagged(store, "nobody") == await tagged(store) == [[]]
    assert await store.wake_tagged([], WOKEN) == await store.wake_tagged(["nobody"], WOKEN) == []
    clock.forward(1)
    assert list(await store.wake_tagged(["x", "y"], WOKEN, limit=1)) == ["b"]
    assert list(await store.wake_tagged(["x", "y"], WOKEN, limit=0)) == []
    assert list(await store.wake_tagged(["x", "z"], WOKEN)) == ["c", "a"]
    assert await record_of(store, "a") == task(
        "a", version=3, created=START + 2, updated=START + 1000, head="head"
    )
    assert [entry.kind for entry in await store.read("c")] == ["begun", "parked", "woken"]
    assert await tagged(store, "x", "y", "z") == [[]]
    clock.forward(60)
    assert await store.wake(WOKEN) == []


async def test_pages_of_tagged_tasks_follow_each_other(store: Store) -> None:
    for n in range(7):
        await park(store, f"t{n}", tags=["x", "odd"] if n % 2 else ["x"], created=START + n // 3)
    for id in ("ready", "ended"):
        await store.create(task(id, phase=id), [])
    assert await tagged(store, "x", "odd", limit=3) == [["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6"]]
    assert await tagged(store, "odd", limit=3) == [["t1", "t3", "t5"]]
    first = await store.list_tagged(["x"], limit=2)
    await store.wake_tagged(["odd"], WOKEN)
    await park(store, "old", tags=["x"], created=START - 1)
    second = await store.list_tagged(["x"], cursor=first.cursor, limit=2)
    assert [record.id for record in second.records] == ["t2", "t4"]


async def test_a_page_of_tagged_tasks_holds_whole_records(store: Store) -> None:
    await park(store, wakes=3, tags=['to:["notes","ü \0 \\1"]', "x"])
    (record,) = (await store.list_tagged(["x"])).records
    assert record == await record_of(store)
    assert record == task(
        phase="waiting", version=2, head="head", wakes=START + 3000, tags=('to:["notes","ü \0 \\1"]', "x")
    )
    assert await tagged(store, 'to:["notes","ü \0 \\1"]') == [["a"]]
    assert (await store.list(None)).records == (record,)


async def test_a_bad_cursor_or_limit_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await store.list_tagged(["x"], cursor="nonsense")
    with pytest.raises(ValueError, match="at least one"):
        await store.list_tagged(["x"], limit=0)


async def test_a_closed_store_wakes_no_task(store: Store) -> None:
    await store.close()
    for call in (store.wake(WOKEN), store.wake_tagged(["x"], WOKEN), store.list_tagged(["x"])):
        with pytest.raises(StoreUnavailable):
            await call
    await store.open()
