"""What a client asks about tasks, and how a server can refuse it: the error that its user sees."""

import asyncio
from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from antiphon.errors import (
    BadAnswer,
    InvalidParams,
    MethodNotFound,
    TaskCancelled,
    TaskLost,
    TimedOut,
    Unreachable,
)
from antiphon.model.request import PromptReference
from tests.client.channels import DONE, LEGACY, NOTHING, Line, refusal
from tests.support.polling import turns

TASKS = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
STREAMING = {"extensions": {"dev.antiphon/streaming": {}}}
QUESTION = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": {}}}


def task(status: str = "working", id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"taskId": id, "status": status, "pollIntervalMs": 20, "pollInterval": 20, **more}


def promise() -> dict[str, Any]:
    return {"result": task(resultType="task")}


def listing(**pages: tuple[str, str | None]) -> Line:
    """A server with sessions that lists tasks: by cursor, the id of one, and the cursor after it."""

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        id, following = pages[asked["params"].get("cursor", "first")]
        return {"result": {"tasks": [task(id=id)], **({"nextCursor": following} if following else {})}}

    return Line(answer, version=LEGACY, **TASKS)


async def test_pages_of_tasks_are_put_together() -> None:
    line = listing(first=("a", "x"), x=("b", "y"), y=("c", None))
    async with Client(line) as client:
        assert [status.id for status in await client.tasks()] == ["a", "b", "c"]
    assert [params.get("cursor") for params in line.asked("tasks/list")] == [None, "x", "y"]


@pytest.mark.parametrize(
    ("pages", "asked"),
    [
        pytest.param({"first": ("a", "x"), "x": ("b", "x")}, 2, id="a cursor that comes again"),
        pytest.param({"first": ("a", "x"), "x": ("b", "y"), "y": ("c", "z")}, 3, id="too many pages"),
    ],
)
async def test_a_list_of_tasks_that_does_not_end_is_a_bad_answer(
    pages: dict[str, tuple[str, str | None]], asked: int
) -> None:
    line = listing(**pages)
    async with Client(line, max_pages=3) as client:
        with pytest.raises(BadAnswer, match="list of tasks does not end"):
            await client.tasks()
    assert len(line.asked("tasks/list")) == asked


@pytest.mark.parametrize("tasks", [None, {}, ["t1"]])
async def test_a_page_of_tasks_without_tasks_is_a_bad_answer(tasks: Any) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"tasks": tasks}}

    async with Client(Line(answer, version=LEGACY, **TASKS)) as client:
        with pytest.raises(BadAnswer, match="page of tasks without 'tasks'"):
            await client.tasks()


@pytest.mark.parametrize("status", ["working", "completed"])
async def test_a_task_that_cannot_be_cancelled_is_an_error_unless_it_has_ended(status: str) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return refusal(-32602, "Not now.") if asked["method"] == "tasks/cancel" else {"result": task(status)}

    line = Line(answer)
    async with Client(line) as client:
        if status == "working":
            with pytest.raises(InvalidParams, match=r"Not now\."):
                await client.task("t1").cancel()
        else:
            await client.task("t1").cancel()
    assert len(line.asked("tasks/cancel")) == 1


@pytest.mark.parametrize("gone", [False, True])
async def test_an_answer_that_is_refused_says_so_or_that_the_task_is_lost(gone: bool) -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tasks/update" or (gone and line.asked("tasks/update")):
            return refusal(-32602, "Not like this.")
        return {"result": task("input_required", inputRequests={"name": QUESTION})}

    async with Client(Line(answer)) as client:
        expected = TaskLost if gone else InvalidParams
        with pytest.raises(expected, match=r"Not like this\."):
            await client.task("t1").answer({"name": {"name": "Ada"}})


async def test_a_pipe_that_is_closed_is_not_asked_again() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        raise Unreachable("It has ended.")

    line = Line(answer)
    async with Client(line) as client:
        with pytest.raises(Unreachable, match=r"It has ended\."):
            await client.task("t1").status()
    assert len(line.asked("tasks/get")) == 1


async def test_a_task_has_an_id_and_shows_it() -> None:
    async with Client(Line(lambda line, asked: pytest.fail("nothing is asked"))) as client:
        assert repr(client.task("t1")) == "TaskHandle('t1')"
        with pytest.raises(ValueError, match="The id of the task is empty"):
            client.task("")


# The end


async def slow(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
    """Makes a task of a call, and is too slow to say how it stands."""
    if asked["method"] == "tools/call":
        return promise()
    if asked["method"] == "tasks/get":
        raise TimedOut("It is slow today.")
    return NOTHING if asked["method"] == "tasks/cancel" else refusal(-32601)


async def test_a_look_that_times_out_is_not_taken_for_the_deadline_of_the_task() -> None:
    line = Line(slow)
    async with Client(line, reconnect_timeout=0) as client:
        with pytest.raises(TimedOut, match=r"^It is slow today\.$"):
            await client.task("t1").result(timeout=60)
        assert not line.asked("tasks/cancel")
        with pytest.raises(TimedOut, match=r"^It is slow today\.$"):
            await client.call("tool", timeout=60)
    assert [params["taskId"] for params in line.asked("tasks/cancel")] == ["t1"]


async def test_a_cancelled_task_is_not_asked_for_its_result() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": task("cancelled", statusMessage="Enough.")}

    line = Line(answer, version=LEGACY, **TASKS)
    async with Client(line) as client:
        with pytest.raises(TaskCancelled, match=r"t1 was cancelled: Enough\."):
            await client.task("t1").result()
    assert not line.asked("tasks/result")


async def test_a_result_that_is_only_a_task_again_is_a_bad_answer() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tasks/get":
            return {"result": task("completed")}
        return {"result": {"isComplete": False, "task": task()}}

    async with Client(Line(answer, version=LEGACY, **TASKS)) as client:
        with pytest.raises(BadAnswer, match="result of the task t1, and the server sent a status"):
            await client.task("t1").result()


async def test_a_stream_that_ends_with_another_task_is_a_bad_answer() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        method = asked["method"]
        if method == "tasks/stream":
            return {"result": task("completed", "t2", **DONE)}
        return {"result": task()} if method == "tasks/get" else refusal(-32601)

    async with Client(Line(answer, **STREAMING)) as client, client.task("t1").stream() as stream:
        with pytest.raises(BadAnswer, match="asked for the task t1, and the server sent the task t2"):
            await anext(stream)


async def test_a_tool_that_is_unknown_and_needs_no_task_is_not_called_twice() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tools/call":
            return refusal(-32601, "No such thing.")
        tool = {"name": "tool", "inputSchema": {}, "execution": {"taskSupport": "optional"}}
        return {"result": {"tools": [tool]}}

    line = Line(answer, version=LEGACY, **TASKS)
    async with Client(line) as client:
        with pytest.raises(MethodNotFound, match=r"No such thing\."):
            await client.call("tool")
    assert len(line.asked("tools/call")) == 1


async def test_the_time_that_a_person_takes_does_not_count_for_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    now, passed = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: now() + passed)

    async def elicit(question: Elicitation) -> dict[str, Any]:
        nonlocal passed
        passed += 3600
        await turns(3)  # whatever is due by now happens
        return {}

    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" not in asked["params"]:
            return {"result": {"resultType": "input_required", "inputRequests": {"name": QUESTION}}}
        if asked["params"]["name"] == "late":
            nonlocal passed
            passed += 3600
            await asyncio.Event().wait()
        return DONE

    async with Client(Line(answer), elicit=elicit) as client:
        async with client.stream("tool", timeout=60) as stream:
            assert [segment.text async for segment in stream] == ["Done."]
        async with client.stream("late", timeout=60) as stream:
            with pytest.raises(TimedOut, match="within 60 s"):
                await anext(stream)


async def test_values_are_suggested_for_a_reference_too() -> None:
    async def answer(line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"completion": {"values": ["Ada"]}}}

    line = Line(answer)
    async with Client(line) as client:
        assert list((await client.complete(PromptReference("greet"), "name", "A")).values) == ["Ada"]
    assert line.asked("completion/complete")[0]["ref"] == {"type": "ref/prompt", "name": "greet"}
