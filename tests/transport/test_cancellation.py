"""Cancellation of calls: by a notification, and by closing the connection."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Context, Server
from tests.support.memory import in_memory
from tests.support.polling import forever, until
from tests.support.serving import serving
from tests.support.speakers import DIALECTS, KEY, Modern, Session, speaker


class Hanging:
    """A server whose tool waits for ever, and records how it ended."""

    def __init__(self) -> None:
        self.server = Server("tests")
        self.running = 0
        self.cancelled = 0
        self.cleaned = 0
        self.server.add_tool(self.hang)
        self.server.add_prompt(self.hang_quietly, name="hang")
        self.server.add_resource(self.hang_quietly, "u://hang")

    async def hang(self, ctx: Context, talk: bool = False) -> str:
        self.running += 1
        try:
            if talk:
                await ctx.progress(1)
            await forever()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.cleaned += 1
        return "never"

    async def hang_quietly(self) -> str:
        self.running += 1
        try:
            await forever()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "never"


@pytest.mark.parametrize("talk", [False, True])
@pytest.mark.parametrize("dialect", ["modern", "bare"])
async def test_closing_the_connection_cancels_in_versions_that_say_so(dialect: str, talk: bool) -> None:
    hanging = Hanging()
    async with serving(hanging.server) as where:
        asker = await speaker(dialect, where.port)
        params = asker.tool_call("hang", {"progressToken": 1}, talk=talk)
        async with asker.asking("tools/call", params):
            await until(lambda: hanging.running == 1)
        await until(lambda: hanging.cancelled == 1)
        await until(lambda: where.under_way == 0)
        assert hanging.cleaned == 1


async def test_closing_the_connection_cancels_nothing_in_a_session() -> None:
    hanging = Hanging()
    async with serving(hanging.server) as where:
        session, modern = Session(where.port), Modern(where.port)
        await session.open()
        async with session.asking("tools/call", session.tool_call("hang"), id="mine"):
            await until(lambda: hanging.running == 1)
        async with modern.asking("tools/call", modern.tool_call("hang")):
            await until(lambda: hanging.running == 2)
        await until(lambda: hanging.cancelled)  # the later one: the earlier one would have been before it
        assert hanging.cancelled == 1
        await session.tell("notifications/cancelled", {"requestId": "mine"})
        await until(lambda: hanging.cancelled == 2)


@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "hang"}), ("resources/read", {"uri": "u://hang"})]
)
async def test_closing_the_connection_cancels_prompts_and_resources_too(
    method: str, params: dict[str, str]
) -> None:
    hanging = Hanging()
    async with serving(hanging.server) as where:
        asker = await speaker("modern", where.port)
        async with asker.asking(method, params):
            await until(lambda: hanging.running == 1)
        await until(lambda: hanging.cancelled == 1)


@pytest.mark.parametrize("talk", [False, True])
async def test_a_notification_cancels_in_a_session(talk: bool) -> None:
    hanging = Hanging()
    async with serving(hanging.server) as where:
        session = Session(where.port)
        await session.open()
        params = session.tool_call("hang", {"progressToken": 1}, talk=talk)
        async with session.asking("tools/call", params, id="mine") as connection:
            await until(lambda: hanging.running == 1)
            told = await session.tell("notifications/cancelled", {"requestId": "mine", "reason": "enough"})
            assert told.status == 202
            response = await connection.receive()
            assert response.status == 200
            assert all("method" in frame for frame in response.frames), "a cancelled request has no response"
        assert hanging.cancelled == 1
        await until(lambda: where.under_way == 0)


async def test_a_notification_cancels_only_calls_of_its_session() -> None:
    hanging = Hanging()
    async with serving(hanging.server) as where:
        session, other = Session(where.port), Session(where.port)
        await session.open()
        await other.open()
        bare = await speaker("bare", where.port)
        async with session.asking("tools/call", session.tool_call("hang"), id=1):
            await until(lambda: hanging.running == 1)
            for stranger in (other, bare):
                assert (await stranger.tell("notifications/cancelled", {"requestId": 1})).status == 202
            for wrong in (2, "1", None, []):
                assert (await session.tell("notifications/cancelled", {"requestId": wrong})).status == 202
            assert (await session.ask("ping", id=2)).status == 200
            assert hanging.cancelled == 0
            await session.tell("notifications/cancelled", {"requestId": 1})
            await until(lambda: hanging.cancelled == 1)


async def test_ending_the_session_cancels_its_calls() -> None:
    hanging = Hanging()
    async with serving(hanging.server) as where:
        session = Session(where.port)
        await session.open()
        async with session.asking("tools/call", session.tool_call("hang")):
            await until(lambda: hanging.running == 1)
            await session.end()
            await until(lambda: hanging.cancelled == 1)


@pytest.mark.parametrize("modern", [False, True])
async def test_a_notification_cancels_on_a_stream_connection(modern: bool) -> None:
    hanging = Hanging()
    async with in_memory(hanging.server) as client:
        if not modern:
            await client.initialize()
        meta = {KEY + "clientCapabilities": {}} if modern else None
        request = asyncio.create_task(client.ask("tools/call", {"name": "hang"}, meta=meta))
        await until(lambda: hanging.running == 1)
        client.tell("notifications/cancelled", {"requestId": 1 if modern else 2})
        await until(lambda: hanging.cancelled == 1)
        assert not request.done(), "a cancelled request has no response"
        request.cancel()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tool_that_cancels_itself_does_not_hang_its_caller(dialect: str) -> None:
    server = Server("tests")

    @server.tool
    async def give_up() -> str:
        raise asyncio.CancelledError

    async with serving(server) as where:
        asker = await speaker(dialect, where.port)
        response = await asker.call("give_up")
        assert response.status in (200, 500)
        await until(lambda: where.under_way == 0)
