"""A task that kills its worker each time: it is given up, and the tasks beside it end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.runtime.tasks.records import task_of
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.runtime.faulty_store import queued_task
from tests.support.process import ROOT, SERVERS, environment, free_port

MAX_STARTS = 12
"""How often the server may have to be started until both tasks have ended."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of the store."""
    if request.param == "postgres":
        return str(request.getfixturevalue("database").url())
    return f"sqlite:///{tmp_path}/tasks.db"


async def serve_until_it_dies(url: str, effects: Path, store: Store) -> None:
    """Run a server until a task kills it, or until all tasks have ended."""
    process = subprocess.Popen(
        [sys.executable, str(SERVERS / "promising.py"), str(free_port())],
        cwd=ROOT,
        env=environment({"ANTIPHON_STORE": url, "EFFECTS": str(effects), "LEASE": "0.5"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            async with store.watch_ready() as changes:
                while process.poll() is None and await store.count("ended") < 2:
                    await changes.wait(0.05)
    finally:
        process.kill()
        process.wait()


async def test_a_task_that_kills_its_worker_is_given_up_and_the_others_end(url: str, tmp_path: Path) -> None:
    store, effects = open_store(url), tmp_path / "effects"
    await store.open()
    try:
        deadly = await queued_task(store, "deadly")
        # Its workers are lost too. It must not be given up with the one that kills them.
        beside = await queued_task(store, "nap", {"seconds": 1.0})
        for _ in range(MAX_STARTS):
            if await store.count("ended") == 2:
                break
            await serve_until_it_dies(url, effects, store)
        ended = {id: await store.get(id) for id in (deadly, beside)}
    finally:
        await store.close()
    assert None not in ended.values()
    given_up, napped = (task_of(record) for record in ended.values() if record is not None)
    assert effects.read_text().splitlines().count("deadly") == 3
    assert given_up.fault is not None
    assert "given up after 3 attempts: each time, its worker was lost" in given_up.fault.message
    assert (napped.state, napped.failed) == ("done", False)
