"""An adopted server that another server mounts."""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware

from antiphon import Client, InvalidRequest, RequestError, Server, adopt
from antiphon.middleware import CallNext, IncomingRequest

LONG = "a_tool_with_a_name_that_is_too_long_to_have_a_prefix_in_front_of_it"


class ForInsiders(Middleware):
    """Lists some tools and prompts to clients of one name only."""

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        return _chosen(await call_next(context), context)

    async def on_list_prompts(self, context: Any, call_next: Any) -> Any:
        return _chosen(await call_next(context), context)


def _chosen(items: Any, context: Any) -> Any:
    client = context.fastmcp_context.session.client_params
    return [each for each in items if client.client_info.name == "insider" or each.name == "common"]


def kitchen() -> Server:
    """Return an adopted server whose lists differ by caller."""
    theirs = FastMCP("theirs")
    for name in ("common", "rare", LONG):
        theirs.tool(_named(name))
        theirs.prompt(_named(name))
    theirs.add_middleware(ForInsiders())
    return adopt(theirs)


def _named(name: str) -> Any:
    def function() -> str:
        return name[:6]

    function.__name__ = name
    return function


async def test_each_caller_sees_its_own_list_with_prefixed_names() -> None:
    middle, outer = Server("middle"), Server("outer")
    middle.mount("k", kitchen())
    outer.mount("m", middle)
    async with Client(outer, name="insider") as insider, Client(outer) as other:
        seen = [tool.name for tool in await insider.tools()]
        assert seen[:2] == ["m_k_common", "m_k_rare"]
        assert len(seen[2]) == 59
        assert [tool.name for tool in await other.tools()] == ["m_k_common"]
        assert [each.name for each in await insider.prompts()] == seen
        assert [each.name for each in await other.prompts()] == ["m_k_common"]
        assert (await insider.call("m_k_rare")).text == "rare"
        assert (await insider.call(seen[2])).text == "a_tool"
        filled = await insider.prompt("m_k_rare")
        assert filled.messages[0].content.text == "rare"  # type: ignore[union-attr]


async def test_what_is_disabled_is_not_asked_of_the_adopted_server() -> None:
    adopted, middle, outer = kitchen(), Server("middle"), Server("outer")
    middle.mount("k", adopted)
    outer.mount("m", middle)
    async with Client(outer) as client:
        outer.disable("m_k_common")  # which no server has registered: its list depends on the caller
        assert await client.tools() == []
        assert await client.prompts() == []
        for request in (client.call("m_k_common"), client.prompt("m_k_common")):
            with pytest.raises(RequestError, match="Unknown .*'m_k_common'"):
                await request
        outer.enable("m_k_common")
        assert (await client.call("m_k_common")).text == "common"
        adopted.disable("common")

        assert await client.tools() == []
        with pytest.raises(RequestError, match="Unknown tool: 'm_k_common'"):
            await client.call("m_k_common")
    async with Client(adopted) as client:
        assert await client.tools() == []
        with pytest.raises(RequestError, match="Unknown tool: 'common'"):
            await client.call("common")


@pytest.mark.parametrize("name", ["common", "rare", "k_common", "k_rare", "x_rare"])
async def test_its_tools_have_no_other_names(name: str) -> None:
    middle, outer = Server("middle"), Server("outer")
    middle.mount("k", kitchen())
    outer.mount("m", middle)
    async with Client(outer, name="insider") as client:
        with pytest.raises(RequestError, match="Unknown tool"):
            await client.call(name)
        with pytest.raises(RequestError, match="Unknown prompt"):
            await client.prompt(name)


async def test_a_tool_whose_name_is_taken_later_is_listed_once() -> None:
    theirs = FastMCP("theirs")
    outer = Server("outer")
    outer.add_tool(lambda: "own", name="k_late")
    outer.mount("k", adopt(theirs))
    async with Client(outer) as client:
        theirs.tool(_named("late"))
        assert [tool.name for tool in await client.tools()] == ["k_late"]
        assert (await client.call("k_late")).text == "own"


async def test_middleware_that_refuses_a_tool_by_its_name_is_not_passed_by() -> None:
    async def refuse(request: IncomingRequest, call_next: CallNext) -> Any:
        if getattr(request.request, "name", None) == "k_rare":
            raise InvalidRequest("Not for you.")
        return await call_next()

    outer = Server("outer", middleware=[refuse])
    outer.mount("k", kitchen())
    async with Client(outer, name="insider") as client:
        with pytest.raises(InvalidRequest, match="Not for you"):
            await client.call("k_rare")
        with pytest.raises(RequestError, match="Unknown tool"):
            await client.call("rare")
