"""Tasks survive connections, clients and servers: with real processes, sockets and files."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon import Client
from antiphon.client import Elicitation, TaskHandle, TaskStatus
from antiphon.errors import Unreachable
from tests.support.process import ServerProcess, environment, free_port, started

MODERN, LEGACY, DRAFT = "2026-07-28", "2025-11-25", "DRAFT-2026-v1"
ALL = pytest.mark.parametrize("version", [MODERN, LEGACY, DRAFT])
SERVER = Path(__file__).parent / "patient.py"

ELSEWHERE = """
import asyncio, sys
from antiphon import Client

async def elicit(question):
    return {"name": question.message.split()[0]}

async def main(url, version, id):
    async with Client(url, protocol=version, elicit=elicit, timeout=60) as client:
        print((await client.task(id).result(timeout=60)).text)

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def patient(directory: Path, port: int | None = None) -> Iterator[ServerProcess]:
    env = {"ANTIPHON_STORE": f"sqlite:///{directory / 'tasks.db'}", "ANTIPHON_SECRETS": "the same for all"}
    with started(SERVER, directory, env=env, port=port, command=True) as server:
        yield server


async def answered(question: Elicitation) -> Mapping[str, str]:
    return {"name": question.message.split()[0]}


async def asking(handle: TaskHandle) -> TaskStatus:
    async for status in handle.updates():
        if status.status == "input_required":
            return status
    raise AssertionError("it never asks")


@ALL
async def test_a_task_is_taken_up_by_another_process(version: str, tmp_path: Path) -> None:
    with patient(tmp_path) as server:
        able = {"elicitation": {"form": {}}}
        async with Client(server.url, protocol=version, capabilities=able) as client:
            promise = await client.submit("greet")
            await asking(promise)
        assert promise.id is not None
        ran = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, server.url, version, promise.id],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
        )
    assert (ran.stdout, ran.stderr) == ("Hello, First Last!\n", "")


@ALL
async def test_the_server_is_restarted_and_the_handle_goes_on(version: str, tmp_path: Path) -> None:
    port = free_port()
    with patient(tmp_path, port) as server:
        client = Client(server.url, protocol=version, elicit=answered, timeout=60)
        await client.__aenter__()
        promise = await client.submit("sleep", seconds=2)
        waiting = asyncio.create_task(promise.result(timeout=60))
        await asyncio.sleep(0.3)
        server.process.kill()
        server.process.wait()
    try:
        with patient(tmp_path, port):
            assert (await waiting).text == "slept 2.0 s"
            asked = await client.submit("greet")
            assert (await asked.result(timeout=60)).text == "Hello, First Last!"
    finally:
        await client.__aexit__(None, None, None)


@ALL
async def test_updates_go_on_after_a_restart(version: str, tmp_path: Path) -> None:
    port = free_port()
    with patient(tmp_path, port) as server:
        client = Client(server.url, protocol=version, capabilities={"elicitation": {"form": {}}}, timeout=60)
        await client.__aenter__()
        promise = await client.submit("greet")
        await asking(promise)
        seen: list[str] = []

        async def watch() -> None:
            async for status in promise.updates():
                seen.append(status.status)

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.2)
    try:
        with patient(tmp_path, port):
            await promise.cancel()
            await asyncio.wait_for(watching, 15)
    finally:
        await client.__aexit__(None, None, None)
    assert (seen[-2], seen[-1]) == ("input_required", "cancelled")


async def test_a_server_that_stays_away_is_given_up(tmp_path: Path) -> None:
    with patient(tmp_path) as server:
        client = Client(server.url, timeout=5, reconnect_timeout=0.5)
        await client.__aenter__()
        promise = await client.submit("sleep", seconds=60)
        waiting = asyncio.create_task(promise.result())
        await asyncio.sleep(0.1)
        server.process.kill()
        server.process.wait()
        with pytest.raises(Unreachable):
            await asyncio.wait_for(waiting, 10)
        await client.__aexit__(None, None, None)


@ALL
async def test_over_standard_streams(version: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "antiphon", "run", str(SERVER), "--stdio", "--log-level", "error"]
    env = {**environment(), "ANTIPHON_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    async with Client(command, protocol=version, env=env, elicit=answered, timeout=60) as client:
        assert (await client.call("greet")).text == "Hello, First Last!"
        promise = await client.submit("sleep", seconds=0.1)
        assert [status.status async for status in promise.updates()] == ["working", "completed"]
    async with Client(command, protocol=version, env=env, elicit=answered, timeout=60) as client:
        assert promise.id is not None
        assert (await client.task(promise.id).result()).text == "slept 0.1 s"
