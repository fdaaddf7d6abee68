"""`ctx.ask`: a question as it is, and the answer as it came, for code that passes questions on."""

from __future__ import annotations

import pytest

from antiphon import Client, Context, Elicit, MissingCapability, OpenUrl, Sample, Server
from antiphon.model.question import ElicitResult, SampleResult

FORM = {"type": "object", "properties": {"size": {"type": "integer"}}, "x-own": ["kept"]}


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_the_form_goes_out_and_the_answer_comes_back_unchanged(protocol: str) -> None:
    server, seen = Server("tests"), []

    @server.tool
    async def pick(ctx: Context) -> str:
        answer = await ctx.ask(Elicit("Which?", FORM))
        assert isinstance(answer, ElicitResult)
        return f"{answer.action} {answer.content}"

    def elicit(question: object) -> dict[str, str]:
        seen.append(question.requested_schema)  # type: ignore[attr-defined]
        return {"size": "not a number"}

    async with Client(server, elicit=elicit, protocol=protocol) as client:
        assert (await client.call("pick")).text == "accept {'size': 'not a number'}"
    assert seen == [FORM]


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_refusal_is_an_answer(protocol: str) -> None:
    server = Server("tests")

    @server.tool
    async def visit(ctx: Context) -> str:
        answer = await ctx.ask(OpenUrl("Sign in.", "https://example.com"))
        assert isinstance(answer, ElicitResult)
        return answer.action

    async with Client(server, elicit=lambda question: "decline", protocol=protocol) as client:
        assert (await client.call("visit")).text == "decline"


async def test_a_client_without_the_capability_is_not_asked() -> None:
    server = Server("tests")

    @server.tool
    async def write(ctx: Context) -> str:
        answer = await ctx.ask(Sample({"messages": [], "maxTokens": 5}))
        assert isinstance(answer, SampleResult)
        return answer.model

    async with Client(server) as client:
        with pytest.raises(MissingCapability):
            await client.call("write")
    async with Client(server, sample=lambda params: "Hello.") as client:
        assert (await client.call("write")).text == "unknown"
