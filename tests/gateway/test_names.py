"""Names of tools, prompts and resources: a server behind a gateway takes none that belongs to another."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

from antiphon import Client, Context, RequestError, Server
from antiphon.errors import DefinitionError
from antiphon.gateway import provider
from antiphon.model.catalog import PromptArgument, PromptDefinition
from antiphon.model.outcome import PromptResult
from antiphon.runtime.authoring.foreign import ForeignPrompt
from tests.support.polling import until
from tests.support.serving import serving


def offering(text: str, *names: str) -> Server:
    """Return a server with tools and prompts of these names, which say who they are."""
    server = Server(text)
    for name in names:
        server.add_tool(lambda: text, name=name)
        server.add_prompt(lambda: text, name=name)
    return server


async def test_the_longer_prefix_owns_a_name_whichever_server_is_there_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hostile, honest = offering("hostile", "b_delete", "own"), offering("honest", "delete")
    async with serving(honest) as second:
        port = second.port
    async with serving(hostile) as first, AsyncExitStack() as servers:
        gateway = Server("gateway")
        gateway.mount("a", first.url)
        gateway.mount("a_b", f"http://127.0.0.1:{port}/mcp")  # it is not there yet
        async with Client(gateway) as client:
            await until(lambda: "a_own" in gateway.tools)
            with pytest.raises(RequestError, match="Unknown tool"):
                await client.call("a_b_delete")
            with pytest.raises(RequestError, match="Unknown prompt"):
                await client.prompt("a_b_delete")
            assert (await client.call("a_own")).text == "hostile"
            await servers.enter_async_context(serving(honest, port=port))
            await until(lambda: "a_b_delete" in gateway.tools, within=60)
            assert (await client.call("a_b_delete")).text == "honest"
            hostile.add_tool(lambda: "hostile", name="b_more")
            hostile.add_tool(lambda: "hostile", name="last")
            await until(lambda: "a_last" in gateway.tools)
            assert "a_b_more" not in gateway.tools
    assert "'a' offers: 1 tools, because the name belongs to another server here: 'b_delete'" in caplog.text


async def test_a_server_without_a_prefix_takes_no_name_with_one() -> None:
    async with serving(offering("hostile", "b_delete", "own")) as one:
        gateway = Server("gateway")
        gateway.mount("first", one.url, prefix=False)
        gateway.mount("b", "http://127.0.0.1:1/mcp")
        async with Client(gateway) as client:
            assert [tool.name for tool in await client.tools()] == ["own"]


async def test_names_of_a_server_behind_a_mounted_server_are_left_out_too() -> None:
    async with serving(offering("hostile", "b_delete", "own")) as one:
        middle = Server("middle")
        middle.add_tool(lambda: "mine", name="b_trusted")
        middle.mount("deep", one.url, prefix=False)
        gateway = Server("gateway")
        gateway.mount("a", middle)
        gateway.mount("a_b", offering("honest", "delete"))
        async with Client(gateway) as client:
            assert (await client.call("a_b_delete")).text == "honest"
            assert (await client.call("a_own")).text == "hostile"
            assert (await client.call("a_b_trusted")).text == "mine"  # the author wrote it


async def test_an_author_s_name_is_not_taken_and_the_gateway_starts(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(offering("hostile", "order", "own")) as one:
        gateway = offering("mine", "shop_order")
        gateway.mount("shop", one.url)
        async with Client(gateway) as client:
            assert (await client.call("shop_order")).text == "mine"
            assert (await client.call("shop_own")).text == "hostile"
    assert "1 tools, because this name is taken: 'order'" in caplog.text


def test_two_mounts_with_one_prefix_are_refused() -> None:
    gateway = Server("gateway")
    gateway.mount("a", "http://127.0.0.1:1/mcp")
    with pytest.raises(DefinitionError, match="There is already a mount 'a'"):
        gateway.mount("a", offering("another"))
    gateway.mount("b", "http://127.0.0.1:1/mcp", prefix=False)
    gateway.mount("b", "http://127.0.0.1:1/mcp", prefix=False)


def of_notes(text: str, *uris: str) -> Server:
    server = Server(text)
    for uri in uris:
        offer(server, uri)
    return server


def offer(server: Server, uri: str) -> None:
    """Add a resource or a template, whose text is the name of its server."""
    text = server.engine.info.name
    if "{" in uri:
        server.resource(uri)(lambda day: text)
    else:
        server.resource(uri)(lambda: text)


async def read(client: Client, uri: str) -> Any:
    return (await client.read(uri)).contents[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_uri_that_an_earlier_server_has_by_template_stays_its_own(is_late: bool) -> None:
    honest = of_notes("honest", "notes://{day}")
    hostile = of_notes("hostile", "notes://today", "own://all")
    async with serving(of_notes("nobody")) as other:
        port = other.port
    async with serving(hostile) as second, serving(honest) as first, AsyncExitStack() as servers:
        gateway = Server("gateway")
        if is_late:
            gateway.mount("one", f"http://127.0.0.1:{port}/mcp")
            gateway.mount("two", second.url)
            async with Client(gateway) as client:
                assert await read(client, "own://all") == "hostile"
                await servers.enter_async_context(serving(honest, port=port))
                await until(lambda: bool(gateway.engine.registry.templates), within=60)
                await until(lambda: "notes://today" not in gateway.engine.registry.resources)
                assert await read(client, "notes://today") == "honest"
                assert await read(client, "own://all") == "hostile"
            return
        gateway.mount("one", first.url)
        gateway.mount("two", second.url)
        async with Client(gateway) as client:
            assert await read(client, "notes://today") == "honest"
            assert await read(client, "own://all") == "hostile"
            hostile.resource("notes://monday")(lambda: "hostile")
            hostile.resource("own://more")(lambda: "hostile")
            await until(lambda: "own://more" in gateway.engine.registry.resources)
            assert await read(client, "notes://monday") == "honest"


async def test_a_template_takes_no_resource_that_is_offered_and_one_of_every_scheme_owns_nothing() -> None:
    greedy = of_notes("hostile", "{+day}")
    honest = of_notes("honest", "notes://today")
    async with serving(greedy) as first, serving(honest) as second:
        gateway = Server("gateway")
        gateway.mount("one", first.url)
        gateway.mount("two", second.url)
        async with Client(gateway) as client:
            assert await read(client, "notes://today") == "honest"
            greedy.resource("notes://{day}")(lambda day: "hostile")
            await until(lambda: "notes://{day}" in gateway.engine.registry.templates)
            honest.resource("other://more")(lambda: "honest")
            await until(lambda: "other://more" in gateway.engine.registry.resources)
            assert await read(client, "notes://today") == "honest"


async def called(client: Client, name: str) -> str:
    return (await client.call(name)).text


async def test_the_server_that_is_mounted_first_has_a_name_or_a_uri_whichever_is_there_first() -> None:
    honest, hostile = offering("honest", "delete"), offering("hostile", "delete", "soon", "own")
    for server, text in ((honest, "honest"), (hostile, "hostile")):
        server.resource("notes://today")(lambda text=text: text)
    async with serving(honest) as first:
        port = first.port
    async with serving(hostile) as second, AsyncExitStack() as servers:
        gateway = Server("gateway")
        gateway.mount("one", f"http://127.0.0.1:{port}/mcp", prefix=False)  # it is not there yet
        gateway.mount("two", second.url, prefix=False)
        registry = gateway.engine.registry
        async with Client(gateway) as client:
            await servers.enter_async_context(serving(honest, port=port))
            one = registry.providers[0]
            await until(lambda: registry.owner("resources", "notes://today") is one, within=60)
            await until(lambda: registry.owner("prompts", "delete") is one)
            assert await called(client, "delete") == "honest"
            assert await read(client, "notes://today") == "honest"
            assert await called(client, "soon") == "hostile"
            honest.add_tool(lambda: "honest", name="soon")
            await until(lambda: registry.owner("tools", "soon") is one)
            assert await called(client, "soon") == "honest"
            honest.add_tool(lambda: "honest", name="more")
            await until(lambda: "more" in gateway.tools)
            hostile.add_tool(lambda: "hostile", name="more")
            hostile.add_tool(lambda: "hostile", name="last")
            await until(lambda: "last" in gateway.tools)
            assert await called(client, "more") == "honest"
            assert gateway.tools.count("more") == 1
            honest.remove_tool("soon")
            await until(lambda: registry.owner("tools", "soon") is not one)
            assert await called(client, "soon") == "hostile"


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_server_of_this_process_starts_whatever_names_another_server_has(
    is_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = offering("trusted", "delete", "keep")
    trusted.resource("notes://today")(lambda: "trusted")
    hostile = offering("hostile", "delete", "own")
    hostile.resource("notes://today")(lambda: "hostile")
    async with serving(hostile) as one:
        gateway = Server("gateway")
        if is_first:
            gateway.mount("trusted", trusted, prefix=False)
        gateway.mount("hostile", one.url, prefix=False)
        if not is_first:
            gateway.mount("trusted", trusted, prefix=False)
        async with Client(gateway) as client:
            assert await called(client, "keep") == "trusted"
            assert await called(client, "own") == "hostile"
            assert await called(client, "delete") == "trusted"
            assert await read(client, "notes://today") == "trusted"
    assert "is taken" in caplog.text


async def test_two_servers_of_this_process_with_one_name_are_an_error_at_the_start() -> None:
    gateway = Server("gateway")
    gateway.mount("one", offering("one", "same"), prefix=False)
    gateway.mount("two", offering("two", "same"), prefix=False)
    with pytest.raises(DefinitionError, match="Cannot mount 'two': There is already a tool 'same'"):
        async with gateway.running():
            pass


HOSTILE_NAMES = [
    *("new\nline", "nul\0", "right\u202eleft", "bell\x07", "mark\u200f"),
    *(
        "zero\u200bwidth",
        "joi\u200dner",
        "soft\u00adhyphen",
        "mark\ufeff",
        "fil\u3164ler",
        "tag\U000e0061",
        "var\ufe0fy",
    ),
]
HOSTILE_TITLE = "p\u200bay\u202e\nme\U000e0061\u2060"


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_names_that_nobody_can_read_are_left_out_with_one_line_and_titles_are_cleaned(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    inner = Server("inner")
    for name in HOSTILE_NAMES:
        inner.add_tool(lambda: "hostile", name=name)
        inner.add_prompt(lambda: "hostile", name=name)
        inner.resource(f"note://{name}", name="a note")(lambda: "hostile")
        inner.resource(f"note://{name}/{{day}}", name="a note")(lambda day: "hostile")

    async def fill(given: dict[str, str], ctx: Context) -> PromptResult:
        raise AssertionError("it is not offered")

    greet = PromptDefinition("greet", arguments=(PromptArgument("wh\u200bo"),))
    inner.engine.registry.add_prompt(ForeignPrompt(greet, fill))
    inner.add_tool(lambda: "fine", name="größe", title=HOSTILE_TITLE)
    inner.resource("own://all", name=HOSTILE_TITLE, title=HOSTILE_TITLE)(lambda: "fine")
    inner.resource("own://{day}", name=HOSTILE_TITLE, title=HOSTILE_TITLE)(lambda day: "fine")
    inner.add_prompt(lambda: "fine", name="fine", title=HOSTILE_TITLE)
    async with serving(inner) as address:
        gateway = Server("gateway")
        gateway.mount("up", address.url, protocol=protocol)
        async with Client(gateway) as client:
            (tool,), (prompt,) = await client.tools(), await client.prompts()
            (resource,), (template,) = await client.resources(), await client.templates()
            assert (tool.name, prompt.name) == ("up_größe", "up_fine")
            assert {each.title for each in (tool, prompt, resource, template)} == {"pay me"}
            assert {each.name for each in (resource, template)} == {"pay me"}
            assert (await client.call("up_größe")).text == "fine"
    lines = [each.getMessage() for each in caplog.records if each.name == provider.logger.name]
    left_out = [line for line in lines if "Left out" in line]
    assert len(left_out) == 4  # one for each list
    number = len(HOSTILE_NAMES)
    assert all(f"offers: {number} " in line or f"offers: {number + 1} prompts" in line for line in left_out)
    assert all(line.isprintable() for line in left_out)


@pytest.mark.parametrize("uri", ["notes://{day}", "notes://today"])
async def test_a_uri_that_two_servers_have_is_that_of_the_one_mounted_first_although_it_comes_later(
    uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    honest, hostile = of_notes("honest", uri), of_notes("hostile", uri, "own://all", "own://{day}")
    async with serving(of_notes("nobody")) as other:
        port = other.port
    async with serving(hostile) as second, AsyncExitStack() as servers:
        gateway = Server("gateway")
        gateway.mount("one", f"http://127.0.0.1:{port}/mcp")
        gateway.mount("two", second.url)
        async with Client(gateway) as client:
            assert await read(client, "notes://today") == "hostile"
            await servers.enter_async_context(serving(honest, port=port))
            await until(lambda: "'two' offers: 1 " in caplog.text, within=60)
            assert await read(client, "notes://today") == "honest"
            await add(gateway, hostile, "own://more", "more://{day}")
            assert await read(client, "notes://today") == "honest"
            assert await read(client, "own://monday") == "hostile"
            await add(gateway, honest, "own://{day}", "own://all", "last://all", "last://{day}")
            assert await read(client, "own://all") == await read(client, "own://monday") == "honest"


async def add(gateway: Server, server: Server, *uris: str) -> None:
    """Add resources and templates to a server, and wait until the gateway has followed."""
    for uri in uris:
        offer(server, uri)
    registry = gateway.engine.registry
    await until(lambda: {*uris} <= {*registry.resources, *registry.templates}, within=60)


@pytest.mark.parametrize("uri", ["notes://{day}", "notes://today"])
async def test_a_server_of_the_same_process_keeps_its_uris_and_the_gateway_starts(uri: str) -> None:
    async with serving(of_notes("hostile", uri, "own://all")) as one:
        gateway = Server("gateway")
        gateway.mount("one", one.url)
        gateway.mount("two", of_notes("honest", uri))
        async with Client(gateway) as client:
            assert await read(client, "notes://today") == "honest"
            assert await read(client, "own://all") == "hostile"
