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
from antiphon.client import Elicitation, TaskHandle
from antiphon.errors import Unreachable
from tests.support.leases import end_leases
from tests.support.polling import until
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


async def heard(handle: TaskHandle, expected: str) -> None:
    """Wait until a task has a status. Whatever the client has sent before has arrived by then."""
    async for status in handle.updates():
        if status.status == expected:
            return
    raise AssertionError(f"it is never {expected}")


@ALL
async def test_a_task_is_taken_up_by_another_process(version: str, tmp_path: Path) -> None:
    with patient(tmp_path) as server:
        able = {"elicitation": {"form": {}}}
        async with Client(server.url, protocol=version, capabilities=able) as client:
            promise = await client.submit("greet")
            await heard(promise, "input_required")
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
    goes_on = tmp_path / "goes on"
    with patient(tmp_path, port) as server:
        client = Client(server.url, protocol=version, elicit=answered, timeout=60, reconnect_timeout=600)
        await client.__aenter__()
        promise = await client.submit("sleep", until=str(goes_on))
        waiting = asyncio.create_task(promise.result(timeout=600))
        await heard(promise, "working")
        server.process.kill()
        server.process.wait()
    await end_leases(f"sqlite:///{tmp_path}/tasks.db")
    goes_on.touch()
    try:
        with patient(tmp_path, port):
            assert (await waiting).text == "slept"
            asked = await client.submit("greet")
            assert (await asked.result(timeout=60)).text == "Hello, First Last!"
    finally:
        await client.__aexit__(None, None, None)


@ALL
async def test_updates_go_on_after_a_restart(version: str, tmp_path: Path) -> None:
    port = free_port()
    with patient(tmp_path, port) as server:
        able = {"elicitation": {"form": {}}}
        client = Client(server.url, protocol=version, capabilities=able, timeout=60, reconnect_timeout=600)
        await client.__aenter__()
        promise = await client.submit("greet")
        await heard(promise, "input_required")
        seen: list[str] = []

        async def watch() -> None:
            async for status in promise.updates():
                seen.append(status.status)

        watching = asyncio.create_task(watch())
        await until(lambda: "input_required" in seen)
    try:
        with patient(tmp_path, port):
            await promise.cancel()
            await asyncio.wait_for(watching, 60)
    finally:
        await client.__aexit__(None, None, None)
    assert (seen[-2], seen[-1]) == ("input_required", "cancelled")


async def test_a_server_that_stays_away_is_given_up(tmp_path: Path) -> None:
    with patient(tmp_path) as server:
        client = Client(server.url, timeout=60, reconnect_timeout=0.5)
        await client.__aenter__()
        promise = await client.submit("ponder")
        waiting = asyncio.create_task(promise.result())
        await heard(promise, "working")
        server.process.kill()
        server.process.wait()
        with pytest.raises(Unreachable):
            await asyncio.wait_for(waiting, 60)
        await client.__aexit__(None, None, None)


@ALL
async def test_over_standard_streams(version: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "antiphon", "run", str(SERVER), "--stdio", "--log-level", "error"]
    env = {**environment(), "ANTIPHON_STORE": f"sqlite:///{tmp_path / 'tasks.db'}"}
    async with Client(command, protocol=version, env=env, elicit=answered, timeout=60) as client:
        assert (await client.call("greet")).text == "Hello, First Last!"
        goes_on = tmp_path / "goes on"
        promise = await client.submit("sleep", until=str(goes_on))
        seen = []
        async for status in promise.updates():
            seen.append(status.status)
            goes_on.touch()
        assert seen == ["working", "completed"]
    async with Client(command, protocol=version, env=env, elicit=answered, timeout=60) as client:
        assert promise.id is not None
        assert (await client.task(promise.id).result()).text == "slept"
