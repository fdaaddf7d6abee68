"""A server with sessions that prints response modes as SEP-1905 does, and what a caller chooses of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import Server
from antiphon.client import Client
from tests.client.fakes import Answer, Fake, Reply, legacy, serving

TASK = "786512e2-9e0d-44bd-8f29-789f320fe840"
RELATED = {"io.modelcontextprotocol/related-task": {"taskId": TASK}}
ALL = ["immediate", "task", "streaming"]
BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"},
    {
        "type": "text",
        "text": "Suggested activities:\n- Visit Central Park\n- Explore the Metropolitan Museum of Art",
    },
    {
        "type": "video",
        "text": "Here is a short video overview of New York City attractions.",
        "url": "https://example.com/nyc_overview.mp4",
    },
]
CASE_1 = {"content": BLOCKS, "isError": False, "_meta": RELATED}
CASE_2 = {
    "task": {
        "taskId": TASK,
        "status": "working",
        "statusMessage": "The operation is now in progress.",
        "createdAt": "2025-11-25T10:30:00Z",
        "lastUpdatedAt": "2025-11-25T10:40:00Z",
        "ttl": 60000,
        "pollInterval": 20,  # printed as 5000, which would be waited for
    }
}


def partial(first: int, *blocks: dict[str, Any], complete: bool) -> dict[str, Any]:
    content = [{"seqNr": number, **block} for number, block in enumerate(blocks, first)]
    return {"partial-content": content, "isError": False, "isComplete": complete, "_meta": RELATED}


def printing(call: Answer, tasks: dict[str, Any] | None, *, opens: bool) -> Answer:
    """A server without a list of tools, whose tasks have ended when they are looked at."""

    async def answer(reply: Reply) -> None:
        method = reply.request.method
        if method == "tools/call":
            await call(reply)
        elif method == "tasks/get":
            await reply.result({**CASE_2["task"], "status": "completed"})
        elif method == "tasks/result":
            await reply.result(CASE_1)
        else:
            await reply.error(-32601)

    modes = {"responses": {"modes": ["task", "immediate", "streaming"]}}
    return legacy(answer, tasks=modes | (tasks or {})) if opens else answer


@asynccontextmanager
async def connected(
    call: Answer, tasks: dict[str, Any] | None = None, *, opens: bool = True
) -> AsyncIterator[tuple[Client, Fake]]:
    async with (
        asyncio.timeout(60),
        serving(printing(call, tasks, opens=opens)) as fake,
        Client(fake.url) as client,
    ):
        assert client.version == ("2025-11-25" if opens else "DRAFT-2026-v1")
        yield client, fake


anywhere = pytest.mark.parametrize("opens", [True, False], ids=["in a session", "without a session"])


def called(fake: Fake) -> dict[str, Any]:
    """The parameters of the one call."""
    (params,) = [heard.params for heard in fake.heard if heard.method == "tools/call"]
    return params


async def test_the_client_declares_all_modes() -> None:
    async with connected(lambda reply: reply.result(CASE_1)) as (_, fake):
        (opened,) = [heard.params for heard in fake.heard if heard.method == "initialize"]
    assert sorted(opened["capabilities"]["tasks"]["responses"]["modes"]) == sorted(ALL)


@anywhere
async def test_a_task_is_asked_for_with_the_mode_task(opens: bool) -> None:
    async def call(reply: Reply) -> None:
        await reply.result(CASE_2)

    async with connected(call, opens=opens) as (client, fake):
        handle = await client.submit("get_weather", city="New York", ttl=60)
        assert handle.id == TASK
        assert len((await handle.result()).content) == 3
    expected = {
        "name": "get_weather",
        "arguments": {"city": "New York"},
        "task": {"ttl": 60000, "responseModes": ["task"]},
    }
    assert called(fake) == expected


@anywhere
async def test_a_caller_that_accepts_it_gets_the_result_at_once_and_the_task_too(opens: bool) -> None:
    async def call(reply: Reply) -> None:
        await reply.result(CASE_1)

    async with connected(call, opens=opens) as (client, fake):
        handle = await client.submit("get_weather", city="New York", response_modes=["immediate", "task"])
        assert handle.id == TASK
        result = await handle.result()
    assert result.content[2] == BLOCKS[2]
    assert called(fake)["task"] == {"responseModes": ["immediate", "task"]}


async def test_a_result_at_once_without_a_task_is_in_the_handle() -> None:
    async def call(reply: Reply) -> None:
        await reply.result({"content": BLOCKS[:1], "isError": False})

    async with connected(call) as (client, fake):
        handle = await client.submit("get_weather", response_modes=["immediate"])
        assert handle.id is None
        assert (await handle.result()).text == BLOCKS[0]["text"]
    assert "tasks/result" not in fake.methods()


FIRST: dict[str, list[dict[str, Any]]] = {
    "both": [{**partial(1, *BLOCKS[:2], complete=False), **CASE_2}],
    "only the task": [CASE_2, partial(1, *BLOCKS[:2], complete=False)],
    "only the content": [partial(1, *BLOCKS[:2], complete=False)],
}


@anywhere
@pytest.mark.parametrize("first", FIRST)
async def test_each_first_response_begins_a_stream_of_segments(first: str, opens: bool) -> None:
    seen = asyncio.Event()

    async def call(reply: Reply) -> None:
        await reply.events()
        for result in FIRST[first]:
            await reply.event({"id": reply.request.id, "result": result})
        await seen.wait()
        last = partial(3, BLOCKS[2], complete=True)
        await reply.event({"id": reply.request.id, "result": last}, id="event-123")
        await reply.hang()

    async with connected(call, opens=opens) as (client, fake):
        async with client.stream("get_weather", city="New York", response_modes=ALL) as stream:
            got = [(await anext(stream)).number, (await anext(stream)).number]
            seen.set()
            got += [segment.number async for segment in stream]
        assert got == [1, 2, 3]
        assert stream.task_id == TASK
        assert stream.result.content[2] == BLOCKS[2]
    assert called(fake)["task"] == {"responseModes": ALL}
    if opens:  # the draft has its questions in `tasks/result`, so the client waits for it beside the stream
        assert "tasks/result" not in fake.methods()


@anywhere
async def test_a_stream_that_ends_after_the_task_is_read_on_with_other_requests(opens: bool) -> None:
    async def call(reply: Reply) -> None:
        await reply.events()
        await reply.event({"id": reply.request.id, "result": CASE_2})

    async with connected(call, opens=opens) as (client, fake):
        async with client.stream("get_weather") as stream:
            assert [segment.number async for segment in stream] == [1, 2, 3]
        assert stream.task_id == TASK
    assert "tasks/result" in fake.methods()
    assert "tasks/cancel" not in fake.methods()


async def test_a_result_that_is_there_at_once_is_streamed_as_a_whole() -> None:
    async def call(reply: Reply) -> None:
        await reply.result(CASE_1)

    async with connected(call) as (client, _), client.stream("get_weather", response_modes=ALL) as stream:
        assert [segment.number async for segment in stream] == [1, 2, 3]


async def test_a_server_without_response_modes_is_not_told_which_are_accepted() -> None:
    async def call(reply: Reply) -> None:
        await reply.result(CASE_2)

    tasks = {"responses": None, "requests": {"tools": {"call": {}}}}
    async with connected(call, tasks) as (client, fake):
        await client.submit("get_weather", response_modes=["immediate"])
    assert called(fake)["task"] == {}


@pytest.mark.parametrize("modes", [[], ["slow"], ["streaming"], "task"])
async def test_modes_that_a_submitted_call_cannot_have_are_refused(modes: Any) -> None:
    async with Client(Server("quiet")) as client:
        with pytest.raises(ValueError, match=r"response_modes=.* is not a sequence of task, immediate"):
            await client.submit("tool", response_modes=modes)


async def test_our_own_server_answers_at_once_where_the_caller_accepts_it() -> None:
    server = Server("quick", store="memory:")

    @server.tool(task="optional", answer_within=30)
    async def weather(city: str) -> str:
        return f"Sunny in {city}."

    async with Client(server, protocol="2025-11-25") as client:
        quick = await client.submit("weather", city="Oslo", response_modes=["immediate", "task"])
        assert quick.id is None
        assert (await quick.result()).text == "Sunny in Oslo."
        task = await client.submit("weather", city="Oslo")
        assert task.id is not None
        assert (await task.result()).text == "Sunny in Oslo."
