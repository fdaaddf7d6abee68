"""The contract of lists, expiry and keys that can be used once."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import NoTask, Stale, StoreUnavailable
from antiphon.store.contract import Store

from .support import START, Clock, task


async def listed(store: Store, principal: str | None, limit: int) -> list[list[str]]:
    """Return the ids of all pages."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while not pages or cursor:
        page = await store.list(principal, cursor=cursor, limit=limit)
        pages.append([record.id for record in page.records])
        cursor = page.cursor
    return pages


async def test_a_list_is_newest_first_and_a_principals_own(store: Store) -> None:
    for n in range(6):
        await store.create(task(f"t{n}", created=START + n, principal="ann" if n % 2 else "bob"), [])
    assert await listed(store, "ann", 10) == [["t5", "t3", "t1"]]
    assert await listed(store, "bob", 10) == [["t4", "t2", "t0"]]
    assert await listed(store, "eve", 10) == [[]]
    assert await listed(store, None, 10) == [["t5", "t4", "t3", "t2", "t1", "t0"]]


@pytest.mark.parametrize("principal", ["ann", None])
async def test_pages_follow_each_other_without_gap_or_repetition(store: Store, principal: str | None) -> None:
    for n in range(7):
        await store.create(task(f"t{n}", created=START + n // 3), [])
    assert await listed(store, principal, 3) == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]
    assert await listed(store, principal, 7) == [[f"t{n}" for n in reversed(range(7))]]


async def test_a_page_holds_whole_records(store: Store) -> None:
    await store.create(task(head={"a": [1, "ü"]}), [("x", 1)])
    assert (await store.list("ann")).records == (task(head={"a": [1, "ü"]}, version=1),)


async def test_new_tasks_do_not_shift_the_next_page(store: Store, clock: Clock) -> None:
    for n in range(4):
        await store.create(task(f"t{n}", created=START + n), [])
    first = await store.list("ann", limit=2)
    await store.create(task("newer", created=START + 9), [])
    second = await store.list("ann", cursor=first.cursor, limit=2)
    assert [record.id for record in second.records] == ["t1", "t0"]


@pytest.mark.parametrize(
    "cursor", ["", "nonsense", "MS4y!", "MS4", "MS4yLjM", "LS4t", "é", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5LjE"]
)
async def test_a_bad_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await store.list("ann", cursor=cursor)


async def test_a_page_limit_of_zero_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="at least one"):
        await store.list("ann", limit=0)


async def test_an_expired_task_is_gone_at_once(store: Store, clock: Clock) -> None:
    await store.create(task(phase="ended", expires=START + 1000), [("x", 1)])
    clock.forward(0.999)
    assert await store.get("a") is not None
    clock.forward(0.001)
    assert await store.get("a") is None
    assert await store.read("a") == []
    assert await listed(store, "ann", 10) == [[]]
    with pytest.raises(NoTask):
        await store.append("a", [("y", 1)], expect=1, phase="ended", head=None)


async def test_an_id_stays_in_use_until_its_expired_task_is_deleted(store: Store, clock: Clock) -> None:
    await store.create(task(phase="ended", expires=START + 1000), [("x", 1)])
    clock.forward(1)
    with pytest.raises(Stale):
        await store.create(task(), [])
    await store.expire()
    await store.create(task(), [])
    assert await store.read("a") == []


async def test_expire_deletes_tasks_with_their_logs_and_returns_them(store: Store, clock: Clock) -> None:
    await store.create(task("a", expires=START + 2000, phase="ended"), [("x", 1)])
    await store.create(task("b", expires=START + 1000, phase="ended"), [("x", 1), ("y", 2)])
    await store.create(task("c", expires=None, phase="ended"), [("x", 1)])
    await store.create(task("d", expires=START + 9000, phase="ended"), [("x", 1)])
    await store.create(task("e", expires=START + 1000), [("x", 1)])
    assert list(await store.expire()) == []
    clock.forward(2)
    gone = await store.expire()
    assert list(gone) == [
        task("b", expires=START + 1000, phase="ended", version=2),
        task("a", expires=START + 2000, phase="ended", version=1),
    ]
    assert list(await store.expire()) == []
    assert await listed(store, None, 10) == [["e", "d", "c"]]
    assert [await store.count("ready"), await store.count("ended")] == [1, 2]


async def test_a_task_that_has_not_ended_stays_and_is_overdue(store: Store, clock: Clock) -> None:
    await store.create(task("a", expires=START + 2000), [("x", 1)])
    await store.create(task("b", expires=START + 1000, phase="waiting"), [("x", 1)])
    await store.create(task("c", expires=START + 1000, phase="ended"), [])
    await store.create(task("d"), [])
    assert list(await store.overdue()) == []
    clock.forward(2)
    waiting, ready = await store.overdue()
    assert waiting == task("b", expires=START + 1000, phase="waiting", version=1)
    assert ready == task("a", expires=START + 2000, version=1)
    assert [record.id for record in await store.overdue(limit=1)] == ["b"]
    assert list(await store.overdue(limit=0)) == []
    assert [record.id for record in await store.expire()] == ["c"]
    assert await store.get("a") == ready
    assert len(await store.read("b")) == 1
    assert await listed(store, "ann", 10) == [["d", "b", "a"]]
    assert await store.append("b", [("y", 1)], expect=1, phase="ended", head=None) == 2
    assert [record.id for record in await store.overdue()] == ["a"]
    assert [record.id for record in await store.expire()] == ["b"]


async def test_an_append_sets_when_the_task_expires(store: Store, clock: Clock) -> None:
    for id in "ab":
        await store.create(task(id, expires=START + 1000), [])
        await store.append(id, [("x", 1)], expect=0, phase="ready", head=None, expires=None)
    clock.forward(5)
    assert list(await store.overdue()) == []
    await store.append("a", [("end", 1)], expect=1, phase="ended", head=None, expires=START + 8000)
    await store.append("b", [("end", 1)], expect=1, phase="ended", head=None)
    found = await store.get("a")
    assert found is not None
    assert found.expires == START + 8000
    clock.forward(3)
    assert [record.id for record in await store.expire()] == ["a"]
    clock.forward(3600)
    assert await store.get("b") is not None


async def test_the_last_time_that_was_set_counts(store: Store, clock: Clock) -> None:
    await store.create(task(phase="ended", expires=START + 1000), [])
    await store.append("a", [], expect=0, phase="ended", head=None, expires=START + 500)
    await store.append("a", [], expect=0, phase="ended", head=None, expires=START + 2000)
    clock.forward(1)
    assert list(await store.expire()) == []
    assert await store.get("a") is not None
    clock.forward(1)
    assert len(await store.expire()) == 1
    assert list(await store.expire()) == []


async def test_an_invalid_time_of_expiry_is_refused(store: Store) -> None:
    await store.create(task(), [])
    with pytest.raises(ValueError, match="timestamp"):
        await store.append("a", [], expect=0, phase="ready", head=None, expires=2**70)


async def test_an_append_without_entries_only_updates_the_record(store: Store, clock: Clock) -> None:
    await store.create(task(), [("x", 1)])
    clock.forward(1)
    assert await store.append("a", [], expect=1, phase="ready", head={"progress": 2}) == 1
    assert await store.get("a") == task(version=1, updated=START + 1000, head={"progress": 2})
    assert len(await store.read("a")) == 1


async def test_a_store_that_works_answers_a_probe(store: Store) -> None:
    await asyncio.gather(*(store.probe() for _ in range(3)))
    await store.probe()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.probe()
    await store.open()
    await store.probe()


async def test_expire_deletes_no_more_than_the_limit(store: Store, clock: Clock) -> None:
    for n in range(250):
        await store.create(task(f"t{n:03}", phase="ended", expires=START + n), [("x", n)])
    clock.forward(1)
    assert [record.id for record in await store.expire(limit=3)] == ["t000", "t001", "t002"]
    assert len(await store.expire(limit=201)) == 201
    assert len(await store.expire()) == 46
    assert await store.expire(limit=0) == await store.expire()
    assert await store.count("ended") == 0


async def test_concurrent_expires_never_return_the_same_task(store: Store, clock: Clock) -> None:
    for n in range(50):
        await store.create(task(f"t{n}", phase="ended", expires=START + 1), [])
    clock.forward(1)
    first, second = await asyncio.gather(store.expire(), store.expire())
    assert len({record.id for record in (*first, *second)}) == len(first) + len(second) == 50


async def test_a_key_can_be_used_once_until_it_expires(store: Store, clock: Clock) -> None:
    assert await store.use_once("k", until=START + 1000)
    assert not await store.use_once("k", until=START + 9000)
    assert await store.use_once("other", until=START + 1000)
    clock.forward(0.999)
    assert not await store.use_once("k", until=START + 9000)
    clock.forward(0.001)
    assert await store.use_once("k", until=START + 2000)
    assert not await store.use_once("k", until=START + 2000)


async def test_one_of_many_concurrent_callers_may_use_a_key(store: Store) -> None:
    used = await asyncio.gather(*(store.use_once("k", until=START + 1000) for _ in range(50)))
    assert used.count(True) == 1


async def test_expired_keys_can_be_used_again(store: Store, clock: Clock) -> None:
    for n in range(20):
        assert await store.use_once(f"k{n}", until=START + 1000)
    clock.forward(1)
    for n in range(20):
        assert await store.use_once(f"k{n}", until=START + 2000)
        assert not await store.use_once(f"k{n}", until=START + 2000)


async def test_oldest_ready_is_the_time_of_the_next_task_to_be_claimed(store: Store, clock: Clock) -> None:
    assert await store.oldest_ready() is None
    await store.create(task("new", created=START + 5, tool="b", principal="ann"), [])
    await store.create(task("old", updated=START + 1, tool="c", principal="bob"), [])
    await store.create(task("waits", created=START - 9, phase="waiting", tool="a"), [])
    assert await store.oldest_ready() == START + 1
    clock.forward(2)
    assert len(await store.claim("w", lease=10, limit=1)) == 1
    assert await store.oldest_ready() == START
    assert len(await store.claim("w", lease=10, limit=1)) == 1
    assert await store.oldest_ready() is None
    await store.append("waits", [], expect=0, phase="ready", head=None)
    assert await store.oldest_ready() == START + 2000
