"""`ctx.idempotency_key` is the same on every attempt: after a killed worker, and in a round sent twice."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from antiphon import Client, Context, Server
from antiphon.model.identity import ANONYMOUS
from antiphon.model.task import Task
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.store import open_store
from tests.cli.command import running
from tests.support.leases import end_leases
from tests.support.polling import wait_until
from tests.support.process import SERVERS
from tests.upgrade.caller import Caller

KEYS = SERVERS / "keys.py"


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"EFFECTS": str(folder / "effects"), "DIED": str(folder / "died"), **more}


def keys(folder: Path) -> dict[str, list[str]]:
    """The keys with which each step was done, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (folder / "effects").read_text().splitlines():
        name, key = line.split()
        found[name].append(key)
    return found


@pytest.mark.parametrize(
    ("tool", "dies_at"),
    [
        ("pay", "first"),
        ("pay", "second"),
        ("pay_all", "first"),
        ("pay_all", "second"),
        ("pay_stamped", "second"),
        ("pay_inside", "second"),
        ("pay_in_threads", "first"),
        ("turn", "first"),
    ],
)
def test_a_worker_killed_between_doing_and_recording_does_not_change_the_key(
    tmp_path: Path, tool: str, dies_at: str
) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    with running(
        KEYS, "--store", store, directory=tmp_path, env=environment(tmp_path, DIES_AT=dies_at)
    ) as first:
        with suppress(httpx2.TransportError):  # it may die before it answers
            Caller(_port(first.url)).modern("tools/call", {"name": tool}, tasks=True)
        assert first.process.wait(30) == 9
    with running(KEYS, "--store", store, directory=tmp_path, env=environment(tmp_path)):
        assert asyncio.run(end_leases(store)) == 1
        wait_until(lambda: _has_ended(tmp_path / "tasks.db"))
    done = keys(tmp_path)
    assert len(done[dies_at]) == 2
    assert all(len(set(found)) == 1 for found in done.values()), done
    assert len({key for found in done.values() for key in found}) == len(done)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


def _has_ended(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        ((head,),) = connection.execute("SELECT head FROM task_rows").fetchall()
    finally:
        connection.close()
    return bool(json.loads(head).get("state") == "done")


used: list[str] = []


async def use_key(ctx: Context) -> str:
    used.append(ctx.idempotency_key)
    return "done"


async def test_a_round_that_is_sent_twice_has_the_same_key() -> None:
    server = Server("rounds", secrets=["a secret of these tests"])

    @server.tool
    async def pay(ctx: Context) -> str:
        ctx.uuid()  # from here on the call has an id, which the state carries
        await ctx.elicit("Sure?", bool, key="sure")
        return await ctx.step(use_key, ctx)

    async def unasked(question: Any) -> Any:
        raise AssertionError("answered by hand")

    used.clear()
    async with Client(server, elicit=unasked) as client:
        asked = await client.call_once("pay")
        for _ in range(2):
            assert (
                await client.call_once("pay", resume=asked, answers={"sure": {"value": True}})
            ).text == "done"
        other = await client.call_once("pay")
        await client.call_once("pay", resume=other, answers={"sure": {"value": True}})
    assert used[0] == used[1] != used[2]


async def test_another_attempt_in_the_same_run_has_the_same_key() -> None:
    server = Server("retries")

    async def fails_once(ctx: Context) -> str:
        used.append(ctx.idempotency_key)
        if len(used) == 1:
            raise OSError
        return "done"

    async def note() -> str:
        return "noted"

    @server.tool
    async def pay(ctx: Context, between: bool) -> str:
        try:
            await ctx.step(fails_once, ctx)
        except OSError:
            if between:
                await ctx.step(note)
        return await ctx.step(fails_once, ctx)

    async with Client(server) as client:
        for between in (False, True):
            used.clear()
            assert (await client.call("pay", between=between)).text == "done"
            assert len(used) == 2
            assert used[0] == used[1]


async def test_a_task_of_an_older_version_has_keys_of_its_own_id() -> None:
    """Older versions recorded an id with the first step. Without one, the id of the task serves."""

    def claimed(journal: dict[str, Any]) -> ClaimedTask:
        return ClaimedTask(
            open_store("memory:"),
            Task("pay_1", "pay", 0, 0),
            {},
            owner=ANONYMOUS,
            version=1,
            token=1,
            journal=journal,
            responses={},
        )

    first, second, older = claimed({}).journal, claimed({}).journal, claimed({"id": "x" * 32}).journal
    assert first.digest("step:charge") == second.digest("step:charge")
    assert older.digest("step:charge") == Journal({"id": "x" * 32}).digest("step:charge")
