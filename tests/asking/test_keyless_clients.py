"""Our client and our server in the drafts whose questions have no keys, over each channel."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import Client, ClientError, Failure, InputRequired, InvalidRequest
from tests.asking.shapes import CONTENT_001, INFO_000, MESSAGES_000, MESSAGES_001, RELATED, SHAPES
from tests.client import fakes
from tests.client.fakes import Reply
from tests.support.process import SERVERS
from tests.support.servers.shapes import create_server
from tests.support.serving import serving

FORMS = {
    "Please provide your GitHub username": {"name": "octocat"},
    "Who?": {"name": "ada"},
    "Whose is it?": {"name": "ada"},
    "Where?": {"city": "Oslo", "street": "Main"},
    "The first?": {"name": "ada"},
    "The second?": {"name": "bob"},
    "May I?": "decline",
    "Who gives?": {"name": "ada"},
    "Who takes?": {"name": "bob"},
}


class Person:
    """Answers each form, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, question: Any) -> Any:
        self.asked.append(question.message)
        return FORMS[question.message]


@asynccontextmanager
async def connected(channel: str, version: str, person: Person) -> AsyncIterator[Client]:
    def client(target: Any) -> Client:
        return Client(
            target, protocol=version, elicit=person, sample=lambda params: "a line", roots=["file:///a"]
        )

    if channel == "memory":
        async with client(create_server(store="memory:")) as found:
            yield found
    elif channel == "stdio":
        async with client([sys.executable, str(SERVERS / "shapes.py"), "--stdio"]) as found:
            yield found
    else:
        async with serving(create_server(store="memory:")) as address, client(address.url) as found:
            yield found


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture(params=SHAPES)
async def client(request: pytest.FixtureRequest, person: Person) -> AsyncIterator[Client]:
    async with connected("http", request.param, person) as found:
        yield found


CALLS = {
    "greet": ({}, "Hello octocat"),
    "write": ({}, "Wrote: a line"),
    "both": ({}, "ada: a line in Oslo, Main"),
    "twice": ({}, "ada and bob"),
    "charge": ({"amount": 5}, "charged 5 for ada, charged 1 times"),
    "tell": ({}, "one\nada"),
}


@pytest.mark.parametrize("version", SHAPES)
@pytest.mark.parametrize("channel", ["memory", "stdio", "http"])
async def test_calls_and_tasks_are_driven_to_their_end(channel: str, version: str) -> None:
    person = Person()
    async with connected(channel, version, person) as client:
        for tool, (arguments, expected) in CALLS.items():
            person.asked = []
            assert (await client.call(tool, **arguments)).text == expected
            asked, person.asked = person.asked, []
            task = await client.submit(tool, **arguments)
            assert (await task.result()).text == expected.replace("charged 1 times", "charged 2 times")
            assert sorted(person.asked) == sorted(asked), (tool, "asked in the call, and once in the task")


async def test_a_function_that_is_held_goes_on(client: Client) -> None:
    assert (await client.call("held")).text == "Held ada"


async def test_a_person_declines(client: Client) -> None:
    with pytest.raises(Failure, match="declined"):
        await client.call("refuse")
    task = await client.submit("refuse")
    with pytest.raises(Failure, match="declined"):
        await task.result()


async def test_segments_come_before_and_after_the_question(client: Client, person: Person) -> None:
    async with client.stream("tell") as stream:
        assert [segment.text async for segment in stream] == ["one", "ada"]
    assert person.asked == ["Who?"]


async def test_segments_of_a_task_come_before_and_after_the_question(client: Client, person: Person) -> None:
    task = await client.submit("tell")
    async with task.stream() as stream:
        assert [segment.text async for segment in stream] == ["one", "ada"]
    assert person.asked == ["Who?"]


async def test_what_the_draft_cannot_ask_is_an_error(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="root folders"):
        await client.call("roots")


async def test_one_round_at_a_time(client: Client) -> None:
    first = await client.call_once("twice")
    assert isinstance(first, InputRequired)
    (key,) = first.questions
    second = await client.call_once("twice", resume=first, answers={key: {"name": "ada"}})
    assert isinstance(second, InputRequired)
    (key,) = second.questions
    end = await client.call_once("twice", resume=second, answers={key: {"name": "bob"}})
    assert end.text == "ada and bob"


async def test_answers_of_several_questions_may_be_given_in_any_order(client: Client) -> None:
    asked: Any = await client.call_once("both")
    while isinstance(asked, InputRequired):
        answers = {
            key: FORMS[question.message] if hasattr(question, "message") else "a line"
            for key, question in reversed(asked.questions.items())
        }
        asked = await client.call_once("both", resume=asked, answers=answers)
    assert asked.text == "ada: a line in Oslo, Main"


async def test_answers_belong_to_what_was_asked_also_if_the_order_is_another_now(
    client: Client, person: Person
) -> None:
    assert (await client.call("crossed")).text == "ada gives, bob takes"
    assert sorted(person.asked) == ["Who gives?", "Who takes?"]


@pytest.mark.parametrize("version", SHAPES)
async def test_an_answer_to_a_withdrawn_question_answers_no_other(version: str) -> None:
    asked = []
    async with serving(create_server(store="memory:")) as address, Client(address.url) as other:

        async def answer(question: Any) -> Any:
            asked.append(question.message)
            if question.message == "Who keeps it?":
                await other.call("hurry")
            return {"name": question.message}

        async with Client(address.url, protocol=version, elicit=answer) as client:
            assert (await client.call("impatient")).text == "Who deletes it? deletes it"
    assert asked == ["Who keeps it?", "Who deletes it?"]


async def test_a_state_of_another_client_is_an_error(client: Client) -> None:
    with pytest.raises(ValueError, match="not one that this client got"):
        await client.call_once("twice", resume=InputRequired({}, sealed="other"))


# Servers that name no question

PRINTED_META = {RELATED: {"taskId": "t1"}}
TASK = {"taskId": "t1", "createdAt": "2025-11-25T10:30:00Z", "ttl": None, "pollInterval": 10}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


def content(*messages: str) -> list[dict[str, Any]]:
    return [{"type": "elicitation", "message": each, "requestedSchema": SCHEMA} for each in messages]


async def asks_for_two(reply: Reply) -> None:
    """Ask two things of a task at once, as the second option of draft 001 prints it."""
    method = reply.request.method
    if method == "initialize":
        tasks = {"requests": {"tools": {"call": {}}}}
        hello = {"capabilities": {"tools": {}, "tasks": tasks}, "serverInfo": {"name": "two", "version": "1"}}
        await reply.result({"protocolVersion": CONTENT_001, **hello})
    elif method == "tools/list":
        tool = {"name": "ask", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
        await reply.result({"tools": [tool]})
    elif method == "tools/call":
        await reply.result({"task": {**TASK, "status": "working"}})
    elif method == "tasks/get":
        await reply.result({**TASK, "status": "input_required"})
    elif method == "tasks/result":
        await reply.result({"content": content("Who?", "Where?"), "isError": False, "_meta": PRINTED_META})
    else:
        await reply.head(202, None, content_length="0")


async def test_answers_to_questions_without_names_go_in_the_order_of_the_questions() -> None:
    async with fakes.serving(asks_for_two) as fake, Client(fake.url, protocol=CONTENT_001) as client:
        task = await client.submit("ask")
        first, second = (await task.status()).questions
        with pytest.raises(ClientError, match="where_.*answer the questions before it too"):
            await task.answer({second: {"name": "Oslo"}})
        await task.answer({second: {"name": "Oslo"}, first: {"name": "ada"}})
    posted = [heard.body["result"]["content"]["name"] for heard in fake.heard if "result" in heard.body]
    assert posted == ["ada", "Oslo"]


async def test_an_answer_without_the_one_before_it_is_refused_where_it_would_take_its_place() -> None:
    async with connected("http", INFO_000, Person()) as client:
        asked = await client.call_once("both")
        assert isinstance(asked, InputRequired)
        keys = {getattr(question, "message", None): key for key, question in asked.questions.items()}
        with pytest.raises(ClientError, match="answer the questions before it too"):
            await client.call_once("both", resume=asked, answers={keys["Where?"]: FORMS["Where?"]})
        again = await client.call_once("both", resume=asked, answers={keys[None]: "a line"})
        assert isinstance(again, InputRequired)
        assert [getattr(each, "message", None) for each in again.questions.values()] == ["Who?", "Where?"]


# Messages with the id of a request that are no answers to it

PINGING = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    def say(**fields):
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **fields}), flush=True)
    if asked.get("method") == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "pinging", "version": "1"}
        say(result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif asked.get("method") == "tools/call":
        say(method="ping")
        say(result={"content": [{"type": "text", "text": "Done."}]})
"""


@pytest.mark.parametrize("version", [MESSAGES_000, MESSAGES_001])
async def test_a_ping_with_the_id_of_a_call_is_no_answer_to_it(version: str) -> None:
    async with Client([sys.executable, "-c", PINGING], protocol=version) as client:
        assert (await client.call("wait")).text == "Done."


async def test_nor_is_it_on_the_stream_of_the_call() -> None:
    async def answer(reply: Reply) -> None:
        if reply.request.method != "tools/call":
            await (reply.error(-32601) if reply.request.method else reply.head(202, None, content_length="0"))
            return
        await reply.events()
        await reply.event({"id": reply.request.id, "method": "ping"})
        await reply.event({"id": reply.request.id, "result": {"content": []}})

    async with fakes.serving(answer) as fake, Client(fake.url, protocol=MESSAGES_000) as client:
        assert (await client.call("wait")).text == ""
