"""A short soak: nothing acknowledged is lost, and nothing is done twice that was recorded."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.soak.driver import Plan, Soak, report
from tests.support.polling import until


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("database").url())
    return f"sqlite:///{tmp_path}/tasks.db"


async def test_a_service_in_trouble_keeps_its_promises(store: str, tmp_path: Path) -> None:
    seconds, tasks = (12.0, 60) if store.startswith("sqlite") else (8.0, 40)
    soak = Soak(Plan(store, seconds=seconds, tasks=tasks, seed=time.time_ns() % 10**6), tmp_path)
    violations = await soak.run()
    assert violations == [], json.dumps(report(soak, violations), indent=2)
    assert len(soak.acknowledged) > tasks / 3
    assert soak.done, "there was trouble"


@pytest.mark.parametrize("fenced", [True, False])
async def test_without_the_check_of_tokens_the_judge_finds_what_a_paused_worker_does(
    fenced: bool, tmp_path: Path
) -> None:
    plan = Plan(f"sqlite:///{tmp_path}/tasks.db", processes=2, versions=["a"], fenced=fenced)
    soak = Soak(plan, tmp_path)
    try:
        await soak.give(1, "overtaken")
        await until(lambda: _begun(soak, "first"), within=30)
        paused = next(one for one in soak.processes if one.process.pid == _begun(soak, "first")[0])
        paused.signal(signal.SIGSTOP)
        await until(lambda: _begun(soak, "second"), within=30)  # the other process has taken over
        paused.signal(signal.SIGCONT)
        await soak.all_ended(time.monotonic() + 30)
    finally:
        await soak.stop()
    assert len(_begun(soak, "first")) == 2
    violations = await soak.violations()
    if fenced:
        assert violations == []
    else:
        assert any("was recorded 2 times" in violation for violation in violations), violations


def _begun(soak: Soak, step: str) -> list[int]:
    """Return the processes that have begun a step."""
    return [note.process for note in soak.notes() if note.event == "begin" and note.step == step]
