"""Providers: tools, resources and prompts of another program, served like those of an author."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import Client, Context, DefinitionError, InvalidParams, NotFound, Principal, Result, Server
from antiphon.model.catalog import (
    Kind,
    PromptArgument,
    PromptDefinition,
    PromptMessage,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from antiphon.model.content import Text, TextContents
from antiphon.model.outcome import Completion, PromptResult, ReadResult
from antiphon.model.request import Complete
from antiphon.runtime.authoring.foreign import ForeignPrompt, ForeignResource, ForeignTool
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.execution.call import Call
from antiphon.runtime.providers import Listing, Provider

SCHEMA = {"type": "object", "properties": {"ctx": {"type": "integer"}}, "x-own": ["kept"]}
ECHO = ToolDefinition("echo", SCHEMA, title="Echo", output_schema={"type": "object"}, meta={"a": 1})


class Shop(Provider):
    """A provider with one item of each kind, which records what happens to it."""

    kinds: tuple[Kind, ...] = ("tools", "resources", "templates", "prompts")

    def __init__(self, server: Server) -> None:
        self.engine = server.engine
        self.events: list[str] = []
        self.listing: Listing | None = None
        self.engine.add_provider(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.events.append("started")
        self.offer("echo")
        self.engine.replace(
            self,
            "resources",
            [ForeignResource(ResourceDefinition("shop://terms", "terms"), self.read)],
            {},
        )
        template = TemplateDefinition("shop://{#id}", "item", mime_type="text/x-item")
        self.engine.replace(
            self, "templates", [ForeignResource(template, self.read, complete=self.complete)], {}
        )
        prompt = PromptDefinition("greet", arguments=(PromptArgument("name", required=True),))
        self.engine.replace(self, "prompts", [ForeignPrompt(prompt, self.fill, complete=self.complete)], {})
        yield
        self.events.append("stopped")

    def offer(self, *names: str) -> None:
        self.engine.replace(self, "tools", [self.tool(name) for name in names], {})

    def tool(self, name: str, **options: Any) -> ForeignTool:
        definition = ToolDefinition(
            name, SCHEMA, title="Echo", output_schema={"type": "object"}, meta={"a": 1}
        )
        return ForeignTool(definition, self.call, self.engine.threads, **options)

    async def call(self, arguments: dict[str, Any], ctx: Context) -> Result:
        if "ask" in arguments:
            return Result(await ctx.elicit("Which?", str))
        return Result("echoed", data={"got": arguments, "by": ctx.principal.id}, meta={"m": 1})

    async def read(self, uri: str, ctx: Context) -> ReadResult:
        if uri.endswith("lost"):
            raise NotFound(f"No {uri}.")
        return ReadResult((TextContents(uri, f"read {uri}", "text/x"),))

    async def fill(self, arguments: dict[str, str], ctx: Context) -> PromptResult:
        return PromptResult((PromptMessage("user", Text(f"Hello {arguments['name']}")),), "A greeting")

    async def complete(self, call: Call[Complete]) -> Completion:
        return Completion((f"{call.request.argument.name}:{call.request.argument.value}",))

    async def list(self, kind: Kind, call: Call[Any]) -> Listing | None:
        return self.listing if kind == "tools" else None

    async def find(self, kind: Kind, key: str, call: Call[Any]) -> Tool | Resource | Prompt | None:
        if "hidden" not in key:
            return None
        if kind == "tools":
            return self.tool(key)
        if kind == "resources":
            return ForeignResource(ResourceDefinition(key, "hidden"), self.read)
        return ForeignPrompt(PromptDefinition(key), self.fill)

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        self.events.append(f"subscribed to {uri}")

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        self.events.append(f"unsubscribed from {uri}")


@pytest.fixture
def server() -> Server:
    return Server("tests")


@pytest.fixture
def shop(server: Server) -> Shop:
    return Shop(server)


async def test_its_tool_gets_the_arguments_as_they_came_and_its_result_is_not_converted(
    server: Server, shop: Shop
) -> None:
    async with Client(server) as client:
        assert await client.tools() == [ECHO]
        result = await client.call("echo", {"ctx": 5, "given": [1]})
        assert result.text == "echoed"
        assert result.data == {"got": {"ctx": 5, "given": [1]}, "by": ""}
        assert (result.meta or {})["m"] == 1
    assert shop.events == ["started", "stopped"]


async def test_its_resources_templates_and_prompts_are_served(server: Server, shop: Shop) -> None:
    async with Client(server) as client:
        assert [each.uri for each in await client.resources()] == ["shop://terms"]
        assert [each.uri_template for each in await client.templates()] == ["shop://{#id}"]
        assert (await client.read("shop://terms")).contents[0].text == "read shop://terms"  # type: ignore[union-attr]
        assert (await client.read("shop://#7")).contents[0].text == "read shop://#7"  # type: ignore[union-attr]
        for unknown in ("shop://lost", "else://where"):
            with pytest.raises(InvalidParams, match="No shop:|not found"):
                await client.read(unknown)
        filled = await client.prompt("greet", {"name": "Ada"})
        assert filled.description == "A greeting"
        completed = await client.complete("greet", "name", "A")
        assert completed.values == ("name:A",)


async def test_items_that_it_finds_for_a_caller_need_not_be_registered(server: Server, shop: Shop) -> None:
    async with Client(server) as client:
        assert (await client.call("hidden", {"x": 1})).data["got"] == {"x": 1}
        assert (await client.read("hidden://x")).contents[0].text == "read hidden://x"  # type: ignore[union-attr]
        assert (await client.prompt("hidden", {"name": "Ada"})).description == "A greeting"
        with pytest.raises(InvalidParams, match="Unknown tool: 'other'"):
            await client.call("other")
        with pytest.raises(InvalidParams, match="Unknown prompt: 'other'"):
            await client.prompt("other")


async def test_it_chooses_what_one_caller_sees_in_a_list(server: Server, shop: Shop) -> None:
    @server.tool
    async def own() -> str:
        return "own"

    shop.listing = Listing([ToolDefinition("for you", {"type": "object"})])
    async with Client(server) as client:
        assert [tool.name for tool in await client.tools()] == ["own", "for you"]


async def test_its_items_replace_those_it_had_with_one_change_if_the_list_differs(
    server: Server, shop: Shop
) -> None:
    async with server.running():
        with server.engine.changes.listen(lambda change: True) as listener:
            shop.offer("echo")
            shop.offer("one", "two")
            shop.offer("two", "one")
            shop.engine.changes.close()
            changes = [change async for change in listener]
        assert len(changes) == 1  # a listener that has not read the first change gets them as one
        assert server.tools == ("two", "one")
        shop.engine.changes.reopen()


async def test_a_name_belongs_to_the_author_and_then_to_the_provider_that_was_added_first(
    server: Server, shop: Shop
) -> None:
    @server.tool
    async def mine() -> str:
        return "mine"

    first, later = shop, Shop(server)
    registry = server.engine.registry
    later.offer("echo", "mine", "later")
    assert registry.owner("tools", "echo") is later  # the first one has not registered anything yet
    first.offer("other", "echo", "mine")
    assert server.tools == ("mine", "other", "echo", "later")
    assert registry.owner("tools", "mine") is None
    assert registry.owner("tools", "echo") is first
    later.offer("other", "echo")
    assert registry.owner("tools", "other") is first
    first.offer("echo")
    assert registry.owner("tools", "other") is later  # it is free
    with pytest.raises(DefinitionError, match="There is already a tool 'mine'"):
        registry.check_free(first, "tools", [first.tool("mine")])
    registry.check_free(later, "tools", [later.tool("echo")])  # another program may have it
    server.engine.replace(later, "tools", [later.tool("echo"), later.tool("mine")], {}, {"echo"})
    assert registry.owner("tools", "echo") is later  # it is written in this process
    with pytest.raises(DefinitionError, match="There is already a tool 'echo'"):
        registry.check_free(first, "tools", [first.tool("echo")])
    first.offer("echo", "mine")
    server.remove_tool("mine")
    assert registry.owner("tools", "mine") is first


async def test_headers_that_repeat_arguments_are_those_of_the_tool_that_has_the_name(
    server: Server, shop: Shop
) -> None:
    later = Shop(server)
    headers = {"echo": {"mcp-param-a": ("a",)}}
    server.engine.replace(later, "tools", [later.tool("echo")], headers)
    assert server.engine.mirrored == headers
    shop.offer("echo")
    assert server.engine.mirrored == {}
    shop.offer()
    assert server.engine.mirrored == headers


class Watched(ForeignTool):
    """A tool that counts how often the registry looks at what it is offered for."""

    __slots__ = ("_kept",)
    looks = 0

    @property
    def offer(self) -> Any:
        Watched.looks += 1
        return self._kept

    @offer.setter
    def offer(self, value: Any) -> None:
        self._kept = value


@pytest.mark.parametrize("is_switched", [False, True])
async def test_a_change_of_one_tool_among_many_looks_at_that_one(
    server: Server, shop: Shop, is_switched: bool
) -> None:
    def watched(name: str) -> Watched:
        return Watched(ToolDefinition(name, SCHEMA), shop.call, server.engine.threads)

    tools = [watched(f"t{number}") for number in range(300)]
    server.engine.replace(shop, "tools", tools, {})
    if is_switched:
        server.disable("t7")
    Watched.looks = 0
    server.engine.replace(shop, "tools", [*tools[1:], watched("new")], {})
    assert Watched.looks <= 2
    assert len(server.tools) == 300 - is_switched
    assert ("t7" in server.tools) is not is_switched


async def test_its_tools_run_as_tasks_and_need_scopes_as_others_do(shop: Shop, server: Server) -> None:
    async with server.running():
        server.engine.replace(shop, "tools", [shop.tool("slow", task="optional", scopes=["buy"])], {})
        [tool] = [server.engine.registry.tools["slow"]]
        assert tool.definition.task_support == "optional"
        assert tool.definition.meta == {"antiphon/scopes": ["buy"], "a": 1}
        assert server.task_tools == ("slow",)
        assert not server.engine.scopes.allows(Principal("ada"), tool, {})


async def test_a_server_whose_provider_has_nothing_yet_offers_its_lists(server: Server) -> None:
    class Empty(Provider):
        kinds: tuple[Kind, ...] = ("tools",)

    server.engine.add_provider(Empty())
    async with Client(server) as client:
        assert await client.tools() == []


async def test_it_hears_who_subscribes_to_a_resource(server: Server, shop: Shop) -> None:
    async with Client(server, on_change=lambda change: None) as client:
        await client.subscribe("shop://terms")
        assert "subscribed to shop://terms" in shop.events
        await client.unsubscribe("shop://terms")
    assert "unsubscribed from shop://terms" in shop.events


async def test_a_provider_cannot_be_added_while_the_server_runs(server: Server) -> None:
    async with server.running():
        with pytest.raises(RuntimeError, match="configure it before it starts"):
            server.engine.add_provider(Provider())


async def test_lists_have_the_order_of_the_providers_whichever_has_started_first(server: Server) -> None:
    first, second = Shop(server), Shop(server)
    server.engine.replace(second, "tools", [second.tool("b"), second.tool("a")], {})
    server.engine.replace(first, "tools", [first.tool("d"), first.tool("c")], {})

    @server.tool
    async def own() -> str:
        return "own"

    server.engine.replace(second, "tools", [second.tool("b"), second.tool("a")], {})
    assert server.tools == ("own", "d", "c", "b", "a")
