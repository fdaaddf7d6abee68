"""Whole agent loops: the real SDKs at a scripted API, and a real server over a socket that asks something."""

from __future__ import annotations

import pkgutil
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter

from antiphon import Client
from antiphon.agents import anthropic_tools, openai_tools
from antiphon.client import Elicitation
from tests.agents.scripted_api import anthropic_client, chat, message, openai_client, response, scripted
from tests.agents.servers import travel_server
from tests.support.serving import serving

ASKED = "Plan a trip to Oslo."
BOOKED = "Booked Oslo, window."
USES = (("call_1", "book", {"city": "Oslo"}), ("call_2", "weather", {"city": "Atlantis"}))


def window(question: Elicitation) -> dict[str, str]:
    """The person at the client."""
    assert question.message == "Window or aisle?"
    return {"value": "window"}


def fits(name: str, values: list[Any]) -> None:
    """Fail if a value does not have a type of the SDK, or has a field that the type lacks."""
    kind: Any = pkgutil.resolve_name(name)
    adapter = TypeAdapter(kind)
    for value in values:
        adapter.validate_python(value, strict=True)
        assert value.keys() <= get_type_hints(kind).keys()


async def test_chat_completions_call_tools_and_go_on_with_their_results() -> None:
    server, _ = travel_server()
    async with (
        scripted(chat(None, *USES), chat("Your trip is booked.")) as api,
        openai_client(api) as model,
        serving(server) as address,
        Client(address.url, elicit=window) as client,
    ):
        tools = await openai_tools(client)
        messages: list[Any] = [{"role": "user", "content": ASKED}]
        while True:
            completion = await model.chat.completions.create(model="gpt", messages=messages, tools=tools)
            answer = completion.choices[0].message
            messages.append(answer)
            if not answer.tool_calls:
                break
            messages += await tools.call_all(completion)

    assert answer.content == "Your trip is booked."
    fits("openai.types.chat:ChatCompletionToolParam", tools)
    sent = api.requests[1]["messages"]
    assert [said["role"] for said in sent] == ["user", "assistant", "tool", "tool"]
    assert sent[2:] == [
        {"role": "tool", "tool_call_id": "call_1", "content": BOOKED},
        {"role": "tool", "tool_call_id": "call_2", "content": "Error: Atlantis is under water."},
    ]
    fits("openai.types.chat:ChatCompletionToolMessageParam", sent[2:])
    assert api.requests[0]["tools"] == tools


async def test_responses_call_tools_and_go_on_with_their_results() -> None:
    server, _ = travel_server()
    uses = (*USES, ("call_3", "picture", {}))
    async with (
        scripted(response(None, *uses), response("Your trip is booked.")) as api,
        openai_client(api) as model,
        serving(server) as address,
        Client(address.url, elicit=window) as client,
    ):
        tools = await openai_tools(client, api="responses")
        items: list[Any] = [{"role": "user", "content": ASKED}]
        while True:
            answer = await model.responses.create(model="gpt", input=items, tools=tools)
            items += answer.output
            results = await tools.call_all(answer)
            if not results:
                break
            items += results

    assert answer.output_text == "Your trip is booked."
    fits("openai.types.responses:FunctionToolParam", tools)
    outputs = [item for item in api.requests[1]["input"] if item.get("type") == "function_call_output"]
    fits("openai.types.responses.response_input_item_param:FunctionCallOutput", outputs)
    assert [item["call_id"] for item in outputs] == ["call_1", "call_2", "call_3"]
    assert [item["output"] for item in outputs[:2]] == [BOOKED, "Error: Atlantis is under water."]
    assert [part["type"] for part in outputs[2]["output"]] == ["input_text", "input_image", "input_text"]
    assert outputs[2]["output"][1]["image_url"].startswith("data:image/gif;base64,")


async def test_messages_call_tools_and_go_on_with_their_results() -> None:
    server, _ = travel_server()
    uses = (*USES, ("call_3", "picture", {}))
    async with (
        scripted(message("I will book it.", *uses), message("Your trip is booked.")) as api,
        anthropic_client(api) as model,
        serving(server) as address,
        Client(address.url, elicit=window) as client,
    ):
        tools = await anthropic_tools(client)
        messages: list[Any] = [{"role": "user", "content": ASKED}]
        while True:
            answer = await model.messages.create(
                model="claude", max_tokens=99, messages=messages, tools=tools
            )
            messages.append({"role": "assistant", "content": answer.content})
            results = await tools.call_all(answer)
            if not results:
                break
            messages.append({"role": "user", "content": results})

    assert answer.content[0].text == "Your trip is booked."
    fits("anthropic.types:ToolParam", tools)
    sent = api.requests[1]["messages"][2]
    assert sent["role"] == "user"
    fits("anthropic.types:ToolResultBlockParam", sent["content"])
    booked, drowned, drawn = sent["content"]
    assert booked == {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": [{"type": "text", "text": BOOKED}],
    }
    assert drowned["is_error"] is True
    assert [block["type"] for block in drawn["content"]] == ["text", "image", "text"]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_question_is_asked_in_every_version(version: str) -> None:
    server, _ = travel_server()
    async with (
        serving(server) as address,
        Client(address.url, elicit=window, protocol=version) as client,
    ):
        tools = await anthropic_tools(client)
        result = await tools.call({"type": "tool_use", "id": "1", "name": "book", "input": {"city": "Rome"}})
    assert result["content"] == [{"type": "text", "text": "Booked Rome, window."}]
