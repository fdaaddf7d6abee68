"""Messages between processes while the store fails and recovers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.runtime import relay
from antiphon.runtime.relay import Relay
from tests.runtime.faulty_store import open_faulty_store
from tests.support.polling import turns, until


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "RETRY_SECONDS", 0.0)


async def open_receiver(store: Any) -> tuple[Relay, list[Any]]:
    """Return an open relay, and a list of the messages that it receives."""
    received: list[Any] = []
    other = Relay("tests")
    other.subscribe("topic", received.append)
    await other.open(store)
    return other, received


async def test_nothing_is_published_without_a_store() -> None:
    store = await open_faulty_store()
    other, received = await open_receiver(store)
    mine = Relay("tests")
    await mine.publish("topic", 1)
    mine.publish_soon("topic", 2)
    await mine.open(store)
    await mine.publish("topic", 3)
    await until(lambda: received)
    await mine.close()
    await mine.publish("topic", 4)
    await other.close()
    assert received == [3]
    assert not mine.is_open


async def test_a_failed_publish_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = await open_faulty_store()
    mine = Relay("tests")
    await mine.open(store)
    store.instead("publish", StoreUnavailable("It is away."))
    await mine.publish("topic", 1)
    await mine.close()
    assert caplog.messages == ["Cannot send a message about 'topic' to other processes: It is away."]


async def test_pending_messages_are_sent_before_the_relay_closes() -> None:
    store = await open_faulty_store()
    other, received = await open_receiver(store)
    mine = Relay("tests")
    await mine.open(store)
    mine.publish_soon("topic", 1)
    await turns()
    assert store.calls["publish"] == 0
    await mine.close()
    assert store.calls["publish"] == 1
    await until(lambda: received == [1])
    await other.close()


async def test_no_more_is_on_its_way_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_PENDING_MESSAGES", 2)
    store = await open_faulty_store()
    other, received = await open_receiver(store)
    mine = Relay("tests")
    await mine.open(store)
    for number in (1, 2, 3):
        mine.publish_soon("topic", number)
    await turns()
    await mine.close()
    await until(lambda: len(received) == 2)
    await other.close()
    assert received == [1, 2]


def test_nothing_is_published_on_a_closed_event_loop() -> None:
    mine = Relay("tests")

    async def open() -> Any:
        store = await open_faulty_store()
        await mine.open(store)
        return store

    store = asyncio.run(open())
    mine.publish_soon("topic", 1)
    assert store.calls["publish"] == 0


async def test_a_message_that_comes_again_and_again_is_sent_once_more_after_the_last_time() -> None:
    store = await open_faulty_store()
    other, received = await open_receiver(store)
    mine = Relay("tests")
    await mine.open(store)
    for _ in range(1000):
        mine.publish_repeatable("topic", ("resource", "a"))
        mine.publish_repeatable("topic", ("resource", "b"))
    await until(lambda: len(received) == 4)
    assert sorted(received) == [["resource", "a"]] * 2 + [["resource", "b"]] * 2
    await until(lambda: not mine.sending)
    mine.publish_repeatable("topic", ("resource", "a"))
    await until(lambda: len(received) == 5)
    await mine.close()
    await other.close()
    assert store.calls["publish"] == 5


async def test_a_message_that_came_again_is_sent_before_the_relay_closes() -> None:
    store = await open_faulty_store()
    mine = Relay("tests")
    await mine.open(store)
    for _ in range(3):
        mine.publish_repeatable("topic", ("resource", "a"))
    await turns()
    await mine.close()
    assert store.calls["publish"] == 2


async def test_a_message_is_sent_again_by_a_relay_that_was_closed_while_it_came() -> None:
    store = await open_faulty_store()
    mine = Relay("tests")
    await mine.open(store)
    mine.publish_repeatable("topic", ("resource", "a"))
    await mine.close()  # before the event loop turns to the message
    await turns()
    await until(lambda: not mine.sending)
    assert store.calls["publish"] == 0
    await mine.open(store)
    mine.publish_repeatable("topic", ("resource", "a"))
    await until(lambda: store.calls["publish"] == 1)
    await mine.close()


async def test_messages_are_received_when_the_store_recovers() -> None:
    store = await open_faulty_store()
    store.instead("subscribe", StoreUnavailable("It is away."))
    other, received = await open_receiver(store)
    mine = Relay("tests")
    await mine.open(store)
    await mine.publish("topic", 1)
    await until(lambda: received == [1])
    await mine.close()
    await other.close()
    assert store.calls["subscribe"] == 2


async def test_messages_are_received_after_one_that_cannot_be_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = await open_faulty_store()
    received: list[int] = []
    other, mine = Relay("tests"), Relay("tests")
    other.subscribe("topic", lambda data: received.append(data["number"]))
    await other.open(store)
    await mine.open(store)
    await mine.publish("topic", "not like that")
    await until(lambda: store.calls["subscribe"] == 2)
    await mine.publish("topic", {"number": 1})
    await until(lambda: received == [1])
    await mine.close()
    await other.close()
    assert caplog.messages == ["Cannot handle a message of another process on 'topic'; continuing."]


async def test_a_closed_store_is_not_subscribed_to_again() -> None:
    store = await open_faulty_store()
    other, received = await open_receiver(store)
    await store.close()
    await asyncio.wait(other.receivers, timeout=60)
    await other.close()
    assert (received, store.calls["subscribe"]) == ([], 1)
