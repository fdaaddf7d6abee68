"""`adopt`: what a server of another library keeps, and what it gets from this one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as types
import pytest
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from fastmcp.dependencies import Depends
from fastmcp.server.dependencies import get_access_token, get_http_headers
from fastmcp.server.middleware import Middleware
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context, MCPServer

from antiphon import BearerTokens, Client, DefinitionError, Failure, RequestError, adopt
from antiphon.adoption import seam
from antiphon.model.notification import ResourceUpdated
from tests.support.polling import DEADLINE, forever, until
from tests.support.serving import serving

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")


def test_what_is_no_server_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot serve a dict. Pass a FastMCP, an MCPServer, or"):
        adopt({})
    with pytest.raises(DefinitionError, match="write tasks=\\['bake'\\]"):
        adopt(MCPServer("x"), tasks="bake")


async def test_options_are_those_of_a_server_and_tools_of_our_own_can_be_added() -> None:
    theirs = MCPServer("theirs", instructions="Theirs.", version="1")

    @theirs.tool()
    def first() -> str:
        return "first"

    server = adopt(theirs, name="ours", instructions="Ours.", page_size=1)

    @server.tool
    async def second() -> str:
        return "second"

    async with Client(server) as client:
        assert client.server is not None
        assert (client.server.name, client.server.version, client.instructions) == ("ours", "1", "Ours.")
        assert {tool.name for tool in await client.tools()} == {"first", "second"}
        assert [(await client.call(name)).text for name in ("first", "second")] == ["first", "second"]


async def test_a_tool_of_our_own_cannot_have_the_name_of_theirs() -> None:
    theirs = MCPServer("theirs")

    @theirs.tool()
    def same() -> str:
        return "theirs"

    server = adopt(theirs)
    server.add_tool(same)
    with pytest.raises(DefinitionError, match="There is already a tool 'same'"):
        async with server.running():
            pass


async def test_middleware_of_the_official_sdk_sees_every_request() -> None:
    seen: list[str] = []

    async def watch(ctx: Any, call_next: Any) -> Any:
        seen.append(ctx.method)
        return await call_next(ctx)

    theirs = MCPServer("theirs", middleware=[watch])

    @theirs.tool()
    def ping_pong() -> str:
        return "pong"

    async with Client(adopt(theirs)) as client:
        seen.clear()
        assert (await client.call("ping_pong")).text == "pong"
        assert "tools/call" in seen


async def test_mounts_and_dependencies_of_fastmcp_work() -> None:
    theirs, mounted = FastMCP("theirs"), FastMCP("mounted")

    async def shop() -> str:
        return "corner"

    @mounted.tool
    async def where(name: str = Depends(shop)) -> str:
        return name

    theirs.mount(mounted, namespace="sub")
    async with Client(adopt(theirs)) as client:
        [tool] = await client.tools()
        assert tool.name == "sub_where"
        assert (await client.call("sub_where")).text == "corner"


async def test_a_list_can_differ_by_caller() -> None:
    theirs = FastMCP("theirs")

    @theirs.tool
    def common() -> str:
        return "common"

    @theirs.tool
    def rare() -> str:
        return "rare"

    class Choose(Middleware):
        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            tools = await call_next(context)
            client = context.fastmcp_context.session.client_params
            return [tool for tool in tools if client.client_info.name == "insider" or tool.name == "common"]

    theirs.add_middleware(Choose())
    server = adopt(theirs)
    async with Client(server, name="insider") as insider, Client(server) as other:
        assert {tool.name for tool in await insider.tools()} == {"common", "rare"}
        assert {tool.name for tool in await other.tools()} == {"common"}
        assert (await insider.call("rare")).text == "rare"


async def test_principals_of_versions_without_sessions_keep_their_session_state() -> None:
    theirs = FastMCP("theirs")

    @theirs.tool
    async def count(ctx: FastContext) -> int:
        calls = (await ctx.get_state("calls") or 0) + 1
        await ctx.set_state("calls", calls)
        return calls

    server = adopt(theirs, authenticate=BearerTokens({"a": "ada", "b": "bob"}))
    async with serving(server) as address:

        async def counted(token: str) -> int:
            async with Client(address.url, auth=token, protocol="2026-07-28") as client:
                return int((await client.call("count")).data["result"])

        assert [await counted(token) for token in ("a", "a", "b")] == [1, 2, 1]


async def test_so_many_sessions_of_principals_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "MAX_SESSIONS", 2)
    theirs = FastMCP("theirs")

    @theirs.tool
    async def count(ctx: FastContext) -> int:
        calls = (await ctx.get_state("calls") or 0) + 1
        await ctx.set_state("calls", calls)
        return calls

    server = adopt(theirs, authenticate=BearerTokens({"a": "ada", "b": "bob", "c": "cyd"}))
    async with serving(server) as address:

        async def counted(token: str) -> int:
            async with Client(address.url, auth=token, protocol="2026-07-28") as client:
                return int((await client.call("count")).data["result"])

        assert [await counted(token) for token in "abacab"] == [1, 1, 2, 1, 3, 1]


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_it_sees_the_headers_of_the_request_and_who_sent_it(protocol: str) -> None:
    official, fast = MCPServer("theirs"), FastMCP("theirs")

    @official.tool()
    async def tenant(ctx: Context) -> str:
        assert ctx.headers is not None
        return ctx.headers["x-tenant"]

    @fast.tool(name="tenant")
    async def tenant_and_user() -> str:
        token = get_access_token()
        assert token is not None
        return f"{get_http_headers()['x-tenant']} {token.client_id} {token.token}"

    for theirs, expected in ((official, "acme"), (fast, "acme ada a")):
        server = adopt(theirs, authenticate=BearerTokens({"a": "ada"}))
        async with (
            serving(server) as address,
            Client(address.url, auth="a", headers={"X-Tenant": "acme"}, protocol=protocol) as client,
        ):
            assert (await client.call("tenant")).text == expected


async def test_its_subscriptions_and_completions_are_served() -> None:
    subscribed: list[str] = []

    async def subscribe(ctx: Any, params: Any) -> types.EmptyResult:
        subscribed.append(params.uri)
        return types.EmptyResult()

    async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri="news://all", name="news")])

    async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        arguments = [types.PromptArgument(name="topic")]
        return types.ListPromptsResult(prompts=[types.Prompt(name="story", arguments=arguments)])

    async def complete(ctx: Any, params: Any) -> types.CompleteResult:
        values = [f"{params.ref.name}: {params.argument.value}…", *(params.context.arguments or {}).values()]
        return types.CompleteResult(completion=types.Completion(values=values))

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="print", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: Any) -> types.CallToolResult:
        await ctx.session.send_resource_updated("news://all")
        return types.CallToolResult(content=[])

    theirs: Any = LowLevelServer(
        "theirs",
        on_subscribe_resource=subscribe,
        on_list_resources=list_resources,
        on_list_prompts=list_prompts,
        on_completion=complete,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    changes: asyncio.Queue[Any] = asyncio.Queue()
    async with Client(adopt(theirs), protocol="2025-11-25", on_change=changes.put_nowait) as client:
        await client.subscribe("news://all")
        assert subscribed == ["news://all"]
        await client.call("print")
        assert await asyncio.wait_for(changes.get(), DEADLINE) == ResourceUpdated("news://all")
        completed = await client.complete("story", "topic", "t", {"other": "x"})
        assert completed.values == ("story: t…", "x")


async def test_changes_that_it_publishes_reach_those_who_listen() -> None:
    theirs = MCPServer("theirs")

    @theirs.resource("news://all")
    def news() -> str:
        return "news"

    @theirs.tool()
    async def print_news(ctx: Context) -> str:
        await ctx.notify_resource_updated("news://all")
        return "printed"

    async with Client(adopt(theirs)) as client, client.listen("news://all") as changes:
        await client.call("print_news")
        async with asyncio.timeout(DEADLINE):
            async for change in changes:
                assert change == ResourceUpdated("news://all")
                break


async def test_a_call_that_is_cancelled_cancels_their_function() -> None:
    theirs = MCPServer("theirs")
    events: asyncio.Queue[str] = asyncio.Queue()

    @theirs.tool()
    async def wait() -> str:
        events.put_nowait("began")
        try:
            await forever()
        except asyncio.CancelledError:
            events.put_nowait("cancelled")
            raise
        return "never"

    async with Client(adopt(theirs)) as client:
        call = asyncio.create_task(client.call("wait"))
        assert await asyncio.wait_for(events.get(), DEADLINE) == "began"
        call.cancel()
        assert await asyncio.wait_for(events.get(), DEADLINE) == "cancelled"


async def test_content_of_every_kind_and_metadata_are_passed_on() -> None:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="all", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text="a", _meta={"k": 1}),
                types.ImageContent(type="image", data="aaaa", mime_type="image/png"),
                types.ResourceLink(type="resource_link", uri="x://y", name="y"),
                types.EmbeddedResource(
                    type="resource", resource=types.TextResourceContents(uri="x://z", text="z")
                ),
            ],
            structured_content={"a": None},
            is_error=True,
            _meta={"m": 2},
        )

    theirs: Any = LowLevelServer("theirs", on_list_tools=list_tools, on_call_tool=call_tool)
    async with Client(adopt(theirs)) as client:
        result = await client.call("all", check=False)
    assert [type(block).__name__ for block in result.content] == [
        "Text",
        "Image",
        "ResourceLink",
        "EmbeddedResource",
    ]
    assert (result.data, result.is_error, (result.meta or {})["m"]) == ({"a": None}, True, 2)
    assert result.content[0].meta == {"k": 1}  # type: ignore[union-attr]


async def test_an_error_of_theirs_in_a_low_level_handler_says_nothing_of_its_cause() -> None:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="fail", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: Any) -> types.CallToolResult:
        raise ValueError("the password is 123")

    theirs: Any = LowLevelServer("theirs", on_list_tools=list_tools, on_call_tool=call_tool)
    async with Client(adopt(theirs)) as client:
        with pytest.raises(RequestError, match="^Internal server error$"):
            await client.call("fail")


async def test_a_lifespan_that_fails_keeps_the_server_from_starting() -> None:
    @asynccontextmanager
    async def broken(server: Any) -> Any:
        raise ValueError("no database")
        yield

    with pytest.raises(ValueError, match="no database"):
        async with adopt(MCPServer("theirs", lifespan=broken)).running():
            pass


async def test_a_lifespan_that_dies_later_is_logged_and_requests_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dying = asyncio.Event()

    async def die() -> None:
        await dying.wait()
        raise ValueError("the database is gone")

    @asynccontextmanager
    async def lifespan(server: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(die())
            yield {}

    theirs = MCPServer("theirs", lifespan=lifespan)

    @theirs.tool()
    def hello() -> str:
        return "hello"

    server = adopt(theirs)
    running = server.running()
    await running.__aenter__()
    async with Client(server) as client:
        assert (await client.call("hello")).text == "hello"
        dying.set()
        await until(lambda: "has ended while it is served" in caplog.text)
        assert "the database is gone" in caplog.text
        with pytest.raises(RequestError, match="its lifespan ended with an error"):
            await client.call("hello")
    with pytest.raises(ExceptionGroup):
        await running.__aexit__(None, None, None)


async def test_it_can_be_started_again_by_another_task() -> None:
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> Any:
        entered.append("in")
        yield {}
        entered.append("out")

    theirs = FastMCP("theirs", lifespan=lifespan)

    @theirs.tool
    async def hello() -> str:
        return "hello"

    server = adopt(theirs)
    for _ in range(2):
        running = server.running()
        await asyncio.create_task(running.__aenter__())
        async with Client(server) as client:
            assert (await client.call("hello")).text == "hello"
        await asyncio.create_task(running.__aexit__(None, None, None))
    assert entered == ["in", "out"] * 2


async def test_sampling_that_the_client_does_not_offer_fails_as_theirs_does() -> None:
    theirs = MCPServer("theirs")

    @theirs.tool()
    async def think(ctx: Context) -> str:
        said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="?"))
        await ctx.session.create_message([said], max_tokens=5)
        return "never"

    async with Client(adopt(theirs)) as client:
        with pytest.raises((Failure, RequestError), match="sampling"):
            await client.call("think")
