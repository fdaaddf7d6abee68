"""The limits of tasks that wait and of what a task may emit, and the shares of principals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Context, Limits
from tests.promises.speaking import begin, reach
from tests.promises.tooling import Workshop, at_work
from tests.support.http import Response
from tests.support.speakers import Bare


@pytest.fixture
async def shared(kind: str, tmp_path: Path) -> AsyncIterator[tuple[Workshop, int]]:
    """A `Workshop` in which four tasks may wait for a worker, and four for an answer."""
    limits = Limits(max_running_tasks=1, max_queued_tasks=4, max_waiting_tasks=4, max_task_bytes=10_000)
    async with at_work(kind, tmp_path, limits=limits) as (workshop, address):
        yield workshop, address.port


def client(port: int, who: str) -> Bare:
    return Bare(port, headers={"x-who": who})


def answered(id: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"taskId": id, "inputResponses": {"number": {"action": "accept", "content": content}}}


async def refused(client: Bare, tool: str) -> Response:
    response = await client.ask("tools/call", {"name": tool, "task": {}})
    assert (response.status, response.error["code"]) == (503, -32603)
    assert int(response.headers["retry-after"]) > 0
    return response


async def test_a_principal_queues_its_share_and_others_can_queue_the_rest(
    shared: tuple[Workshop, int],
) -> None:
    workshop, port = shared
    ada, bob = client(port, "ada"), client(port, "bob")
    ids = [(await begin(ada, "long"))["taskId"] for _ in range(2)]
    message = (await refused(ada, "long")).error["message"]
    assert "You have 2 of at most 2 tasks that wait for a worker" in message
    for _ in range(2):
        await begin(bob, "long")
    assert "Too many tasks wait for a worker, 4 of at most 4" in (await refused(bob, "long")).error["message"]
    assert (await ada.call("plain")).text == "plain"
    workshop.gate.set()
    for id in ids:
        await reach(ada, id, "completed")
    assert (await begin(ada, "long"))["status"] == "working"


async def test_a_principal_lets_its_share_wait_for_answers_and_others_the_rest(
    shared: tuple[Workshop, int],
) -> None:
    _, port = shared
    ada, bob = client(port, "ada"), client(port, "bob")
    waiting = {}
    for who in (ada, bob):
        waiting[who] = []
        for _ in range(2):
            waiting[who].append((await begin(who, "pick"))["taskId"])
            await reach(who, waiting[who][-1], "input_required")
        message = (await refused(who, "pick")).error["message"]
        if who is ada:
            assert "You have 2 of at most 2 tasks that wait for an answer, a time or an event" in message
        else:
            assert "Too many tasks wait for an answer, a time or an event, 4 of at most 4" in message
    await ada.ask("tasks/input_response", answered(waiting[ada][0], {"number": 2}))
    await reach(ada, waiting[ada][0], "completed")
    await begin(ada, "pick")


async def test_a_task_that_never_ends_may_emit_only_so_much(shared: tuple[Workshop, int]) -> None:
    workshop, port = shared

    @workshop.server.tool(task="required", poll_interval=0.05)
    async def endless(ctx: Context) -> str:
        while True:
            await ctx.emit("x" * 1000)

    ada = client(port, "ada")
    id = (await begin(ada, "endless"))["taskId"]
    result: dict[str, Any] = (await ada.ask("tasks/result", {"taskId": id})).result
    assert result["isError"]
    assert "may emit at most 10000" in result["content"][-1]["text"]
    assert len(result["content"]) == 10


async def test_answers_that_do_not_fit_do_not_fill_the_log(
    shared: tuple[Workshop, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.runtime.tasks.service.MAX_ENTRIES_BEFORE_PROBLEMS", 20)
    workshop, port = shared
    ada = client(port, "ada")
    id = (await begin(ada, "pick"))["taskId"]
    await reach(ada, id, "input_required")
    refusals = 0
    for number in range(40):
        content = {"number": "x" * 5000} if number % 2 else {}
        response = await ada.ask("tasks/input_response", answered(id, content))
        refusals += "too many answers that do not fit" in response.frame.get("error", {}).get("message", "")
    assert refusals > 10
    record = await workshop.store.get(id)
    assert record is not None
    assert record.version <= 21
    assert len(str(record.head)) < 5000
    await ada.ask("tasks/input_response", answered(id, {"number": 2}))
    assert (await reach(ada, id, "completed"))["taskId"] == id
