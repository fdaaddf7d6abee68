"""The contract of claims: one worker at a time holds a task, and late writes of others are refused."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from antiphon.errors import LeaseLost
from antiphon.store.contract import Store

from .support import START, Clock, task


async def claimed(store: Store, worker: str = "w", **options: object) -> list[str]:
    """Claim tasks, and return their ids."""
    values = {"lease": 10.0, "limit": 100} | options
    return [claim.record.id for claim in await store.claim(worker, **values)]  # type: ignore[arg-type]


async def test_a_claim_gives_the_oldest_ready_tasks_first(store: Store) -> None:
    for id, created in (("new", 30), ("old", 10), ("mid", 20)):
        await store.create(task(id, created=START + created, tool=id, principal=id), [])
    await store.create(task("waits", phase="waiting"), [])
    await store.create(task("over", phase="ended"), [])
    assert await claimed(store, limit=2) == ["old", "mid"]
    assert await claimed(store, limit=2) == ["new"]


async def test_tasks_created_at_the_same_time_are_claimed_in_the_order_of_creation(store: Store) -> None:
    for id in "zyxabc":
        await store.create(task(id), [])
    assert await claimed(store) == list("zyxabc")


async def test_a_claim_has_the_current_record(store: Store) -> None:
    await store.create(task(), [("begun", 1)])
    (claim,) = await store.claim("w", lease=10, limit=1)
    assert claim.record == task(version=1)
    assert claim.token == 1
    assert await store.get("a") == task(version=1)


async def test_a_held_task_is_not_given_to_another_until_its_lease_ends(store: Store, clock: Clock) -> None:
    await store.create(task(), [])
    assert await claimed(store, "one", lease=10) == ["a"]
    clock.forward(9.999)
    assert await claimed(store, "two") == []
    clock.forward(0.001)
    assert await claimed(store, "two") == ["a"]
    assert await store.count("ready") == 1


async def test_a_task_whose_lease_ended_keeps_its_place_in_the_order(store: Store, clock: Clock) -> None:
    await store.create(task("old", created=START - 5), [], worker="one", lease=1)
    await store.create(task("new"), [])
    clock.forward(1)
    assert await claimed(store) == ["old", "new"]


async def test_concurrent_workers_never_get_the_same_task(store: Store) -> None:
    for n in range(50):
        await store.create(task(str(n)), [])
    given = await asyncio.gather(*(claimed(store, f"w{n}", limit=7) for n in range(20)))
    ids = [id for ids in given for id in ids]
    assert sorted(ids) == sorted(map(str, range(50)))


async def test_a_worker_gets_only_tasks_of_the_tools_it_names(store: Store) -> None:
    for n, tool in enumerate(["a", "b", "c", "a", "c"]):
        await store.create(task(f"{tool}{n}", tool=tool, created=START + n), [])
    assert await claimed(store, tools=["c", "a", "none", "c"], limit=3) == ["a0", "c2", "a3"]
    assert await claimed(store, tools=[]) == []
    assert await claimed(store) == ["b1", "c4"]


async def test_a_claim_with_limit_zero_claims_nothing(store: Store) -> None:
    await store.create(task(), [])
    assert await claimed(store, limit=0) == []
    assert await claimed(store) == ["a"]


async def test_each_token_is_larger_than_all_before_even_if_the_clock_goes_back(
    store: Store, clock: Clock
) -> None:
    await store.create(task(), [])
    tokens = []
    for worker in ("one", "two", "three"):
        (claim,) = await store.claim(worker, lease=10, limit=1)
        tokens.append(claim.token)
        clock.back(3600)
        await store.release("a", claim.token)
    assert tokens == sorted(set(tokens))


async def test_create_can_claim_the_task(store: Store, clock: Clock) -> None:
    claim = await store.create(task(), [("begun", 1)], worker="one", lease=5)
    assert claim is not None
    assert claim.record == task(version=1)
    assert await claimed(store) == []
    assert await store.append("a", [("x", 1)], expect=1, phase="ready", head=1, token=claim.token) == 2
    clock.forward(5)
    (later,) = await store.claim("two", lease=5, limit=1)
    assert later.token > claim.token


async def test_create_can_claim_only_a_ready_task(store: Store) -> None:
    with pytest.raises(ValueError, match="ready"):
        await store.create(task(phase="waiting"), [], worker="one", lease=5)
    assert await store.get("a") is None


async def test_writes_of_a_worker_that_lost_its_task_are_refused(store: Store, clock: Clock) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=1, limit=1)
    clock.forward(1)
    (theirs,) = await store.claim("two", lease=1, limit=1)
    with pytest.raises(LeaseLost, match="stop"):
        await store.append("a", [("late", 1)], expect=0, phase="ended", head=None, token=mine.token)
    assert await store.read("a") == []
    assert await store.append("a", [("x", 1)], expect=0, phase="ended", head=None, token=theirs.token) == 1


async def test_a_lost_lease_is_reported_before_a_stale_version(store: Store, clock: Clock) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=1, limit=1)
    clock.forward(1)
    (theirs,) = await store.claim("two", lease=1, limit=1)
    await store.append("a", [("x", 1)], expect=0, phase="ready", head=None, token=theirs.token)
    with pytest.raises(LeaseLost):
        await store.append("a", [("late", 1)], expect=0, phase="ended", head=None, token=mine.token)


async def test_a_worker_may_continue_after_its_lease_if_no_other_worker_claimed_the_task(
    store: Store, clock: Clock
) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=1, limit=1)
    clock.forward(60)
    assert await store.append("a", [("x", 1)], expect=0, phase="ready", head=None, token=mine.token) == 1
    assert await store.renew([("a", mine.token)], lease=1) == {"a"}
    assert await claimed(store, "two") == []


@pytest.mark.parametrize("phase", ["waiting", "ended"])
async def test_a_phase_other_than_ready_ends_the_lease(store: Store, phase: str) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    await store.append("a", [("x", 1)], expect=0, phase=phase, head=None, token=mine.token)  # type: ignore[arg-type]
    assert await store.renew([("a", mine.token)], lease=100) == set()
    with pytest.raises(LeaseLost):
        await store.append("a", [("y", 1)], expect=1, phase="ready", head=None, token=mine.token)
    await store.append("a", [("answer", 1)], expect=1, phase="ready", head=None)
    (theirs,) = await store.claim("two", lease=1, limit=1)
    assert theirs.token > mine.token
    assert theirs.record.version == 2


async def test_an_append_without_a_token_leaves_the_claim_in_place(store: Store) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    await store.append("a", [("message", 1)], expect=0, phase="ready", head=None)
    assert await claimed(store, "two") == []
    assert await store.append("a", [("x", 1)], expect=1, phase="ready", head=None, token=mine.token) == 2


async def test_renewing_extends_the_lease(store: Store, clock: Clock) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=10, limit=1)
    clock.forward(8)
    assert await store.renew([("a", mine.token)], lease=10) == {"a"}
    clock.forward(8)
    assert await claimed(store, "two") == []
    clock.forward(2)
    assert await claimed(store, "two") == ["a"]


async def test_renewing_returns_the_tasks_that_are_still_held(store: Store, clock: Clock) -> None:
    for id in "abcd":
        await store.create(task(id), [])
    tokens = {claim.record.id: claim.token for claim in await store.claim("one", lease=1, limit=4)}
    await store.release("b", tokens["b"])
    await store.append("d", [], expect=0, phase="waiting", head=None, token=tokens["d"])
    clock.forward(1)
    await store.renew([("a", tokens["a"])], lease=10)
    await store.claim("two", lease=10, limit=1, tools=["echo"])  # b, or c, which ran out
    await store.claim("two", lease=10, limit=1, tools=["echo"])
    clock.forward(1)
    assert await store.renew([*tokens.items(), ("nobody", 1)], lease=10) == {"a"}
    assert await store.renew([], lease=10) == set()


async def test_a_released_task_can_be_claimed_at_once_and_its_token_is_invalid(store: Store) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    await store.release("a", mine.token)
    with pytest.raises(LeaseLost):
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None, token=mine.token)
    assert await claimed(store, "two") == ["a"]


async def test_releasing_with_a_wrong_token_does_nothing(store: Store) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    await store.release("a", mine.token + 1)
    await store.release("a", mine.token - 1)
    await store.release("nobody", 1)
    assert await claimed(store, "two") == []
    assert await store.renew([("a", mine.token)], lease=1) == {"a"}


async def test_an_overdue_task_stays_with_its_worker(store: Store, clock: Clock) -> None:
    await store.create(task(expires=START + 1000), [])
    (mine,) = await store.claim("one", lease=1, limit=1)
    clock.forward(2)
    assert await store.renew([("a", mine.token)], lease=1) == {"a"}
    clock.forward(1)
    (theirs,) = await store.claim("two", lease=1, limit=1)
    assert await store.append("a", [("x", 1)], expect=0, phase="ready", head=None, token=theirs.token) == 1


async def test_a_task_that_is_to_be_unwound_stays_with_its_worker_which_has_to_stop(
    store: Store, clock: Clock
) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=10, limit=1)
    await store.append("a", [("stop", 1)], expect=0, phase="ended", head=None, unwind_by=START + 60_000)
    assert await claimed(store, "two") == []
    clock.forward(8)
    assert await store.renew([("a", mine.token)], lease=10) == set()
    clock.forward(8)
    assert await claimed(store, "two") == []
    assert (await store.count("ready"), await store.count("ended")) == (1, 0)
    assert await store.append("a", [("x", 1)], expect=1, phase="ended", head=None, token=mine.token) == 2
    assert (await store.count("ready"), await store.count("ended")) == (0, 1)


async def test_a_task_that_is_to_be_unwound_goes_to_the_next_worker_if_its_own_is_lost(
    store: Store, clock: Clock
) -> None:
    await store.create(task(expires=START + 1000), [])
    (mine,) = await store.claim("one", lease=10, limit=1)
    await store.append("a", [("stop", 1)], expect=0, phase="ended", head=None, unwind_by=START + 60_000)
    clock.forward(10)
    assert await store.overdue() == []
    (theirs,) = await store.claim("two", lease=10, limit=1)
    assert theirs.record.expires == START + 60_000
    with pytest.raises(LeaseLost):
        await store.append("a", [("x", 1)], expect=1, phase="ended", head=None, token=mine.token)
    assert await store.renew([("a", mine.token), ("a", theirs.token)], lease=10) == {"a"}


@pytest.mark.parametrize("phase", ["ready", "waiting"])
async def test_a_task_that_nobody_holds_is_ready_to_be_unwound_at_once(store: Store, phase: str) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=10, limit=1)
    await store.append("a", [("x", 1)], expect=0, phase="waiting", head=None, token=mine.token)
    await store.append("a", [("y", 1)], expect=1, phase=phase, head=None)  # type: ignore[arg-type]
    await store.append("a", [("stop", 1)], expect=2, phase="ended", head=None, unwind_by=START + 60_000)
    (theirs,) = await store.claim("two", lease=10, limit=1)
    assert await store.renew([("a", theirs.token)], lease=10) == {"a"}


async def test_a_task_that_was_never_claimed_has_nothing_to_unwind(store: Store) -> None:
    await store.create(task(), [])
    await store.append(
        "a", [("stop", 1)], expect=0, phase="ended", head=None, expires=START + 1000, unwind_by=START + 60_000
    )
    record = await store.get("a")
    assert record is not None
    assert (record.phase, record.expires) == ("ended", START + 1000)
    assert await claimed(store, "two") == []


async def test_a_task_released_with_a_delay_cannot_be_claimed_before(store: Store, clock: Clock) -> None:
    await store.create(task("a"), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    await store.create(task("b"), [])
    await store.release("a", mine.token, delay=5)
    assert await claimed(store, "two") == ["b"]
    clock.forward(4.999)
    assert await claimed(store, "two") == []
    assert await store.oldest_ready() is None
    clock.forward(0.001)
    (theirs,) = await store.claim("two", lease=10, limit=5)
    assert theirs.token > mine.token
    clock.forward(1)
    assert await claimed(store, "three") == []


async def test_a_delayed_release_makes_the_token_invalid_at_once(store: Store, clock: Clock) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    await store.release("a", mine.token, delay=5)
    with pytest.raises(LeaseLost):
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None, token=mine.token)
    assert await store.renew([("a", mine.token)], lease=1) == set()
    await store.release("a", mine.token)
    assert await claimed(store, "two") == []
    clock.forward(5)
    with pytest.raises(LeaseLost):
        await store.append("a", [("x", 1)], expect=0, phase="ready", head=None, token=mine.token)


async def test_a_delay_ends_when_the_task_leaves_the_phase_ready(store: Store) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    await store.release("a", mine.token, delay=1000)
    await store.append("a", [], expect=0, phase="waiting", head=None)
    await store.append("a", [("answer", 1)], expect=0, phase="ready", head=None)
    assert await claimed(store, "two") == ["a"]


async def test_releasing_with_a_wrong_token_and_a_delay_does_nothing(store: Store) -> None:
    await store.create(task(), [])
    await store.release("a", 0, delay=1000)
    await store.release("nobody", 1, delay=1000)
    assert await claimed(store) == ["a"]


@pytest.mark.parametrize("delay", [-1.0, float("inf"), float("nan")])
async def test_an_invalid_delay_is_refused(store: Store, delay: float) -> None:
    await store.create(task(), [])
    (mine,) = await store.claim("one", lease=100, limit=1)
    with pytest.raises(ValueError, match="Invalid delay"):
        await store.release("a", mine.token, delay=delay)
    assert await store.renew([("a", mine.token)], lease=1) == {"a"}


async def test_a_lease_keeper_renews_from_a_thread_while_the_loop_is_blocked(
    store: Store, clock: Clock
) -> None:
    for id in "ab":
        await store.create(task(id), [])
    tokens = {claim.record.id: claim.token for claim in await store.claim("one", lease=10, limit=2)}
    keeper = store.lease_keeper()
    if keeper is None:
        pytest.skip("this store needs no lease keeper")
    with ThreadPoolExecutor(1) as thread:
        await store.release("b", tokens["b"])
        clock.forward(8)
        # `result` blocks this thread, and with it the event loop.
        claims = [*tokens.items(), ("nobody", 1)]
        assert thread.submit(keeper.renew, claims, lease=10).result() == {"a"}
        assert thread.submit(keeper.renew, [], lease=10).result() == set()
        clock.forward(8)
        assert await claimed(store, "two") == ["b"]
        clock.forward(2)
        assert await claimed(store, "two") == ["a"]
        assert thread.submit(keeper.renew, claims, lease=10).result() == set()
        thread.submit(keeper.close).result()
        thread.submit(keeper.close).result()


async def test_a_claim_says_when_it_was_made(store: Store, clock: Clock) -> None:
    held = await store.create(task("held"), [], worker="one", lease=60)
    assert held is not None
    await store.create(task(), [])
    clock.forward(30)
    (claim,) = await store.claim("one", lease=1, limit=1)
    clock.forward(2)
    (again,) = await store.claim("one", lease=1, limit=1, tools=["echo"], server="")
    assert [each.at - START for each in (held, claim, again)] == [0, 30_000, 32_000]
