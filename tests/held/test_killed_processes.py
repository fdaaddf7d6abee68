"""Real processes on one store: the one that holds a run answers through the other, or is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.asking.driving import Able, accept, once
from tests.instances.fleet import Member
from tests.instances.pair import SECRET
from tests.promises.speaking import Patient, answer, begin, reach
from tests.support.leases import end_delay, end_leases
from tests.support.process import SERVERS, free_port

NAME = {"name": accept(name="Ann")}


@asynccontextmanager
async def two_processes(store: str, directory: Path) -> AsyncIterator[tuple[Member, Member]]:
    """Start two servers on one store, without a load balancer."""
    (directory / "effects").touch()
    async with serving("one", store, directory) as one, serving("other", store, directory) as other:
        yield one, other


@asynccontextmanager
async def serving(name: str, store: str, directory: Path, **env: str) -> AsyncIterator[Member]:
    """Start a server."""
    env = {"ANTIPHON_SECRETS": SECRET, "EFFECTS": str(directory / "effects"), **env}
    arguments = ["run", str(SERVERS / "held.py"), "--store", store]
    member = Member(name, arguments, directory, free_port(), env)
    try:
        await member.ready()
        yield member
    finally:
        member.kill()


async def test_another_process_continues_the_run_and_says_when_it_is_lost(store: str, tmp_path: Path) -> None:
    async with two_processes(store, tmp_path) as (one, other):
        state = (await once(Able(one.port), "greet"))["result"]["requestState"]
        last = (await once(Able(other.port), "greet", answers=NAME, state=state))["result"]
        assert last["content"][0]["text"] == "Hello, Ann!"
        assert (tmp_path / "effects").read_text().split() == ["began", "ended"]
        state = (await once(Able(one.port), "greet"))["result"]["requestState"]
        one.kill()
        # One whose lease is short says so soon.
        async with serving("hasty", store, tmp_path, LEASE="0.5") as hasty:
            lost = (await once(Able(hasty.port), "greet", answers=NAME, state=state))["result"]
    assert lost["isError"]
    assert "the process that ran it was lost" in lost["content"][0]["text"]
    assert (tmp_path / "effects").read_text().split() == ["began", "ended", "began"]


async def test_a_task_whose_worker_is_killed_while_it_waits_fails(store: str, tmp_path: Path) -> None:
    async with two_processes(store, tmp_path) as (one, other):
        id = (await begin(Patient(one.port), "greet"))["taskId"]
        await reach(Patient(other.port), id, "input_required")
        one.kill()
        assert await end_leases(store) == 1
        await end_delay(store, id)  # as if the worker that was lost had reported no outage for a while
        task = await reach(Patient(other.port), id, "failed")
        assert "its worker was lost, and its tool has replay=False" in task["error"]["message"]
        id = (await begin(Patient(other.port), "greet"))["taskId"]
        await reach(Patient(other.port), id, "input_required")
        await answer(Patient(other.port), id, name="Ann")
        done = await reach(Patient(other.port), id, "completed")
    assert done["result"]["content"][0]["text"] == "Hello, Ann!"
    assert (tmp_path / "effects").read_text().split() == ["began", "began", "ended"]
