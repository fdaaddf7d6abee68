"""Notifications of changes: on the GET stream of a session, and on a subscription of 2026-07-28."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from antiphon import Limits, Server
from tests.support.http import Connection, Event
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import KEY, Modern, Session

pytestmark = pytest.mark.usefixtures("way")


async def anything() -> str:
    return "x"


def build(**limits: Any) -> Server:
    server = Server("tests", limits=Limits(**limits))
    server.add_tool(anything, name="t")
    server.add_resource(anything, "u://1")
    server.add_resource(anything, "u://2")
    server.add_prompt(anything, name="p")
    return server


def change_everything(server: Server) -> None:
    server.add_tool(anything, name="t2")
    server.add_prompt(anything, name="p2")
    server.add_resource(anything, "u://3")
    server.notify_resource_updated("u://1")
    server.notify_resource_updated("u://2")


async def messages(connection: Connection) -> AsyncIterator[dict[str, Any]]:
    async for event in connection.events():
        if not event.comment and event.data:
            yield event.frame


async def collect(connection: Connection, count: int) -> list[dict[str, Any]]:
    found = []
    async for frame in messages(connection):
        found.append(frame)
        if len(found) == count:
            break
    return found


async def test_a_session_gets_changes_of_lists_and_of_its_subscriptions() -> None:
    server = build()
    async with serving(server) as where:
        session = Session(where.port)
        await session.open()
        await session.ask("resources/subscribe", {"uri": "u://1"})
        async with session.listening() as connection:
            assert (await connection.receive_head()).is_stream
            change_everything(server)
            found = await collect(connection, 4)
            assert [(frame["method"], frame["params"]) for frame in found] == [
                ("notifications/tools/list_changed", {}),
                ("notifications/prompts/list_changed", {}),
                ("notifications/resources/list_changed", {}),
                ("notifications/resources/updated", {"uri": "u://1"}),
            ]
            await session.ask("resources/unsubscribe", {"uri": "u://1"})
            server.notify_resource_updated("u://1")
            server.remove_tool("t2")
            assert (await collect(connection, 1))[0]["method"] == "notifications/tools/list_changed"


async def test_a_new_get_stream_ends_the_previous_one() -> None:
    server = build()
    async with serving(server) as where:
        session = Session(where.port)
        await session.open()
        async with session.listening() as one, session.listening() as two:
            heads = [await one.receive_head(), await two.receive_head()]
            assert [head.status for head in heads] == [200, 200]
            server.add_tool(anything, name="t2")
            found = await asyncio.gather(*(anext(messages(each), None) for each in (one, two)))
            assert [frame is not None for frame in found].count(True) == 1


async def test_ending_the_session_ends_its_stream() -> None:
    async with serving(build()) as where:
        session = Session(where.port)
        await session.open()
        async with session.listening() as connection:
            await connection.receive_head()
            await session.end()
            assert [event async for event in connection.events() if not event.comment] == []
        await until(lambda: where.under_way == 0)


async def test_a_listener_that_disconnects_is_removed() -> None:
    server = build(keep_alive_interval=0.1)
    async with serving(server) as where:
        session = Session(where.port)
        await session.open()
        async with session.listening() as connection:
            await connection.receive_head()
            assert where.under_way == 1
            connection.vanish()
        await until(lambda: where.under_way == 0)
        assert len(server.engine.changes) == 0


async def test_an_idle_stream_gets_comments() -> None:
    async with serving(build(keep_alive_interval=0.1)) as where:
        session = Session(where.port)
        await session.open()
        async with session.listening() as connection:
            await connection.receive_head()
            comments: list[Event] = []
            async for event in connection.events():
                comments.append(event)
                if len(comments) == 3:
                    break
            assert all(event.comment for event in comments)


async def listen(asker: Modern, connection: Connection) -> dict[str, Any]:
    assert (await connection.receive_head()).is_stream
    return (await collect(connection, 1))[0]


async def test_a_subscription_of_2026_is_acknowledged_and_filtered() -> None:
    server = build()
    async with serving(server) as where:
        asker = Modern(where.port)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["u://2"]}
        async with asker.asking("subscriptions/listen", {"notifications": wanted}, id="sub") as connection:
            acknowledged = await listen(asker, connection)
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"] == wanted
            change_everything(server)
            found = [acknowledged, *await collect(connection, 2)]
            assert [frame["method"].removeprefix("notifications/") for frame in found[1:]] == [
                "tools/list_changed",
                "resources/updated",
            ]
            assert found[2]["params"]["uri"] == "u://2"
            for frame in found:
                assert frame["params"]["_meta"] == {KEY + "subscriptionId": "sub"}


async def test_a_subscription_ends_with_a_result_at_shutdown() -> None:
    async with serving(build()) as where:
        asker = Modern(where.port)
        async with asker.asking("subscriptions/listen", {"notifications": {}}, id=9) as connection:
            await listen(asker, connection)
            where.app.begin_shutdown()
            (last,) = await collect(connection, 1)
            assert last["id"] == 9
            assert last["result"]["_meta"][KEY + "subscriptionId"] == 9


async def test_a_subscriber_that_disconnects_is_removed() -> None:
    server = build()
    async with serving(server) as where:
        asker = Modern(where.port)
        async with asker.asking("subscriptions/listen", {"notifications": {}}) as connection:
            await listen(asker, connection)
            connection.vanish()
        await until(lambda: where.under_way == 0)
        assert len(server.engine.changes) == 0


async def test_a_subscription_requires_an_event_stream() -> None:
    async with serving(build()) as where:
        asker = Modern(where.port)
        response = await asker.ask(
            "subscriptions/listen", {"notifications": {}}, headers={"accept": "application/json"}
        )
        assert response.status == 406


@pytest.mark.parametrize("kind", ["session", "modern"])
async def test_listeners_have_a_limit(kind: str) -> None:
    async with serving(build(max_listeners=1)) as where:
        session, asker = Session(where.port), Modern(where.port)
        await session.open()
        async with session.listening() as connection:
            await connection.receive_head()
            if kind == "session":
                other = Session(where.port)
                await other.open()
                async with other.listening() as refused:
                    response = await refused.receive()
            else:
                response = await asker.ask("subscriptions/listen", {"notifications": {}})
            assert (response.status, response.error["code"]) == (503, -32603)
            assert int(response.headers["retry-after"]) > 0
            assert (await session.ask("ping")).status == 200, "calls are not listeners"
