"""The client that `bench_client.py` measures does its work: no rename breaks `make bench` unnoticed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Context, Server
from tests.support.serving import serving

LOAD = Path(__file__).parent.parent / "benchmarks" / "client_load.py"


@pytest.mark.parametrize("library", ["antiphon", "antiphon-httpx2"])
@pytest.mark.parametrize("work", ["calls", "segments"])
async def test_our_client_can_be_measured(library: str, work: str) -> None:
    server = Server("bench")

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def count(n: int, ctx: Context) -> None:
        for number in range(n):
            await ctx.emit(f"segment {number}")

    async with serving(server) as address:
        port = address.url.split(":")[2].split("/")[0]
        command = [sys.executable, str(LOAD), library, work, port, "2", "1"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["errors"] == 0
    assert measured["per_second"] > 0
