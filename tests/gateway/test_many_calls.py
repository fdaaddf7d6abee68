"""A thousand calls through a gateway: plain, asked, cancelled and failed. Nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

from antiphon import Client, Server
from antiphon.gateway.provider import UpstreamProvider
from tests.support.polling import until

CALLS, AT_ONCE, PROCESSES = 1000, 8, 4


def children() -> set[int]:
    """The processes that this one has started and that still run."""
    here = os.getpid()
    found = Path(f"/proc/{here}/task/{here}/children").read_text().split()
    return {int(each) for each in found}


def tasks() -> int:
    return len(asyncio.all_tasks())


async def test_no_process_and_no_task_is_left_after_a_thousand_calls(asking: list[str]) -> None:
    before, tasks_before = children(), tasks()
    server = Server("gateway", secrets=["a secret of these tests"])
    server.mount("shop", asking, prefix=False, max_connections=PROCESSES)
    outcomes: dict[str, int] = {}

    async def one(number: int, client: Client, plain: Client) -> str:
        if number % 10 == 0:
            return (await client.call("order", what="tea")).text[:7]
        if number % 25 == 1:
            begun = asyncio.Event()
            call = asyncio.create_task(client.call("linger", on_progress=lambda progress: begun.set()))
            await begun.wait()
            call.cancel()
            await asyncio.wait({call})
            return "cancelled"
        if number % 10 == 5:
            return str((await plain.call("fail", check=False)).is_error)
        return (await plain.call("count", to=1)).text

    async def some(numbers: list[int], client: Client, plain: Client) -> None:
        for number in numbers:
            outcome = await one(number, client, plain)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    person: dict[str, Any] = {"elicit": lambda question: {"size": 3}}
    async with server.running(), Client(server, **person) as client, Client(server) as plain:
        (provider,) = server.engine.registry.providers
        assert isinstance(provider, UpstreamProvider)
        async with asyncio.timeout(300), asyncio.TaskGroup() as group:
            for start in range(AT_ONCE):
                group.create_task(some(list(range(start, CALLS, AT_ONCE)), client, plain))
        pool = provider.upstream.sessions
        assert len(pool) <= PROCESSES
        await until(lambda: all(session.is_idle for session in pool))
        assert len(children() - before) <= PROCESSES + 1, "the processes of the server, and the watchdog"
    assert outcomes == {"3 x tea": 100, "cancelled": 40, "True": 100, "1": 760}
    await until(lambda: children() <= before)
    gc.collect()
    await until(lambda: tasks() <= tasks_before)
