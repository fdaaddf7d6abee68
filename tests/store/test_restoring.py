"""The contract of tasks that come from another store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.store.contract import Entry, Store, TaskFilter

from .support import START, Clock, task

LOG = [Entry(1, "begun", START - 900, {"a": [1, "ü\0"]}), Entry(2, "asked", START - 500, None)]


@pytest.mark.parametrize("phase", ["ready", "waiting", "ended"])
async def test_a_restored_task_is_the_one_that_it_was(store: Store, phase: Any) -> None:
    record = task(
        phase=phase,
        version=2,
        created=START - 999,
        updated=START - 500,
        expires=START + 9,
        server="s",
        head={"x": 1},
    )
    assert await store.restore(record, LOG, token=7)
    assert await store.get("a") == record
    assert list(await store.read("a")) == LOG
    assert (await store.list("ann", filter=TaskFilter(phase=phase))).records == (record,)
    assert await store.count(phase) == 1


async def test_a_restored_task_wakes_and_is_found_by_its_tags(store: Store, clock: Clock) -> None:
    waits = {"wakes": START + 1000, "tags": ('event:["a","\0"]', "t" * 900)}
    assert await store.restore(task(phase="waiting", version=2, **waits), LOG)
    assert await store.restore(task("late", phase="waiting", version=2, wakes=START - 9, tags=("u",)), LOG)
    assert await store.get("a") == task(phase="waiting", version=2, **waits)
    for tag in waits["tags"]:  # type: ignore[attr-defined]
        assert [record.id for record in (await store.list_tagged([tag])).records] == ["a"]
    assert list(await store.wake(("woken", {}))) == ["late"]
    clock.forward(1)
    assert list(await store.wake(("woken", {}))) == ["a"]
    assert list(await store.wake_tagged(waits["tags"], ("woken", {}))) == []  # type: ignore[arg-type]


async def test_a_restored_task_can_be_claimed_with_a_later_token(store: Store) -> None:
    async with store.watch_ready() as watch:
        await store.restore(task(version=2), LOG, token=7)
        assert await watch.wait(30)
    (claim,) = await store.claim("w", lease=10, limit=5)
    assert (claim.record.id, claim.token) == ("a", 8)
    assert await store.append("a", [("x", 1)], expect=2, phase="ended", head=None, token=8) == 3


async def test_restored_tasks_are_queued_behind_the_others_of_their_principal(store: Store) -> None:
    for number in range(5):
        await store.restore(task(f"ann{number}", version=2, created=START - 9_000), LOG)
    await store.create(task("ben", principal="ben"), [("x", 1)])
    claims = await store.claim("w", lease=10, limit=6)
    assert [claim.record.id for claim in claims] == ["ann0", "ben", "ann1", "ann2", "ann3", "ann4"]


async def test_a_task_that_exists_stays_as_it_is(store: Store) -> None:
    await store.create(task(), [("mine", 1)])
    assert not await store.restore(task(phase="ended", version=2), LOG)
    assert await store.get("a") == task(version=1)
    assert [entry.kind for entry in await store.read("a")] == ["mine"]
    assert [await store.count("ready"), await store.count("ended")] == [1, 0]


async def test_a_task_is_restored_once_by_many(store: Store) -> None:
    restored = await asyncio.gather(*(store.restore(task(f"t{n % 5}", version=2), LOG) for n in range(40)))
    assert restored.count(True) == 5
    assert await store.count("ready") == 5
    assert list(await store.read("t3")) == LOG


async def test_a_restored_task_that_has_expired_is_deleted(store: Store, clock: Clock) -> None:
    await store.expire()
    await store.restore(task(phase="ended", version=2, expires=START - 9_000_000), LOG)
    assert await store.get("a") is None
    assert [record.id for record in await store.expire()] == ["a"]


@pytest.mark.parametrize("entries", [LOG[1:], [LOG[0], LOG[0]], [LOG[1], LOG[0]]])
async def test_a_log_with_gaps_is_refused(store: Store, entries: list[Entry]) -> None:
    with pytest.raises(ValueError, match="numbered from 1"):
        await store.restore(task(), entries)
    assert await store.get("a") is None


@pytest.mark.parametrize("token", [-1, 2**63])
async def test_an_invalid_token_is_refused(store: Store, token: int) -> None:
    with pytest.raises(ValueError, match="Invalid token"):
        await store.restore(task(), [], token=token)


LONGER = [*LOG, Entry(3, "answered", START - 100, [1]), Entry(4, "ended", START - 50, "ü\0")]


@pytest.mark.parametrize("phase", ["ready", "waiting", "ended"])
async def test_a_restored_task_is_brought_up_to_date(store: Store, phase: Any) -> None:
    await store.restore(task(phase="waiting", version=2, wakes=START + 9, tags=("t",)), LOG, token=7)
    waits: Any = {"wakes": START + 99, "tags": ("u",)} if phase == "waiting" else {}
    record = task(phase=phase, version=4, updated=START - 50, expires=START + 9, head={"x": 2}, **waits)
    async with store.watch("a") as watch:
        assert await store.extend(record, LONGER, token=9, expect=2, expect_token=7)
        assert await watch.wait(30)
    assert await store.get("a") == record
    assert list(await store.read("a")) == LONGER
    assert await store.count(phase) == 1
    assert await store.count("waiting") == (phase == "waiting")
    assert [found.id for found in (await store.list_tagged(["t", "u"])).records] == ["a"] * bool(waits)
    assert [claim.token for claim in await store.claim("w", lease=9, limit=9)] == [10] * (phase == "ready")
    assert not await store.extend(record, LONGER, token=9, expect=2, expect_token=7)


async def test_a_restored_task_that_has_gone_on_is_not_brought_up_to_date(store: Store) -> None:
    record, options = task(version=4), {"token": 9, "expect": 2, "expect_token": 7}
    assert not await store.extend(record, LONGER, **options)
    await store.restore(task(version=2), LOG, token=7)
    for wrong in ({"expect": 1}, {"expect": 3}, {"expect_token": 6}):
        assert not await store.extend(record, LONGER, **(options | wrong))
    (claim,) = await store.claim("w", lease=9, limit=1)
    assert not await store.extend(record, LONGER, **options)
    await store.release("a", claim.token)
    assert not await store.extend(record, LONGER, **options)
    assert await store.get("a") == task(version=2)
    assert list(await store.read("a")) == LOG
    with pytest.raises(ValueError, match="not numbered"):
        await store.extend(record, LONGER[1:], **options)
