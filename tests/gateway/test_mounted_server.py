"""`Server.mount` of a `Server` of the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import (
    BearerTokens,
    Client,
    Context,
    DefinitionError,
    Forbidden,
    InvalidRequest,
    Principal,
    Server,
)
from antiphon.middleware import CallNext, IncomingRequest
from tests.support.polling import until

VERSIONS = ["2026-07-28", "2025-11-25"]
seen: list[str] = []


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[dict[str, str]]:
    seen.append(f"{server.name} started")
    yield {"of": server.name}
    seen.append(f"{server.name} stopped")


async def audit(request: IncomingRequest, call_next: CallNext) -> Any:
    seen.append(f"{type(request.request).__name__} {getattr(request.request, 'name', '')}")
    return await call_next()


def shop(**options: Any) -> Server:
    server = Server("shop", lifespan=lifespan, **options)

    @server.tool
    async def order(what: str, ctx: Context) -> str:
        """Order something."""
        size = await ctx.elicit(f"How many of {what}?", int)
        return f"{size} x {what} for {ctx.principal.id or 'nobody'} of {ctx.lifespan['of']}"

    @server.tool
    def plain(number: int) -> int:
        return number + 1

    @server.tool(task="optional")
    async def slow(ctx: Context) -> str:
        return f"slow {ctx.lifespan['of']} {await ctx.elicit('Sure?', bool)}"

    @server.tool(scopes=["shop:close"])
    def close() -> str:
        return "closed"

    @server.resource("shop://{item}")
    async def item(item: str, ctx: Context) -> str:
        return f"{item} of {ctx.lifespan['of']}"

    @server.prompt
    async def sell(what: str, ctx: Context) -> str:
        return f"Sell {what} for {ctx.lifespan['of']}"

    @server.completion("sell", "what")
    def whats(typed: str) -> list[str]:
        return [f"{typed}a"]

    return server


@pytest.fixture(autouse=True)
def forget() -> None:
    seen.clear()


def mall(inner: Server, **options: Any) -> Server:
    outer = Server("mall", lifespan=lifespan, **options)

    @outer.tool
    async def own(ctx: Context) -> str:
        return str(ctx.lifespan["of"])

    outer.mount("shop", inner)
    return outer


@pytest.mark.parametrize("protocol", VERSIONS)
@pytest.mark.parametrize("middleware", [(), (audit,)])
async def test_its_functions_run_with_their_own_lifespan(protocol: str, middleware: Any) -> None:
    outer = mall(shop(middleware=middleware))
    person: dict[str, Any] = {"elicit": lambda question: {"value": 3}}
    async with Client(outer, protocol=protocol, principal="ada", **person) as client:
        names = [tool.name for tool in await client.tools()]
        assert names == ["own", "shop_order", "shop_plain", "shop_slow", "shop_close"]
        assert (await client.call("own")).text == "mall"
        assert (await client.call("shop_order", what="tea")).text == "3 x tea for ada of shop"
        assert (await client.call("shop_plain", number=1)).data in (2, {"result": 2})
        assert (await client.read("shop://tea")).contents[0].text == "tea of shop"  # type: ignore[union-attr]
        filled = await client.prompt("shop_sell", {"what": "tea"})
        assert filled.messages[0].content.text == "Sell tea for shop"  # type: ignore[union-attr]
        assert (await client.complete("shop_sell", "what", "te")).values == ("tea",)
    assert [each for each in seen if each.endswith("ed")] == [
        "mall started",
        "shop started",
        "shop stopped",
        "mall stopped",
    ]
    if middleware:
        rounds = 2 if protocol == "2026-07-28" else 1
        calls = [each for each in seen if not each.endswith("ed")]
        assert calls == [*["CallTool order"] * rounds, "CallTool plain", "ReadResource ", "GetPrompt sell"]


async def test_its_middleware_can_refuse() -> None:
    async def refuse(request: IncomingRequest, call_next: CallNext) -> Any:
        raise Forbidden("Closed today.")

    async with Client(mall(shop(middleware=[refuse]))) as client:
        with pytest.raises(InvalidRequest, match="Closed today"):
            await client.call("shop_plain", number=1)


async def test_its_tasks_are_those_of_the_outer_server() -> None:
    inner = shop()
    outer = mall(inner)
    async with Client(outer, elicit=lambda question: {"value": True}) as client:
        handle = await client.submit("shop_slow")
        assert handle.id
        assert (await handle.result(timeout=60)).text == "slow shop True"
        assert inner.engine.tasks.store_setting is None
    assert outer.task_tools == ("shop_slow",)


async def test_its_scopes_are_checked_for_the_callers_of_the_outer_server() -> None:
    outer = mall(shop())
    allowed = Principal("ada", scopes=frozenset({"shop:close"}))
    async with Client(outer, principal=allowed) as client:
        assert (await client.call("shop_close")).text == "closed"
    async with Client(outer, principal="bob") as client:
        with pytest.raises(InvalidRequest, match="'shop_close' needs the scope shop:close"):
            await client.call("shop_close")


async def test_what_it_adds_while_it_runs_is_offered_and_its_changes_are_passed_on() -> None:
    inner = shop()
    outer = mall(inner)
    async with Client(outer) as client, client.listen("shop://tea") as changes:
        inner.add_tool(lambda: "new", name="added")
        inner.notify_resource_updated("shop://tea")
        found = []
        async for change in changes:
            found.append(getattr(change, "uri", None) or change.kind)  # type: ignore[union-attr]
            if {"tools", "shop://tea"} <= set(found):
                break
        assert (await client.call("shop_added")).text == "new"
        inner.remove_tool("added")
        await until(lambda: "shop_added" not in outer.tools)


async def test_a_tool_that_it_adds_under_a_taken_name_is_left_out_and_the_others_are_offered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner, outer = shop(), Server("outer")
    outer.add_tool(lambda: "own", name="shop_added")
    outer.mount("shop", inner)
    async with Client(outer) as client:
        inner.add_tool(lambda: "theirs", name="added")
        inner.add_tool(lambda: "other", name="other")
        await until(lambda: "shop_other" in outer.tools)
        inner.add_tool(lambda: "last", name="last")
        await until(lambda: "shop_last" in outer.tools)
        assert (await client.call("shop_added")).text == "own"
    assert caplog.text.count("its name here, 'shop_added', is taken") == 1


async def test_servers_are_mounted_in_mounted_servers() -> None:
    middle = Server("middle", lifespan=lifespan, instructions="Be kind.")
    middle.mount("shop", shop(instructions="Pay."))
    outer = Server("outer")
    outer.mount("middle", middle, prefix=False)
    async with Client(outer, elicit=lambda question: {"value": 2}) as client:
        assert (await client.call("shop_order", what="tea")).text == "2 x tea for nobody of shop"
        assert client.instructions == "Be kind.\n\nFor tools whose names begin with shop_:\nPay."


@pytest.mark.parametrize("outer_has_middleware", [True, False])
async def test_the_middleware_of_every_server_on_the_way_sees_the_call_and_can_refuse_it(
    outer_has_middleware: bool,
) -> None:
    refused = False

    async def policy(request: IncomingRequest, call_next: CallNext) -> Any:
        seen.append(f"policy {getattr(request.request, 'name', '')}")
        if refused:
            raise InvalidRequest("Closed today.")
        return await call_next()

    middle = Server("middle", middleware=[audit] if outer_has_middleware else [])
    middle.mount("shop", shop(middleware=[policy]))
    outer = Server("outer")
    outer.mount("middle", middle)
    async with Client(outer, elicit=lambda question: {"value": True}) as client:
        assert (await client.call("middle_shop_plain", number=1)).text == "2"
        around = ["CallTool shop_plain"] if outer_has_middleware else []
        assert [each for each in seen if not each.endswith("ed")] == [*around, "policy plain"]
        handle = await client.submit("middle_shop_slow")
        assert (await handle.result(timeout=60)).text == "slow shop True"
        assert "policy slow" in seen
        refused = True
        with pytest.raises(InvalidRequest, match="Closed today"):
            await client.call("middle_shop_plain", number=1)
        with pytest.raises(InvalidRequest, match="Closed today"):
            await client.prompt("middle_shop_sell", {"what": "tea"})
        with pytest.raises(InvalidRequest, match="Closed today"):
            await client.read("shop://tea")


async def test_names_that_are_taken_and_wrong_options_are_errors() -> None:
    outer = Server("outer")
    outer.add_tool(lambda: "mine", name="shop_plain")
    outer.mount("shop", shop())
    with pytest.raises(DefinitionError, match="Cannot mount 'shop': There is already a tool 'shop_plain'"):
        async with outer.running():
            pass
    with pytest.raises(DefinitionError, match="a Server has no option 'timeout'"):
        outer.mount("other", shop(), timeout=3)
    with pytest.raises(DefinitionError, match="cannot mount itself"):
        outer.mount("self", outer)


async def test_the_outer_server_authenticates() -> None:
    outer = mall(shop(), authenticate=BearerTokens({"s3cret": "ada"}))
    assert outer.engine.authenticates
