"""A running server: adding and removing tools, concurrency, and errors that must not leak."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Annotated, Any

import pytest
from pydantic import Field

from antiphon import Context, Result, Server
from tests.support.memory import in_memory
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import DIALECTS, KEY, Modern, Session, speaker


async def anything() -> str:
    return "x"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tools_can_be_added_and_removed(dialect: str) -> None:
    server = Server("tests")
    server.add_tool(anything, name="first")
    async with serving(server) as where:
        asker = await speaker(dialect, where.port)

        async def names() -> list[str]:
            return [tool["name"] for tool in (await asker.ask("tools/list")).result["tools"]]

        assert await names() == ["first"]
        server.add_tool(anything, name="second")
        assert await names() == ["first", "second"]
        assert (await asker.call("second")).text == "x"
        server.remove_tool("second")
        assert await names() == ["first"]
        assert (await asker.call("second")).error["code"] == -32602


async def test_a_tool_can_change_the_list_and_listeners_are_notified() -> None:
    server = Server("tests")

    @server.tool
    def grow() -> str:
        server.add_tool(anything, name="grown")
        return "done"

    async with serving(server) as where:
        session, asker = Session(where.port), Modern(where.port)
        await session.open()
        listen = {"notifications": {"toolsListChanged": True}}
        async with (
            session.listening() as stream,
            asker.asking("subscriptions/listen", listen, id=3) as subscription,
        ):
            await stream.receive_head()
            await subscription.receive_head()
            events = subscription.events()
            await anext(events)
            assert (await asker.call("grow")).text == "done"
            heard = [(await anext(stream.events())).frame, (await anext(events)).frame]
    assert [frame["method"] for frame in heard] == ["notifications/tools/list_changed"] * 2
    assert heard[1]["params"]["_meta"] == {KEY + "subscriptionId": 3}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_pages_over_http(dialect: str) -> None:
    server = Server("tests", page_size=10)
    for number in range(25):
        server.add_tool(anything, name=f"t{number}")
    async with serving(server) as where:
        asker = await speaker(dialect, where.port)
        found: list[str] = []
        params: dict[str, str] = {}
        while True:
            result = (await asker.ask("tools/list", params)).result
            found += [tool["name"] for tool in result["tools"]]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        assert found == [f"t{number}" for number in range(25)]


async def test_the_server_describes_itself() -> None:
    server = Server(
        "tests",
        version="1.2",
        title="Tests",
        description="For tests.",
        instructions="Use it.",
        website_url="https://x",
        list_ttl=3,
    )
    server.add_tool(anything)
    info = {
        "name": "tests",
        "version": "1.2",
        "title": "Tests",
        "description": "For tests.",
        "websiteUrl": "https://x",
    }
    async with serving(server) as where:
        session = Session(where.port)
        opened = (await session.open()).result
        assert (opened["serverInfo"], opened["instructions"]) == (info, "Use it.")
        discovered = (await Modern(where.port).ask("server/discover")).result
        assert discovered["_meta"][KEY + "serverInfo"] == info
        assert (discovered["instructions"], discovered["ttlMs"]) == ("Use it.", 3000)
        streaming = {"extensions": {"dev.antiphon/streaming": {}}}
        assert discovered["capabilities"] == {**opened["capabilities"], **streaming}
        listed = (await Modern(where.port).ask("tools/list")).result
        assert (listed["ttlMs"], listed["cacheScope"]) == (3000, "public")


async def test_sync_functions_do_not_block_other_calls() -> None:
    server = Server("tests")
    barrier = threading.Barrier(10, timeout=60)
    hold = threading.Event()

    @server.tool
    def meet() -> str:
        barrier.wait()
        return "met"

    @server.tool
    def block() -> str:
        assert hold.wait(60)
        return "released"

    server.add_tool(anything)
    async with serving(server) as where:
        asker = Modern(where.port)
        blocked = asyncio.create_task(asker.call("block"))
        await until(lambda: where.under_way == 1)
        met = await asyncio.gather(*(asker.call("meet") for _ in range(10)))
        assert [response.text for response in met] == ["met"] * 10
        assert (await asker.call("anything")).text == "x"
        hold.set()
        assert (await blocked).text == "released"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_exceptions_leak_nothing(dialect: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("tests")

    async def broken() -> str:
        raise ValueError("the password is s3cret")

    server.add_tool(broken)
    server.add_prompt(broken)
    server.add_resource(broken, "u://broken")
    async with serving(server) as where:
        asker = await speaker(dialect, where.port)
        for method, params in (
            ("tools/call", {"name": "broken"}),
            ("prompts/get", {"name": "broken"}),
            ("resources/read", {"uri": "u://broken"}),
        ):
            caplog.clear()
            with caplog.at_level(logging.ERROR, "antiphon"):
                response = await asker.ask(method, params, id="request-17")
            said = json.dumps(response.frame)
            assert "s3cret" not in said
            assert "Traceback" not in said
            assert "request-17" in said
            assert "'request-17'" in caplog.text
            assert "s3cret" in caplog.text


async def test_mirrored_arguments_must_agree_with_their_headers() -> None:
    server = Server("tests")

    @server.tool
    async def where_to(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",
    ) -> str:
        return region

    async with serving(server) as address:
        asker = Modern(address.port)

        async def status(value: str | None, header: str | None) -> tuple[int, int]:
            arguments = {} if value is None else {"region": value}
            headers = {} if header is None else {"Mcp-Param-Region": header}
            params = {"name": "where_to", "arguments": arguments}
            response = await asker.ask("tools/call", params, headers=headers)
            return response.status, response.frame.get("error", {}).get("code", 0)

        assert await status("eu", "eu") == (200, 0)
        assert await status("é", "=?base64?w6k=?=") == (200, 0)
        assert await status(None, None) == (200, 0)
        assert await status("eu", None) == (400, -32020)
        assert await status("eu", "us") == (400, -32020)
        assert await status("eu", "=?base64?!?=") == (400, -32020)
        for dialect in ("session", "bare"):
            other = await speaker(dialect, address.port)
            assert (await other.call("where_to", region="eu")).text == "eu"
        server.remove_tool("where_to")
        server.add_tool(anything, name="where_to")
        assert await status(None, None) == (200, 0)


UNWRITABLE: list[Any] = [
    Result("x", data=object()),
    Result("x", meta={"a": object()}),
    Result("\ud800"),
    Result("x", data={"a": {1, object()}}),
]


@pytest.mark.parametrize("result", UNWRITABLE, ids=["data", "meta", "half a character", "a set"])
@pytest.mark.parametrize("dialect", [*DIALECTS, "memory"])
async def test_a_result_that_cannot_be_written_is_an_internal_error(
    dialect: str, result: Result, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("tests")

    @server.tool
    async def odd() -> Result:
        return result

    if dialect == "memory":
        async with in_memory(server) as client:
            error = await client.error("tools/call", {"name": "odd"})
    else:
        async with serving(server) as where:
            error = (await (await speaker(dialect, where.port)).call("odd")).error
    assert error["code"] == -32603
    assert "object" not in error["message"]
    assert "cannot be written as JSON" in caplog.text


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_notification_that_cannot_be_written_is_cleaned_and_fails_no_call(dialect: str) -> None:
    server = Server("tests")

    @server.tool
    async def odd(ctx: Context) -> str:
        await ctx.progress(1, message="half of a pair: \ud800")
        return "done"

    async with serving(server) as where:
        response = await (await speaker(dialect, where.port)).call("odd", {"progressToken": 1})
        assert (response.result["isError"], response.text) == (False, "done")
