"""A task that kills its worker each time: it is given up, and the tasks beside it end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.runtime.tasks.records import task_of
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.runtime.faulty_store import queued_task
from tests.support.leases import end_leases
from tests.support.polling import until
from tests.support.process import ROOT, SERVERS, environment, free_port

MAX_STARTS = 12
"""How often the server may have to be started until both tasks have ended."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of the store."""
    if request.param == "postgres":
        return str(request.getfixturevalue("database").url())
    return f"sqlite:///{tmp_path}/tasks.db"


async def serve_until_it_dies(url: str, effects: Path, store: Store, deadly: str) -> int:
    """Run a server until a task kills it, or all tasks have ended; return how many it has left behind."""

    async def is_over() -> bool:
        record = await store.get(deadly)
        if record is not None and "No attempt is left." in (task_of(record).message or ""):
            await end_leases(url, deadly)  # its last worker might report an outage for a while
        return await store.count("ended") == 2 or process.poll() is not None

    process = subprocess.Popen(
        [sys.executable, str(SERVERS / "promising.py"), str(free_port())],
        cwd=ROOT,
        env=environment({"ANTIPHON_STORE": url, "EFFECTS": str(effects)}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await until(is_over)
    finally:
        process.kill()
        process.wait()
    return await end_leases(url)


async def test_a_task_that_kills_its_worker_is_given_up_and_the_others_end(url: str, tmp_path: Path) -> None:
    store, effects, goes_on = open_store(url), tmp_path / "effects", tmp_path / "goes on"
    await store.open()
    try:
        deadly = await queued_task(store, "deadly")
        # Its workers are lost too. It must not be given up with the one that kills them.
        beside = await queued_task(store, "nap", {"path": str(goes_on)})
        assert await serve_until_it_dies(url, effects, store, deadly) == 2
        goes_on.touch()
        for _ in range(MAX_STARTS):
            if await store.count("ended") == 2:
                break
            await serve_until_it_dies(url, effects, store, deadly)
        ended = {id: await store.get(id) for id in (deadly, beside)}
    finally:
        await store.close()
    assert None not in ended.values()
    given_up, napped = (task_of(record) for record in ended.values() if record is not None)
    assert effects.read_text().splitlines().count("deadly") == 3
    assert given_up.fault is not None
    assert "given up after 3 attempts: each time, its worker was lost" in given_up.fault.message
    assert (napped.state, napped.failed) == ("done", False)
