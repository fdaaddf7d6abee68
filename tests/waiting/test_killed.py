"""A process is killed after any write to the store: the task goes on, with nothing lost or done twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.store import open_store
from antiphon.store.contract import Entry
from tests.support.fork_server import run_process
from tests.support.leases import end_leases
from tests.support.process import ROOT, environment

RESULT = "[True, True] bob,eve 12\n"
STEPS = [
    "start",
    "slept",
    "tired",
    "napped",
    "approved",
    "paid",
    "failed",
    "stable",
    "a",
    "b",
    "c",
    "given-up",
]
WRITES = 30
"""How many writes the task takes, about: waits that are over at once are one, and a reminder is one more."""
AT_ONCE = 3
"""How many journeys one test makes side by side: most of their time, they wait."""


def travel(writes: int, *places: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a process that kills itself after so many writes, with the tasks of some stores."""
    command = [sys.executable, "-m", "tests.waiting.journey", str(writes), *map(str, places)]
    return run_process(command, cwd=ROOT, env=environment(), timeout=600)


async def check_log(url: str, searches: Sequence[Sequence[int]]) -> None:
    """Check that each person has answered once, that the event was taken once, and when the task woke."""
    store = open_store(url)
    await store.open()
    (record,) = (await store.list(None)).records
    entries = await store.read(record.id)
    answers = [entry.data["others"] for entry in entries if "others" in entry.data]
    assert sorted(answer["go"][0] for answer in answers) == ["bob", "eve"]
    journals = [entry.data.get("journal", {}) for entry in entries]
    assert sum("event:payment:1" in journal for journal in journals) == 1
    check_wakes(entries, searches)
    await store.close()


def check_wakes(entries: Sequence[Entry], searches: Sequence[Sequence[int]]) -> None:
    """Check that the first search after its time woke the task, also after a kill.

    A worker searches each second. How late it is on a busy machine says nothing, so the times of the searches
    count: none began after that time and ended before the task was woken.
    """
    due: int | None = None
    for entry in entries:
        if entry.kind == "woken" and "event" not in entry.data and due is not None:
            missed = [search for search in searches if due < search[0] and search[1] < entry.at]
            assert not missed, (due, entry.at, missed)
        if entry.kind in ("asked", "parked"):
            times = [wait["until"] for wait in entry.data.get("waits", {}).values() if wait.get("until")]
            due = max(min(times), entry.at) if times else None


async def begin_journey(url: str, effects: Path, writes: int) -> bool:
    """Let a process make a journey; return whether it was killed after so many writes."""
    first = await asyncio.to_thread(travel, writes, url, effects)
    if first.returncode == -9:
        await end_leases(url)
        return True
    assert first.stdout == RESULT, first.stderr
    assert int(effects.with_suffix(".writes").read_text()) < writes, "it was not killed"
    return False


async def check_journey(url: str, effects: Path) -> None:
    """Check what a journey that has ended has done, and what its log says."""
    keys: dict[str, list[str]] = defaultdict(list)
    for line in effects.read_text().splitlines():
        name, key = line.split()
        keys[name].append(key)
    assert sorted(keys) == sorted(STEPS)
    assert all(len(set(found)) == 1 for found in keys.values()), keys
    # Only the steps that ran when the process was killed were repeated, with the same idempotency key.
    assert sum(len(found) for found in keys.values()) <= len(STEPS) + 3
    lines = effects.with_suffix(".searches").read_text().splitlines()
    await check_log(url, [[int(at) for at in line.split()] for line in lines])


async def check_journeys(urls: Sequence[str], folder: Path, first: int) -> None:
    """Kill a process after each of some writes, and let another one go on with all that were killed."""
    journeys = [(url, folder / f"effects{number}", number) for number, url in enumerate(urls, first)]
    were_killed = await asyncio.gather(*(begin_journey(*journey) for journey in journeys))
    left = [(url, effects) for (url, effects, _), killed in zip(journeys, were_killed, strict=True) if killed]
    if left:
        last = await asyncio.to_thread(travel, 0, *(place for pair in left for place in pair))
        assert last.stdout == RESULT * len(left), last.stderr
    for url, effects, _ in journeys:
        await check_journey(url, effects)


@pytest.mark.parametrize("first", range(1, WRITES + 1, AT_ONCE))
async def test_a_task_survives_a_kill_after_any_write_on_sqlite(tmp_path: Path, first: int) -> None:
    await check_journeys([f"sqlite:///{tmp_path}/tasks{n}.db" for n in range(AT_ONCE)], tmp_path, first)


@pytest.mark.parametrize("first", range(1, WRITES + 1, AT_ONCE))
async def test_a_task_survives_a_kill_after_any_write_on_postgres(
    tmp_path: Path, database: Any, first: int
) -> None:
    await check_journeys([database.url() for _ in range(AT_ONCE)], tmp_path, first)


async def test_the_journey_has_so_many_writes(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    last = await asyncio.to_thread(travel, 0, f"sqlite:///{tmp_path}/tasks.db", effects)
    assert last.stdout == RESULT, last.stderr
    assert int(effects.with_suffix(".writes").read_text()) >= 2 * WRITES / 3
