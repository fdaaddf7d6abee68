"""The lists of a server: their pages, and the notifications when they change."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import DefinitionError, NotFound, Server
from tests.support.memory import in_memory


async def anything(**arguments: Any) -> str:
    return "x"


def filled(page_size: int = 100) -> Server:
    server = Server("tests", page_size=page_size)
    for number in range(7):
        server.add_tool(anything, name=f"t{number}")
        server.add_prompt(anything, name=f"p{number}")
        server.add_resource(anything, f"u://{number}")
        server.add_resource(anything, f"u://{number}/{{a}}")
    return server


LISTS = [
    ("tools/list", "tools", "name", "t{}"),
    ("prompts/list", "prompts", "name", "p{}"),
    ("resources/list", "resources", "uri", "u://{}"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate", "u://{}/{{a}}"),
]


@pytest.mark.parametrize(("method", "key", "field", "pattern"), LISTS)
@pytest.mark.parametrize(("page_size", "pages"), [(1, 7), (3, 3), (7, 1), (100, 1)])
async def test_pages_list_every_item_once_in_order(
    method: str, key: str, field: str, pattern: str, page_size: int, pages: int
) -> None:
    async with in_memory(filled(page_size)) as client:
        found: list[str] = []
        cursor: str | None = None
        count = 0
        while count == 0 or cursor is not None:
            page = await client.result(method, {} if cursor is None else {"cursor": cursor})
            found += [item[field] for item in page[key]]
            assert len(page[key]) <= page_size
            cursor = page.get("nextCursor")
            count += 1
    assert found == [pattern.format(number) for number in range(7)]
    assert count == pages


@pytest.mark.parametrize("method", [row[0] for row in LISTS])
@pytest.mark.parametrize("cursor", ["x", "", "-1", "1.0", "٣", "1" * 13, "None"])
async def test_a_cursor_of_somebody_elses_is_invalid(method: str, cursor: str) -> None:
    async with in_memory(filled()) as client:
        assert (await client.error(method, {"cursor": cursor}))["code"] == -32602


async def test_a_cursor_beyond_the_end_returns_an_empty_page() -> None:
    async with in_memory(filled()) as client:
        page = await client.result("tools/list", {"cursor": "50"})
        assert page["tools"] == []
        assert "nextCursor" not in page


@pytest.mark.parametrize("method", [row[0] for row in LISTS])
async def test_a_server_without_such_things_has_no_such_method(method: str) -> None:
    async with in_memory(Server("empty")) as client:
        assert (await client.error(method))["code"] == -32601


async def test_capabilities_match_the_registry() -> None:
    async with in_memory(Server("empty")) as client:
        assert (await client.initialize())["capabilities"] == {"logging": {}}
    async with in_memory(filled()) as client:
        assert (await client.initialize())["capabilities"] == {
            "logging": {},
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
        }


def test_two_things_cannot_have_one_name() -> None:
    server = filled()
    with pytest.raises(DefinitionError):
        server.add_tool(anything, name="t1")
    with pytest.raises(DefinitionError):
        server.add_prompt(anything, name="p1")
    with pytest.raises(DefinitionError):
        server.add_resource(anything, "u://1")
    with pytest.raises(DefinitionError):
        server.add_resource(anything, "u://1/{a}")


def test_removing_an_unknown_item_raises_not_found() -> None:
    server = filled()
    for remove in (server.remove_tool, server.remove_prompt, server.remove_resource):
        with pytest.raises(NotFound):
            remove("nothing")


async def test_a_removed_item_is_gone_and_its_name_is_free() -> None:
    server = filled()
    async with in_memory(server) as client:
        server.remove_tool("t0")
        assert (await client.error("tools/call", {"name": "t0"}))["code"] == -32602
        server.add_tool(anything, name="t0")
        names = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert names == ["t1", "t2", "t3", "t4", "t5", "t6", "t0"]
        server.remove_resource("u://0")
        server.remove_resource("u://1/{a}")
        server.remove_prompt("p0")
        assert (await client.error("resources/read", {"uri": "u://0"}))["code"] == -32002
        assert (await client.error("resources/read", {"uri": "u://1/x"}))["code"] == -32002
        assert (await client.error("prompts/get", {"name": "p0"}))["code"] == -32602


async def test_a_session_in_memory_is_notified_of_every_kind_of_change() -> None:
    server = filled()
    async with in_memory(server) as client:
        await client.initialize()
        await client.result("resources/subscribe", {"uri": "u://1"})
        server.remove_tool("t0")
        server.remove_prompt("p0")
        server.remove_resource("u://0")
        server.notify_resource_updated("u://1")
        server.notify_resource_updated("u://2")
        await client.result("ping")
        assert {frame["method"]: frame["params"] for frame in client.notifications} == {
            "notifications/tools/list_changed": {},
            "notifications/prompts/list_changed": {},
            "notifications/resources/list_changed": {},
            "notifications/resources/updated": {"uri": "u://1"},
        }
