"""A request that comes twice gets the same outcome, and a request that is given up ends its run."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from antiphon import Limits
from tests.asking.driving import Able, accept, once
from tests.held.held_server import Held
from tests.streaming.speaking import numbered, speaker, streamed
from tests.support.loop_time import LoopTime
from tests.support.polling import until
from tests.support.serving import serving

NAME = {"name": accept(name="Ann")}


def params(tool: str, state: str) -> dict[str, Any]:
    return {"name": tool, "arguments": {}, "requestState": state, "inputResponses": NAME}


async def test_a_repeated_answer_gets_the_same_result() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "greet"))["result"]["requestState"]
        results = [(await once(client, "greet", answers=NAME, state=state))["result"] for _ in range(3)]
    assert [result["content"][0]["text"] for result in results] == ["Hello, Ann!"] * 3
    assert held.began["greet"] == 1


async def test_a_repeated_answer_gets_the_same_questions() -> None:
    held = Held()
    answers = {"first": accept(name="Ann")}
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "two_in_a_row"))["result"]["requestState"]
        again = [
            (await once(client, "two_in_a_row", answers=answers, state=state))["result"] for _ in range(2)
        ]
        assert again[0]["inputRequests"] == again[1]["inputRequests"]
        for result in again:  # the states of both go on with the same run
            last = await once(
                client,
                "two_in_a_row",
                answers={"second": accept(name="Bob")},
                state=result["requestState"],
            )
            assert last["result"]["content"][0]["text"] == "Ann Bob"
        stale = await once(client, "two_in_a_row", answers=answers, state=state)
    assert "earlier round" in stale["error"]["message"]
    assert held.began["two_in_a_row"] == 1


async def test_an_answer_that_is_repeated_while_the_function_runs() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "slow"))["result"]["requestState"]
        both = [asyncio.create_task(once(client, "slow", answers=NAME, state=state, id=id)) for id in (2, 3)]
        await until(lambda: held.began["slow answered"] and address.under_way == 2)
        held.release.set()
        texts = [frame["result"]["content"][0]["text"] for frame in await asyncio.gather(*both)]
    assert texts == ["Ann", "Ann"]
    assert held.began["slow answered"] == 1


async def test_a_caller_that_goes_away_cancels_the_function() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "slow"))["result"]["requestState"]
        async with client.asking("tools/call", params("slow", state)):
            await until(lambda: held.began["slow answered"])
        await until(lambda: held.unwound["slow"])
        again = (await once(client, "slow", answers=NAME, state=state))["result"]
    assert again["isError"]
    assert "Make the call again" in again["content"][0]["text"]
    assert held.began["slow"] == 1


async def test_a_repeated_request_keeps_the_function_when_the_first_one_goes_away() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "slow"))["result"]["requestState"]
        async with client.asking("tools/call", params("slow", state)):
            await until(lambda: held.began["slow answered"])
            second = asyncio.create_task(once(client, "slow", answers=NAME, state=state, id=3))
            await until(lambda: address.under_way == 2)
        await until(lambda: address.under_way == 1)
        held.release.set()
        assert (await second)["result"]["content"][0]["text"] == "Ann"
    assert held.unwound["slow"] == 1


async def test_the_time_of_a_person_does_not_count_and_the_time_of_the_function_does() -> None:
    held, loop_time = Held(limits=Limits(call_timeout=20)), LoopTime.here()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "slow"))["result"]["requestState"]
        loop_time.advance(40)  # longer than the timeout: a person takes this time
        answered = asyncio.create_task(once(client, "slow", answers=NAME, state=state))
        await until(lambda: held.began["slow answered"])
        loop_time.advance(20)
        late = (await answered)["result"]
    assert late["isError"]
    assert "did not finish within 20 seconds" in late["content"][0]["text"]
    assert held.unwound["slow"] == 1


async def test_a_state_that_may_be_used_once(tmp_path: Path) -> None:
    held = Held(single_use_state=True, store=f"sqlite:///{tmp_path / 'tasks.db'}")
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "greet"))["result"]["requestState"]
        first = await once(client, "greet", answers=NAME, state=state)
        assert first["result"]["content"][0]["text"] == "Hello, Ann!"
        second = await once(client, "greet", answers=NAME, state=state)
    assert "not valid" in second["error"]["message"]


async def test_a_repeated_request_gets_the_segments_of_its_round_again() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = await speaker("draft", address.port)
        params = streamed(client, "emits_around")
        first = await client.ask("tools/call", params)
        params |= {"requestState": first.result["requestState"], "inputResponses": NAME}
        for _ in range(2):
            second = await client.ask("tools/call", params)
            assert numbered(second.frames) == [(2, "two"), (3, "three")]
            assert list(second.result["inputRequests"]) == ["again"]
    assert held.began["emits_around"] == 1


async def test_a_function_that_ignores_its_cancellation_ends_with_its_server() -> None:
    held = Held()
    async with serving(held.server) as address:
        await once(Able(address.port), "stubborn")
    assert held.unwound["stubborn"] == 3


async def test_a_server_that_stops_ends_the_runs_that_wait(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    with caplog.at_level(logging.ERROR):
        async with serving(held.server) as address:
            for _ in range(3):
                await once(Able(address.port), "greet")
                await once(Able(address.port), "in_a_thread")
    assert held.unwound["greet"] == 3
    await until(lambda: held.unwound["in_a_thread"] == 3)
    assert caplog.records == []
    async with serving(held.server) as address:  # it can be started again
        state = (await once(Able(address.port), "greet"))["result"]["requestState"]
        last = await once(Able(address.port), "greet", answers=NAME, state=state)
    assert last["result"]["content"][0]["text"] == "Hello, Ann!"
