"""Notifications that an adopted server sends while it serves no request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client
from antiphon.model.notification import ListChanged, ResourceUpdated
from tests.adoption.generations import Generation
from tests.cli import command


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_a_session_that_it_keeps_at_a_subscription_is_notified(version: str, tmp_path: Path) -> None:
    generation = Generation("lowlevel1_news.py", "mcp-1")
    changes: asyncio.Queue[Any] = asyncio.Queue()
    with command.running(generation.path, directory=tmp_path, python=generation.python) as served:
        async with Client(served.url, protocol=version, on_change=changes.put_nowait) as client:
            await client.subscribe("news://all")
            await client.call("print")
            async with asyncio.timeout(60):
                assert {await changes.get(), await changes.get()} == {
                    ResourceUpdated("news://all"),
                    ListChanged("tools"),
                }


@pytest.mark.parametrize("environment", ["fastmcp-2", "fastmcp-3", None])
async def test_a_session_of_fastmcp_that_it_keeps_is_notified(
    environment: str | None, tmp_path: Path
) -> None:
    generation = Generation("fastmcp_news.py", environment)
    changes: asyncio.Queue[Any] = asyncio.Queue()
    with command.running(generation.path, directory=tmp_path, python=generation.python) as served:
        async with Client(served.url, protocol="2025-11-25", on_change=changes.put_nowait) as client:
            await client.call("keep")
            await client.call("print")
            assert await asyncio.wait_for(changes.get(), 60) == ListChanged("tools")
