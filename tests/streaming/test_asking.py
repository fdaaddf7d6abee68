"""Questions during a stream: numbers continue after the answer, and no segment is sent twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Context, InputRequired, Server
from antiphon.model.question import Elicit
from tests.asking.driving import accept
from tests.promises.speaking import answer, reach
from tests.streaming.speaking import (
    CORE,
    DIALECTS,
    Follower,
    Listener,
    Reading,
    merged,
    numbered,
    reading,
    respond,
    speaker,
    streamed,
    texts,
    wish,
)
from tests.streaming.tooling import Studio
from tests.support.serving import serving
from tests.support.speakers import Bare, Modern, Speaker

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = {"first": "a", "second": "b"}
WHOLE = ["1", "2", "3 a", "4 b"]
TOOLS = ("ask", "ask_in_thread")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest) -> str:
    """A tool that emits and asks."""
    return str(request.param)


def responses(keys: Any) -> dict[str, Any]:
    return {key: accept(name=NAMES[key]) for key in keys}


# By rounds


@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_by_rounds_each_round_sends_what_is_new(port: int, dialect: str, tool: str) -> None:
    client = await speaker(dialect, port)
    params = streamed(client, tool)
    rounds: list[list[Any]] = []
    frames: list[dict[str, Any]] = []
    while True:
        answered = await client.ask("tools/call", params, id=len(rounds) + 1)
        frames += answered.frames
        rounds.append([text for _, text in numbered(answered.frames)])
        if answered.result["resultType"] == "complete":
            break
        assert "requestState" in answered.result
        if not isinstance(client, Modern):  # a response of a stream that is not complete yet
            fields = [answered.result.get(key) for key in ("partial-content", "isError", "isComplete")]
            assert fields == [[], False, False]
        params = streamed(client, tool) | {
            "inputResponses": responses(answered.result["inputRequests"]),
            "requestState": answered.result["requestState"],
        }
    assert rounds[:2] == [["1", "2"], ["3 a"]]
    if isinstance(client, Modern):  # the last word is complete by itself
        assert [block["text"] for block in answered.result["content"]] == WHOLE
        assert texts(frames) in (WHOLE, WHOLE[:3])
    else:
        assert texts(frames) == WHOLE
        assert answered.result["isComplete"] is True


@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_a_caller_that_takes_no_segments_gets_them_all_at_the_end(
    port: int, dialect: str, tool: str, studio: Studio
) -> None:
    client: Speaker = Bare(port) if dialect == "draft" else _NoSegments(port)
    params: dict[str, Any] = {"name": tool, "arguments": {}}
    for _ in range(2):
        asked = await client.ask("tools/call", params)
        assert len(asked.frames) == 1
        assert "content" not in asked.result
        params["inputResponses"] = responses(asked.result["inputRequests"])
        if "requestState" in asked.result:
            params["requestState"] = asked.result["requestState"]
    ended = await client.ask("tools/call", params)
    assert [block["text"] for block in ended.result["content"]] == WHOLE
    if tool == "ask":
        assert studio.ran["step"] == 1


class _NoSegments(Modern):
    capabilities = {"elicitation": {}}


async def test_how_many_were_sent_cannot_be_made_up(port: int) -> None:
    """It is in the sealed state: a state from a call without segments sends all of them."""
    client = Bare(port)
    asked = (await client.ask("tools/call", {"name": "ask", "arguments": {}})).result
    params = streamed(client, "ask") | {"inputResponses": responses(["first"])}
    if "requestState" in asked:
        params["requestState"] = asked["requestState"]
    answered = await client.ask("tools/call", params)
    assert texts(answered.frames) == ["1", "2", "3 a"]


@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_a_function_that_was_stopped_at_a_question_emits_no_more(port: int, dialect: str) -> None:
    client = await speaker(dialect, port)
    asked = await client.ask("tools/call", streamed(client, "stubborn"))
    assert texts(asked.frames) == ["1"]
    params = streamed(client, "stubborn") | {"inputResponses": responses(["first"])}
    params["requestState"] = asked.result["requestState"]
    ended = await client.ask("tools/call", params)
    assert "too late" not in str(ended.frames)
    keeper = await speaker(dialect, port, promises=True)
    if isinstance(keeper, Follower):
        id = (await keeper.call("stubborn")).result["taskId"]
    else:
        id = (await keeper.ask("tools/call", wish("stubborn"))).result["task"]["taskId"]
    await reach(keeper, id, "input_required")
    await answer(keeper, id, first="a")
    await reach(keeper, id, "completed")
    assert [block["text"] for block in (await merged(keeper, id))["content"]] == ["1", "2 a"]


# In place


async def test_on_a_connection_the_function_waits(port: int, tool: str, studio: Studio) -> None:
    client = await speaker("2025-11-25", port)
    async with reading(client, "tools/call", streamed(client, tool)) as stream:
        for key, so_far in (("first", ["1", "2"]), ("second", ["1", "2", "3 a"])):
            question = await stream.until("elicitation/create")
            assert texts(stream.frames) == so_far  # what came before a question is sent before it
            await respond(client, question["id"], accept(name=NAMES[key]))
        last = await stream.rest()
        assert texts(stream.frames) == WHOLE
        assert last["result"]["isComplete"] is True
    assert studio.ran["ask"] == (1 if tool == "ask" else 0)


# In tasks


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_goes_on_after_its_answers(port: int, dialect: str, tool: str, studio: Studio) -> None:
    client = await speaker(dialect, port, promises=True)
    if isinstance(client, Follower):
        id = (await client.call(tool)).result["taskId"]
    else:
        id = (await client.ask("tools/call", wish(tool))).result["task"]["taskId"]
    if dialect == "2025-11-25":
        async with reading(client, "tasks/result", {"taskId": id, "stream": {}}) as stream:
            await _answer_in_place(client, stream)
            await stream.rest()
            assert texts(stream.frames) == WHOLE
    else:
        for key, name in NAMES.items():
            await reach(client, id, "input_required")
            await answer(client, id, **{key: name})
            await _no_longer(client, id, key)
    await reach(client, id, "completed")
    whole = await merged(client, id)
    assert [block["text"] for block in whole["content"]] == WHOLE
    blocks = [
        block["text"]
        for entry in await studio.store.read(id)
        if entry.kind == "emitted"
        for block in entry.data["blocks"]
    ]
    assert blocks == WHOLE[: len(blocks)]  # each is written once, however often the function ran


async def _answer_in_place(client: Speaker, stream: Reading) -> None:
    for key in NAMES:
        question = await stream.until("elicitation/create")
        assert "taskId" in str(question["params"]["_meta"])
        await respond(client, question["id"], accept(name=NAMES[key]))


async def _no_longer(client: Speaker, id: str, key: str) -> None:
    """Wait until a question is no longer open."""
    for _ in range(500):
        task = await reach(client, id, "input_required", "completed")
        if task["status"] == "completed":
            return
        if isinstance(client, Follower):
            asked = task["inputRequests"]
        else:
            asked = (await client.ask("tasks/result", {"taskId": id})).result.get("inputRequests", {})
        if key not in asked:
            return
    raise AssertionError(f"{key} is asked for ever")


async def test_a_stream_that_made_its_task_puts_the_question_in_place_or_ends_with_it(
    port: int, tool: str
) -> None:
    for dialect in CORE:
        client = await speaker(dialect, port)
        async with reading(client, "tools/call", wish(tool, "streaming")) as stream:
            if dialect == "2025-11-25":
                await _answer_in_place(client, stream)
                assert (await stream.rest())["result"]["isComplete"] is True
                assert texts(stream.frames) == WHOLE
            else:
                last = (await stream.rest())["result"]
                assert texts(stream.frames) == ["1", "2"]
                assert last["resultType"] == "input_required"
                assert list(last["inputRequests"]) == ["first"]
                assert (last["partial-content"], last["isComplete"], last["isError"]) == ([], False, False)
                if "task" in last:
                    assert last["task"]["status"] == "input_required"


async def test_a_stream_of_the_extension_tells_that_the_task_waits(port: int, studio: Studio) -> None:
    client = Follower(port)
    id = (await client.call("ask")).result["taskId"]
    async with reading(client, "tasks/stream", {"taskId": id}, id="the stream") as stream:
        for key in NAMES:
            told = (await stream.until("notifications/tasks"))["params"]
            if told["status"] == "working":  # it was answered
                told = (await stream.until("notifications/tasks"))["params"]
            assert (told["taskId"], told["status"]) == (id, "input_required")
            assert list(told["inputRequests"]) == [key]
            await answer(client, id, **{key: NAMES[key]})
        last = await stream.rest()
        assert last["id"] == "the stream"
        assert last["result"]["status"] == "completed"
        assert texts(stream.frames) == WHOLE


async def test_one_that_waits_already_is_told_of_at_once(port: int, studio: Studio) -> None:
    client = Follower(port)
    id = (await client.call("ask")).result["taskId"]
    await reach(client, id, "input_required")
    async with reading(client, "tasks/stream", {"taskId": id, "after": 1}) as stream:
        told = (await stream.until("notifications/tasks"))["params"]
        assert list(told["inputRequests"]) == ["first"]
        assert numbered(stream.frames) == [(2, "2")]


# The explicit style


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def explicit(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """A tool that emits, and returns its question."""
    folder: Path = tmp_path_factory.mktemp("explicit")
    server = Server("explicit", store=f"sqlite:///{folder}/tasks.db", secrets=["a secret of the explicit"])

    @server.tool(task="optional", poll_interval=0.05)
    async def tool(ctx: Context) -> Any:
        """Emits, asks in the explicit style, and emits."""
        await ctx.emit("1")
        if "name" not in ctx.input_responses:
            await ctx.emit("2")
            return InputRequired({"name": Elicit("Who?", SCHEMA)})
        await ctx.emit("2")
        return f"3 {ctx.input_responses['name']['content']['name']}"

    async with serving(server) as address:
        yield address.port


@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_the_explicit_style_by_rounds(explicit: int, dialect: str) -> None:
    client: Speaker = Bare(explicit) if dialect == "draft" else Listener(explicit)
    asked = await client.ask("tools/call", streamed(client, "tool"))
    assert texts(asked.frames) == ["1", "2"]
    params = streamed(client, "tool") | {"inputResponses": {"name": accept(name="Ada")}}
    params["requestState"] = asked.result["requestState"]
    ended = await client.ask("tools/call", params)
    if dialect == "draft":
        assert numbered(ended.frames) == [(3, "3 Ada")]
    else:
        assert numbered(ended.frames) in ([], [(3, "3 Ada")])
        assert [block["text"] for block in ended.result["content"]] == ["1", "2", "3 Ada"]


async def test_the_explicit_style_in_place(explicit: int) -> None:
    client = await speaker("2025-11-25", explicit)
    async with reading(client, "tools/call", streamed(client, "tool")) as stream:
        question = await stream.until("elicitation/create")
        assert texts(stream.frames) == ["1", "2"]
        await respond(client, question["id"], accept(name="Ada"))
        await stream.rest()
        assert texts(stream.frames) == ["1", "2", "3 Ada"]


async def test_the_explicit_style_in_a_task(explicit: int) -> None:
    client = Bare(explicit)
    id = (await client.ask("tools/call", wish("tool"))).result["task"]["taskId"]
    await reach(client, id, "input_required")
    await answer(client, id, name="Ada")
    whole = (await client.ask("tasks/result", {"taskId": id, "stream": {}})).frames
    assert texts(whole) == ["1", "2", "3 Ada"]
