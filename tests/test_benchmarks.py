"""The servers that the benchmarks measure can be loaded: a rename must not break `make bench` unnoticed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Context, Server
from tests.support.serving import serving

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SERVERS = sorted((BENCHMARKS / "servers").glob("antiphon_*.py"))
LOAD = "import runpy, sys; print(runpy.run_path(sys.argv[1])['server'].name)"


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
def test_a_server_of_the_benchmarks_can_be_loaded(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "BENCH_STORE": f"sqlite:///{tmp_path / 'tasks.db'}", "TMPDIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(path.parent), environment.get("PYTHONPATH", "")])
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, str(path)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == "bench"


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
        command = [sys.executable, str(BENCHMARKS / "client_load.py"), library, work, port, "2", "0.01"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["errors"] == 0
    assert measured["per_second"] > 0
