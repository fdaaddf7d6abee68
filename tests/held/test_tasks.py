"""Tasks whose functions wait in their process: the worker keeps the lease while a question is open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Limits, wall_clock
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.tasks.records import task_of
from antiphon.store import open_store
from tests.asking.driving import EVERYTHING, accept
from tests.held.held_server import Tasks
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.support.lease_time import LeaseTime
from tests.support.leases import end_delay
from tests.support.loop_time import LoopTime
from tests.support.polling import until
from tests.support.serving import Address, serving
from tests.support.speakers import Bare, Session, Speaker

LEASE = 1000.0


@asynccontextmanager
async def working(**options: Any) -> AsyncIterator[tuple[Tasks, Address]]:
    tasks = Tasks(**{"store": "memory:", "limits": Limits(drain_timeout=0.5), **options})
    async with serving(tasks.server) as address:
        yield tasks, address


def text(task: dict[str, Any]) -> str:
    return str(task["result"]["content"][0]["text"])


async def asked_for(client: Speaker, id: str, key: str) -> Any:
    """Wait until a task asks a question whose key begins so; return its key and the question."""

    async def asked() -> Any:
        questions = (await reach(client, id, "input_required"))["inputRequests"]
        return next((each for each in questions.items() if each[0].startswith(key)), None)

    return await until(asked)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of each store."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return str(request.getfixturevalue("database").url())


@pytest.mark.parametrize("tool", ["greet", "in_a_thread"])
async def test_the_function_runs_once(any_store: str, tool: str) -> None:
    async with working(store=any_store) as (tasks, address):
        client = Patient(address.port)
        id = (await begin(client, tool))["taskId"]
        asked = await reach(client, id, "input_required")
        assert list(asked["inputRequests"]) == ["name"]
        await answer(client, id, name="Ann")
        assert text(await reach(client, id, "completed")) == "Hello, Ann!"
        await answer(client, id, name="Ann")  # repeated
    assert tasks.began[tool] == tasks.unwound[tool] == 1


@pytest.mark.parametrize("version", ["draft", "2025-11-25"])
async def test_the_function_runs_once_on_other_versions(version: str) -> None:
    async with working() as (tasks, address):
        client: Speaker = Bare(address.port)
        if version != "draft":
            client = Session(address.port)
            await client.open(capabilities={**EVERYTHING, "tasks": {}})
        id = (await begin(client, "greet"))["taskId"]
        await reach(client, id, "input_required")
        response = await answer(Bare(address.port), id, name="Ann")
        assert "error" not in response.frame
        await reach(client, id, "completed")
        result = (await client.ask("tasks/result", {"taskId": id})).result
        assert result["content"][0]["text"] == "Hello, Ann!"
    assert tasks.began["greet"] == 1


async def test_segments_and_several_questions(any_store: str) -> None:
    async with working(store=any_store) as (tasks, address):
        client = Patient(address.port)
        id = (await begin(client, "emits"))["taskId"]
        for key, name in (("name", "Ann"), ("again", "Bob")):
            await asked_for(client, id, key)
            await answer(client, id, **{key: name})
        task = await reach(client, id, "completed")
        assert [block["text"] for block in task["result"]["content"]] == ["one", "Ann", "Bob"]
    assert tasks.began["emits"] == 1


async def test_questions_that_are_answered_one_by_one(any_store: str) -> None:
    async with working(store=any_store) as (tasks, address):
        client = Patient(address.port)
        id = (await begin(client, "at_once"))["taskId"]
        asked = await reach(client, id, "input_required")
        assert list(asked["inputRequests"]) == ["one", "two", "three"]
        await answer(client, id, two="B")
        assert list((await look(client, id))["inputRequests"]) == ["one", "three"]
        await answer(client, id, one="A", three="C")
        assert text(await reach(client, id, "completed")) == "A B C"
    assert tasks.began["at_once"] == 1


async def test_an_answer_that_the_function_does_not_accept_is_asked_for_again(any_store: str) -> None:
    async with working(store=any_store) as (tasks, address):
        client = Patient(address.port)
        id = (await begin(client, "counted"))["taskId"]
        await reach(client, id, "input_required")
        responses = {"even": accept(number=3)}
        await client.ask("tasks/update", {"taskId": id, "inputResponses": responses})
        key, question = await asked_for(client, id, "even~")
        assert "the number must be even" in question["params"]["message"]
        await client.ask("tasks/update", {"taskId": id, "inputResponses": {key: accept(number=4)}})
        assert text(await reach(client, id, "completed")) == "4"
    assert tasks.began["counted"] == 1


async def test_the_log_of_a_task_says_what_its_record_says(store: str) -> None:
    async with working(store=store) as (_, address):
        client = Patient(address.port)
        once, again = [(await begin(client, tool))["taskId"] for tool in ("at_once", "counted")]
        await reach(client, once, "input_required")
        await answer(client, once, two="B")
        await asked_for(client, again, "even")
        await client.ask("tasks/update", {"taskId": again, "inputResponses": {"even": accept(number=3)}})
        await asked_for(client, again, "even~")
        records = open_store(store)
        await records.open()
        try:
            for id in (once, again):
                history = TaskHistory()
                for entry in await records.read(id):
                    history.add(entry.kind, entry.at, entry.data)  # type: ignore[arg-type]
                record = await records.get(id)
                assert record is not None
                assert history.task is not None
                head, computed = task_of(record), history.task
                assert (head.state, head.questions, head.late) == (
                    computed.state,
                    computed.questions,
                    computed.late,
                )
                assert head.times_asked == computed.times_asked
                assert history.lost_runs(2) == 1  # another worker must not run it again
        finally:
            await records.close()


async def test_a_question_that_the_function_withdraws(any_store: str) -> None:
    async with working(store=any_store) as (tasks, address):
        client = Patient(address.port)
        id = (await begin(client, "withdraws"))["taskId"]
        assert list((await reach(client, id, "input_required"))["inputRequests"]) == ["name"]
        tasks.release.set()
        await asked_for(client, id, "other")
        assert list((await look(client, id))["inputRequests"]) == ["other"]
        await answer(client, id, other="Ann")
        assert text(await reach(client, id, "completed")) == "Hello, Ann!"


async def test_a_task_that_is_cancelled_while_it_waits(any_store: str) -> None:
    async with working(store=any_store) as (tasks, address):
        client = Patient(address.port)
        for tool in ("greet", "in_a_thread"):
            id = (await begin(client, tool))["taskId"]
            await reach(client, id, "input_required")
            await client.ask("tasks/cancel", {"taskId": id})
            assert (await look(client, id))["status"] == "cancelled"
            await until(lambda tool=tool: tasks.unwound[tool])
        await until(lambda: tasks.server.engine.tasks.running == 0)
    assert tasks.began["greet"] == tasks.began["in_a_thread"] == 1


async def test_a_task_whose_lifetime_ends_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with working() as (tasks, address):
        client = Bare(address.port)
        id = (await begin(client, "greet", 3_600_000))["taskId"]
        await reach(client, id, "input_required")
        assert not tasks.unwound["greet"]
        monkeypatch.setattr(wall_clock, "ahead", 3600.0)
        await until(lambda: tasks.unwound["greet"])
        await until(lambda: tasks.server.engine.tasks.running == 0)


async def test_the_lease_is_kept_while_the_function_waits(store: str, lease_time: LeaseTime) -> None:
    limits = Limits(lease_seconds=LEASE, drain_timeout=0.5)

    def instance() -> AbstractAsyncContextManager[tuple[Tasks, Address]]:
        return working(store=lease_time.store(store), limits=limits)

    async with instance() as (one, here):
        id = (await begin(Patient(here.port), "greet"))["taskId"]
        await reach(Patient(here.port), id, "input_required")
        async with instance() as (other, there):
            engine = other.server.engine
            for _ in range(3):
                await lease_time.let_renew(engine.tasks.store, LEASE)
                assert await engine.tasks.store.claim("thief", lease=LEASE, limit=1) == []
            await answer(Patient(there.port), id, name="Ann")
            assert text(await reach(Patient(there.port), id, "completed")) == "Hello, Ann!"
    assert (one.began["greet"], other.began["greet"]) == (1, 0)


async def test_the_timeout_of_a_tool_does_not_count_the_time_of_a_person() -> None:
    async with working() as (tasks, address):
        client = Patient(address.port)
        ids = [(await begin(client, "limited"))["taskId"] for _ in range(2)]
        for id in ids:
            await reach(client, id, "input_required")
        loop_time = LoopTime.here()
        loop_time.advance(200)  # longer than the timeout
        await answer(client, ids[0], name="Ann")
        assert text(await reach(client, ids[0], "completed")) == "Ann"
        await answer(client, ids[1], name="slow")
        await until(lambda: tasks.began["slow"])
        loop_time.advance(200)
        task = await reach(client, ids[1], "completed", "failed")
        assert "did not finish within 100 seconds" in text(task)


async def test_a_server_that_stops_ends_tasks_that_wait(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    async with working(store=store) as (tasks, address):
        id = (await begin(Patient(address.port), "greet"))["taskId"]
        await reach(Patient(address.port), id, "input_required")
    assert tasks.unwound["greet"] == 1
    async with working(store=store) as (again, address):
        task = await look(Patient(address.port), id)
    assert task["status"] == "failed"
    assert "its process was stopped" in task["error"]["message"]
    assert again.began["greet"] == 0


async def test_tasks_that_wait_are_evicted_when_there_are_too_many() -> None:
    async with working(limits=Limits(max_held_runs=3, principal_share=1.0, drain_timeout=0.5)) as (
        tasks,
        address,
    ):
        client = Patient(address.port)
        ids = []
        for _ in range(5):
            ids.append((await begin(client, "greet"))["taskId"])
            await reach(client, ids[-1], "input_required")
        for id in ids[:2]:
            task = await reach(client, id, "failed")
            assert "too many calls and tasks wait" in task["error"]["message"]
        await answer(client, ids[-1], name="Ann")
        assert text(await reach(client, ids[-1], "completed")) == "Hello, Ann!"
    assert tasks.began["greet"] == tasks.unwound["greet"] == 5


async def test_tasks_that_wait_leave_room_for_others() -> None:
    async with working(limits=Limits(max_running_tasks=1, drain_timeout=0.5)) as (_, address):
        client = Patient(address.port)
        ids = [(await begin(client, "greet"))["taskId"] for _ in range(3)]
        for id in ids:
            await reach(client, id, "input_required")
        plain = (await begin(client, "plain"))["taskId"]
        assert text(await reach(client, plain, "completed")) == "plain"
        for id in ids:
            await answer(client, id, name="Ann")
            assert text(await reach(client, id, "completed")) == "Hello, Ann!"


async def test_a_call_that_asks_becomes_a_task_if_it_can() -> None:
    async with working() as (tasks, address):
        client = Patient(address.port)
        answered = await client.call("answers_or_asks", asks=False)
        assert answered.text == "at once"
        id = (await begin(client, "answers_or_asks"))["taskId"]
        await reach(client, id, "input_required")
        await answer(client, id, name="Ann")
        assert text(await reach(client, id, "completed")) == "Ann"
        drafted = Bare(address.port)
        params = {
            "name": "answers_or_asks",
            "arguments": {},
            "task": {"responseModes": ["immediate", "task"]},
        }
        id = (await drafted.ask("tools/call", params)).result["task"]["taskId"]
        await reach(drafted, id, "input_required")
        await answer(drafted, id, name="Bob")
        assert (await reach(drafted, id, "completed"))["status"] == "completed"
    assert tasks.began["answers_or_asks"] == 3


async def test_a_task_that_sleeps_or_asks_others_waits_in_its_process() -> None:
    async with working() as (tasks, address):
        client = Patient(address.port)
        sleeping = (await begin(client, "sleeps"))["taskId"]
        asking = (await begin(client, "asks_others"))["taskId"]
        assert "replay=False" in text(await reach(client, asking, "completed"))
        await until(lambda: tasks.began["sleeps"])
        assert (await look(client, sleeping))["status"] == "working"
        await LoopTime.here().advance_until(lambda: tasks.began["woken"], 600)
        assert text(await reach(client, sleeping, "completed")) == "slept"
    assert tasks.began["sleeps"] == 1


@pytest.mark.usefixtures("quick_claims")
async def test_a_worker_that_is_lost_while_the_function_waits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    limits = Limits(lease_seconds=LEASE, drain_timeout=0.5)
    async with working(store=url, limits=limits) as (one, here):
        id = (await begin(Patient(here.port), "greet"))["taskId"]
        await reach(Patient(here.port), id, "input_required")
        store = open_store(url)
        await store.open()
        record = await store.get(id)
        assert record is not None
        assert (record.phase, record.head["state"]) == ("ready", "waiting")
        await store.release(id, 1)  # as if the lease had ended
        async with store.watch(id) as watch, working(store=url, limits=limits) as (other, there):
            while all("attempt" not in entry.data for entry in await store.read(id)):
                await watch.wait(60)
            await end_delay(url, id)
            task = await reach(Patient(there.port), id, "failed")
        await store.close()
    assert "its worker was lost, and its tool has replay=False" in task["error"]["message"]
    assert one.began["greet"] + other.began["greet"] == 1


@pytest.mark.usefixtures("quick_claims")
async def test_an_answer_that_comes_after_the_worker_was_lost_does_not_run_the_function_again(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    limits = Limits(lease_seconds=60, drain_timeout=0.5)
    async with working(store=url, limits=limits) as (one, here):
        id = (await begin(Patient(here.port), "greet"))["taskId"]
        await reach(Patient(here.port), id, "input_required")
        store = open_store(url)
        await store.open()
        await store.release(id, 1)  # as if the lease had ended
    async with store.watch(id) as watch, working(store=url, limits=limits) as (other, there):
        while all("attempt" not in entry.data for entry in await store.read(id)):
            await watch.wait(60)
        await end_delay(url, id)
        await answer(Patient(there.port), id, name="Ann")
        task = await reach(Patient(there.port), id, "completed", "failed")
    await store.close()
    assert task["status"] == "failed"
    assert "its worker was lost, and its tool has replay=False" in task["error"]["message"]
    assert one.began["greet"] + other.began["greet"] == 1
