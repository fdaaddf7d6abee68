"""Our client answers questions and repeats the request, on every version and transport."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon import (
    Client,
    Elicit,
    Failure,
    InputRequired,
    Limits,
    RequestError,
    Result,
    Server,
    shed_after,
)
from antiphon.client import Elicitation
from antiphon.errors import BadAnswer
from antiphon.runtime.execution.context import Context
from tests.asking.test_rounds import make, steps
from tests.support.process import environment, started
from tests.support.serving import serving

VERSIONS = ("2026-07-28", "2025-11-25", "DRAFT-2026-v1")


class Person:
    """Answers questions by their message, and records them."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"Name?": {"name": "Ada"}, "x?": {"x": "y"}, "Log in": {}, **answers}
        self.asked: list[str] = []

    async def __call__(self, question: Elicitation) -> Any:
        self.asked.append(question.message)
        return self.answers[question.message]


async def sample(params: Mapping[str, Any]) -> str:
    return f"reply to {params['messages'][0]['content']['text']}"


@asynccontextmanager
async def connected(
    version: str, transport: str, person: Person | None = None, server: Server | None = None, **options: Any
) -> AsyncIterator[Client]:
    able: dict[str, Any] = {"elicit": person or Person(), "sample": sample, "roots": ["file:///home"]}
    served = server or make()
    if transport == "memory":
        async with Client(served, protocol=version, **{**able, **options}) as client:
            yield client
    else:
        async with (
            serving(served) as address,
            Client(address.url, protocol=version, **{**able, **options}) as client,
        ):
            yield client


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", ["http", "memory"])
async def test_the_caller_does_not_notice_the_rounds(version: str, transport: str) -> None:
    steps.clear()
    person = Person()
    async with connected(version, transport, person) as client:
        assert (await client.call("greet")).text == "Hello, Ada!"
        assert (await client.call("greet_from_a_thread")).text == "Hello, Ada!"
        assert (await client.call("everything")).text == "Ada: reply to Say something in file:///home"
        assert (await client.call("explicit")).text == "2 rounds, last y"
        assert (await client.call("step_beside_a_question")).text == "Ada beside"
    assert person.asked.count("Name?") == 4
    assert steps == ["beside"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_prompts_and_resources_are_driven_too(version: str) -> None:
    person = Person(**{"Villain?": {"name": "Bob"}})
    async with connected(version, "http", person) as client:
        prompted = await client.prompt("story", {"hero": "Ada"})
        read = await client.read("story://Ada")
    assert "Ada against Bob" in str(prompted)
    assert "Ada against Bob" in str(read)
    assert person.asked == ["Villain?", "Villain?"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("word", ["decline", "cancel"])
async def test_a_no_is_taken_to_the_tool(version: str, word: str) -> None:
    async with connected(version, "http", Person(**{"Name?": word, "Please?": word})) as client:
        assert (await client.call("persuades")).text == f"so be it: {word}"
        with pytest.raises(Failure, match=r"Name\?"):
            await client.call("greet")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_without_a_handler_is_never_asked(version: str) -> None:
    async with connected(version, "http", elicit=None) as client:
        expected = RequestError if version == "2026-07-28" else Failure
        with pytest.raises(expected, match="elicitation"):
            await client.call("greet")


async def test_a_call_is_stopped_stored_and_gone_on_with_in_another_process(tmp_path: Path) -> None:
    secret = {"ANTIPHON_SECRETS": "a secret for all of them", "ASKING_EFFECTS": str(tmp_path / "effects")}
    with started("asking.py", tmp_path, env=secret) as server:
        async with Client(server.url, elicit=Person()) as client:
            stopped = await client.call_once("five_rounds")
        assert isinstance(stopped, InputRequired)
        assert isinstance(stopped.questions["name_0"], Elicit)
        stored = tmp_path / "stopped.json"
        stored.write_text(
            json.dumps({"questions": msgspec.to_builtins(stopped.questions), "sealed": stopped.sealed})
        )
        script = (
            "import asyncio, json, sys\n"
            "from antiphon import Client, Elicit, InputRequired\n"
            "async def elicit(question): return {'name': question.message[-2]}\n"
            "async def main(url, stored):\n"
            "    kept = json.load(open(stored))\n"
            "    asks = {key: Elicit(**ask) for key, ask in kept['questions'].items()}\n"
            "    after = InputRequired(asks, sealed=kept['sealed'])\n"
            "    async with Client(url, elicit=elicit) as client:\n"
            "        answers = {'name_0': {'name': 'zero'}}\n"
            "        result = await client.call('five_rounds', resume=after, answers=answers)\n"
            "        print(result.text)\n"
            "asyncio.run(main(*sys.argv[1:]))\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script, server.url, str(stored)],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
        )
    assert (ran.stdout, ran.stderr) == ("five_rounds: zero 1 2 3 4\n", "")
    assert (tmp_path / "effects").read_text() == "five_rounds\n"


async def test_by_hand_one_answer_after_the_other() -> None:
    async with connected("2026-07-28", "http") as client:
        stopped = await client.call_once("order")
        assert isinstance(stopped, InputRequired)
        again = await client.call_once("order", resume=stopped, answers={"order": {"count": 99}})
        assert isinstance(again, InputRequired)
        last = await client.call_once("order", resume=again, answers={"order": {"count": 2}})
        assert isinstance(last, Result)
        assert "count=2" in last.text
        declined = await client.call_once("order", resume=again, answers={"order": "decline"}, check=False)
        assert isinstance(declined, Result)
        assert declined.is_error


def counting(upto: int, shed: bool) -> Server:
    server = Server("counting", shed=shed_after(0) if shed else None, limits=Limits())

    @server.tool
    async def count(ctx: Context) -> str:
        done = [await ctx.step(square, number) for number in range(upto)]
        return str(sum(done))

    return server


squared: list[int] = []


def square(number: int) -> int:
    squared.append(number)
    return number * number


@pytest.mark.parametrize("transport", ["http", "memory"])
async def test_a_call_that_is_shed_is_retried_at_once_and_does_no_step_twice(transport: str) -> None:
    squared.clear()
    async with connected("2026-07-28", transport, server=counting(8, shed=True)) as client:
        assert (await client.call("count")).text == "140"
    assert squared == list(range(8))


async def test_a_checkpoint_lets_a_call_be_shed_between_its_steps() -> None:
    squared.clear()
    did: list[str] = []
    server = Server("counting", shed=lambda elapsed: did == ["step", "work"])

    @server.tool
    async def count(ctx: Context) -> str:
        found = await ctx.step(square, 3)
        did.append("step")
        did.append("work")
        await ctx.checkpoint()
        return str(found)

    async with connected("2026-07-28", "http", server=server) as client:
        assert (await client.call("count")).text == "9"
    assert did == ["step", "work"] * 2
    assert squared == [3]


async def test_an_old_client_is_not_shed() -> None:
    squared.clear()
    async with connected("2025-11-25", "http", server=counting(3, shed=True)) as client:
        assert (await client.call("count")).text == "5"
    assert squared == [0, 1, 2]


async def test_a_server_that_does_not_stop_asking_is_given_up() -> None:
    server = Server("curious")

    @server.tool
    async def curious(ctx: Context) -> str:
        for number in range(1000):
            await ctx.elicit("Name?", {"type": "object", "properties": {}}, key=f"more_{number}")
        return "at last"

    async with connected("2026-07-28", "http", server=server, max_rounds=5) as client:
        with pytest.raises(BadAnswer, match="5 rounds"):
            await client.call("curious")


async def test_a_handler_that_fails_ends_the_call_with_an_error() -> None:
    async def broken(question: Elicitation) -> Any:
        raise ValueError("the dialogue does not open")

    async with connected("2026-07-28", "http", elicit=broken) as client:
        with pytest.raises(RequestError, match="failed to answer"):
            await client.call("greet")
