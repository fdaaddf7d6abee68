"""Snapshots of a server's lists are stable, the same in every version, and have readable differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Server
from antiphon.testing import assert_tools_match


def shop(*, size: type[Any] = int, extra: bool = False) -> Server:
    server = Server("shop", version="1.2.3" if extra else "1.2.2")

    async def find(size: Any) -> str:
        return ""

    find.__annotations__["size"] = size
    server.add_tool(find)
    if extra:
        server.add_tool(find, name="\x1b[31mother")

    @server.resource("shop://hours")
    def hours() -> str:
        return "9 to 5"

    @server.resource("shop://shelves/{number}")
    def shelf(number: int) -> str:
        return ""

    @server.prompt
    def sell(item: str) -> str:
        return f"Sell {item}."

    return server


async def compare(server: Server, file: Path, **options: Any) -> None:
    protocol = options.pop("protocol", None)
    async with Client(server, protocol=protocol) as client:
        await assert_tools_match(client, file, **options)


async def test_a_snapshot_is_the_same_in_every_version(tmp_path: Path) -> None:
    file = tmp_path / "lists" / "shop.json"
    await compare(shop(), file, update=True)
    written = file.read_bytes()
    for protocol in ("2026-07-28", "2025-11-25"):
        await compare(shop(), file, protocol=protocol)
    await compare(shop(), file, update=True)
    assert file.read_bytes() == written
    assert b"1.2.2" not in written
    for name in (b'"find"', b'"shop://hours"', b'"shop://shelves/{number}"', b'"sell"'):
        assert name in written


async def test_differences_are_named_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    await compare(shop(), file, update=True)
    with pytest.raises(AssertionError) as changed:
        await compare(shop(size=str, extra=True), file)
    assert str(changed.value).splitlines()[1:-1] == [
        "  tool [31mother: added",
        '  tool find: inputSchema.properties.size.type was "integer", and is "string"',
    ]
    assert "--antiphon-update-snapshots" in str(changed.value)
    with pytest.raises(AssertionError, match="tool find: removed"):
        await compare(Server("empty"), file)


async def test_a_file_that_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="There is no snapshot"):
        await compare(shop(), tmp_path / "missing.json")
    (tmp_path / "text.json").write_text("[")
    with pytest.raises(AssertionError, match="is not a snapshot"):
        await compare(shop(), tmp_path / "text.json")
