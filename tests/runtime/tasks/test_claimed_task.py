"""Writes to a claimed task while the store fails or another process writes too."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.errors import LeaseLost, Stale, StoreUnavailable
from antiphon.runtime.tasks.records import head_of
from tests.runtime.faulty_store import claimed_task, log_entries, open_faulty_store

ENDED = {"result": {"content": [], "is_error": False}}


def recorded(value: int) -> dict[str, Any]:
    return {"journal": {"step:a": value}}


def by_first_claim(data: dict[str, Any]) -> dict[str, Any]:
    """The data of an entry as the log has it: with the token of the claim that wrote it."""
    return {**data, "by": 1}


async def test_an_entry_whose_write_succeeded_before_the_store_failed_is_written_once() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    store.afterwards("append", StoreUnavailable("It is away."))
    await mine.write("recorded", recorded(1))
    await mine.write("recorded", recorded(2))
    assert await log_entries(store) == [
        ("recorded", by_first_claim(recorded(1))),
        ("recorded", by_first_claim(recorded(2))),
    ]


async def test_an_end_whose_write_succeeded_before_the_store_failed_ends_the_task() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    store.afterwards("append", StoreUnavailable("It is away."))
    await mine.write("ended", ENDED)
    assert mine.task.state == "done"
    assert await log_entries(store) == [("ended", by_first_claim(ENDED))]


async def test_an_entry_that_was_not_written_is_written_when_the_store_recovers() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    store.instead("append", StoreUnavailable("It is away."))
    await mine.write("recorded", recorded(1))
    assert await log_entries(store) == [("recorded", by_first_claim(recorded(1)))]


async def test_an_entry_of_another_process_is_not_mistaken_for_ours() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    await store.append(
        mine.task.id, [("recorded", recorded(9))], expect=1, phase="ready", head=head_of(mine.task)
    )
    store.instead("append", StoreUnavailable("It is away."))
    await mine.write("recorded", recorded(1))
    written = [("recorded", recorded(9)), ("recorded", by_first_claim(recorded(1)))]
    assert await log_entries(store) == written


async def test_a_lease_lost_during_an_outage_raises_lease_lost() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    await store.release(mine.task.id, mine.token)
    store.instead("append", StoreUnavailable("It is away."))
    with pytest.raises(LeaseLost, match="no longer held"):
        await mine.write("recorded", recorded(1))
    assert await log_entries(store) == []


async def test_a_write_that_always_conflicts_gives_up() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    store.instead("append", *[Stale("Somebody was quicker.")] * 20)
    with pytest.raises(LeaseLost, match="other processes keep writing to it"):
        await mine.write("recorded", recorded(1))
    assert await log_entries(store) == []


async def test_a_task_that_is_gone_is_not_written() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    store.instead("append", Stale("Somebody was quicker."))
    store.instead("get", None)
    with pytest.raises(LeaseLost, match="no longer has it"):
        await mine.write("recorded", recorded(1))


async def test_nothing_is_written_after_the_end() -> None:
    store = await open_faulty_store()
    mine = await claimed_task(store)
    await mine.write("ended", ENDED)
    with pytest.raises(LeaseLost, match="has ended"):
        await mine.write("recorded", recorded(1))
    assert await log_entries(store) == [("ended", by_first_claim(ENDED))]
