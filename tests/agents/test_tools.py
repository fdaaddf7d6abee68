"""The tools of a model: what its tool uses lead to, and what the model gets back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from antiphon import Audio, BlobContents, Client, EmbeddedResource, Image, Result, Server, TextContents
from antiphon.agents import ModelTools, ToolUse, anthropic_tools, openai_tools
from antiphon.errors import Unreachable
from antiphon.model.segment import Segment
from tests.agents.scripted_api import chat, message, written
from tests.agents.servers import PIXEL, filter_server, travel_server
from tests.support.serving import serving


def use(name: str, given: Any = None, id: str = "1") -> dict[str, Any]:
    """A tool use of Anthropic's API."""
    return {"type": "tool_use", "id": id, "name": name, "input": {} if given is None else given}


def tool_call(name: str, arguments: Any = "{}", id: str = "1") -> dict[str, Any]:
    """A tool call of Chat Completions."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": written(arguments)}}


def text(result: dict[str, Any]) -> str:
    """The text of a tool result of Anthropic's API."""
    return "\n".join(block["text"] for block in result["content"])


async def returned(value: Any, **options: Any) -> dict[str, Any]:
    """What Anthropic's API gets for a tool that returns a value."""
    server = Server("one")

    @server.tool
    async def run() -> Any:
        return value

    async with Client(server) as client:
        return await (await anthropic_tools(client, **options)).call(use("run"))


# Definitions


async def test_definitions_are_a_list_with_descriptions_and_schemas() -> None:
    async with Client(travel_server()[0]) as client:
        tools = await anthropic_tools(client, select=lambda tool: tool.name == "weather")
        (other,) = await openai_tools(client, select=lambda tool: tool.name == "weather")
    assert isinstance(tools, list)
    (definition,) = tools
    assert definition["name"] == "weather"
    assert definition["description"] == "Forecast the weather."
    assert definition["input_schema"]["required"] == ["city"]
    assert other["function"]["parameters"] == definition["input_schema"]
    assert other["function"]["strict"] is False


async def test_a_description_is_bounded() -> None:
    server = Server("one")
    server.tool(name="long", description="x" * 3000)(lambda: "")
    async with Client(server) as client:
        (definition,) = await openai_tools(client)
        (whole,) = await anthropic_tools(client)
    assert len(definition["function"]["description"]) == 1024
    assert definition["function"]["description"].endswith("…")
    assert len(whole["description"]) == 3000


async def test_names_are_mapped_to_the_rules_of_the_api_and_back() -> None:
    server = Server("one")

    @server.tool(name="files.read")
    async def read(path: str) -> str:
        return path

    async with Client(server) as client:
        tools = await anthropic_tools(client)
        assert tools[0]["name"] == "files_read"
        assert text(await tools.call(use("files_read", {"path": "x"}))) == "x"


@pytest.mark.parametrize("strict", [True, False])
async def test_keys_of_arguments_are_mapped_to_the_rules_of_the_api_and_back(strict: bool) -> None:
    async with Client(filter_server()) as client:
        tools = await anthropic_tools(client, strict=strict)
        assert list(tools[0]["input_schema"]["properties"]) == ["filter_id_"]
        assert tools[0]["input_schema"]["required"] == ["filter_id_"]
        assert text(await tools.call(use("find", {"filter_id_": "7"}))) == "7"


async def test_a_tool_for_apps_alone_is_not_for_models() -> None:
    server = Server("one")

    @server.ui("ui://page")
    async def page() -> str:
        return "<p>Hello</p>"

    @server.tool(visibility=["app"])
    async def hidden() -> str:
        return ""

    async with Client(server) as client:
        assert await anthropic_tools(client) == []


async def test_strict_mode_and_the_nulls_that_it_brings() -> None:
    async with Client(travel_server()[0]) as client:
        tools = await openai_tools(client, strict=True, select=lambda tool: tool.name == "weather")
        function = tools[0]["function"]
        assert function["strict"] is True
        assert function["parameters"]["required"] == ["city", "days"]
        result = await tools.call(tool_call("weather", {"city": "Oslo", "days": None}))
        assert json.loads(result["content"]) == {"city": "Oslo", "days": 1}
        (definition,) = await anthropic_tools(client, strict=True, select=lambda tool: tool.name == "weather")
        assert definition["strict"] is True


async def test_the_list_is_read_again() -> None:
    server = travel_server()[0]
    async with Client(server) as client:
        tools = await anthropic_tools(client, select=lambda tool: tool.name == "late")
        assert tools == []

        @server.tool
        async def late() -> str:
            return ""

        assert [definition["name"] for definition in await tools.refresh()] == ["late"]


# Mistakes of a model


async def test_mistakes_of_a_model_are_results_that_say_what_is_wrong() -> None:
    async with Client(travel_server()[0]) as client:
        tools = await openai_tools(client)

        async def said(call: dict[str, Any]) -> str:
            content = (await tools.call(call))["content"]
            assert content.startswith("Error: ")
            return str(content)

        assert "There is no tool 'fly'. The tools are: book, weather" in await said(tool_call("fly"))
        assert "not a JSON object" in await said(tool_call("weather", '{"city": '))
        assert "not a JSON object: they are of the type list" in await said(tool_call("weather", "[1]"))
        assert "not a JSON object" in await said(tool_call("weather", "[" * 100_000))
        assert "city" in await said(tool_call("weather", ""))
        assert "days" in await said(tool_call("weather", {"city": "Oslo", "days": "soon"}))


async def test_arguments_that_cannot_be_sent_do_not_lose_the_other_results() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    bad = [{"city": "\ud83d"}, {"\ud83d": 1}, {"city": deep}, {"city": object()}]
    async with Client(travel_server()[0]) as client:
        tools = await anthropic_tools(client)
        uses = [use("weather", {"city": "Oslo"}, "0")]
        uses += [use("weather", given, str(number)) for number, given in enumerate(bad, start=1)]
        first, *others = await tools.call_all({"content": uses})
    assert json.loads(text(first)) == {"city": "Oslo", "days": 1}
    assert [result["tool_use_id"] for result in others] == ["1", "2", "3", "4"]
    for result in others:
        assert result["is_error"] is True
        assert "The arguments of weather are not a JSON object" in text(result)
    while deep:  # Python would free the whole chain recursively
        deep = deep.pop("a", {})


async def test_an_unexpected_error_of_one_call_is_a_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(travel_server()[0]) as client:
        tools = await anthropic_tools(client)

        async def broken(*arguments: Any, **options: Any) -> Result:
            raise RuntimeError("secret")

        monkeypatch.setattr(client, "call", broken)
        (result,) = await tools.call_all({"content": [use("weather", {"city": "Oslo"})]})
    assert result["is_error"] is True
    assert text(result) == "The tool failed: RuntimeError."
    assert "The tool weather could not be called for a model." in caplog.text


async def test_something_else_than_a_tool_use_is_an_error_of_the_program() -> None:
    async with Client(travel_server()[0]) as client:
        tools = await anthropic_tools(client)
        with pytest.raises(TypeError, match="is not a tool use of Anthropic"):
            await tools.call({"type": "text", "text": "hello"})
        with pytest.raises(TypeError, match="is not a tool use of OpenAI"):
            await (await openai_tools(client)).call("weather")
        with pytest.raises(TypeError, match="is not a response of Anthropic"):
            await tools.call_all(chat(None, ("1", "weather", {})))
        with pytest.raises(TypeError, match="is not a response of OpenAI"):
            await (await openai_tools(client)).call_all(message("Hello."))
        with pytest.raises(ValueError, match="pass 'chat' or 'responses'"):
            await openai_tools(client, api="completions")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_characters=0 is not a number above 0"):
            await anthropic_tools(client, max_characters=0)
        with pytest.raises(TypeError, match="Unknown options: limit"):
            await anthropic_tools(client, limit=3)  # type: ignore[call-arg]


async def test_tools_of_the_program_itself_are_told_apart() -> None:
    async with Client(travel_server()[0]) as client:
        tools = await openai_tools(client)
    assert tools.has(tool_call("weather"))
    assert not tools.has(tool_call("my_own"))
    assert not tools.has({"type": "text"})


async def test_a_lost_server_is_a_result_too(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(travel_server()[0]))
        async with Client(address.url) as client:
            tools = await anthropic_tools(client)
            await stack.aclose()
            result = await tools.call(use("weather", {"city": "Oslo"}))
    assert result["is_error"] is True
    assert "could not be called for a model" in caplog.text


# Several at once


async def test_tools_run_at_once_and_results_come_in_order() -> None:
    server, met = Server("one"), asyncio.Event()

    @server.tool
    async def first() -> str:
        await met.wait()
        return "first"

    @server.tool
    async def second() -> str:
        met.set()
        return "second"

    async with Client(server) as client:
        tools = await anthropic_tools(client)
        uses = [
            use("first", id="a"),
            {"type": "text", "text": "…"},
            use("second", id="b"),
            use("third", id="c"),
        ]
        results = await tools.call_all({"content": uses})
        assert await tools.call_all({"content": "nothing to do"}) == []
    assert [result["tool_use_id"] for result in results] == ["a", "b", "c"]
    assert [text(result) for result in results[:2]] == ["first", "second"]
    assert results[2]["is_error"] is True


# Content


async def test_long_text_is_cut_and_says_so() -> None:
    result = await returned(Result(["abc", "def", "ghi"]), max_characters=5)
    assert text(result) == "abc\nde\n[The text is longer: 4 more characters are not shown.]"


async def test_structured_data_is_shown_if_there_is_no_text() -> None:
    assert text(await returned(Result(data={"rows": 3}))) == '{"rows":3}'
    assert text(await returned(Result("three rows", data={"rows": 3}))) == "three rows"
    audio = Result([Audio("AAAA", "audio/wav")], data={"rows": 3})
    assert text(await returned(audio)).endswith('is not shown.]\n{"rows":3}')
    assert text(await returned(Result([" ", "\n"]))) == "(The tool returned no content.)"


async def test_content_that_an_api_cannot_take_is_described() -> None:
    blocks = [
        Image(PIXEL, "image/svg+xml"),
        Audio("AAAA", "audio/wav"),
        EmbeddedResource(BlobContents("file:///a.bin", "AAAA", "application/zip")),
        EmbeddedResource(TextContents("file:///a.txt", "inside")),
    ]
    assert text(await returned(Result(blocks))) == (
        "[An image of the type image/svg+xml, 12 bytes, is not shown.]\n"
        "[Audio of the type audio/wav, 3 bytes, is not shown.]\n"
        "[The resource file:///a.bin of the type application/zip, 3 bytes, is not shown.]\n"
        "inside"
    )


async def test_images_are_shown_within_a_bound_and_not_with_errors() -> None:
    picture = Image(PIXEL, "image/gif")
    embedded = EmbeddedResource(BlobContents("file:///a.gif", PIXEL, "image/gif"))
    shown = (await returned(Result([picture, embedded])))["content"]
    source = {"type": "base64", "media_type": "image/gif", "data": PIXEL}
    assert shown == [{"type": "image", "source": source}] * 2
    assert "is not shown" in text(await returned(Result([picture]), max_image_bytes=3))
    assert "is not shown" in text(await returned(Result([picture], is_error=True)))


@pytest.mark.parametrize("data", ["", "A", "AAA", "AA\nAA", "@@@@", "ÄÄÄÄ"])
async def test_an_image_that_is_not_base64_is_not_shown(data: str) -> None:
    note = "[An image of the type image/png is not shown: its data is not base64.]"
    embedded = EmbeddedResource(BlobContents("file:///a.png", data, "image/png"))
    assert text(await returned(Result([Image(data, "image/png"), embedded]))) == f"{note}\n{note}"


async def test_chat_completions_take_no_images() -> None:
    async with Client(travel_server()[0]) as client:
        result = await (await openai_tools(client)).call(tool_call("picture"))
    assert result["content"] == (
        "A map:\n[An image of the type image/gif, 7 bytes, is not shown.]\n[Resource map at file:///map.txt]"
    ).replace("7 bytes", f"{len(PIXEL) * 3 // 4} bytes")


# Streams and tasks


async def test_segments_are_delivered_while_a_tool_runs(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, str, str]] = []

    async def on_segment(used: ToolUse, segment: Segment) -> None:
        seen.append((used.id, used.name, segment.text))
        raise RuntimeError("a mistake of the program")

    async with serving(travel_server()[0]) as address, Client(address.url) as client:
        tools = await anthropic_tools(client, on_segment=on_segment)
        assert text(await tools.call(use("tell", id="7"))) == "Once\nupon"
    assert seen == [("7", "tell", "Once"), ("7", "tell", "upon")]
    assert "The callback for segments failed" in caplog.text


async def test_a_task_is_awaited() -> None:
    server, release = travel_server()
    release.set()
    async with Client(server) as client:
        tools = await anthropic_tools(client)
        assert text(await tools.call(use("charter", {"city": "Oslo"}))) == "A plane to Oslo."


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_task_that_takes_too_long_is_checked_later(version: str) -> None:
    server, release = travel_server()
    async with Client(server, protocol=version) as client:
        tools = await anthropic_tools(client, task_timeout=0.2)
        assert tools[-1]["name"] == "check_task"
        said = text(await tools.call(use("charter", {"city": "Oslo"})))
        id = said.split("the task ")[1].split(".")[0]
        assert said.endswith("Call check_task with this task_id to get the result later.")
        assert text(await tools.call(use("check_task", {"task_id": id}))) == said
        release.set()
        for _ in range(100):
            result = text(await tools.call(use("check_task", {"task_id": id})))
            if result != said:
                break
        assert result == "A plane to Oslo."
        again = await tools.call(use("check_task", {"task_id": id}))
        assert again["is_error"] is True
        assert "returned once" in text(again)


async def test_segments_are_delivered_once_if_a_task_is_checked_later() -> None:
    server, release = Server("one"), asyncio.Event()

    @server.tool(task="optional", poll_interval=0.05)
    async def tell() -> AsyncIterator[str]:
        yield "Once"
        await release.wait()
        yield "upon"

    seen: list[str] = []
    async with Client(server) as client:
        tools = await anthropic_tools(
            client, task_timeout=0.2, on_segment=lambda used, segment: seen.append(segment.text)
        )
        said = result = text(await tools.call(use("tell")))
        id = said.split("the task ")[1].split(".")[0]
        while result == said:
            result = text(await tools.call(use("check_task", {"task_id": id})))
            if seen:
                release.set()
    assert result == "Once\nupon"
    assert seen == ["Once", "upon"]


async def test_a_tool_that_is_no_task_answers_at_once_with_a_limit_for_tasks() -> None:
    async with Client(travel_server()[0], elicit=lambda question: {"value": "aisle"}) as client:
        tools = await anthropic_tools(client, task_timeout=30)
        assert text(await tools.call(use("book", {"city": "Oslo"}))) == "Booked Oslo, aisle."


async def test_a_call_that_is_given_up_cancels_its_task() -> None:
    server, began = Server("slow"), asyncio.Event()

    @server.tool(task="optional")
    async def wait() -> AsyncIterator[str]:
        yield "begun"
        await asyncio.Event().wait()

    async with Client(server, protocol="2025-11-25") as client:
        tools = await anthropic_tools(client, task_timeout=30, on_segment=lambda used, segment: began.set())
        call = asyncio.create_task(tools.call(use("wait")))
        await began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert [task.status for task in await client.tasks()] == ["cancelled"]


async def test_a_model_gets_no_task_that_it_did_not_start() -> None:
    server, release = travel_server()
    release.set()
    async with Client(server) as client:
        handle = await client.submit("charter", city="Oslo")
        tools = await anthropic_tools(client, task_timeout=30)
        for id in (handle.id, None, ["x"]):
            result = await tools.call(use("check_task", {"task_id": id}))
            assert result["is_error"] is True
            assert "There is no running task" in text(result)


async def test_check_task_gives_way_to_a_tool_of_a_server() -> None:
    server = Server("one")

    @server.tool
    async def check_task() -> str:
        return "mine"

    async with Client(server) as client:
        tools = await anthropic_tools(client, task_timeout=30)
        assert [definition["name"] for definition in tools] == ["check_task", "check_task_2"]
        assert text(await tools.call(use("check_task"))) == "mine"


async def test_a_declined_question_is_told_to_the_model() -> None:
    async with Client(travel_server()[0], elicit=lambda question: "decline") as client:
        tools: ModelTools = await anthropic_tools(client)
        result = await tools.call(use("book", {"city": "Oslo"}))
    assert result["is_error"] is True
    assert "decline" in text(result).lower()


async def test_a_closed_client_is_reported_when_the_list_is_read() -> None:
    with pytest.raises(Unreachable):
        await anthropic_tools(Client("http://127.0.0.1:9/mcp"))
