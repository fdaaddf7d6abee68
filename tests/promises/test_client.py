"""Our client and tasks: `call` waits for the result, or returns a handle."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Failure, RequestError, Result, Server
from antiphon.client import Elicitation, TaskHandle, TaskStatus
from antiphon.errors import (
    ClientError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    TaskCancelled,
    TaskLost,
    TimedOut,
)
from antiphon.model.notification import Progress
from tests.promises.patient import make
from tests.support.loop_time import LoopTime
from tests.support.polling import forever, turns, until
from tests.support.serving import serving

MODERN, LEGACY, DRAFT = "2026-07-28", "2025-11-25", "DRAFT-2026-v1"
ALL = pytest.mark.parametrize("version", [MODERN, LEGACY, DRAFT])
BY_KEY = pytest.mark.parametrize("version", [MODERN, DRAFT])
EVERYWHERE = [
    pytest.mark.parametrize("version", [MODERN, LEGACY, DRAFT]),
    pytest.mark.parametrize("transport", ["http", "memory"]),
]


class Person:
    """Answers questions, and records them."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"First name?": [{"name": "Ada"}], "Last name?": [{"name": "Byron"}], **answers}
        self.asked: list[str] = []

    async def __call__(self, question: Elicitation) -> Any:
        message = question.message.partition("\n")[0]  # a question that is asked again says why
        self.asked.append(message)
        given = self.answers[message]
        return given[min(self.asked.count(message), len(given)) - 1]


@asynccontextmanager
async def connected(
    version: str, transport: str = "http", server: Server | None = None, **options: Any
) -> AsyncIterator[Client]:
    server = make("memory:") if server is None else server
    able: dict[str, Any] = {"elicit": Person(), "timeout": 10, **options}
    if transport == "memory":
        async with Client(server, protocol=version, **able) as client:
            yield client
    else:
        async with serving(server) as address, Client(address.url, protocol=version, **able) as client:
            yield client


def everywhere(test: Any) -> Any:
    for mark in EVERYWHERE:
        test = mark(test)
    return test


@everywhere
async def test_the_caller_does_not_notice_the_task(version: str, transport: str) -> None:
    person = Person()
    async with connected(version, transport, elicit=person) as client:
        assert (await client.call("sleep")).text == "slept"
        assert (await client.call("greet")).text == "Hello, Ada Byron!"
        assert person.asked == ["First name?", "Last name?"]
        assert (await client.call("both")).text == "Ada Byron"
        assert sorted(person.asked[2:]) == ["First name?", "Last name?"]
        assert (await client.call("quick")).text == "quick"
        assert (await client.call("at_once")).text == "at once"


@everywhere
async def test_a_call_that_turns_into_a_task_after_a_round(version: str, transport: str) -> None:
    person = Person()
    async with connected(version, transport, elicit=person) as client:
        assert (await client.call("turns")).text == "Later, Ada!"
    assert person.asked == ["First name?"]


@everywhere
async def test_how_a_task_ends_is_how_the_call_ends(version: str, transport: str) -> None:
    async with connected(version, transport) as client:
        with pytest.raises(Failure, match="This went wrong") as failed:
            await client.call("fails")
        assert failed.value.data == {"why": "it had to"}
        assert (await client.call("fails", check=False)).is_error
        with pytest.raises(InternalError, match="It broke"):
            await client.call("faults")
        with pytest.raises(InvalidParams, match="Not like this"):
            await client.call("faults", internal=False)
        promise = await client.submit("faults", internal=False)
        with pytest.raises(InvalidParams, match="Not like this"):
            await promise.result()


@everywhere
async def test_a_handle_has_what_there_is_to_know(version: str, transport: str, tmp_path: Path) -> None:
    goes_on = tmp_path / "goes on"
    async with connected(version, transport) as client:
        promise = await client.submit("sleep", until=str(goes_on))
        assert promise.id
        now = await promise.status()
        assert (now.id, now.status, now.poll_interval) == (promise.id, "working", 0.1)
        assert now.created_at is not None
        seen = []
        async for status in promise.updates():
            seen.append(status.status)
            goes_on.touch()
        assert seen == ["working", "completed"]
        assert (await promise.result()).text == "slept"
        assert (await client.task(promise.id).result()).text == "slept"
        assert [status.status async for status in client.task(promise.id).updates()] == ["completed"]


@everywhere
async def test_a_server_that_answers_at_once_gives_a_handle_that_is_done(
    version: str, transport: str
) -> None:
    async with connected(version, transport) as client:
        # A wish for a task is granted, even where the answer would have been quick.
        for tool in ("at_once", "quick") if version == MODERN else ("at_once",):
            done = await client.submit(tool)
            assert done.id is None
            assert (await done.status()).status == "completed"
            assert [status.status async for status in done.updates()] == ["completed"]
            assert isinstance(await done.result(), Result)
            await done.cancel()


@everywhere
async def test_a_cancelled_task_says_so_to_whoever_waits(version: str, transport: str) -> None:
    async with connected(version, transport) as client:
        promise = await client.submit("ponder")
        waiting = asyncio.create_task(promise.result())
        async for status in promise.updates():  # whoever waits asked before
            assert status.status == "working"
            break
        await promise.cancel()
        with pytest.raises(TaskCancelled, match="was cancelled"):
            await asyncio.wait_for(waiting, 30)
        assert (await promise.status()).status == "cancelled"
        await promise.cancel()  # it stays so


async def lost(promise: TaskHandle) -> None:
    """Wait until the server does not know a task any more."""

    async def is_lost() -> bool:
        try:
            await promise.status()
        except TaskLost:
            return True
        return False

    await until(is_lost)


@everywhere
async def test_an_unknown_or_expired_task_is_lost(version: str, transport: str) -> None:
    async with connected(version, transport) as client:
        nobody = client.task("nobody")
        for using in (nobody.status, nobody.result, nobody.cancel):
            with pytest.raises(TaskLost, match="does not know the task nobody"):
                await using()
        promise = await client.submit("fleeting")
        await lost(promise)
        with pytest.raises(TaskLost, match="has expired"):
            await asyncio.wait_for(promise.result(), 60)


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_task_that_expires_while_a_client_waits_is_lost(transport: str) -> None:
    async with connected(LEGACY, transport) as client:
        promise = await client.submit("ponder", ttl=0.3)
        with pytest.raises(TaskLost, match="has expired"):
            await asyncio.wait_for(promise.result(), 60)


@everywhere
async def test_a_wait_that_is_too_long_leaves_a_submitted_task_alone(
    version: str, transport: str, tmp_path: Path
) -> None:
    goes_on = tmp_path / "goes on"
    async with connected(version, transport) as client:
        promise = await client.submit("sleep", until=str(goes_on))
        with pytest.raises(TimedOut, match=r"within 0\.1 s.*ask again later"):
            await promise.result(timeout=0.1)
        goes_on.touch()
        assert (await promise.result(timeout=60)).text == "slept"


@everywhere
async def test_a_call_that_is_given_up_stops_its_task(version: str, transport: str, tmp_path: Path) -> None:
    heard: list[Progress] = []
    async with connected(version, transport) as client:
        call = client.call("pack", boxes=1, until=str(tmp_path / "never made"), on_progress=heard.append)
        calling = asyncio.create_task(call)
        await until(lambda: heard)  # so the client knows the task
        id = str(heard[0].token)
        calling.cancel()
        await asyncio.wait({calling})
        assert [status.status async for status in client.task(id).updates()][-1] == "cancelled"
        with pytest.raises(TimedOut, match="timeout="):
            await client.call("ponder", timeout=0.2)


@everywhere
async def test_a_call_that_is_given_up_leaves_a_task_that_somebody_else_has(
    version: str, transport: str
) -> None:
    handles: list[TaskHandle] = []
    async with connected(version, transport) as client:
        assert (await client.call("pack", on_task=handles.append)).text == "packed"
        assert (await client.call("at_once", on_task=handles.append)).text == "at once"
        (handle,) = handles
        assert (await handle.result()).text == "packed"
        calling = asyncio.create_task(client.call("ponder", on_task=handles.append))
        await until(lambda: len(handles) == 2)
        calling.cancel()
        await asyncio.wait({calling})
        await client.ping()  # whatever was sent before has arrived
        assert (await handles[1].status()).status == "working"
        await handles[1].cancel()


@BY_KEY
async def test_time_that_a_person_takes_is_not_the_tasks(version: str) -> None:
    time, asked = LoopTime.here(), list[str]()

    async def slowly(question: Elicitation) -> dict[str, Any]:
        asked.append(question.message)
        time.advance(400)
        await turns(10)  # what is due by then is done
        return {"name": "Ada"}

    async with connected(version, "memory", elicit=slowly, timeout=3600) as client:
        assert (await client.call("greet", timeout=600)).text == "Hello, Ada Ada!"
    assert len(asked) == 2


@BY_KEY
async def test_questions_are_answered_by_hand(version: str) -> None:
    async with connected(version, elicit=None, capabilities={"elicitation": {"form": {}}}) as client:
        promise = await client.submit("both")
        waiting = asyncio.create_task(promise.result())
        async for status in promise.updates():
            if status.questions:
                break
        assert set(status.questions) == {"first", "last"}
        await promise.answer({"first": {"name": "Ada"}, "unheard_of": {"x": 1}})
        assert set((await promise.status()).questions) == {"last"}
        assert promise.id is not None
        await client.task(promise.id).answer({"last": {"action": "accept", "content": {"name": "Byron"}}})
        assert (await asyncio.wait_for(waiting, 30)).text == "Ada Byron"

        declined = await client.submit("both")
        assert (await _asking(declined)).status == "input_required"
        await declined.answer({})
        await declined.answer({"first": "decline", "last": "cancel"})
        with pytest.raises(Failure, match="name"):
            await declined.result(timeout=60)


async def _asking(promise: TaskHandle) -> TaskStatus:
    async for status in promise.updates():
        if status.questions:
            return status
    raise AssertionError("it never asks")


@BY_KEY
async def test_a_question_that_is_answered_elsewhere_is_not_asked_any_longer(version: str) -> None:
    cancelled = asyncio.Event()

    async def ponder(question: Elicitation) -> Any:
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with connected(version, elicit=ponder) as client:
        promise = await client.submit("both")
        waiting = asyncio.create_task(promise.result())
        await _asking(promise)
        await promise.answer({"first": {"name": "Ada"}, "last": {"name": "Byron"}})
        assert (await asyncio.wait_for(waiting, 30)).text == "Ada Byron"
        assert cancelled.is_set()


@everywhere
async def test_an_answer_that_does_not_fit_is_asked_for_again(version: str, transport: str) -> None:
    names = [{"name": 5}, {"name": "Ada"}]
    dates = [{"value": "no date"}, {"value": "2000-99-99"}, {"value": "2000-01-02"}]
    person = Person(**{"First name?": names, "When?": dates})
    async with connected(version, transport, elicit=person) as client:
        assert (await asyncio.wait_for(client.call("greet"), 30)).text == "Hello, Ada Byron!"
        assert (await asyncio.wait_for(client.call("born"), 30)).text == "2000-01-02"
    assert person.asked.count("First name?") == 2
    assert person.asked.count("When?") == 3


@BY_KEY
async def test_a_handler_that_never_fits_ends_the_call(version: str) -> None:
    async with connected(version, elicit=Person(**{"First name?": [{"name": 5}]}), max_rounds=3) as client:
        with pytest.raises(ClientError, match="'first' do not fit"):
            await client.call("greet")


@ALL
async def test_a_handler_that_refuses_ends_the_call(version: str) -> None:
    async def refuse(question: Elicitation) -> Any:
        raise RequestError("Not now.", code=-1)

    async with connected(version, elicit=refuse) as client:
        with pytest.raises((RequestError, Failure)):
            await asyncio.wait_for(client.call("greet"), 30)


async def test_an_old_version_is_answered_by_handlers_alone() -> None:
    async with connected(LEGACY, elicit=None, capabilities={"elicitation": {}}) as client:
        promise = await client.submit("greet")
        with pytest.raises(ClientError, match="elicit="):
            await promise.answer({"first": {"name": "Ada"}})
        with pytest.raises(TimedOut):
            await promise.result(timeout=0.5)
        assert (await promise.status()).status == "input_required"


async def test_tasks_are_listed_where_the_version_has_that() -> None:
    async with connected(LEGACY, "memory") as client:
        made = [(await client.submit("sleep", ttl=60)).id for _ in range(3)]
        found = await client.tasks()
        assert {status.id for status in found} == set(made)
        assert {status.ttl for status in found} == {60.0}
    async with connected(MODERN) as client:
        with pytest.raises(MethodNotFound, match=MODERN):
            await client.tasks()


async def test_a_call_that_is_not_driven_gives_the_handle() -> None:
    async with connected(MODERN) as client:
        promise = await client.call_once("sleep")
        assert isinstance(promise, TaskHandle)
        assert (await promise.result()).text == "slept"


async def test_many_at_once_do_not_get_into_each_others_way() -> None:
    heard: dict[int, list[Progress]] = defaultdict(list)
    async with connected(MODERN, max_requests=8) as client:
        calls = [client.call("pack", boxes=boxes, on_progress=heard[boxes].append) for boxes in range(1, 41)]
        results = await asyncio.wait_for(asyncio.gather(*calls), 60)
    assert [result.text for result in results] == ["packed"] * 40
    assert [heard[boxes][-1].progress for boxes in range(1, 41)] == [*range(1, 41)]
