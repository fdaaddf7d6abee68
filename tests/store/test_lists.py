"""The contract of lists, expiry and keys that can be used once."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import NoTask, Stale
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
    await store.create(task(expires=START + 1000), [("x", 1)])
    clock.forward(0.999)
    assert await store.get("a") is not None
    clock.forward(0.001)
    assert await store.get("a") is None
    assert await store.read("a") == []
    assert await listed(store, "ann", 10) == [[]]
    assert await store.claim("w", lease=1, limit=1) == []
    with pytest.raises(NoTask):
        await store.append("a", [("y", 1)], expect=1, phase="ended", head=None)


async def test_an_id_stays_in_use_until_its_expired_task_is_deleted(store: Store, clock: Clock) -> None:
    await store.create(task(expires=START + 1000), [("x", 1)])
    clock.forward(1)
    with pytest.raises(Stale):
        await store.create(task(), [])
    await store.expire()
    await store.create(task(), [])
    assert await store.read("a") == []


async def test_expire_deletes_tasks_with_their_logs_and_returns_them(store: Store, clock: Clock) -> None:
    await store.create(task("a", expires=START + 2000), [("x", 1)])
    await store.create(task("b", expires=START + 1000, phase="waiting"), [("x", 1), ("y", 2)])
    await store.create(task("c", expires=None), [("x", 1)])
    await store.create(task("d", expires=START + 9000), [("x", 1)])
    assert list(await store.expire()) == []
    clock.forward(2)
    gone = await store.expire()
    assert list(gone) == [
        task("b", expires=START + 1000, phase="waiting", version=2),
        task("a", expires=START + 2000, version=1),
    ]
    assert list(await store.expire()) == []
    assert await listed(store, None, 10) == [["d", "c"]]
    assert [await store.count("ready"), await store.count("waiting")] == [2, 0]


async def test_expire_deletes_no_more_than_the_limit(store: Store, clock: Clock) -> None:
    for n in range(250):
        await store.create(task(f"t{n:03}", expires=START + n), [("x", n)])
    clock.forward(1)
    assert [record.id for record in await store.expire(limit=3)] == ["t000", "t001", "t002"]
    assert len(await store.expire(limit=201)) == 201
    assert len(await store.expire()) == 46
    assert await store.expire(limit=0) == await store.expire()
    assert await store.count("ready") == 0


async def test_concurrent_expires_never_return_the_same_task(store: Store, clock: Clock) -> None:
    for n in range(50):
        await store.create(task(f"t{n}", expires=START + 1), [])
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
    await store.create(task("new", created=START + 5, tool="b"), [])
    await store.create(task("old", updated=START + 1, tool="c"), [])
    await store.create(task("waits", created=START - 9, phase="waiting", tool="a"), [])
    assert await store.oldest_ready() == START + 1
    clock.forward(2)
    assert len(await store.claim("w", lease=10, limit=1)) == 1
    assert await store.oldest_ready() == START
    assert len(await store.claim("w", lease=10, limit=1)) == 1
    assert await store.oldest_ready() is None
    await store.append("waits", [], expect=0, phase="ready", head=None)
    assert await store.oldest_ready() == START + 2000
