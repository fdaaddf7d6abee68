"""What a client hears of changes: streams that are shared, refused, broken or never acknowledged."""

import asyncio
from typing import Any

import pytest

from antiphon.client import Client, subscriptions
from antiphon.errors import ClientError, InternalError, SessionLost, TimedOut, Unreachable
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from tests.client.channels import DONE, LEGACY, NOTHING, Line, Telling, refusal
from tests.support.polling import until

CAPABLE = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "FIRST_RETRY_SECONDS", 0.001)


async def test_a_resource_that_two_want_has_one_stream_until_both_have_left() -> None:
    line = Line(Telling(), **CAPABLE)
    async with Client(line) as client:
        await client.subscribe("memo://a")
        await client.subscribe("memo://a")
        await client.unsubscribe("memo://a")
        assert len(line.asked("subscriptions/listen")) == 1
        assert not line.asked("notifications/cancelled")
        await client.unsubscribe("memo://a")
        await until(lambda: line.asked("notifications/cancelled"))
    assert len(line.asked("subscriptions/listen")) == 1


async def test_a_subscription_that_is_refused_says_why_and_can_be_tried_again() -> None:
    refusing = True
    telling = Telling()

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return refusal(-32603, "Too many.") if refusing else await telling(line, asked)

    async with Client(Line(answer, **CAPABLE)) as client:
        with pytest.raises(InternalError, match=r"Too many\."):
            await client.subscribe("memo://a")
        refusing = False
        await client.subscribe("memo://a")
    assert telling.opened == 1


async def test_a_subscription_that_ends_before_it_is_acknowledged_is_an_error() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return NOTHING

    async with Client(Line(answer, **CAPABLE)) as client:
        with pytest.raises(ClientError, match="ended the subscription at once"):
            await client.subscribe("memo://a")


async def test_a_client_that_cannot_hear_of_changes_as_it_wants_to_does_not_stay_open() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return NOTHING

    line = Line(answer, **CAPABLE)
    with pytest.raises(ClientError, match="ended the subscription at once"):
        async with Client(line, on_change=print):
            pass
    assert line.is_closed


async def test_a_subscription_that_is_never_acknowledged_times_out_and_is_given_up() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return NOTHING

    line = Line(answer, **CAPABLE)
    async with Client(line, timeout=0.05) as client:
        with pytest.raises(TimedOut, match="has not acknowledged the subscription"):
            await client.subscribe("memo://a")
    (cancelled,) = line.asked("notifications/cancelled")
    listen = next(message for message in line.sent if message["method"] == "subscriptions/listen")
    assert cancelled["requestId"] == listen["id"]


async def test_a_stream_that_breaks_is_opened_again_and_what_was_kept_is_asked_for_anew() -> None:
    telling, heard = Telling(), asyncio.Queue[Change]()
    line = Line(telling, **CAPABLE)
    async with Client(line, on_change=heard.put_nowait) as client:
        await client.subscribe("memo://a")
        await client.tools()
        await client.tools()
        assert len(line.asked("tools/list")) == 1
        opened = telling.opened
        telling.breaking.set()
        await until(lambda: telling.opened > opened)
        await client.tools()
        assert len(line.asked("tools/list")) == 2
        missed = [await asyncio.wait_for(heard.get(), 30) for _ in range(2)]
        assert missed == [ListChanged("tools", assumed=True), ResourceUpdated("memo://a", assumed=True)]
        await line.say(method="notifications/resources/updated", params={"uri": "memo://a", "assumed": True})
        assert await asyncio.wait_for(heard.get(), 30) == ResourceUpdated("memo://a")
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}
    assert [params["notifications"] for params in line.asked("subscriptions/listen")][-2:] == [wanted] * 2


async def test_a_stream_is_opened_again_however_long_the_server_is_away(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "LONGEST_RETRY_SECONDS", 0.01)
    telling, is_away, attempts = Telling(), False, 0

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        nonlocal attempts
        attempts += 1
        if is_away:
            raise Unreachable("Nobody there.")
        return await telling(line, asked)

    line = Line(answer, **CAPABLE)
    async with Client(line) as client, client.listen("memo://a", lists=False) as changes:
        reading = aiter(changes)
        is_away = True
        telling.breaking.set()
        await until(lambda: attempts > 20)
        assert caplog.text.count("keeps breaking: Nobody there. The client tries to open it again.") == 1
        is_away = False
        assert await asyncio.wait_for(anext(reading), 30) == ResourceUpdated("memo://a", assumed=True)
        await line.say(method="notifications/resources/updated", params={"uri": "memo://a"})
        assert await asyncio.wait_for(anext(reading), 30) == ResourceUpdated("memo://a")


async def test_a_stream_that_is_not_acknowledged_again_is_tried_again() -> None:
    telling = Telling()

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if len(line.asked("subscriptions/listen")) == 2:
            await asyncio.Event().wait()
        return await telling(line, asked)

    line = Line(answer, **CAPABLE)
    async with Client(line, timeout=0.1) as client, client.listen("memo://a", lists=False) as changes:
        telling.breaking.set()
        assert await asyncio.wait_for(anext(aiter(changes)), 30) == ResourceUpdated("memo://a", assumed=True)
    assert len(line.asked("subscriptions/listen")) == 3


async def test_a_new_session_is_told_of_the_resources_that_the_old_one_told_of() -> None:
    lost = iter([True])

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tools/call" and next(lost, False):
            raise SessionLost("Who?")
        return DONE

    line = Line(answer, version=LEGACY)
    async with Client(line) as client:
        await client.subscribe("memo://a")
        await client.subscribe("memo://b")
        before = line.streams
        assert (await client.call("tool")).text == "Done."
        assert line.streams == before + 1
    uris = [params["uri"] for params in line.asked("resources/subscribe")]
    assert uris == ["memo://a", "memo://b"] * 2


async def test_a_new_session_that_nobody_had_subscribed_in_is_told_nothing() -> None:
    lost = iter([True])

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if next(lost, False):
            raise SessionLost("Who?")
        return DONE

    line = Line(answer, version=LEGACY)
    async with Client(line) as client:
        await client.call("tool")
    assert (line.streams, line.asked("resources/subscribe")) == (0, [])
