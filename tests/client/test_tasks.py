"""Tasks of servers that are odd, hostile or gone: what goes over the wire, and an error in time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from antiphon.errors import (
    AntiphonError,
    BadAnswer,
    Failure,
    InternalError,
    MethodNotFound,
    RequestError,
    TaskCancelled,
    TaskLost,
    TimedOut,
)
from tests.client.fakes import META, Answer, Fake, Reply, legacy, modern, serving
from tests.support.polling import DEADLINE, until

RESULT = {"content": [{"type": "text", "text": "done"}], "isError": False}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Name?", "requestedSchema": FORM},
}


def task(status: str = "working", **more: Any) -> dict[str, Any]:
    moment = "2026-11-15T12:00:00Z"
    known = {"taskId": "t1", "createdAt": moment, "lastUpdatedAt": moment, "ttlMs": None}
    return {"resultType": "complete", **known, "pollIntervalMs": 20, "status": status, **more}


def promising(look: Answer, *, listens: bool = False, poll_ms: int = 20) -> Answer:
    """A server of 2026-07-28 that makes a task of every call, and answers `tasks/get` with `look`."""

    async def answer(reply: Reply) -> None:
        method = reply.request.method
        if method == "tools/call":
            await reply.result(task(resultType="task", pollIntervalMs=poll_ms))
        elif method == "subscriptions/listen" and not listens:
            await reply.error(-32601, 404)
        elif method in ("tasks/cancel", "tasks/update"):
            await reply.result({"resultType": "complete"})
        else:
            await look(reply)

    return modern(answer)


def saying(*statuses: dict[str, Any]) -> Answer:
    """Says one after the other, and the last one for ever."""
    left = list(statuses)

    async def look(reply: Reply) -> None:
        await reply.result(left.pop(0) if len(left) > 1 else left[0])

    return look


async def call(answer: Answer, **options: Any) -> str:
    async with serving(answer) as fake, Client(fake.url, reconnect_timeout=0.3) as client:
        return (await asyncio.wait_for(client.call("tool", **options), DEADLINE)).text


async def test_every_request_about_a_task_names_it_in_a_header() -> None:
    asking = task("input_required", inputRequests={"name": QUESTION})
    answer = promising(saying(asking, task("completed", result=RESULT)))

    async def elicit(question: Elicitation) -> dict[str, Any]:
        return {"name": "Ada"}

    async with serving(answer) as fake, Client(fake.url, elicit=elicit) as client:
        assert (await client.call("tool")).text == "done"
        await client.task("ü/1").cancel()
    assert fake.heard[1].params["_meta"][META + "clientCapabilities"]["extensions"] == {META + "tasks": {}}
    assert "task" not in fake.heard[1].params
    update = next(heard for heard in fake.heard if heard.method == "tasks/update")
    accepted = {"action": "accept", "content": {"name": "Ada"}}
    assert (update.params["taskId"], update.params["inputResponses"]) == ("t1", {"name": accepted})
    assert (update.headers["mcp-name"], update.headers["mcp-method"]) == ("t1", "tasks/update")
    assert fake.heard[-1].headers["mcp-name"] == "=?base64?w7wvMQ==?="


async def test_a_key_is_answered_once_however_often_it_is_seen() -> None:
    asking = task("input_required", inputRequests={"name": QUESTION})
    asked: list[str] = []

    async def elicit(question: Elicitation) -> dict[str, Any]:
        asked.append(question.message)
        return {"name": "Ada"}

    looks = saying(asking, asking, asking, task(), asking, task("completed", result=RESULT))
    async with serving(promising(looks)) as fake, Client(fake.url, elicit=elicit) as client:
        assert (await client.call("tool")).text == "done"
    assert asked == ["Name?"]
    assert fake.methods().count("tasks/update") == 1


@pytest.mark.parametrize(
    ("look", "kind", "says"),
    [
        (saying(task("completed")), BadAnswer, "no result"),
        (saying(task("sleeping")), BadAnswer, "with the unknown status 'sleeping'"),
        (saying({**task(), "taskId": ""}), BadAnswer, "without a taskId"),
        (saying({**task(), "taskId": "t2"}), BadAnswer, "sent the task t2"),
        (saying(task("input_required", inputRequests=[])), BadAnswer, "does not say which"),
        (saying(task("input_required", inputRequests={"x": {"method": "y"}})), BadAnswer, "'x' in a way"),
        (saying(task("failed", error={"code": -32603, "message": "It broke."})), InternalError, "It broke"),
        (saying(task("failed", statusMessage="It just did.")), RequestError, "It just did"),
        (saying(task("cancelled", statusMessage="Enough.")), TaskCancelled, "t1 was cancelled: Enough"),
        (saying(task("completed", result={**RESULT, "isError": True})), Failure, "done"),
        (lambda reply: reply.error(-32602), TaskLost, "does not know the task t1"),
        (lambda reply: reply.error(-32603), InternalError, "No"),
        (lambda reply: reply.error(-32601, 404), MethodNotFound, "No"),
        (saying(task("input_required", inputRequests={"name": QUESTION})), MethodNotFound, "does not answer"),
    ],
)
async def test_how_a_task_can_end(look: Answer, kind: type[AntiphonError], says: str) -> None:
    with pytest.raises(kind, match=says):
        await call(promising(look))


@pytest.mark.parametrize(
    "created", [{"resultType": "task", "status": "working"}, {"resultType": "task", "taskId": "t1"}]
)
async def test_a_promise_without_an_id_or_a_status_is_a_bad_answer(created: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        await call(modern(lambda reply: reply.result(created)))


async def test_a_task_in_place_of_anything_but_a_tools_answer_is_a_bad_answer() -> None:
    answer = modern(lambda reply: reply.result(task(resultType="task")))
    async with serving(answer) as fake, Client(fake.url) as client:
        with pytest.raises(BadAnswer, match="'task'"):
            await client.read("file:///x")


async def test_a_task_that_never_ends_times_out_and_is_stopped() -> None:
    async with serving(promising(saying(task()))) as fake, Client(fake.url) as client:
        with pytest.raises(TimedOut, match=r"within 0\.2 s"):
            await client.call("tool", timeout=0.2)
        promise = await client.submit("tool")
        with pytest.raises(TimedOut, match="ask again later"):
            await promise.result(timeout=0.2)
    assert fake.methods().count("tasks/cancel") == 1


async def test_a_task_that_disappears_while_it_is_followed_is_lost() -> None:
    looks = iter([task(), task()])

    async def look(reply: Reply) -> None:
        status = next(looks, None)
        await (reply.error(-32602) if status is None else reply.result(status))

    with pytest.raises(TaskLost):
        await call(promising(look))


@pytest.mark.parametrize(("interval", "most"), [(0, 60), (-5, 12), ("x", 12), (None, 12)])
async def test_a_poll_interval_that_is_none_is_bounded_below(interval: Any, most: int) -> None:
    async with serving(promising(saying(task(pollIntervalMs=interval)))) as fake, Client(fake.url) as client:
        promise = await client.submit("tool")
        with pytest.raises(TimedOut):
            await promise.result(timeout=1.0)
        polls = fake.methods().count("tasks/get")
        assert polls <= most
        waiting = asyncio.create_task(promise.result())
        await until(lambda: fake.methods().count("tasks/get") > polls)
        waiting.cancel()


async def test_a_huge_poll_interval_does_not_outwait_the_caller() -> None:
    async with serving(promising(saying(task(pollIntervalMs=10**15)))) as fake, Client(fake.url) as client:
        promise = client.task("t1")
        with pytest.raises(TimedOut):
            await asyncio.wait_for(promise.result(timeout=0.3), DEADLINE)


def listening(act: Callable[[Reply, Fake], Awaitable[None]]) -> tuple[Answer, list[Fake]]:
    """A server that looks bad at `tasks/get`, and does `act` on a stream of changes."""
    fakes: list[Fake] = []

    async def look(reply: Reply) -> None:
        if reply.request.method == "subscriptions/listen":
            await reply.events()
            await act(reply, fakes[0])
        else:
            await reply.result(task(pollIntervalMs=60_000))

    # News come on the stream, so that no poll is due before the stream is open.
    return promising(look, listens=True, poll_ms=60_000), fakes


async def acknowledge(reply: Reply, *ids: str) -> None:
    params = {"notifications": {"taskIds": ids}, "_meta": {META + "subscriptionId": reply.request.id}}
    await reply.event({"method": "notifications/subscriptions/acknowledged", "params": params})


async def tell(reply: Reply, status: dict[str, Any]) -> None:
    meta = {META + "subscriptionId": reply.request.id}
    await reply.event({"method": "notifications/tasks", "params": {**status, "_meta": meta}})


async def test_news_come_without_polling_and_each_change_once() -> None:
    async def act(reply: Reply, fake: Fake) -> None:
        await acknowledge(reply, "t1")
        await tell(reply, {**task(), "taskId": "another"})
        for message in ("one", "one", "two"):
            await tell(reply, task(statusMessage=message))
        await tell(reply, {"taskId": "t1", "status": "rubbish"})
        await tell(reply, task("completed", result=RESULT))
        await reply.hang()

    answer, fakes = listening(act)
    async with serving(answer) as fake, Client(fake.url) as client:
        fakes.append(fake)
        promise = await client.submit("tool")
        seen = [(status.status, status.message) async for status in promise.updates()]
        await asyncio.wait_for(fake.gone.wait(), 30)
    assert seen == [("working", None), ("working", "one"), ("working", "two"), ("completed", None)]
    assert "tasks/get" not in fake.methods()


async def test_a_question_that_goes_and_comes_again_at_once_is_answered() -> None:
    asking = task("input_required", inputRequests={"name": QUESTION})
    asked, answered = asyncio.Event(), asyncio.Event()

    async def act(reply: Reply, fake: Fake) -> None:
        await acknowledge(reply, "t1")
        await tell(reply, asking)
        await asked.wait()
        meta = {META + "subscriptionId": reply.request.id}
        both = [
            {"method": "notifications/tasks", "params": {**one, "_meta": meta}} for one in (task(), asking)
        ]
        await reply.raw(
            "".join(f"data: {json.dumps({'jsonrpc': '2.0', **one})}\n\n" for one in both).encode()
        )
        await until(lambda: "tasks/update" in fake.methods())
        await tell(reply, task("completed", result=RESULT))
        await reply.hang()

    async def elicit(question: Elicitation) -> dict[str, Any]:
        if not asked.is_set():
            asked.set()
            await answered.wait()
        return {"name": "Ada"}

    answer, fakes = listening(act)
    async with serving(answer) as fake, Client(fake.url, elicit=elicit) as client:
        fakes.append(fake)
        assert (await asyncio.wait_for(client.call("tool"), DEADLINE)).text == "done"
    assert fake.methods().count("tasks/update") == 1


async def test_what_was_told_before_a_look_does_not_undo_it() -> None:
    then, now = ({"lastUpdatedAt": f"2026-11-15T12:00:0{second}Z"} for second in (1, 2))
    asking = task("input_required", inputRequests={"name": QUESTION}, **now)
    seen: list[str] = []

    async def answer(reply: Reply) -> None:
        if reply.request.method == "subscriptions/listen":
            await reply.events()
            await acknowledge(reply, "t1")
            await tell(reply, task(statusMessage="early", **then))
            await until(lambda: seen)
            await tell(reply, task(statusMessage="late", **now))
            await tell(reply, task("completed", result=RESULT, **now))
            await reply.hang()
        else:
            await reply.result(asking)

    async with serving(promising(answer, listens=True)) as fake, Client(fake.url) as client:
        async for status in client.task("t1").updates():
            seen.append(status.message or status.status)
    assert seen == ["input_required", "late", "completed"]


async def test_a_stream_that_is_not_for_the_task_is_closed_and_the_task_looked_at() -> None:
    async def answer(reply: Reply) -> None:
        if reply.request.method == "subscriptions/listen":
            await reply.events()
            await acknowledge(reply)
            await reply.hang()
        else:
            await reply.result(next(looks))

    looks = iter([task(), task(), task("completed", result=RESULT)])
    async with serving(promising(answer, listens=True)) as fake, Client(fake.url) as client:
        assert (await asyncio.wait_for(client.call("tool"), 30)).text == "done"
        await asyncio.wait_for(fake.gone.wait(), 30)
    assert fake.methods().count("subscriptions/listen") == 1


async def test_a_stream_that_breaks_is_opened_again_a_few_times_and_then_done_without() -> None:
    counts = {"listen": 0, "get": 0}

    async def answer(reply: Reply) -> None:
        if reply.request.method == "subscriptions/listen":
            counts["listen"] += 1
            await reply.events()
            await acknowledge(reply, "t1")
        else:
            counts["get"] += 1
            await reply.result(task() if counts["get"] < 20 else task("completed", result=RESULT))

    async with serving(promising(answer, listens=True)) as fake, Client(fake.url) as client:
        assert (await asyncio.wait_for(client.call("tool"), DEADLINE)).text == "done"
    assert counts == {"listen": 5, "get": 20}


# 2025-11-25

TASKS = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


def core(status: str = "working", **more: Any) -> dict[str, Any]:
    moment = "2026-11-15T12:00:00Z"
    known = {"taskId": "t1", "createdAt": moment, "lastUpdatedAt": moment, "ttl": None}
    return {**known, "pollInterval": 20, "status": status, **more}


def sessions(support: str, answer: Answer, **capabilities: Any) -> Answer:
    """A server with sessions and one tool."""

    async def every(reply: Reply) -> None:
        method, params = reply.request.method, reply.request.params
        if method == "tools/list":
            tool = {"name": "tool", "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}
            await reply.result({"tools": [tool]})
        elif method == "tools/call" and "task" in params:
            await reply.result({"task": core()})
        elif method == "tools/call" and support == "required":
            await reply.error(-32601)
        elif method == "tools/call":
            await reply.result(RESULT)
        else:
            await answer(reply)

    return legacy(every, **(capabilities or TASKS))


async def test_a_tool_that_needs_a_task_is_called_with_one_after_it_said_so() -> None:
    async def answer(reply: Reply) -> None:
        done = reply.request.method == "tasks/result"
        await reply.result(RESULT if done else core("completed"))

    async with serving(sessions("required", answer)) as fake, Client(fake.url) as client:
        assert (await client.call("tool")).text == "done"
        assert (await client.call("tool")).text == "done"
    calls = [heard.params.get("task") for heard in fake.heard if heard.method == "tools/call"]
    assert calls == [None, {}, {}]
    assert fake.methods().count("tools/list") == 1


async def test_a_tool_that_takes_none_is_never_called_with_a_task() -> None:
    async with serving(sessions("forbidden", Reply.hang)) as fake, Client(fake.url) as client:
        assert (await client.submit("tool", ttl=5)).id is None
    async with serving(sessions("optional", Reply.hang, tools={})) as mute, Client(mute.url) as client:
        assert (await client.submit("tool")).id is None
    for heard in (*fake.heard, *mute.heard):
        assert "task" not in heard.params


async def test_the_time_to_live_is_asked_for_in_milliseconds() -> None:
    async with serving(sessions("optional", Reply.hang)) as fake, Client(fake.url) as client:
        promise = await client.submit("tool", ttl=1.5)
    assert promise.id == "t1"
    assert fake.heard[-2].params["task"] == {"ttl": 1500}


async def test_a_server_that_does_not_let_callers_wait_for_a_result_is_looked_at() -> None:
    looks = iter([core(), core(), core(), core("completed")])
    ended = asyncio.Event()

    async def answer(reply: Reply) -> None:
        if reply.request.method == "tasks/get":
            status = next(looks, core("completed"))
            if status["status"] == "completed":
                ended.set()
            await reply.result(status)
        elif ended.is_set():
            await reply.result(RESULT)
        else:
            await reply.error(-32600)

    async def elicit(question: Elicitation) -> dict[str, Any]:
        return {}

    async with serving(sessions("required", answer)) as fake, Client(fake.url, elicit=elicit) as client:
        assert (await asyncio.wait_for(client.call("tool"), DEADLINE)).text == "done"


async def test_a_result_that_never_comes_on_its_stream_is_asked_for_anew() -> None:
    requests = 0

    async def answer(reply: Reply) -> None:
        nonlocal requests
        if reply.request.method == "tasks/get":
            await reply.result(core("completed"))
        elif reply.request.method == "tasks/result":
            requests += 1
            if requests == 1:
                await reply.hang()
            await reply.result({**RESULT, "_meta": {META + "related-task": {"taskId": "t1"}}})
        else:
            await reply.head(405, None, content_length="0")

    async def elicit(question: Elicitation) -> dict[str, Any]:
        return {}

    async with serving(sessions("required", answer)) as fake, Client(fake.url, elicit=elicit) as client:
        result = await asyncio.wait_for(client.call("tool"), DEADLINE)
    assert (result.text, result.meta) == ("done", None)
