"""`antiphon.extensions.mcp` in a server of the official SDK, in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from fastmcp_tasks.client import TasksClientExtension
from mcp import Client, MCPError
from mcp.client.extension import advertise
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import ResourceUpdated
from pydantic import BaseModel

from antiphon import DefinitionError
from antiphon.extensions.mcp import Tasks, current_context
from tests.extensions.clients import ended, request
from tests.support.polling import until

TASKS = "io.modelcontextprotocol/tasks"
QUICK = {"poll_interval": 0.02}


class Size(BaseModel):
    size: int


def serving(tasks: Tasks, **options: Any) -> MCPServer[Any]:
    """A server with the extension."""
    return MCPServer("shop", extensions=[tasks], lifespan=tasks.lifespan, **options)


def connect(mcp: MCPServer[Any], answer: Any = None, **options: Any) -> Client:
    """A client that accepts tasks, and answers every form alike."""

    async def elicit(*_: Any) -> types.ElicitResult:
        return types.ElicitResult.model_validate(answer)

    return Client(
        mcp,
        mode="2026-07-28",
        extensions=[TasksClientExtension(elicit)],
        elicitation_callback=elicit,
        **options,
    )


def text(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"action": "accept", "content": {"size": 3}}, "size=3"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
    ],
)
async def test_a_tool_sees_how_a_form_was_answered(answer: Any, expected: str) -> None:
    mcp = serving(Tasks({"order": {"task": "required", "poll_interval": 0.02}}))

    @mcp.tool()
    async def order(ctx: Context) -> str:
        given = await ctx.elicit("Which size?", Size)
        return str(given.data) if given.action == "accept" else given.action

    async with connect(mcp, answer) as client:
        assert text(await client.call_tool("order")) == expected


async def test_a_tool_stops_waiting_for_an_answer() -> None:
    mcp = serving(Tasks({"order": {"task": "required", "poll_interval": 0.02}}))

    @mcp.tool()
    async def order(ctx: Context) -> str:
        params = types.ElicitRequestFormParams(message="Which size?", requested_schema={})
        metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
        with pytest.raises(MCPError, match="Nobody answered"):
            await ctx.session.send_request(
                types.ElicitRequest(params=params), types.ElicitResult, 0.1, metadata
            )
        return "Nothing was ordered."

    async with connect(mcp) as client:
        promise = await client.session.call_tool("order", {}, allow_claimed=True)
        status = await ended(client.session, promise.task_id)  # type: ignore[union-attr]
        assert status["result"]["content"][0]["text"] == "Nothing was ordered."


async def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    mcp = serving(Tasks({"order": QUICK}))
    answers: Iterator[Any] = iter([{"size": "large"}, {"size": 3}])

    @mcp.tool()
    async def order(ctx: Context) -> str:
        given = await ctx.elicit("Which size?", Size)
        return str(given)

    async def elicit(*_: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=next(answers))

    extension = TasksClientExtension(elicit)
    async with Client(mcp, extensions=[extension], elicitation_callback=elicit) as client:
        assert "size=3" in text(await client.call_tool("order"))


async def test_a_client_without_tasks_is_answered_or_refused() -> None:
    mcp = serving(Tasks({"quick": "optional", "slow": "required"}))

    @mcp.tool()
    async def quick() -> str:
        with pytest.raises(RuntimeError, match="No task of Antiphon runs this function"):
            current_context()
        return "answered"

    @mcp.tool()
    async def slow() -> str:
        return "never"

    for mode in ("2026-07-28", "legacy"):
        async with Client(mcp, mode=mode) as client:
            assert text(await client.call_tool("quick")) == "answered"
            with pytest.raises(MCPError, match="only runs as a task") as refused:
                await client.call_tool("slow")
            assert refused.value.code == -32021
            assert refused.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def test_the_methods_of_tasks_need_a_client_that_declares_them() -> None:
    mcp = serving(Tasks({"work": "optional"}))

    @mcp.tool()
    async def work() -> str:
        return "never"

    async with Client(mcp) as client:
        assert client.server_capabilities.extensions == {TASKS: {}}
        with pytest.raises(MCPError) as refused:
            await request(client.session, "tasks/get", taskId="unknown")
        assert refused.value.code == -32021
    async with Client(mcp, mode="2026-07-28", extensions=[advertise(TASKS)]) as client:
        with pytest.raises(MCPError) as refused:
            await request(client.session, "tasks/get", taskId="unknown")
        assert refused.value.code == -32602


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_a_tool_reports_samples_and_lists_roots_in_a_task(caplog: pytest.LogCaptureFixture) -> None:
    mcp = serving(Tasks({"work": {"task": "required", "poll_interval": 0.02}}))

    @mcp.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        await ctx.log("warning", "careful")
        roots = await ctx.session.list_roots()
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Hi"))
        sampled = await ctx.session.create_message([message], max_tokens=5)
        await ctx.session.send_ping()
        assert isinstance(sampled.content, types.TextContent)
        return f"{roots.roots[0].uri} {sampled.content.text}"

    async with connect(mcp) as client:
        task = await client.session.call_tool("work", {}, allow_claimed=True)
        id = task.task_id  # type: ignore[union-attr]
        answers = {
            "roots/list": {"roots": [{"uri": "file:///here"}]},
            "sampling/createMessage": {
                "role": "assistant",
                "model": "m",
                "content": {"type": "text", "text": "Ho"},
            },
        }

        async def answer() -> dict[str, Any] | None:
            status = await request(client.session, "tasks/get", taskId=id)
            questions = status.get("inputRequests", {}).items()
            responses = {key: answers[asked["method"]] for key, asked in questions}
            if responses:
                await request(client.session, "tasks/update", taskId=id, inputResponses=responses)
            return status if status["status"] == "completed" else None

        status = await until(answer)
        assert status is not None
        assert status["result"]["content"] == [{"type": "text", "text": "file:///here Ho"}]
    assert any("careful" in record.getMessage() for record in caplog.records)


async def test_the_lifespan_of_the_author_surrounds_the_tasks() -> None:
    events = []

    @asynccontextmanager
    async def lifespan(mcp: MCPServer[Any]) -> AsyncIterator[dict[str, str]]:
        events.append(f"{mcp.name} starts")
        yield {"database": "open"}
        events.append("stops")

    tasks = Tasks({"look": {"poll_interval": 0.02}}, lifespan=lifespan)
    mcp = serving(tasks)

    @mcp.tool()
    async def look(ctx: Context[dict[str, str]]) -> str:
        events.append("runs")
        return ctx.request_context.lifespan_context["database"]

    async with connect(mcp) as client:
        assert text(await client.call_tool("look")) == "open"
        assert tasks.task_server.counters
    assert events == ["shop starts", "runs", "stops"]


async def test_tasks_run_as_long_as_any_lifespan_is_open() -> None:
    tasks = Tasks({"look": {"poll_interval": 0.02}})
    mcp = serving(tasks)

    @mcp.tool()
    async def look() -> str:
        return "seen"

    first, second = connect(mcp), connect(mcp)
    async with AsyncExitStack() as stack:
        closing = await stack.enter_async_context(AsyncExitStack())
        await closing.enter_async_context(tasks.lifespan(mcp))
        await stack.enter_async_context(tasks.lifespan(mcp))
        await closing.aclose()
        async with first as client:
            assert text(await client.call_tool("look")) == "seen"
    async with second as client:  # it starts once more
        assert text(await client.call_tool("look")) == "seen"


async def test_a_tool_in_a_task_publishes_changes_on_the_bus_of_the_server() -> None:
    bus, published = InMemorySubscriptionBus(), []
    bus.subscribe(published.append)
    tasks = Tasks({"write": {"poll_interval": 0.02}}, subscriptions=bus)
    mcp = serving(tasks, subscriptions=bus)

    @mcp.tool()
    async def write(ctx: Context) -> str:
        await ctx.notify_resource_updated("data://rows")
        return "written"

    async with connect(mcp) as client:
        assert text(await client.call_tool("write")) == "written"
    assert published == [ResourceUpdated(uri="data://rows")]


async def test_errors_of_a_tool_end_its_task_as_they_end_a_call() -> None:
    mcp = serving(Tasks({"fail": QUICK, "crash": QUICK, "refuse": QUICK, "add": QUICK}))

    @mcp.tool()
    async def fail() -> str:
        raise ToolError("Not today.")

    @mcp.tool()
    async def crash() -> str:
        raise ZeroDivisionError("secret")

    @mcp.tool()
    async def refuse() -> str:
        raise MCPError(-32099, "Refused.", {"why": "no"})

    @mcp.tool()
    async def add(a: int) -> int:
        return a + 1

    async with connect(mcp) as with_tasks, Client(mcp, mode="2026-07-28") as without:
        for call in (("fail", {}), ("crash", {}), ("add", {"a": "x"}), ("add", {"a": 1})):
            as_task, as_answer = await with_tasks.call_tool(*call), await without.call_tool(*call)
            assert as_task.content == as_answer.content
            assert as_task.structured_content == as_answer.structured_content
            assert as_task.is_error == as_answer.is_error
        promise = await with_tasks.session.call_tool("refuse", {}, allow_claimed=True)
        status = await ended(with_tasks.session, promise.task_id)  # type: ignore[union-attr]
        assert status["status"] == "failed"
        assert status["error"] == {"code": -32099, "message": "Refused.", "data": {"why": "no"}}


async def test_a_tool_can_use_steps_in_a_task() -> None:
    mcp = serving(Tasks({"pay": {"replay": True, "poll_interval": 0.02}}))
    paid = []

    async def charge(amount: int) -> str:
        paid.append(amount)
        return f"receipt {len(paid)}"

    @mcp.tool()
    async def pay(ctx: Context) -> str:
        receipt = await current_context().step(charge, 5)
        await ctx.elicit("Which size?", Size)
        return receipt

    async with connect(mcp, {"action": "accept", "content": {"size": 1}}) as client:
        assert text(await client.call_tool("pay")) == "receipt 1"
    assert paid == [5]


async def test_mistakes_are_named_when_the_server_starts() -> None:
    tasks = Tasks({"reprot": "required"})
    mcp = serving(tasks)
    with pytest.raises(DefinitionError, match="no tool 'reprot'"):
        async with tasks.lifespan(mcp):
            pass
    with pytest.raises(RuntimeError, match="does not run"):
        _ = tasks.task_server


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("allways", "task='allways' is invalid"),
        ({"poll": 1}, "poll_interval"),
        ("forbidden", "leave it out"),
        (7, "Pass 'optional' or 'required'"),
    ],
)
def test_invalid_options_are_refused(options: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Tasks({"work": options})


async def test_a_server_without_the_lifespan_says_how_to_start_the_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mcp = MCPServer("shop", extensions=[Tasks({"work": "required"})])

    @mcp.tool()
    async def work() -> str:
        return "never"

    async with connect(mcp) as client:
        with pytest.raises(MCPError):
            await client.call_tool("work")
    assert "lifespan=tasks.lifespan" in caplog.text
