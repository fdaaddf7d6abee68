"""The contract of events: kept for a time, read by every task that waits for their topic."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.contract import Event, KeptEvent, Store
from antiphon.store.memory import MemoryStore

from .support import START, Clock

LATER = START + 60_000


async def ids(store: Store, topic: str = "t", *, after: int = 0) -> list[str]:
    """Return the ids of the events of a topic."""
    return [event.id for event in await store.read_events(topic, after=after)]


async def test_events_are_read_in_order(store: Store, clock: Clock) -> None:
    for id in ("c", "a", "b"):
        assert await store.add_event("t", id, {"n": [id, "ü \0"]}, until=LATER)
        clock.forward(1)
    await store.add_event("other", "d", None, until=LATER)
    first, second, third = await store.read_events("t")
    assert first == Event(first.number, "c", START, {"n": ["c", "ü \0"]})
    assert first.number < second.number < third.number
    assert await store.read_events("t", after=first.number) == [second, third]
    assert await store.read_events("t", after=first.number, limit=1) == [second]
    assert await store.read_events("t", after=third.number) == []
    assert await store.read_events("t", limit=0) == await store.read_events("unknown") == []
    assert await store.read_events("t", after=-5) == [first, second, third]
    assert [event.data for event in await store.read_events("other")] == [None]


async def test_an_id_counts_once_in_a_topic(store: Store, clock: Clock) -> None:
    assert await store.add_event("t", "a", 1, until=LATER)
    clock.forward(1)
    assert not await store.add_event("t", "a", 2, until=LATER + 9999)
    assert await store.add_event("u", "a", 3, until=LATER)
    assert [(event.at, event.data) for event in await store.read_events("t")] == [(START, 1)]
    assert [event.data for event in await store.read_events("u")] == [3]


async def test_topics_and_ids_may_hold_any_text(store: Store) -> None:
    names = ["", "\0", "\1", "\1\2", 'event:["a","ü"]', "x" * 2000]
    for topic in names:
        for id in names:
            assert await store.add_event(topic, id, [topic, id], until=LATER)
    for topic in names:
        assert [event.data for event in await store.read_events(topic)] == [[topic, id] for id in names]


async def test_an_event_is_gone_when_its_time_has_passed(store: Store, clock: Clock) -> None:
    await store.add_event("t", "a", 1, until=START + 1000)
    await store.add_event("t", "b", 1, until=START + 2000)
    clock.forward(0.999)
    assert await ids(store) == ["a", "b"]
    clock.forward(0.001)
    assert await ids(store) == ["b"]
    before = (await store.read_events("t"))[-1].number
    assert await store.add_event("t", "a", 2, until=LATER)
    assert await ids(store) == ["b", "a"]
    assert await ids(store, after=before) == ["a"]


async def test_numbers_grow_after_all_events_are_gone(store: Store, clock: Clock) -> None:
    await store.add_event("t", "a", 1, until=START + 1000)
    (first,) = await store.read_events("t")
    clock.forward(1)
    await store.expire()
    assert await ids(store) == []
    await store.add_event("t", "b", 2, until=LATER)
    assert await ids(store, after=first.number) == ["b"]


async def test_old_events_are_deleted_with_new_ones(store: Store, clock: Clock) -> None:
    for n in range(20):
        await store.add_event("old", f"{n}", n, until=START + 1000)
    clock.forward(1)
    for n in range(20):
        await store.add_event("new", f"{n}", n, until=LATER)
    clock.back(1)
    assert await ids(store, "old") == []


async def test_expire_deletes_old_events(store: Store, clock: Clock) -> None:
    for n in range(20):
        await store.add_event("old", f"{n}", n, until=START + 1000 + n)
    clock.forward(1.0095)
    await store.expire()
    clock.back(1)
    assert await ids(store, "old") == [f"{n}" for n in range(10, 20)]


async def test_one_of_many_callers_adds_an_event(store: Store) -> None:
    added = await asyncio.gather(*(store.add_event("t", "a", n, until=LATER) for n in range(50)))
    assert added.count(True) == 1
    assert len(await store.read_events("t")) == 1


async def test_events_that_arrive_together_are_all_kept(store: Store) -> None:
    added = await asyncio.gather(
        *(store.add_event(f"t{n % 3}", f"{n}", n, until=LATER) for n in range(90)),
    )
    assert all(added)
    for topic in range(3):
        events = await store.read_events(f"t{topic}")
        assert [event.data for event in events] == list(range(topic, 90, 3))


async def test_an_event_that_is_too_late_is_never_read(store: Store) -> None:
    assert await store.add_event("t", "a", 1, until=START - 1)
    assert await ids(store) == []


async def test_invalid_events_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        await store.add_event("t", "a", 1, until=2**70)
    with pytest.raises(TypeError):
        await store.add_event("t", "a", object(), until=LATER)
    for topic, id in (("\ud800", "a"), ("t", "\ud800")):
        with pytest.raises(UnicodeEncodeError):
            await store.add_event(topic, id, 1, until=LATER)
    with pytest.raises(UnicodeEncodeError):
        await store.read_events("\ud800")
    assert await ids(store) == []


async def test_a_closed_store_takes_no_events(store: Store) -> None:
    await store.add_event("t", "a", 1, until=LATER)
    await store.close()
    for call in (store.add_event("t", "b", 1, until=LATER), store.read_events("t")):
        with pytest.raises(StoreUnavailable):
            await call
    await store.open()
    assert await ids(store) == ["a"]


async def test_numbers_grow_when_events_and_readers_move_to_another_store(store: Store, clock: Clock) -> None:
    """The other store has added fewer events, and its clock is a second behind."""
    for n in range(50):
        await store.add_event("t", f"{n}", n, until=LATER)
    last = (await store.read_events("t"))[-1]
    clock.forward(1)
    other = MemoryStore(clock=clock)
    await other.open()
    assert await other.restore_event(KeptEvent("t", last, LATER))
    assert await other.read_events("t") == [last]
    clock.back(2)
    await other.add_event("t", "new", 1, until=LATER)
    assert [event.id for event in await other.read_events("t", after=last.number)] == ["new"]
    fresh = MemoryStore(clock=clock)
    await fresh.open()
    clock.forward(3)
    await fresh.add_event("t", "new", 1, until=LATER)
    assert [event.id for event in await fresh.read_events("t", after=last.number)] == ["new"]


async def test_events_are_listed_and_restored(store: Store, clock: Clock) -> None:
    topics = ["", "\0", "\1", 'event:["a","ü"]', "x" * 2000, "y" * 2000]
    for topic in topics:
        for n in range(3):
            await store.add_event(topic, f"{n}", [topic, n], until=LATER)
    await store.add_event("gone", "a", 1, until=START)
    listed: list[KeptEvent] = []
    while page := await store.list_events(
        after=(listed[-1].topic, listed[-1].event.number) if listed else None, limit=4
    ):
        listed += page
    assert sorted((kept.topic, kept.event.data, kept.until) for kept in listed) == sorted(
        (topic, [topic, n], LATER) for topic in topics for n in range(3)
    )
    assert not any([await store.restore_event(kept) for kept in listed])
    clock.forward(100)
    await store.expire()
    assert await store.list_events() == []
    for kept in reversed(listed):
        assert await store.restore_event(msgspec.structs.replace(kept, until=LATER * 2))
    for topic in topics:
        expected = [kept.event for kept in listed if kept.topic == topic]
        assert await store.read_events(topic) == expected
    await store.add_event("", "later", 1, until=LATER * 2)
    assert [event.id for event in await store.read_events("")] == ["0", "1", "2", "later"]


async def test_an_event_whose_number_is_in_use_gets_the_next_one(store: Store) -> None:
    assert await store.restore_event(KeptEvent("t", Event(7, "a", START, 1), LATER))
    assert await store.restore_event(KeptEvent("t", Event(7, "b", START, 2), LATER))
    events = [(event.number, event.id) for event in await store.read_events("t")]
    assert events == [(7, "a"), (8, "b")]
    await store.add_event("t", "c", 3, until=LATER)
    assert await ids(store) == ["a", "b", "c"]
