"""Our client and our server in the drafts whose questions have no keys, over each channel."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import Client, Failure, InputRequired, InvalidRequest
from tests.asking.shapes import SHAPES
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
    for tool, (arguments, expected) in CALLS.items():
        person = Person()
        async with connected(channel, version, person) as client:
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
