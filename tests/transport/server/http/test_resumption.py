"""Clients resume broken streams: no event is lost, and none is sent twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon import Context, Limits, Server
from tests.support.http import Event
from tests.support.polling import until
from tests.support.serving import Address, serving
from tests.support.speakers import Session

pytestmark = pytest.mark.usefixtures("way")

EVENTS = 5


class Paced:
    """A server whose tool sends one message at a time, when the test allows it."""

    def __init__(self, **limits: Any) -> None:
        self.server = Server("tests", limits=Limits(**limits))
        self.go = asyncio.Semaphore(0)
        self.ended = 0
        self.server.add_tool(self.tell)
        self.server.add_tool(self.let_go)

    async def tell(self, ctx: Context, size: int = 1) -> str:
        for number in range(1, EVENTS + 1):
            await self.go.acquire()
            await ctx.progress(number, EVENTS, "x" * size)
        await self.go.acquire()
        self.ended += 1
        return "done"

    async def let_go(self, ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.close_stream()
        await ctx.progress(2)
        await self.go.acquire()
        return "done"


def payload(event: Event) -> Any:
    frame = event.frame
    return frame["params"]["progress"] if "params" in frame else frame["result"]["content"][0]["text"]


async def read_until(session: Session, last: str | None, count: int, port: Address) -> list[Event]:
    """Resume a stream, read `count` messages or to its end, then close the connection."""
    found: list[Event] = []
    async with session.listening(last) as connection:
        assert (await connection.receive_head()).status == 200
        async for event in connection.events():
            if not event.comment and event.data:
                found.append(event)
            if len(found) == count:
                connection.vanish()
                break
    return found


@pytest.mark.parametrize("cut_after", range(EVENTS + 1))
async def test_a_client_that_reconnects_after_any_event_misses_none(cut_after: int) -> None:
    paced = Paced()
    async with serving(paced.server) as where:
        session = Session(where.port)
        await session.open()
        found: list[Event] = []
        params = session.tool_call("tell", {"progressToken": "tok"})
        async with session.asking("tools/call", params, id="call") as connection:
            paced.go.release()
            assert (await connection.receive_head()).is_stream
            async for event in connection.events():
                if event.data:
                    found.append(event)
                    if len(found) < cut_after:
                        paced.go.release()
                last = event.id
                if len(found) >= cut_after:
                    connection.vanish()
                    break
        for _ in range(EVENTS + 1):
            paced.go.release()
        found += await read_until(session, last, 99, where)
        assert [payload(event) for event in found] == [*range(1, EVENTS + 1), "done"]
        assert len({event.id for event in found}) == EVENTS + 1
        assert found[-1].frame["id"] == "call"
        assert paced.ended == 1


async def test_a_client_that_reconnects_after_every_event_misses_none() -> None:
    paced = Paced()
    async with serving(paced.server) as where:
        session = Session(where.port)
        await session.open()
        async with session.asking(
            "tools/call", session.tool_call("tell", {"progressToken": 1})
        ) as connection:
            paced.go.release()
            await connection.receive_head()
            first = await anext(connection.events())
            connection.vanish()
        found: list[Event] = []
        last = first.id
        while len(found) < EVENTS + 1:
            paced.go.release()
            (event,) = await read_until(session, last, 1, where)
            found.append(event)
            last = event.id
        assert [payload(event) for event in found] == [*range(1, EVENTS + 1), "done"]


async def test_a_stream_that_has_ended_can_be_read_again() -> None:
    paced = Paced()
    async with serving(paced.server) as where:
        session = Session(where.port)
        await session.open()
        for _ in range(EVENTS + 1):
            paced.go.release()
        response = await session.call("tell", {"progressToken": 1})
        whole = [event for event in response.events if event.data]
        for number, event in enumerate(response.events):
            again = await read_until(session, event.id, 99, where)
            assert again == whole[number:]


async def test_a_tool_can_close_the_connection_and_the_client_resumes() -> None:
    paced = Paced()
    async with serving(paced.server) as where:
        session = Session(where.port)
        await session.open()
        params = session.tool_call("let_go", {"progressToken": 1})
        response = await session.ask("tools/call", params)
        assert [payload(event) for event in response.events if event.data] == [1]
        assert response.events[0].retry is not None
        paced.go.release()
        rest = await read_until(session, response.events[-1].id, 99, where)
        assert [payload(event) for event in rest] == [2, "done"]


async def test_closing_the_stream_does_nothing_if_it_cannot_be_resumed() -> None:
    paced = Paced()
    async with serving(paced.server) as where:
        from tests.support.speakers import Modern

        paced.go.release()
        response = await Modern(where.port).call("let_go", {"progressToken": 1})
        assert response.text == "done"
        assert len(response.frames) == 3


async def test_a_call_of_a_session_continues_after_a_disconnect() -> None:
    paced = Paced()
    async with serving(paced.server) as where:
        session = Session(where.port)
        await session.open()
        async with session.asking(
            "tools/call", session.tool_call("tell", {"progressToken": 1})
        ) as connection:
            paced.go.release()
            await connection.receive_head()
            connection.vanish()
        for _ in range(EVENTS + 1):
            paced.go.release()
        await until(lambda: paced.ended == 1)
        await until(lambda: where.under_way == 0)


@pytest.mark.parametrize("limits", [{"max_replay_events": 2}, {"max_replay_bytes": 3000}])
async def test_a_stream_whose_events_were_evicted_cannot_be_resumed(limits: dict[str, int]) -> None:
    paced = Paced(**limits)
    async with serving(paced.server) as where:
        session = Session(where.port)
        await session.open()
        for _ in range(EVENTS + 1):
            paced.go.release()
        response = await session.call("tell", {"progressToken": 1}, size=1000)
        ids = [event.id for event in response.events]
        for gone in ids[:2]:
            async with session.listening(gone) as connection:
                refused = await connection.receive()
            assert (refused.status, refused.error["code"]) == (410, -32600)
        kept = await read_until(session, ids[-2], 99, where)
        assert [payload(event) for event in kept] == ["done"]


async def test_the_oldest_stream_is_evicted_first() -> None:
    paced = Paced(max_replay_streams=2)
    async with serving(paced.server) as where:
        session = Session(where.port)
        await session.open()
        lasts = []
        for _ in range(3):
            for _ in range(EVENTS + 1):
                paced.go.release()
            response = await session.call("tell", {"progressToken": 1})
            lasts.append(response.events[0].id)
        async with session.listening(lasts[0]) as connection:
            assert (await connection.receive()).status == 410
        assert len(await read_until(session, lasts[2], 99, where)) == EVENTS + 1


@pytest.mark.parametrize("event_id", ["", "x", "x.1", ".", "x.-1", "é.1", "x." + "1" * 50])
async def test_an_unknown_event_id_is_refused(event_id: str) -> None:
    async with serving(Paced().server) as where:
        session = Session(where.port)
        await session.open()
        async with session.listening(event_id) as connection:
            refused = await connection.receive()
        assert (refused.status, refused.error["code"]) == (410, -32600)


async def test_an_event_id_of_another_session_is_refused() -> None:
    paced = Paced()
    async with serving(paced.server) as where:
        session, other = Session(where.port), Session(where.port)
        await session.open()
        await other.open()
        for _ in range(EVENTS + 1):
            paced.go.release()
        response = await session.call("tell", {"progressToken": 1})
        async with other.listening(response.events[0].id) as connection:
            assert (await connection.receive()).status == 410
