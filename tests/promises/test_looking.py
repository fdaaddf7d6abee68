"""Getting a task that is about to end, and one that finished in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import wall_clock
from antiphon.model.task import Task
from antiphon.runtime.tasks import claimed_task
from antiphon.runtime.tasks import finished_tasks as recent
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.finished_tasks import FinishedTasks
from antiphon.store.memory import MemoryStore
from tests.promises.speaking import Patient, begin, reach
from tests.promises.tooling import Workshop
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Bare


class Slow(MemoryStore):
    """A store that delays the end of a task until a gate opens, and counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.ending = 0
        self.looks = 0

    async def append(self, id: str, entries: Any, **options: Any) -> int:
        if options["phase"] == "ended":
            self.ending += 1
            await self.gate.wait()
        return await super().append(id, entries, **options)

    async def get(self, id: str) -> Any:
        self.looks += 1
        return await super().get(id)


@pytest.fixture
def lookers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks whose end requests wait for. They wait long, so that a busy machine makes no difference."""
    monkeypatch.setattr(claimed_task, "PENDING_WRITE_WAIT_SECONDS", 600.0)
    waiting, wait = list[str](), ClaimedTask.wait_for_write

    async def counted(claimed: ClaimedTask) -> Task | None:
        waiting.append(claimed.task.id)
        return await wait(claimed)

    monkeypatch.setattr(ClaimedTask, "wait_for_write", counted)
    return waiting


@asynccontextmanager
async def slow() -> AsyncIterator[tuple[Slow, int]]:
    store = Slow()
    async with serving(Workshop(store).server) as address:
        yield store, address.port


async def test_a_look_at_a_task_that_is_being_ended_tells_of_its_end(lookers: list[str]) -> None:
    async with slow() as (store, port):
        id = (await begin(Patient(port), "add", a=1, b=2))["taskId"]
        await until(lambda: store.ending)
        look = asyncio.create_task(Patient(port).ask("tasks/get", {"taskId": id}))
        await until(lambda: lookers == [id])
        store.gate.set()
        assert (await look).result["status"] == "completed"
        assert store.looks == 0


async def test_a_task_that_expires_while_its_end_is_written_is_not_there(
    lookers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slow() as (store, port):
        id = (await begin(Bare(port), "add", 60_000, a=1, b=2))["taskId"]
        await until(lambda: store.ending)
        look = asyncio.create_task(Bare(port).ask("tasks/get", {"taskId": id}))
        await until(lambda: lookers == [id])
        monkeypatch.setattr(wall_clock, "ahead", 120.0)  # longer than its lifetime
        store.gate.set()
        assert (await look).error == {
            "code": -32602,
            "message": "Failed to retrieve task: Task not found",
        }


async def test_a_look_does_not_wait_for_an_end_that_takes_long() -> None:
    async with slow() as (store, port):
        id = (await begin(Patient(port), "add", a=1, b=2))["taskId"]
        await until(lambda: store.ending)
        assert (await Patient(port).ask("tasks/get", {"taskId": id})).result["status"] == "working"
        store.gate.set()
        await reach(Patient(port), id, "completed")


async def test_a_caller_that_leaves_while_looking_disturbs_nobody(lookers: list[str]) -> None:
    async with slow() as (store, port):
        id = (await begin(Patient(port), "add", a=1, b=2))["taskId"]
        await until(lambda: store.ending)
        gone = asyncio.create_task(Patient(port).ask("tasks/get", {"taskId": id}))
        stays = asyncio.create_task(Patient(port).ask("tasks/get", {"taskId": id}))
        await until(lambda: lookers == [id, id])
        gone.cancel()
        store.gate.set()
        assert (await stays).result["status"] == "completed"


async def test_a_task_that_ended_here_is_another_callers_neither_before_nor_after() -> None:
    async with slow() as (store, port):
        id = (await begin(Patient(port, headers={"x-who": "ada"}), "add", a=1, b=2))["taskId"]
        other = Patient(port, headers={"x-who": "eve"})
        await until(lambda: store.ending)
        assert "error" in (await other.ask("tasks/get", {"taskId": id})).frame
        store.gate.set()
        await reach(Patient(port, headers={"x-who": "ada"}), id, "completed")
        assert "error" in (await other.ask("tasks/get", {"taskId": id})).frame


def ended(id: str, *, ttl: int | None = None, text: str = "") -> Task:
    result = {"content": [{"type": "text", "text": text}], "is_error": False}
    return Task(id=id, tool="add", created=now_ms(), updated=now_ms(), state="done", ttl=ttl, result=result)


def test_what_is_kept_of_ended_tasks_is_bounded_in_number_and_in_bytes() -> None:
    kept = FinishedTasks()
    for number in range(recent.MAX_TASKS + 10):
        kept.add(ended(f"t{number}"), "ada")
    assert [kept.find(f"t{number}", "ada") is None for number in (0, 9, 10)] == [True, True, False]
    for number in range(40):
        kept.add(ended(f"large{number}", text="x" * (recent.MAX_BYTES // 17)), "ada")
    assert kept.find("t1009", "ada") is None
    found = [number for number in range(40) if kept.find(f"large{number}", "ada") is not None]
    assert found == list(range(24, 40))
    kept.add(ended("huge", text="x" * recent.MAX_BYTES), "ada")
    assert kept.find("huge", "ada") is None


def test_a_task_whose_time_is_over_is_kept_no_longer() -> None:
    kept = FinishedTasks()
    kept.add(ended("short", ttl=0), "ada")
    kept.add(ended("long", ttl=60_000), "ada")
    assert kept.find("short", "ada") is None
    assert kept.find("long", "ada") is not None
    assert kept.find("long", "eve") is None


def test_what_is_kept_cannot_be_changed_by_whoever_was_given_it() -> None:
    kept, task = FinishedTasks(), ended("t")
    kept.add(task, "ada")
    assert task.result is not None
    task.result["content"].clear()
    found = kept.find("t", "ada")
    assert found is not None
    assert found.result is not None
    assert found.result["content"]
