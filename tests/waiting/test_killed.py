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
from tests.support.process import ROOT, environment

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
"""How many writes the task takes, about: a reminder more or less."""
AT_ONCE = 3
"""How many journeys one test makes side by side: most of their time, they wait."""


def travel(url: str, effects: Path, writes: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.waiting.journey", url, str(effects), str(writes)]
    return run_process(command, cwd=ROOT, env=environment(), timeout=120)


async def check_log(url: str, ticks: Sequence[int]) -> None:
    """Check that each person has answered once, that the event was taken once, and when the task woke."""
    store = open_store(url)
    await store.open()
    (record,) = (await store.list(None)).records
    entries = await store.read(record.id)
    answers = [entry.data["others"] for entry in entries if "others" in entry.data]
    assert sorted(answer["go"][0] for answer in answers) == ["bob", "eve"]
    journals = [entry.data.get("journal", {}) for entry in entries]
    assert sum("event:payment:1" in journal for journal in journals) == 1
    check_wakes(entries, ticks)
    await store.close()


def check_wakes(entries: Sequence[Entry], ticks: Sequence[int]) -> None:
    """Check that the first search after its time woke the task, also after a kill.

    A worker searches each second. How late it is on a busy machine says nothing, so the time of the search
    counts, and not how long ago it should have been.
    """
    due: int | None = None
    for entry in entries:
        if entry.kind == "woken" and "event" not in entry.data and due is not None:
            missed = [tick for tick in ticks if due < tick < entry.at]
            assert len(missed) <= 1, (due, entry.at, missed)  # the search that woke it
        if entry.kind in ("asked", "parked"):
            times = [wait["until"] for wait in entry.data.get("waits", {}).values() if wait.get("until")]
            due = max(min(times), entry.at) if times else None


async def check_journey(url: str, effects: Path, writes: int) -> bool:
    """Kill the process after so many writes, let another one go on; return whether the first was killed."""
    first = await asyncio.to_thread(travel, url, effects, writes)
    was_killed = first.returncode == -9
    assert was_killed or first.returncode == 0, first.stderr
    last = await asyncio.to_thread(travel, url, effects, 0) if was_killed else first
    assert last.stdout == "[True, True] bob,eve 12\n", last.stderr
    keys: dict[str, list[str]] = defaultdict(list)
    for line in effects.read_text().splitlines():
        name, key = line.split()
        keys[name].append(key)
    assert sorted(keys) == sorted(STEPS)
    assert all(len(set(found)) == 1 for found in keys.values()), keys
    # Only the steps that ran when the process was killed were repeated, with the same idempotency key.
    assert sum(len(found) for found in keys.values()) <= len(STEPS) + 3
    await check_log(url, [int(line) for line in effects.with_suffix(".ticks").read_text().split()])
    return was_killed


async def check_journeys(urls: Sequence[str], folder: Path, first: int) -> None:
    """Kill a process after each of some writes."""
    journeys = [
        check_journey(url, folder / f"effects{number}", number) for number, url in enumerate(urls, first)
    ]
    were_killed = await asyncio.gather(*journeys)
    # The last writes may be one less, if somebody answers before the next reminder.
    assert all(were_killed) or first + AT_ONCE > WRITES - 3


@pytest.mark.parametrize("first", range(1, WRITES + 1, AT_ONCE))
async def test_a_task_survives_a_kill_after_any_write_on_sqlite(tmp_path: Path, first: int) -> None:
    await check_journeys([f"sqlite:///{tmp_path}/tasks{n}.db" for n in range(AT_ONCE)], tmp_path, first)


@pytest.mark.parametrize("first", range(1, WRITES + 1, AT_ONCE))
async def test_a_task_survives_a_kill_after_any_write_on_postgres(
    tmp_path: Path, database: Any, first: int
) -> None:
    await check_journeys([database.url() for _ in range(AT_ONCE)], tmp_path, first)


async def test_the_journey_has_so_many_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    assert not await check_journey(url, tmp_path / "effects", 2 * WRITES)
    assert await check_journey(f"{url}2", tmp_path / "effects2", WRITES - 3)
