"""Questions on the connection, for protocol versions in which a server sends requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from antiphon import Context, Server
from tests.asking.driving import EVERYTHING, accept
from tests.asking.test_rounds import Name, make, steps, unwound
from tests.support import http
from tests.support.memory import in_memory
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Session

SAID = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
ANSWERS: Mapping[str, Any] = {
    "Name?": accept(name="Ada"),
    "Log in": {"action": "accept"},
    "x?": accept(x="y"),
    "sampling/createMessage": SAID,
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}


async def held(session: Session, tool: str, answers: Mapping[str, Any] = ANSWERS) -> tuple[Any, list[Any]]:
    """Call a tool and answer its questions on its stream; return the response and the questions."""
    asked: list[Any] = []
    async with session.asking("tools/call", {"name": tool, "arguments": {}}) as connection:
        await connection.receive_head()
        async for event in connection.events():
            if not event.data:
                continue
            frame = event.frame
            if "method" not in frame:
                return frame, asked
            asked.append(frame)
            # A question that is asked again says in a second paragraph what was wrong.
            answer = answers[frame["params"].get("message", frame["method"]).partition("\n\n")[0]]
            if callable(answer):
                answer = answer(len(asked))
            body = {
                "jsonrpc": "2.0",
                "id": frame["id"],
                **(answer if "error" in answer else {"result": answer}),
            }
            told = await http.request(session.port, "POST", session.headers, json.dumps(body).encode())
            assert told.status == 202
    raise AssertionError("the stream ended without a response")


async def opened(
    port: int, capabilities: Mapping[str, Any] = EVERYTHING, version: str = "2025-11-25"
) -> Session:
    session = Session(port)
    await session.open(version, capabilities)
    return session


@pytest.mark.parametrize("tool", ["greet", "greet_from_a_thread"])
async def test_the_question_goes_out_on_the_open_stream_and_the_function_waits(tool: str) -> None:
    unwound.clear()
    async with serving(make()) as address:
        frame, asked = await held(await opened(address.port), tool)
    assert frame["result"]["content"][0]["text"] == "Hello, Ada!"
    assert [question["method"] for question in asked] == ["elicitation/create"]
    assert "thread suspending=True" not in unwound


async def test_everything_can_be_asked_and_a_step_is_done_once() -> None:
    steps.clear()
    async with serving(make()) as address:
        session = await opened(address.port)
        frame, asked = await held(session, "everything")
        assert frame["result"]["content"][0]["text"] == "Ada: hi in file:///home"
        assert len(asked) == 4
        frame, _ = await held(session, "step_beside_a_question")
        assert frame["result"]["content"][0]["text"] == "Ada beside"
    assert steps == ["beside"]


async def test_the_explicit_style_is_driven_by_the_server() -> None:
    async with serving(make()) as address:
        frame, asked = await held(await opened(address.port), "explicit")
    assert frame["result"]["content"][0]["text"] == "2 rounds, last y"
    assert len(asked) == 2


async def test_an_unfitting_answer_is_asked_for_again() -> None:
    answers = {"Name?": lambda count: accept(name="Ada") if count == 3 else accept(name=5)}
    async with serving(make()) as address:
        frame, asked = await held(await opened(address.port), "greet", answers)
    assert frame["result"]["content"][0]["text"] == "Hello, Ada!"
    wrong = "Name?\n\nThe last answer does not fit: name: this must be of type string"
    assert [question["params"]["message"] for question in asked] == ["Name?", wrong, wrong]


async def test_a_client_that_never_answers_fittingly_ends_the_call_as_failed() -> None:
    async with serving(make()) as address:
        frame, asked = await held(await opened(address.port), "greet", {"Name?": accept(name=5)})
    assert frame["result"]["isError"] is True
    assert len(asked) == 10


async def test_an_error_of_the_clients_fails_the_call() -> None:
    refusal = {"error": {"code": -1, "message": "nobody is here"}}
    async with serving(make()) as address:
        frame, _ = await held(await opened(address.port), "greet", {"Name?": refusal})
    assert frame["result"]["isError"] is True
    assert "nobody is here" in frame["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26"])
async def test_a_client_without_the_capability_gets_a_failure_that_names_it(version: str) -> None:
    async with serving(make()) as address:
        session = await opened(address.port, {}, version)
        response = await session.call("greet")
    assert response.result["isError"] is True
    assert "elicitation" in response.text


async def test_a_client_that_takes_no_streams_gets_a_failure() -> None:
    async with serving(make()) as address:
        session = await opened(address.port)
        session.headers["accept"] = "application/json"
        response = await session.call("greet")
    assert response.result["isError"] is True
    assert "cannot be asked on this connection" in response.text


async def test_a_response_that_nobody_takes_is_refused() -> None:
    async with serving(make()) as address:
        session, other = await opened(address.port), await opened(address.port)
        async with other.asking("tools/call", {"name": "greet", "arguments": {}}) as connection:
            await connection.receive_head()
            of_other = [event.frame["id"] async for event in _with_data(connection, 1)]
            for id in ("ask-never-asked", "rubbish", 7, *of_other):
                body = json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}).encode()
                refused = await http.request(session.port, "POST", session.headers, body)
                assert (refused.status, refused.error["code"]) == (400, -32600)
                assert "No question of this session has this id" in refused.error["message"]
            await other.tell("notifications/cancelled", {"requestId": 1})  # the server would wait for its end
            await until(lambda: not address.under_way)
        without = {name: value for name, value in session.headers.items() if name != "mcp-session-id"}
        refused = await http.request(session.port, "POST", without, body)
        assert refused.status == 400
        assert "names no session" in refused.error["message"]


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_the_first_answer_in_a_session_counts_and_another_one_is_refused(store: str | None) -> None:
    server = Server("asking", store=store)
    ended = asyncio.Event()

    @server.tool
    async def greet(ctx: Context) -> str:
        name = (await ctx.elicit("Name?", Name)).name
        await ended.wait()
        return f"Hello, {name}!"

    async with serving(server) as address:
        session = await opened(address.port)

        async def answer(name: str) -> http.Response:
            body = {"jsonrpc": "2.0", "id": question, "result": accept(name=name)}
            return await http.request(session.port, "POST", session.headers, json.dumps(body).encode())

        async with session.asking("tools/call", {"name": "greet", "arguments": {}}) as connection:
            await connection.receive_head()
            (question,) = [event.frame["id"] async for event in _with_data(connection, 1)]
            given = await asyncio.gather(*(answer(name) for name in ("Ada", "Bob", "Eve")))
            assert sorted(each.status for each in given) == [202, 400, 400]
            first = ("Ada", "Bob", "Eve")[[each.status for each in given].index(202)]
            assert (await answer(first)).status == 202
            ended.set()
            (frame,) = [event.frame async for event in _with_data(connection, 1)]
            assert frame["result"]["content"][0]["text"] == f"Hello, {first}!"
        assert (await answer(first)).status == 202
        refused = await answer("Mallory")
        assert (refused.status, refused.error["code"]) == (400, -32602)
        assert "There is another answer already, and the first one counts" in refused.error["message"]


async def test_a_response_to_a_question_whose_call_has_ended_is_accepted_and_has_no_effect() -> None:
    async with serving(make()) as address:
        session = await opened(address.port)
        async with session.asking("tools/call", {"name": "greet", "arguments": {}}, id=7) as connection:
            await connection.receive_head()
            (question,) = [event.frame["id"] async for event in _with_data(connection, 1)]
            await session.tell("notifications/cancelled", {"requestId": 7})
            await until(lambda: not address.under_way)
        body = json.dumps({"jsonrpc": "2.0", "id": question, "result": accept(name="Ada")}).encode()
        assert (await http.request(session.port, "POST", session.headers, body)).status == 202


async def _with_data(connection: http.Connection, count: int) -> AsyncIterator[http.Event]:
    """Yield so many events of a stream that have data."""
    async for event in connection.events():
        if event.data:
            yield event
            count -= 1
            if not count:
                return


async def test_a_cancelled_call_stops_waiting_for_its_answer() -> None:
    async with serving(make()) as address:
        session = await opened(address.port)
        async with session.asking("tools/call", {"name": "greet"}, id=7) as connection:
            await connection.receive_head()
            async for event in connection.events():
                if event.data:
                    break
            await session.tell("notifications/cancelled", {"requestId": 7})
            rest = [event async for event in connection.events()]
        assert all(not event.data for event in rest)


async def test_a_connection_of_its_own_asks_too() -> None:
    server: Server = make()
    async with in_memory(server) as client:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": dict(EVERYTHING),
            "clientInfo": {"name": "t", "version": "1"},
        }
        await client.result("initialize", params)
        calling = asyncio.create_task(client.call("greet"))
        asked = await until(
            lambda: [frame for frame in client.notifications if frame["method"] == "elicitation/create"]
        )
        client.connection.receive(
            json.dumps({"jsonrpc": "2.0", "id": asked[0]["id"], "result": accept(name="Ada")})
        )
        assert (await calling)["content"][0]["text"] == "Hello, Ada!"
