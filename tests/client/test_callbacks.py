"""The requests that a server makes of its client, on versions where it makes them on an open stream."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from antiphon.client.callbacks import Callbacks
from antiphon.errors import InvalidParams, MethodNotFound, RequestError, Unreachable
from antiphon.wire import jsonrpc
from tests.client.channels import Line
from tests.client.fakes import Reply, legacy, serving
from tests.support.polling import DEADLINE, turns, until

DONE = {"content": [{"type": "text", "text": "Done."}]}


async def ask_client(question: dict[str, Any], **options: Any) -> dict[str, Any]:
    """What a client answers when a server asks it something on the stream of a call."""
    answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def answer(reply: Reply) -> None:
        if reply.request.verb == "GET":
            await reply.head(405, None, content_length="0")
        elif reply.request.method == "tools/call":
            await reply.events()
            await reply.event({"id": "q1", **question})
            await answered
            await reply.event({"id": reply.request.id, "result": DONE})
        else:
            answered.set_result(reply.request.body)
            await reply.head(202, None, content_length="0")

    async with serving(legacy(answer)) as fake, Client(fake.url, **options) as client:
        await client.call("tool", timeout=DEADLINE)
    return answered.result()


async def test_a_ping_of_the_servers_is_answered() -> None:
    assert await ask_client({"method": "ping"}) == {"jsonrpc": "2.0", "id": "q1", "result": {}}


async def test_a_request_that_nobody_handles_is_refused() -> None:
    answer = await ask_client({"method": "sampling/createMessage", "params": {}})
    assert answer["error"]["code"] == MethodNotFound.code


RELATED = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}


async def test_an_answer_names_the_task_that_the_question_names() -> None:
    params = {"message": "Who?", "requestedSchema": {}, "_meta": RELATED}
    answer = await ask_client({"method": "elicitation/create", "params": params}, elicit=lambda asked: {})
    assert answer == {
        "jsonrpc": "2.0",
        "id": "q1",
        "result": {"action": "accept", "content": {}, "_meta": RELATED},
    }


async def test_an_answer_names_its_task_at_both_places_where_servers_that_name_it_beside_look() -> None:
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}
    answer = await ask_client({**question, "_meta": RELATED}, elicit=lambda asked: {"name": "Ada"})
    assert answer["result"] == {"action": "accept", "content": {"name": "Ada"}, "_meta": RELATED}
    assert answer["_meta"] == RELATED


@pytest.mark.parametrize("meta", [{}, {"io.modelcontextprotocol/related-task": "t1"}, {"x": 1}, None])
async def test_an_answer_to_a_question_that_names_no_task_names_none(meta: Any) -> None:
    params = {"message": "Who?", "requestedSchema": {}, "_meta": meta}
    answer = await ask_client({"method": "elicitation/create", "params": params}, elicit=lambda asked: {})
    assert answer["result"] == {"action": "accept", "content": {}}


async def test_a_question_to_the_person_is_answered_with_defaults_filled_in() -> None:
    asked: list[Elicitation] = []

    async def elicit(question: Elicitation) -> Mapping[str, Any]:
        asked.append(question)
        return {"name": "Ada"}

    properties = {
        "name": {"type": "string", "default": "?"},
        "age": {"type": "integer", "default": 30},
        "x": {},
    }
    params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": properties}}
    answer = await ask_client({"method": "elicitation/create", "params": params}, elicit=elicit)
    assert answer["result"] == {"action": "accept", "content": {"name": "Ada", "age": 30}}
    assert asked[0].message == "Who?"


async def test_a_person_may_decline() -> None:
    async def elicit(question: Elicitation) -> str:
        return "decline"

    answer = await ask_client({"method": "elicitation/create", "params": {"message": "Who?"}}, elicit=elicit)
    assert answer["result"] == {"action": "decline"}


async def test_a_handler_that_fails_refuses_and_leaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ZeroDivisionError("secret")

    answer = await ask_client({"method": "roots/list"}, handlers={"roots/list": broken})
    assert answer["error"]["code"] == -32603
    assert "secret" not in str(answer)
    assert "secret" in caplog.text


async def test_a_malformed_question_is_invalid() -> None:
    async def elicit(question: Elicitation) -> str:
        raise AssertionError

    answer = await ask_client({"method": "elicitation/create", "params": {"message": 5}}, elicit=elicit)
    assert answer["error"]["code"] == InvalidParams.code


async def test_answers_do_not_wait_behind_the_calls_that_wait_for_them() -> None:
    calls = 8
    answered: dict[Any, asyncio.Event] = {number: asyncio.Event() for number in range(calls)}

    async def answer(reply: Reply) -> None:
        if reply.request.method == "tools/call":
            number = reply.request.params["arguments"]["number"]
            await reply.events()
            await reply.event({"id": number, "method": "ping"})
            await answered[number].wait()
            await reply.event({"id": reply.request.id, "result": DONE})
        else:
            answered[reply.request.id].set()
            await reply.head(202, None, content_length="0")

    async with serving(legacy(answer)) as fake, Client(fake.url, max_requests=2, timeout=60) as client:
        await asyncio.gather(*(client.call("tool", number=number) for number in range(calls)))
    assert fake.methods().count("tools/call") == calls


async def test_a_handler_that_needs_something_it_cannot_get_says_what() -> None:
    async def cut_off(params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise Unreachable("The model is not there.")

    answer = await ask_client({"method": "roots/list"}, handlers={"roots/list": cut_off})
    assert answer["error"] == {"code": -32603, "message": "The model is not there."}


async def test_an_answer_that_the_server_does_not_want_any_more_is_not_worked_on() -> None:
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def elicit(question: Elicitation) -> Mapping[str, Any]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    async def answer(line: Line, request: dict[str, Any]) -> dict[str, Any]:
        await line.say(id="q1", method="elicitation/create", params={"message": "Who?"})
        await asked.wait()
        await line.say(method="notifications/cancelled", params={"requestId": "never asked"})
        assert not stopped.is_set()
        await line.say(method="notifications/cancelled", params={"requestId": "q1"})
        await asyncio.wait_for(stopped.wait(), 30)
        return {"result": DONE}

    line = Line(answer, version="2025-11-25")
    async with Client(line, elicit=elicit) as client:
        await client.call("tool")
    assert line.replies() == []


async def test_more_questions_than_a_client_works_on_at_once_are_refused() -> None:
    replied: list[Any] = []
    refused: dict[Any, str] = {}
    go_on = asyncio.Event()

    async def wait(params: Mapping[str, Any]) -> Mapping[str, Any]:
        await go_on.wait()
        return {}

    async def reply(request_id: Any, result: Any) -> None:
        replied.append(request_id)

    def accept(number: int) -> None:
        asked = jsonrpc.decode(jsonrpc.request(number, "wait", {}))
        handlers.accept(asked, partial(reply, number), refuse)

    async def refuse(request_id: Any, error: RequestError) -> None:
        refused[request_id] = error.message

    handlers = Callbacks({"wait": wait}, max_requests=2)
    for number in (1, 2):
        accept(number)
    await turns()  # both are at work
    accept(3)
    await until(lambda: refused)
    go_on.set()
    await until(lambda: len(replied) == 2)
    await handlers.close()
    assert refused == {3: "This client has too many questions open."}
    assert sorted(replied) == [1, 2]
