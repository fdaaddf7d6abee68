"""`antiphon.extensions.fastmcp` in a FastMCP server, in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import mcp_types as types
import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import call_tool_task
from mcp.shared.exceptions import MCPError

from antiphon import DefinitionError
from antiphon.extensions.fastmcp import Tasks, current_context
from antiphon.store.memory import MemoryStore
from tests.extensions.clients import request
from tests.support.polling import DEADLINE, turns, until

OPTIONAL = TaskConfig(poll_interval=timedelta(seconds=0.02))
REQUIRED = TaskConfig("required", timedelta(seconds=0.02))


def serving(name: str = "shop", **options: Any) -> FastMCP[Any]:
    """A server with the extension."""
    mcp: FastMCP[Any] = FastMCP(name)
    mcp.add_extension(Tasks(**options))
    return mcp


def connect(mcp: FastMCP[Any], **answer: Any) -> Client[Any]:
    """A client that answers every form alike."""

    async def elicit(*_: Any) -> types.ElicitResult:
        return types.ElicitResult.model_validate(answer)

    return Client(mcp, elicitation_handler=elicit)


async def status_of(client: Client[Any], tool: str) -> Any:
    """How a task of a tool ended."""
    task = await call_tool_task(client, tool, {}, raise_on_error=False)
    return await task.wait(timeout=DEADLINE)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"action": "accept", "content": {"value": 3}}, "3"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
    ],
)
async def test_a_tool_sees_how_a_form_was_answered(answer: Any, expected: str) -> None:
    mcp = serving()

    @mcp.tool(task=REQUIRED)
    async def order(ctx: Context) -> str:
        given = await ctx.elicit("Which size?", int)
        return str(given.data) if given.action == "accept" else given.action

    async with connect(mcp, **answer) as client:
        assert (await client.call_tool("order")).data == expected


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_tool_logs_and_lists_roots_in_a_task(caplog: pytest.LogCaptureFixture) -> None:
    mcp = serving()

    @mcp.tool(task=OPTIONAL)
    async def work(ctx: Context) -> str:
        await ctx.warning("careful")
        roots = await ctx.session.list_roots()
        return str(roots.roots[0].uri)

    async with connect(mcp) as client:
        task = await call_tool_task(client, "work", {})
        asked = await task.wait(state="input_required", timeout=DEADLINE)
        ((key, question),) = (asked.input_requests or {}).items()
        assert question["method"] == "roots/list"
        answer = {key: {"roots": [{"uri": "file:///here"}]}}
        await request(client.session, "tasks/update", taskId=task.task_id, inputResponses=answer)
        assert (await task.result()).data == "file:///here"
    assert any(
        "careful" in record.getMessage() for record in caplog.records if record.name == "antiphon.tasks"
    )


async def test_errors_of_a_tool_end_its_task_as_they_end_a_call() -> None:
    mcp = serving()

    @mcp.tool(task=OPTIONAL)
    async def fail() -> str:
        raise ToolError("Not today.")

    @mcp.tool(task=OPTIONAL)
    async def crash() -> str:
        raise ZeroDivisionError("of mine")

    @mcp.tool(task=OPTIONAL)
    async def refuse() -> str:
        raise MCPError(-32099, "Refused.")

    async with connect(mcp) as client:
        for tool, message in (("fail", "Not today."), ("crash", "Error calling tool 'crash': of mine")):
            result = (await status_of(client, tool)).result
            assert result["isError"]
            assert result["content"] == [{"type": "text", "text": message}]
        refused = await status_of(client, "refuse")
        assert refused.status == "failed"
        assert refused.error["code"] == -32099


async def test_a_tool_that_a_tool_calls_is_answered_at_once() -> None:
    mcp = serving()
    ran = []

    @mcp.tool(task=OPTIONAL)
    async def inner() -> str:
        ran.append("inner")
        return "inner"

    @mcp.tool(task=REQUIRED)
    async def only_task() -> str:
        return "never"

    @mcp.tool
    async def plain(ctx: Context) -> str:
        with pytest.raises(ToolError, match="a client has to call it"):
            await ctx.fastmcp.call_tool("only_task")
        result = await ctx.fastmcp.call_tool("inner")
        return f"plain {result.content[0].text}"  # type: ignore[union-attr]

    @mcp.tool(task=OPTIONAL)
    async def outer(ctx: Context) -> str:
        result = await ctx.fastmcp.call_tool("inner")
        return f"outer {result.content[0].text}"  # type: ignore[union-attr]

    async with connect(mcp) as client:
        assert (await client.call_tool("plain")).data == "plain inner"
        assert (await client.call_tool("outer")).data == "outer inner"
    assert ran == ["inner", "inner"]


async def test_clients_of_earlier_versions_are_answered_or_refused() -> None:
    mcp = serving()

    @mcp.tool(task=OPTIONAL)
    async def quick() -> str:
        with pytest.raises(RuntimeError, match="No task of Antiphon runs this function"):
            current_context()
        return "answered"

    @mcp.tool(task=REQUIRED)
    async def slow() -> str:
        return "never"

    async with Client(mcp, mode="legacy") as client:
        assert (await client.call_tool("quick")).data == "answered"
        with pytest.raises(MCPError, match="only runs as a task") as refused:
            await client.call_tool("slow")
        assert refused.value.code == -32021


async def test_versions_mounts_and_tools_that_come_later() -> None:
    child: FastMCP[Any] = FastMCP("child")
    mcp = serving()

    @child.tool(task=OPTIONAL)
    async def mounted() -> str:
        return f"mounted {current_context().principal.id!r}"

    @mcp.tool(version="1.0", task=OPTIONAL, name="act")
    async def act_1() -> str:
        return "first"

    @mcp.tool(version="2.0", task=OPTIONAL, name="act")
    async def act_2() -> str:
        return "second"

    async def late() -> str:
        return "late"

    mcp.mount(child, namespace="under")
    async with connect(mcp) as client:
        assert (await client.call_tool("under_mounted")).data == "mounted ''"
        assert (await client.call_tool("act")).data == "second"
        assert (await client.call_tool("act", version="1.0")).data == "first"
        mcp.tool(late, task=OPTIONAL)
        assert (await client.call_tool("late")).data == "late"


async def test_the_lifespan_and_the_state_of_the_author_are_there_in_a_task() -> None:
    @asynccontextmanager
    async def lifespan(server: FastMCP[Any]) -> AsyncIterator[dict[str, str]]:
        yield {"database": "open"}

    mcp: FastMCP[Any] = FastMCP("shop", lifespan=lifespan)
    extension = Tasks()
    mcp.add_extension(extension)

    @mcp.tool(task=OPTIONAL)
    async def look(ctx: Context) -> str:
        await ctx.set_state("seen", "yes")
        return f"{ctx.lifespan_context['database']} {await ctx.get_state('seen')}"

    async with connect(mcp) as client:
        assert (await client.call_tool("look")).data == "open yes"
        assert extension.task_server.name == "shop"


async def test_invalid_options_are_refused() -> None:
    with pytest.raises(DefinitionError, match="unknown option 'retries'"):
        Tasks(tools={"work": {"retries": 3}})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(DefinitionError, match="with @mcp.tool"):
        Tasks(tools={"work": {"poll_interval": 3}})
    mcp: FastMCP[Any] = FastMCP("shop")
    extension = Tasks(tools={"reprot": {"replay": True}})
    mcp.add_extension(extension)
    with pytest.raises(RuntimeError, match="no tool 'reprot'"):
        async with Client(mcp):
            pass


async def test_a_task_of_an_earlier_process_runs_when_the_server_has_started() -> None:
    """The lifespans of the server and of a mounted one, which FastMCP enters late, are open for it."""
    store = MemoryStore()
    seen: list[Any] = []

    def make(*, run_tasks: bool) -> FastMCP[Any]:
        @asynccontextmanager
        async def lifespan(server: FastMCP[Any]) -> AsyncIterator[dict[str, str]]:
            await turns(100)
            yield {"of": server.name}

        child: FastMCP[Any] = FastMCP("child", lifespan=lifespan)
        mcp: FastMCP[Any] = FastMCP("shop", lifespan=lifespan)
        mcp.add_extension(Tasks(store=store, run_tasks=run_tasks))

        @child.tool(task=OPTIONAL)
        async def look(ctx: Context) -> str:
            seen.append(ctx.lifespan_context)
            return "looked"

        mcp.tool(look, task=OPTIONAL, name="look_here")
        mcp.mount(child, namespace="under")
        return mcp

    async with connect(make(run_tasks=False)) as client:
        for tool in ("look_here", "under_look"):
            await call_tool_task(client, tool, {})
    assert seen == []
    async with connect(make(run_tasks=True)):
        await until(lambda: len(seen) == 2)
    assert sorted(each["of"] for each in seen) == ["child", "shop"]


async def test_a_server_that_stores_tasks_needs_a_name() -> None:
    mcp: FastMCP[Any] = FastMCP()
    extension = Tasks(store=MemoryStore())
    mcp.add_extension(extension)
    with pytest.raises(DefinitionError, match="invents another one at each start"):
        async with extension.lifespan():
            pass


async def test_an_extension_that_does_not_run_says_how_to_start_it() -> None:
    with pytest.raises(RuntimeError, match="Add it to the server that you run"):
        _ = Tasks().task_server
