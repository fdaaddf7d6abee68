"""`Server.run`: a file that serves itself."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from antiphon import Client
from tests.support.process import started

SERVER = """
import sys

from antiphon import Server

mcp = Server("own")


@mcp.tool
async def add(a: int, b: int) -> int:
    return a + b


mcp.run({transport!r}, port=int(sys.argv[1]), path="/here")
"""


@pytest.mark.parametrize("transport", ["http", "streamable-http"])
async def test_it_serves_over_http_until_a_signal(tmp_path: Path, transport: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(SERVER.format(transport=transport))
    with started(file, tmp_path) as server:
        place = server.url.replace("/mcp", "/here")
        # A listener never ends by itself, and must not keep the server from ending.
        async with Client(place, protocol="2025-11-25", on_change=lambda change: None) as client:
            assert (await client.call("add", a=1, b=2)).data == {"result": 3}
            server.terminate()
            assert server.process.wait(60) in (0, -signal.SIGTERM)
