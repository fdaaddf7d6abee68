"""Questions of tasks in the draft, in 2025-11-25 (on the stream) and in 2026-07-28 (in the task)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.asking.driving import accept
from tests.promises.speaking import RELATED, Patient, answer, begin, look, reach
from tests.promises.tooling import Workshop, speaker
from tests.support import http
from tests.support.http import Connection
from tests.support.polling import until
from tests.support.speakers import Bare, Session, Speaker

ROUNDS = ("draft", "2026-07-28")


@pytest.fixture(params=ROUNDS)
async def client(request: pytest.FixtureRequest, port: int) -> Speaker:
    """A client of each dialect in which an answer is a request."""
    return await speaker(request.param, port)


@pytest.fixture
async def session(port: int) -> Session:
    """A client of 2025-11-25."""
    found = await speaker("2025-11-25", port)
    assert isinstance(found, Session)
    return found


async def asked(client: Speaker, id: str) -> dict[str, Any]:
    """Wait until a task asks, and return its questions."""
    task = await reach(client, id, "input_required")
    if isinstance(client, Patient):
        return dict(task["inputRequests"])
    result = (await client.ask("tasks/result", {"taskId": id})).result
    assert result["resultType"] == "input_required"
    assert result["_meta"] == {RELATED: {"taskId": id}}
    return dict(result["inputRequests"])


async def ended(client: Speaker, id: str) -> str:
    """Wait for the end of a task, and return its text."""
    task = await reach(client, id, "completed")
    if isinstance(client, Patient):
        return str(task["result"]["content"][0]["text"])
    return (await client.ask("tasks/result", {"taskId": id})).text


async def test_a_task_asks_is_answered_and_goes_on(client: Speaker, workshop: Workshop) -> None:
    id = (await begin(client, "ask"))["taskId"]
    assert list(await asked(client, id)) == ["first", "second"]
    acknowledged = await answer(client, id, first="a", second="b")
    if isinstance(client, Patient):
        assert acknowledged.result["resultType"] == "complete"
    else:
        assert acknowledged.result == {"_meta": {RELATED: {"taskId": id}}, "resultType": "complete"}
    assert list(await asked(client, id)) == ["third"]
    await answer(client, id, third="c")
    assert await ended(client, id) == "a b c"
    assert workshop.ran == {"began": 1, "went on": 1}


async def test_answers_may_come_one_by_one(client: Speaker, workshop: Workshop) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await answer(client, id, second="b")
    assert list(await asked(client, id)) == ["first"]
    assert workshop.ran["went on"] == 0
    await answer(client, id, first="a")
    assert list(await asked(client, id)) == ["third"]


async def test_what_is_answered_stays_answered(client: Speaker) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await answer(client, id, first="a")
    await answer(client, id, first="too late", second="b", nobody="asked for this")
    await asked(client, id)
    await answer(client, id, third="c")
    assert await ended(client, id) == "a b c"


async def test_an_answer_that_does_not_fit_leaves_the_task_waiting(client: Speaker) -> None:
    id = (await begin(client, "ask"))["taskId"]
    before = await asked(client, id)
    method = "tasks/update" if isinstance(client, Patient) else "tasks/input_response"
    for content, problem in (
        ({"name": 7}, "name: this must be of type string"),
        ({"nickname": "a"}, "name: this is required"),
        ({}, "name: this is required"),
    ):
        responses = {"first": accept(**content)}
        acknowledged = await client.ask(method, {"taskId": id, "inputResponses": responses})
        assert "error" not in acknowledged.frame
        again = await asked(client, id)
        message = again["first"]["params"].pop("message")
        assert message == f"First?\n\nThe last answer does not fit: {problem}"
        again["first"]["params"]["message"] = "First?"
        assert again == before
    await answer(client, id, first="a")
    assert list(await asked(client, id)) == ["second"]


async def test_answers_that_do_not_fit_leave_the_others_standing(client: Speaker) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    method = "tasks/update" if isinstance(client, Patient) else "tasks/input_response"
    responses = {"first": accept(name=7), "second": accept(name="b")}
    await client.ask(method, {"taskId": id, "inputResponses": responses})
    assert list(await asked(client, id)) == ["first"]
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    responses = {"first": {"action": "shrug"}, "second": accept(name="b")}
    refused = await client.ask(method, {"taskId": id, "inputResponses": responses})
    assert refused.error["code"] == -32602
    assert "'first'" in refused.error["message"]
    assert list(await asked(client, id)) == ["first"]


async def test_a_question_that_is_asked_again_keeps_its_key_and_says_why(client: Speaker) -> None:
    """The form allows the answer, and only the function knows that it does not fit."""
    id = (await begin(client, "pick"))["taskId"]
    method = "tasks/update" if isinstance(client, Patient) else "tasks/input_response"
    for number, expected in ((3, "number"), (5, "number~2"), (7, "number~3")):
        # In the extension, a key is never used again after an answer.
        key = expected if isinstance(client, Patient) else "number"
        question = (await asked_for(client, id, key))["params"]["message"]
        assert question.startswith("An even number?")
        if number > 3:
            assert f"{number - 2} is odd" in question
        responses = {key: accept(number=number)}
        await client.ask(method, {"taskId": id, "inputResponses": responses})
    key = "number~4" if isinstance(client, Patient) else "number"
    await asked_for(client, id, key, "7 is odd")
    await client.ask(method, {"taskId": id, "inputResponses": {key: accept(number=8)}})
    assert await ended(client, id) == "8"


async def asked_for(client: Speaker, id: str, key: str, words: str = "") -> dict[str, Any]:
    """Wait until a task asks a question, and return the question."""
    async with asyncio.timeout(60):
        while True:
            questions = await asked(client, id)
            if key in questions and words in questions[key]["params"]["message"]:
                return dict(questions[key])


@pytest.mark.parametrize("given", [{"action": "shrug"}, {"no": "action"}, {"action": "accept", "content": 7}])
async def test_what_is_no_answer_at_all_is_an_error(client: Speaker, given: dict[str, Any]) -> None:
    id = (await begin(client, "ask"))["taskId"]
    before = await asked(client, id)
    method = "tasks/update" if isinstance(client, Patient) else "tasks/input_response"
    refused = await client.ask(method, {"taskId": id, "inputResponses": {"first": given}})
    assert refused.error["code"] == -32602
    refused = await client.ask(method, {"taskId": id, "inputResponses": [given]})
    assert refused.error["code"] == -32602
    assert await asked(client, id) == before


@pytest.mark.parametrize("other", ["text", None, 5, ["list"]])
async def test_what_was_not_asked_is_ignored_in_every_shape(client: Speaker, other: Any) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    method = "tasks/update" if isinstance(client, Patient) else "tasks/input_response"
    responses = {"first": accept(name="a"), "nobody": other}
    acknowledged = await client.ask(method, {"taskId": id, "inputResponses": responses})
    assert "error" not in acknowledged.frame
    assert list(await asked(client, id)) == ["second"]


async def test_declining_fails_the_task(client: Speaker) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    method = "tasks/update" if isinstance(client, Patient) else "tasks/input_response"
    responses = {"first": accept(name="a"), "second": {"action": "decline"}}
    await client.ask(method, {"taskId": id, "inputResponses": responses})
    task = await reach(client, id, "failed", "completed")
    result = task.get("result") or (await client.ask("tasks/result", {"taskId": id})).result
    assert result["isError"] is True
    assert result["content"][0]["text"] == "This was declined: Second?"


async def test_the_draft_takes_the_task_from_the_metadata_too(port: int) -> None:
    client = Bare(port)
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    given = {"inputResponses": {"first": accept(name="a")}, "_meta": {RELATED: {"taskId": id}}}
    assert (await client.ask("tasks/input_response", given)).result["_meta"] == {RELATED: {"taskId": id}}
    assert list(await asked(client, id)) == ["second"]
    refused = await client.ask("tasks/input_response", {"inputResponses": {}})
    assert refused.error["code"] == -32602


async def test_answers_to_a_task_that_does_not_wait_are_refused(port: int, workshop: Workshop) -> None:
    client = Bare(port)
    long, asking = (await begin(client, "long"))["taskId"], (await begin(client, "ask"))["taskId"]
    refused = await answer(client, long, first="a")
    assert refused.error["code"] == -32602
    assert "asks nothing at the moment" in refused.error["message"]
    workshop.gate.set()
    await reach(client, long, "completed")
    refused = await answer(client, long, first="a")
    assert refused.error["code"] == -32602
    assert "has ended" in refused.error["message"]
    await reach(client, asking, "input_required")
    await client.ask("tasks/cancel", {"taskId": asking})
    refused = await answer(client, asking, first="a", second="b")
    assert refused.error["code"] == -32602
    assert "was cancelled" in refused.error["message"]


async def test_the_extension_ignores_answers_to_a_task_that_does_not_wait(port: int) -> None:
    client = Patient(port)
    id = (await begin(client, "add", a=1, b=2))["taskId"]
    await reach(client, id, "completed")
    assert (await answer(client, id, first="a")).result["resultType"] == "complete"


async def test_an_answer_that_is_repeated_is_acknowledged_again(port: int) -> None:
    client = Bare(port)
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await answer(client, id, first="a", second="b")
    await asked(client, id)
    await answer(client, id, third="c")
    assert await ended(client, id) == "a b c"
    for again in ({"first": "a", "second": "b"}, {"third": "c"}):
        assert "error" not in (await answer(client, id, **again)).frame
    assert (await answer(client, id, third="d")).error["code"] == -32602


async def test_the_draft_takes_answers_with_the_request_for_the_result(port: int) -> None:
    client = Bare(port)
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)

    async def result(**names: str) -> dict[str, Any]:
        responses = {key: accept(name=name) for key, name in names.items()}
        return (await client.ask("tasks/result", {"taskId": id, "inputResponses": responses})).result

    assert list((await result(first="a"))["inputRequests"]) == ["second"]
    again = await client.ask(
        "tasks/result", {"taskId": id, "inputResponses": {"second": accept(nickname="b")}}
    )
    assert "name: this is required" in again.result["inputRequests"]["second"]["params"]["message"]
    assert list((await result(second="b"))["inputRequests"]) == ["third"]
    assert (await result(third="c"))["content"][0]["text"] == "a b c"
    assert (await result(third="c"))["content"][0]["text"] == "a b c"  # it has ended


async def test_a_message_that_names_two_tasks_is_refused(port: int) -> None:
    client = Bare(port)
    ids = [(await begin(client, "ask"))["taskId"] for _ in range(2)]
    for id in ids:
        await asked(client, id)
    given = {"inputResponses": {"first": accept(name="a")}, "_meta": {RELATED: {"taskId": ids[0]}}}
    refused = await client.ask("tasks/input_response", {"taskId": ids[1], **given})
    assert refused.error["code"] == -32602
    assert "two tasks" in refused.error["message"]
    for id in ids:
        assert list(await asked(client, id)) == ["first", "second"]
    agreeing = await client.ask("tasks/input_response", {"taskId": ids[0], **given})
    assert "error" not in agreeing.frame
    result = {**accept(name="b"), "_meta": {RELATED: {"taskId": ids[0]}}}
    response = {"jsonrpc": "2.0", "id": 9, "result": result, "_meta": {RELATED: {"taskId": ids[1]}}}
    posted = await http.request(port, "POST", client.headers, json.dumps(response).encode())
    assert posted.status == 400
    assert "two tasks" in posted.error["message"]


async def test_a_response_is_taken_where_exactly_one_question_is_open(port: int) -> None:
    client = Bare(port)
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    response = {"jsonrpc": "2.0", "id": 9, "result": {**accept(name="b"), "_meta": {RELATED: {"taskId": id}}}}
    refused = await http.request(port, "POST", client.headers, json.dumps(response).encode())
    assert refused.status == 400
    assert "2 open questions" in refused.error["message"]
    await answer(client, id, first="a")
    taken = await http.request(port, "POST", client.headers, json.dumps(response).encode())
    assert (taken.status, taken.body) == (202, b"")
    assert list(await asked(client, id)) == ["third"]


async def test_a_parked_task_costs_no_coroutine(client: Speaker, workshop: Workshop) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await asked(client, id)
    await until(lambda: not _of_the_tool())
    assert workshop.server.engine.tasks.running == 0
    await answer(client, id, first="a", second="b")
    await asked(client, id)
    await until(lambda: not _of_the_tool())


def _of_the_tool() -> list[asyncio.Task[Any]]:
    names = ("Worker._run", "Turning.", "Tool.run", "Function.")
    return [task for task in asyncio.all_tasks() if task.get_coro().__qualname__.startswith(names)]  # type: ignore[union-attr]


# 2025-11-25: on the stream of tasks/result


@asynccontextmanager
async def redeeming(
    session: Session, id: str
) -> AsyncIterator[tuple[Connection, AsyncIterator[dict[str, Any]]]]:
    """Yield the messages on the stream of a `tasks/result`."""

    async def frames(connection: Connection) -> AsyncIterator[dict[str, Any]]:
        async for event in connection.events():
            if event.data:
                yield event.frame

    async with session.asking("tasks/result", {"taskId": id}, id="redeem") as connection:
        await connection.receive_head()
        yield connection, frames(connection)


async def say(session: Session, id: Any, result: Any = None, error: Any = None) -> None:
    """Post a response."""
    frame: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
    frame |= {"result": result} if error is None else {"error": error}
    taken = await http.request(session.port, "POST", session.headers, json.dumps(frame).encode())
    assert taken.status == 202


async def until_asked(frames: AsyncIterator[dict[str, Any]], *messages: str) -> dict[str, Any]:
    """Read until these questions have arrived, and return the ids of their requests."""
    found: dict[str, Any] = {}
    async for frame in frames:
        if frame.get("method") == "elicitation/create":
            found[frame["params"]["message"].partition("\n\n")[0]] = frame
        if set(messages) <= set(found):
            return found
    raise AssertionError("the stream ended")


async def test_the_question_goes_out_on_the_stream_of_tasks_result(
    session: Session, workshop: Workshop
) -> None:
    id = (await begin(session, "ask"))["taskId"]
    seen: list[str] = []
    async with redeeming(session, id) as (_, frames):
        asked = await until_asked(frames, "First?", "Second?")
        for frame in asked.values():
            assert frame["params"]["_meta"] == {RELATED: {"taskId": id}}
        assert (await look(session, id))["status"] == "input_required"
        await say(session, asked["First?"]["id"], accept(name="a"))
        await say(session, asked["Second?"]["id"], accept(name="b"))
        async for frame in frames:
            if frame.get("method") == "notifications/tasks/status":
                assert frame["params"]["taskId"] == id
                seen.append(frame["params"]["status"])
            elif frame.get("method") == "elicitation/create":
                await say(session, frame["id"], accept(name="c"))
            else:
                assert frame["id"] == "redeem"
                assert frame["result"]["content"][0]["text"] == "a b c"
                assert frame["result"]["_meta"] == {RELATED: {"taskId": id}}
    assert "working" in seen
    assert seen.count("input_required") >= 1
    assert workshop.ran == {"began": 1, "went on": 1}


async def post(session: Session, id: Any, result: dict[str, Any], **beside: Any) -> http.Response:
    """Post a response, whatever becomes of it."""
    frame = {"jsonrpc": "2.0", "id": id, "result": result, **beside}
    return await http.request(session.port, "POST", session.headers, json.dumps(frame).encode())


@pytest.mark.parametrize("place", ["inside", "beside"])
async def test_a_response_that_names_the_task_is_taken_where_exactly_one_question_is_open(
    session: Session, place: str
) -> None:
    id = (await begin(session, "ask"))["taskId"]
    await reach(session, id, "input_required")
    meta = {RELATED: {"taskId": id}}

    async def name(text: str) -> http.Response:
        if place == "inside":
            return await post(session, 1, {**accept(name=text), "_meta": meta})
        return await post(session, 1, accept(name=text), _meta=meta)

    refused = await name("a")
    assert refused.status == 400
    assert "2 open questions" in refused.error["message"]
    await answer(Bare(session.port), id, first="a")
    assert (await name("b")).status == 202
    async with redeeming(session, id) as (_, frames):
        await until_asked(frames, "Third?")
        assert (await name("c")).status == 202
        last = [frame async for frame in frames][-1]
    assert last["result"]["content"][0]["text"] == "a b c"


async def test_a_response_to_a_question_of_the_session_is_for_that_question_also_if_it_names_the_task(
    session: Session,
) -> None:
    id = (await begin(session, "ask"))["taskId"]
    meta = {RELATED: {"taskId": id}}
    async with redeeming(session, id) as (_, frames):
        asked = await until_asked(frames, "First?", "Second?")
        for question, text in (("Second?", "b"), ("First?", "a"), ("First?", "a")):
            answer_of = {**accept(name=text), "_meta": meta}
            assert (await post(session, asked[question]["id"], answer_of)).status == 202
        again = {**accept(name="a"), "_meta": meta}
        third = await until_asked(frames, "Third?")
        assert (await post(session, asked["First?"]["id"], again)).status == 202  # and is for nothing else
        await say(session, third["Third?"]["id"], {**accept(name="c"), "_meta": meta})
        last = [frame async for frame in frames][-1]
    assert last["result"]["content"][0]["text"] == "a b c"


async def test_a_response_that_nobody_takes_is_refused(session: Session) -> None:
    id = (await begin(session, "ask"))["taskId"]
    await reach(session, id, "input_required")
    for meta in ({}, {RELATED: {"taskId": "nobody_01"}}):
        refused = await post(session, 1, {**accept(name="a"), "_meta": meta})
        assert refused.status == 400
        assert "error" in refused.frame
    older = Session(session.port)
    await older.open("2025-06-18")
    refused = await post(older, 1, {**accept(name="a"), "_meta": {RELATED: {"taskId": id}}})
    assert refused.status == 400


async def test_an_answer_that_does_not_fit_is_asked_for_again_on_the_stream(session: Session) -> None:
    id = (await begin(session, "ask"))["taskId"]
    async with redeeming(session, id) as (_, frames):
        asked = await until_asked(frames, "First?", "Second?")
        await say(session, asked["First?"]["id"], accept(nickname="a"))
        again = await until_asked(frames, "First?")
        assert "Second?" not in again
        assert again["First?"]["params"]["message"].endswith("does not fit: name: this is required")
        await say(session, asked["Second?"]["id"], accept(name="b"))
        assert (await look(session, id))["status"] == "input_required"
        await say(session, again["First?"]["id"], accept(name="a"))
        third = await until_asked(frames, "Third?")
        await say(session, third["Third?"]["id"], accept(name="c"))
        *_, last = [frame async for frame in frames]
    assert last["result"]["content"][0]["text"] == "a b c"


async def test_a_client_whose_answers_never_fit_is_told_so(session: Session) -> None:
    id = (await begin(session, "ask"))["taskId"]
    put = 0
    async with redeeming(session, id) as (_, frames):
        async for frame in frames:
            if frame.get("params", {}).get("message", "").startswith("First?"):
                put += 1
                await say(session, frame["id"], accept(nickname="a"))
    assert put == 10
    assert frame["error"]["code"] == -32602
    assert "'first'" in frame["error"]["message"]
    assert (await look(session, id))["status"] == "input_required"


async def test_a_client_that_cannot_answer_leaves_the_task_waiting(session: Session) -> None:
    id = (await begin(session, "ask"))["taskId"]
    async with redeeming(session, id) as (_, frames):
        asked = await until_asked(frames, "First?", "Second?")
        await say(session, asked["First?"]["id"], error={"code": -32603, "message": "nobody is here"})
        *_, last = [frame async for frame in frames]
    assert "nobody is here" in last["error"]["message"]
    assert (await look(session, id))["status"] == "input_required"


async def test_a_task_that_is_cancelled_meanwhile_ends_the_stream(session: Session) -> None:
    id = (await begin(session, "ask"))["taskId"]
    async with redeeming(session, id) as (_, frames):
        await until_asked(frames, "First?", "Second?")
        await session.ask("tasks/cancel", {"taskId": id})
        *_, last = [frame async for frame in frames]
    assert "cancelled" in last["error"]["message"]


async def test_a_question_that_was_on_a_broken_stream_is_asked_on_the_next_one(session: Session) -> None:
    id = (await begin(session, "ask"))["taskId"]
    async with redeeming(session, id) as (connection, frames):
        await until_asked(frames, "First?", "Second?")
        connection.vanish()
    async with redeeming(session, id) as (_, frames):
        asked = await until_asked(frames, "First?", "Second?")
        for message, name in (("First?", "a"), ("Second?", "b")):
            await say(session, asked[message]["id"], accept(name=name))
        third = await until_asked(frames, "Third?")
        await say(session, third["Third?"]["id"], accept(name="c"))
        *_, last = [frame async for frame in frames]
    assert last["result"]["content"][0]["text"] == "a b c"


# 2026-07-28: notifications


async def test_a_listener_hears_of_the_tasks_that_it_names(port: int) -> None:
    client = Patient(port)
    id = (await begin(client, "ask"))["taskId"]
    other = (await begin(client, "ask"))["taskId"]
    await reach(client, id, "input_required")
    wanted = {"notifications": {"taskIds": [id, "ask_nobody"]}}
    heard: list[tuple[str, str]] = []
    async with client.asking("subscriptions/listen", wanted, id="ear") as connection:
        await connection.receive_head()
        async for event in connection.events():
            if not event.data:
                continue
            frame = event.frame
            assert frame["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "ear"
            if frame["method"] == "notifications/subscriptions/acknowledged":
                assert frame["params"]["notifications"]["taskIds"] == [id]
                await answer(client, other, first="x", second="y")
                await answer(client, id, first="a", second="b")
                continue
            assert frame["method"] == "notifications/tasks"
            task = frame["params"]
            assert task["taskId"] == id
            heard.append((task["status"], ",".join(task.get("inputRequests", {}))))
            if task.get("inputRequests", {}).keys() == {"third"}:
                await answer(client, id, third="c")
            if task["status"] == "completed":
                assert task["result"]["content"][0]["text"] == "a b c"
                break
    assert ("input_required", "third") in heard
    assert heard[-1] == ("completed", "")
