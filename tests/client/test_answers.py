"""A caller that wants an answer, and no task in its place."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import Context, Server
from antiphon.client import Client, TaskHandle
from antiphon.errors import MethodNotFound, MissingCapability
from tests.client.channels import DONE, LEGACY, Line
from tests.client.fakes import META, MODERN

CAPABILITIES = META + "clientCapabilities"


def making() -> Server:
    """A server whose tools make tasks for callers that know tasks."""
    server = Server("making", store="memory:")

    @server.tool(task="optional")
    async def promise(ctx: Context) -> str:
        await ctx.promise()
        return "done"

    @server.tool(task="required")
    async def only_promise() -> str:
        return "done"

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Who?", str, key="who")

    return server


async def test_a_call_that_allows_no_task_is_answered() -> None:
    tasks: list[TaskHandle] = []
    async with Client(making(), elicit=lambda question: {"value": "Ada"}) as client:
        assert client.version == MODERN
        options: dict[str, Any] = {"allow_task": False, "on_task": tasks.append}
        assert (await client.call("promise", **options)).text == "done"
        assert (await client.call("ask", **options)).text == "Ada"
        assert not tasks
        assert (await client.call("promise", on_task=tasks.append)).text == "done"
        assert len(tasks) == 1
        assert isinstance(await client.call_once("promise"), TaskHandle)
        assert not isinstance(await client.call_once("promise", allow_task=False), TaskHandle)


@pytest.mark.parametrize(("version", "refusal"), [(MODERN, MissingCapability), (LEGACY, MethodNotFound)])
async def test_a_tool_that_only_makes_tasks_refuses_such_a_call(
    version: str, refusal: type[Exception]
) -> None:
    async with Client(making(), protocol=version) as client:
        assert (await client.call("only_promise")).text == "done"
        with pytest.raises(refusal):
            await client.call("only_promise", allow_task=False)


async def test_only_that_request_leaves_tasks_out_of_the_capabilities() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return DONE

    line = Line(answer)
    own = {"extensions": {"io.modelcontextprotocol/tasks": {}, "example/own": {}}}
    async with Client(line, elicit=lambda question: {}, capabilities=own) as client:
        await client.call("tool", allow_task=False)
        await client.call("tool")
    without, usual = (params["_meta"][CAPABILITIES] for params in line.asked("tools/call"))
    assert without["extensions"] == {"example/own": {}}
    assert usual["extensions"] == {"example/own": {}, "io.modelcontextprotocol/tasks": {}}
    assert {key: without[key] for key in without if key != "extensions"} == {
        key: usual[key] for key in usual if key != "extensions"
    }
