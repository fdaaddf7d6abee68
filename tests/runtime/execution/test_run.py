"""Functions that swallow the cancellation at a question, and runs that stop without a question."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon import Context, InputRequired, Limits, Server
from antiphon.model.question import Elicit
from antiphon.model.request import CallTool
from antiphon.runtime.carriers.client import REFUSAL
from antiphon.runtime.carriers.store import StoreCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.run import Run
from antiphon.runtime.execution.supervisor import Supervised
from tests.support.memory import InMemory, in_memory
from tests.support.polling import until
from tests.support.speakers import KEY

ABLE = {KEY + "clientCapabilities": {"elicitation": {"form": {}}, "sampling": {}}}


class Name(BaseModel):
    name: str


def make() -> Server:
    server = Server("tests", secrets=["a secret of the tests"])

    @server.tool
    async def goes_on(ctx: Context) -> str:
        try:
            await asyncio.gather(ctx.elicit("A?", Name, key="a"), ctx.elicit("B?", Name, key="b"))
        except asyncio.CancelledError:
            pass
        return "It went on."

    @server.tool
    def goes_on_in_a_thread(ctx: Context) -> str:
        try:
            ctx.wait(ctx.elicit("A?", Name, key="a"))
        except BaseException:
            pass
        return "It went on."

    @server.tool
    async def breaks(ctx: Context) -> str:
        try:
            await asyncio.gather(ctx.elicit("A?", Name, key="a"), ctx.elicit("B?", Name, key="b"))
        except asyncio.CancelledError:
            raise ZeroDivisionError from None
        return "It went on."

    @server.tool
    async def asks_nothing(ctx: Context) -> Any:
        return InputRequired({})

    @server.tool
    async def samples(ctx: Context) -> str:
        said = [
            {"role": "user", "content": {"type": "text", "text": "Hello?"}},
            {"role": "assistant", "content": {"type": "text", "text": "Hello."}},
        ]
        return (await ctx.sample(said, system="Be brief.", key="model")).text

    @server.tool
    async def measures(ctx: Context) -> bool:
        before = ctx.elapsed
        return before >= 0 and await until(lambda: ctx.elapsed > before)

    @server.resource("u://{name}")
    async def asking(name: str, ctx: Context) -> str:
        who = await ctx.elicit("Who?", Name, key="who")
        where = await ctx.elicit("Where?", Name, key="where")
        return f"{name} for {who.name} in {where.name}"

    return server


@pytest.fixture
async def client() -> AsyncIterator[InMemory]:
    async with in_memory(make()) as client:
        yield client


async def call(client: InMemory, tool: str) -> dict[str, Any]:
    return await client.result("tools/call", {"name": tool, "arguments": {}}, meta=ABLE)


@pytest.mark.parametrize(("tool", "asked"), [("goes_on", ["a", "b"]), ("goes_on_in_a_thread", ["a"])])
async def test_a_function_that_continues_after_its_question_still_stops_at_it(
    client: InMemory, tool: str, asked: list[str]
) -> None:
    result = await call(client, tool)
    assert (result["resultType"], list(result["inputRequests"])) == ("input_required", asked)


async def test_a_function_that_breaks_on_its_way_out_has_failed(client: InMemory) -> None:
    result = await call(client, "breaks")
    assert (result["resultType"], result["isError"]) == ("complete", True)
    assert (await call(client, "measures"))["isError"] is False


async def test_an_input_required_without_questions_and_state_has_the_caller_call_again(
    client: InMemory,
) -> None:
    result = await call(client, "asks_nothing")
    assert result["resultType"] == "input_required"
    assert "inputRequests" not in result
    assert result["requestState"]  # 2026-07-28 requires one of the two


async def test_sampling_sends_the_conversation(client: InMemory) -> None:
    asked = (await call(client, "samples"))["inputRequests"]["model"]["params"]
    assert [message["content"]["text"] for message in asked["messages"]] == ["Hello?", "Hello."]
    assert (asked["systemPrompt"], asked["maxTokens"]) == ("Be brief.", 1000)


async def test_a_question_has_a_line_in_the_log(client: InMemory, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "antiphon.calls")
    await call(client, "samples")
    (line,) = (record.getMessage() for record in caplog.records if record.name == "antiphon.calls")
    assert "tool=samples response=input_required outcome=open" in line


async def test_the_time_spent_in_a_call_is_known(client: InMemory) -> None:
    assert (await call(client, "measures"))["structuredContent"] is True


async def test_a_resource_can_ask_and_its_state_is_bound_to_its_uri(client: InMemory) -> None:
    def params(uri: str, key: str, name: str, **more: Any) -> dict[str, Any]:
        answer = {"action": "accept", "content": {"name": name}}
        return {"uri": uri, "inputResponses": {key: answer}, **more}

    asked = await client.result("resources/read", params("u://tea", "who", "Ada"), meta=ABLE)
    assert list(asked["inputRequests"]) == ["where"]
    state = {"requestState": asked["requestState"]}
    refused = await client.error("resources/read", params("u://milk", "where", "Oslo", **state), meta=ABLE)
    assert (refused["code"], refused["message"]) == (
        -32602,
        REFUSAL,
    )
    read = await client.result("resources/read", params("u://tea", "where", "Oslo", **state), meta=ABLE)
    assert read["contents"][0]["text"] == "tea for Ada in Oslo"


async def test_answers_under_the_keys_of_earlier_versions_are_found() -> None:
    """They asked again under a new key; logs and request states contain it."""

    def check(answer: Any) -> str | None:
        return None if answer.content == {"name": "Ada"} else "this is not Ada"

    question = Elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    wrong, right = ({"action": "accept", "content": {"name": name}} for name in ("Bob", "Ada"))
    for entries, responses in (
        ({"ask:name": wrong, "ask:name~2": right}, {}),
        ({"ask:name": wrong}, {"name~2": right}),
        ({"ask:name": wrong}, {"name": right}),
        ({}, {"name": right}),
    ):
        call = Call(
            CallTool(name="tool", input_responses=responses),
            StoreCarrier(Journal()),
            Caller(),
            Supervised.here(),
        )
        run = Run(call, Journal(dict(entries)), limits=Limits())
        assert (await run.ask(question, "name", check)).content == {"name": "Ada"}
