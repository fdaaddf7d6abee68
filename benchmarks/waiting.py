"""A server with very many tasks that wait for an answer: what does it keep in memory of them?

The first task is made by the server itself. The others are written like it, by the calls that a server
would write them with, many at once so that they share commits. Then a fresh server process is started on
the file, and some of the tasks are looked at, answered and redeemed over HTTP.
"""

import asyncio
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import prepare
from processes import cores, resident_mb, running
from promise_load import Caller

from antiphon.store.contract import Entry, Record
from antiphon.store.sqlite import SQLiteStore

__all__ = ["Waiting", "measure"]

SERVER = Path(__file__).resolve().parent / "servers" / "antiphon_promises.py"
TOGETHER = 2000
"""Tasks that are written at once."""
SWEEPS = 3.0
"""Seconds that the server is left alone for, while it looks for what to do and what to forget."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Resident megabytes of one server, with so many tasks waiting in its store."""

    tasks: int
    file_mb: float
    started_s: float
    """Until the first task was looked at."""
    idle_mb: float
    answered: int
    last_mb: float
    peak_mb: float


def measure(tasks: int, answered: int) -> Waiting:
    """Lay so many tasks down, start a server on them, and have some of them answered."""
    python = prepare("antiphon").python
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder).resolve() / "tasks.db"
        with _serving(python, path) as (_, port):
            first = asyncio.run(_make(port))
        ids = asyncio.run(_lay_down(path, first, tasks - 1))
        size = path.stat().st_size / 1e6
        begun = time.perf_counter()
        with _serving(python, path) as (pid, port):
            asyncio.run(_look(port, first))
            started = time.perf_counter() - begun
            time.sleep(SWEEPS)
            idle = resident_mb(pid)
            asyncio.run(_answer(port, random.sample(ids, answered)))
            last, peak = resident_mb(pid), _peak_mb(pid)
    return Waiting(tasks, round(size), round(started, 2), round(idle, 1), answered, round(last, 1), peak)


@contextmanager
def _serving(python: Path, path: Path) -> Iterator[tuple[int, int]]:
    os.environ["BENCH_STORE"] = str(path)
    try:
        with running(python, SERVER, cores()[0]) as place:
            yield place
    finally:
        del os.environ["BENCH_STORE"]


async def _make(port: int) -> str:
    """The id of a task that waits for an answer."""
    caller = Caller(port)
    await caller.open()
    made = await caller.ask("tools/call", {"name": "ask", "arguments": {"number": 1}}, "ask")
    id = str(made["taskId"])
    await _settled(caller, id)
    return id


async def _settled(caller: Caller, id: str) -> dict[str, Any]:
    """The task, once it does not work."""
    for _ in range(5000):
        task = await caller.ask("tasks/get", {"taskId": id}, id)
        if task["status"] != "working":
            return task
        await asyncio.sleep(0.005)
    raise RuntimeError(f"a task does not end: {id}")


async def _look(port: int, id: str) -> None:
    caller = Caller(port)
    await caller.open()
    task = await caller.ask("tasks/get", {"taskId": id}, id)
    if task["status"] != "input_required":
        raise RuntimeError(f"a task does not wait: {task}")


async def _answer(port: int, ids: list[str]) -> None:
    """Look at tasks, answer them and redeem them, on some connections at once."""

    async def some(ids: list[str]) -> None:
        caller = Caller(port)
        await caller.open()
        for id in ids:
            task = await caller.ask("tasks/get", {"taskId": id}, id)
            answers = {key: {"action": "accept", "content": {"value": 1}} for key in task["inputRequests"]}
            await caller.ask("tasks/update", {"taskId": id, "inputResponses": answers}, id)
            task = await _settled(caller, id)
            if task["status"] != "completed":
                raise RuntimeError(f"a task was not completed: {task}")

    await asyncio.gather(*(some(ids[start::16]) for start in range(16)))


async def _lay_down(path: Path, first: str, count: int) -> list[str]:
    """Write so many more tasks like the first."""
    store = SQLiteStore(path)
    await store.open()
    record, entries = await store.get(first), await store.read(first)
    assert record is not None
    ids: list[str] = []
    for begun in range(0, count, TOGETHER):
        copies = [_copy(record, entries) for _ in range(min(TOGETHER, count - begun))]
        await asyncio.gather(*(store.create(copy, log) for copy, log in copies))
        ids += [copy.id for copy, _ in copies]
    waiting = await store.count("waiting")
    await store.close()
    if waiting != count + 1:
        raise RuntimeError(f"{waiting} tasks wait, and not {count + 1}")
    return ids


def _copy(record: Record, entries: Any) -> tuple[Record, list[tuple[str, Any]]]:
    id = f"{record.tool}_{int(time.time() * 1000):011x}-{uuid.uuid4()}"

    def renamed(entry: Entry) -> Any:
        return (
            {**entry.data, "task": {**entry.data["task"], "id": id}} if "task" in entry.data else entry.data
        )

    copy = Record(
        id,
        record.principal,
        record.tool,
        record.phase,
        0,
        record.created,
        record.updated,
        record.expires,
        {**record.head, "id": id},
    )
    return copy, [(entry.kind, renamed(entry)) for entry in entries]


def _peak_mb(pid: int) -> float:
    """The most that was ever resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(round(int(line.split()[1]) * 1024 / 1e6, 1) for line in lines if line.startswith("VmHWM"))
