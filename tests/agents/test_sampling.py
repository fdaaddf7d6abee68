"""Ready made `sample` callbacks: a server over a socket asks a model through the real SDKs."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import Client, Context, Server
from antiphon.agents import Sampler, anthropic_sampler, openai_sampler
from antiphon.client.callbacks import handlers_for
from antiphon.errors import InternalError, InvalidParams, RequestError
from tests.agents.scripted_api import anthropic_client, chat, message, openai_client, scripted
from tests.agents.servers import PIXEL
from tests.support.serving import serving

IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/gif"}
ADD = {"name": "math.add", "description": "Add.", "inputSchema": {"type": "object", "properties": {}}}
CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I add."},
            {"type": "tool_use", "id": "t1", "name": "math.add", "input": {"a": 1}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "toolUseId": "t1", "content": [{"type": "text", "text": "3"}]},
            {"type": "tool_result", "toolUseId": "t2", "structuredContent": {"b": 1}, "isError": True},
            {"type": "text", "text": "Go on."},
        ],
    },
]
OPTIONS = {
    "temperature": 0.5,
    "stopSequences": ["END"],
    "tools": [ADD],
    "toolChoice": {"mode": "required"},
}


def asking_server() -> Server:
    """A server that asks the model of its caller."""
    server = Server("asking")

    @server.tool
    async def summarize(ctx: Context) -> dict[str, Any]:
        answer = await ctx.sample(CONVERSATION, system="Be short.", max_tokens=100_000, **OPTIONS)
        return {"content": answer.content, "model": answer.model, "stop": answer.stop_reason}

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Hello?")).text

    return server


async def test_openai_answers_a_server() -> None:
    script = (chat("Sum:", ("c1", "math_add", {"a": 1})), chat("Hello.", finish="length"))
    async with (
        scripted(*script) as api,
        openai_client(api) as sdk,
        serving(asking_server()) as address,
        Client(address.url, sample=openai_sampler(sdk, model="gpt", temperature=None)) as client,
    ):
        found = (await client.call("summarize")).data
        assert (await client.call("ask")).text == "Hello."
    assert found == {
        "content": [
            {"type": "text", "text": "Sum:"},
            {"type": "tool_use", "id": "c1", "name": "math.add", "input": {"a": 1}},
        ],
        "model": "gpt-test",
        "stop": "toolUse",
    }
    sent = api.requests[0]
    assert sent["messages"] == [
        {"role": "system", "content": "Be short."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{PIXEL}"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I add.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "math_add", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "3"},
        {"role": "tool", "tool_call_id": "t2", "content": 'Error: {"b":1}'},
        {"role": "user", "content": "Go on."},
    ]
    assert sent["max_completion_tokens"] == 4096
    assert sent["stop"] == ["END"]
    assert sent["tool_choice"] == "required"
    assert sent["tools"][0]["function"]["name"] == "math_add"
    assert "temperature" not in sent
    assert api.requests[1]["messages"] == [{"role": "user", "content": "Hello?"}]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_anthropic_answers_a_server(version: str) -> None:
    script = (message("Sum:", ("c1", "math_add", {"a": 1})), message("Hello.", stop="stop_sequence"))
    async with scripted(*script) as api, anthropic_client(api) as sdk, serving(asking_server()) as address:
        sampler = anthropic_sampler(sdk, model="claude", max_tokens=50)
        async with Client(address.url, sample=sampler, protocol=version) as client:
            found = (await client.call("summarize")).data
            assert (await client.call("ask")).text == "Hello."
    assert found["content"][1] == {"type": "tool_use", "id": "c1", "name": "math.add", "input": {"a": 1}}
    assert (found["model"], found["stop"]) == ("claude-test", "toolUse")
    sent = api.requests[0]
    assert [said["role"] for said in sent["messages"]] == ["user", "assistant", "user"]
    source = {"type": "base64", "media_type": "image/gif", "data": PIXEL}
    assert sent["messages"][0]["content"][1] == {"type": "image", "source": source}
    assert sent["messages"][1]["content"][1]["name"] == "math_add"
    assert [block.get("tool_use_id") for block in sent["messages"][2]["content"]] == ["t1", "t2", None]
    assert sent["messages"][2]["content"][1] == {
        "type": "tool_result",
        "tool_use_id": "t2",
        "content": [{"type": "text", "text": '{"b":1}'}],
        "is_error": True,
    }
    assert (sent["system"], sent["max_tokens"], sent["stop_sequences"]) == ("Be short.", 50, ["END"])
    assert sent["tool_choice"] == {"type": "any"}
    assert sent["tools"][0]["name"] == "math_add"


def test_the_client_declares_that_its_model_takes_tools() -> None:
    _, declared = handlers_for(None, openai_sampler(None, model="gpt"), None)
    assert declared == {"sampling": {"tools": {}}}
    assert handlers_for(None, lambda params: "text", None)[1] == {"sampling": {}}


async def test_an_error_of_the_api_is_logged_and_not_told_to_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted(401, 401) as api, openai_client(api) as sdk, anthropic_client(api) as other:
        for sampler in (openai_sampler(sdk, model="gpt"), anthropic_sampler(other, model="claude")):
            with pytest.raises(InternalError, match=r"did not answer \(AuthenticationError\)") as raised:
                await sampler({"messages": [], "maxTokens": 5})
            assert "sk-secret" not in str(raised.value)
    assert "The model gpt did not answer a server." in caplog.text

    async with (
        scripted(401) as api,
        openai_client(api) as sdk,
        serving(asking_server()) as address,
        Client(address.url, sample=openai_sampler(sdk, model="gpt")) as client,
    ):
        with pytest.raises(RequestError, match="The model of the client did not answer"):
            await client.call("ask")


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "1", '"x"', "[" * 100_000])
async def test_arguments_of_a_model_that_are_no_object_are_an_error(arguments: str) -> None:
    async with scripted(chat(None, ("c1", "add", arguments))) as api, openai_client(api) as sdk:
        with pytest.raises(InternalError, match="arguments for the tool 'add' that are not a JSON object"):
            await openai_sampler(sdk, model="gpt")({"messages": [], "maxTokens": 5})


async def test_an_answer_without_choices_is_an_error() -> None:
    async with scripted({**chat("x"), "choices": []}) as api, openai_client(api) as sdk:
        with pytest.raises(InternalError, match="did not answer"):
            await openai_sampler(sdk, model="gpt")({"messages": [], "maxTokens": 5})


@pytest.mark.parametrize("make", [openai_sampler, anthropic_sampler])
@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"maxTokens": 5}, "messages"),
        ({"messages": [], "maxTokens": 0}, "maxTokens"),
        ({"messages": [{"role": "system", "content": {}}], "maxTokens": 5}, "role"),
        ({"messages": [{"role": "user", "content": "hello"}], "maxTokens": 5}, "content"),
        ({"messages": [{"role": "user", "content": {"type": "video"}}], "maxTokens": 5}, "'video'"),
        (
            {
                "messages": [
                    {"role": "user", "content": {"type": "audio", "data": "", "mimeType": "audio/x"}}
                ],
                "maxTokens": 5,
            },
            "'audio/x'",
        ),
    ],
)
async def test_a_wrong_request_of_a_server_is_refused(make: Any, params: Any, problem: str) -> None:
    class Unused:
        messages = property(lambda self: self)

        def create(self) -> None: ...

    sampler: Sampler = make(Unused(), model="m")
    with pytest.raises(InvalidParams, match=problem):
        await sampler(params)
