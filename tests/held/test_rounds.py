"""The rounds of a call whose function waits in its process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon import Client
from tests.asking.driving import EVERYTHING, Able, accept, drive, once
from tests.held.held_server import VERSIONS, Held
from tests.streaming.speaking import Listener, numbered, speaker, streamed
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Modern, Session, Speaker

NAME = {"name": accept(name="Ann")}
EVERYONE = {
    **NAME,
    "said": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    "roots": {"roots": [{"uri": "file:///tmp"}]},
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tool", ["greet", "in_a_thread"])
async def test_the_function_runs_once(version: type[Speaker], tool: str) -> None:
    held = Held()
    async with serving(held.server) as address:
        result, asked = await drive(version(address.port), tool, {}, NAME)
    assert result["content"][0]["text"] == "Hello, Ann!"
    assert asked == [["name"]]
    assert held.began[tool] == held.unwound[tool] == 1


@pytest.mark.parametrize("protocol", ["2026-07-28", "DRAFT-2026-v1", "2025-11-25"])
async def test_our_client_gets_the_answer_on_every_version(protocol: str) -> None:
    held = Held()
    async with (
        serving(held.server) as address,
        Client(address.url, protocol=protocol, elicit=lambda question: {"name": "Ann"}) as client,
    ):
        assert (await client.call("greet")).text == "Hello, Ann!"
    assert held.began["greet"] == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_several_questions_one_after_the_other(version: type[Speaker]) -> None:
    held = Held()
    answers = {"first": accept(name="Ann"), "second": accept(name="Bob")}
    async with serving(held.server) as address:
        result, asked = await drive(version(address.port), "two_in_a_row", {}, answers)
    assert result["content"][0]["text"] == "Ann Bob"
    assert asked == [["first"], ["second"]]
    assert held.began["two_in_a_row"] == 1


async def test_questions_that_are_asked_at_once_are_sent_together() -> None:
    held = Held()
    async with serving(held.server) as address:
        result, asked = await drive(Able(address.port), "at_once", {}, EVERYONE)
    assert result["content"][0]["text"] == "Ann: hi in file:///tmp"
    assert asked == [["name", "said", "roots"]]
    assert held.began["at_once"] == 1


async def test_questions_without_an_answer_are_asked_again() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        first = (await once(client, "at_once"))["result"]
        second = (await once(client, "at_once", answers=NAME, state=first["requestState"]))["result"]
        assert list(second["inputRequests"]) == ["said", "roots"]
        nothing = (await once(client, "at_once", answers={}, state=second["requestState"]))["result"]
        assert list(nothing["inputRequests"]) == ["said", "roots"]
        rest = {key: value for key, value in EVERYONE.items() if key != "name"}
        last = (await once(client, "at_once", answers=rest, state=nothing["requestState"]))["result"]
    assert last["content"][0]["text"] == "Ann: hi in file:///tmp"
    assert held.began["at_once"] == 1


async def test_an_answer_that_does_not_fit_the_form_is_asked_for_again() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        first = (await once(client, "counted"))["result"]
        again = await once(
            client, "counted", answers={"count": accept(count=99)}, state=first["requestState"]
        )
        message = again["result"]["inputRequests"]["count"]["params"]["message"]
        assert "does not fit" in message
        last = await once(
            client, "counted", answers={"count": accept(count=3)}, state=again["result"]["requestState"]
        )
    assert last["result"]["content"][0]["text"] == "3"
    assert held.began["counted"] == 1


async def test_a_response_of_the_wrong_kind_is_refused_and_the_function_still_waits() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "greet"))["result"]["requestState"]
        refused = await once(client, "greet", answers={"name": {"roots": []}}, state=state)
        assert "does not answer the question 'name'" in refused["error"]["message"]
        last = await once(client, "greet", answers=NAME, state=state)
    assert last["result"]["content"][0]["text"] == "Hello, Ann!"


async def test_a_person_who_declines() -> None:
    held = Held()
    async with serving(held.server) as address:
        result, _ = await drive(Able(address.port), "greet", {}, {"name": {"action": "decline"}})
    assert result["isError"]
    assert "declined" in result["content"][0]["text"]


async def test_a_client_that_cannot_answer_is_not_asked() -> None:
    held = Held()
    async with serving(held.server) as address:
        frame = await once(Modern(address.port), "greet")
    assert frame["error"]["code"] == -32021


async def test_a_function_that_fails_after_a_question() -> None:
    held = Held()
    async with serving(held.server) as address:
        result, _ = await drive(Able(address.port), "raises", {}, NAME)
    assert result["isError"]
    assert "internal error" in result["content"][0]["text"]


async def test_progress_goes_to_the_request_that_waits() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        params: dict[str, Any] = {"name": "two_in_a_row", "arguments": {}}
        first = await client.ask("tools/call", {**params, "_meta": {"progressToken": "one"}})
        params |= {
            "requestState": first.result["requestState"],
            "inputResponses": {"first": accept(name="Ann")},
        }
        second = await client.ask("tools/call", {**params, "_meta": {"progressToken": "two"}})
    told = [frame["params"] for frame in second.frames if frame.get("method") == "notifications/progress"]
    assert [(each["progressToken"], each["message"]) for each in told] == [("two", "half")]
    assert list(second.result["inputRequests"]) == ["second"]


@pytest.mark.parametrize("tool", ["emits", "emits_in_a_thread"])
async def test_a_caller_without_a_stream_gets_all_segments_with_the_result(tool: str) -> None:
    held = Held()
    async with serving(held.server) as address:
        result, _ = await drive(Able(address.port), tool, {}, NAME)
    texts = [block["text"] for block in result["content"]]
    assert texts == (["one", "two", "Ann"] if tool == "emits" else ["one", "Ann"])
    assert held.began[tool] == 1


@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_segments_keep_their_numbers_through_the_rounds(dialect: str) -> None:
    held = Held()
    async with serving(held.server) as address:
        client = await speaker(dialect, address.port)
        params = streamed(client, "emits")
        first = await client.ask("tools/call", params)
        assert numbered(first.frames) == [(1, "one"), (2, "two")]
        params |= {"requestState": first.result["requestState"], "inputResponses": NAME}
        second = await client.ask("tools/call", params)
        repeated = await client.ask("tools/call", params)
    if dialect == "draft":
        assert numbered(second.frames) == numbered(repeated.frames) == [(3, "Ann")]
    else:  # the last segment may come with the result only
        assert numbered(second.frames) in ([], [(3, "Ann")])
        for response in (second, repeated):
            assert [block["text"] for block in response.result["content"]] == ["one", "two", "Ann"]
    assert held.began["emits"] == 1


async def test_a_prompt_and_a_resource_wait_in_the_process() -> None:
    held = Held()
    answers = {"villain": accept(name="Bob")}
    async with serving(held.server) as address:
        client = Able(address.port)
        for method, params in (
            ("prompts/get", {"name": "story", "arguments": {"hero": "Ann"}}),
            ("resources/read", {"uri": "story://Ann"}),
        ):
            asked = (await client.ask(method, params)).result
            state = {"requestState": asked["requestState"], "inputResponses": answers}
            told = (await client.ask(method, {**params, **state})).result
            assert "Ann against Bob" in str(told)
    assert held.began["story"] == held.began["told"] == 1


async def test_a_function_that_returns_its_questions_runs_again_because_it_wants_to() -> None:
    held = Held()
    async with serving(held.server) as address:
        result, asked = await drive(Able(address.port), "explicit", {}, {"n": accept(x="y")})
    assert result["content"][0]["text"] == "2 rounds, last y"
    assert asked == [["n"], ["n"]]
    assert held.began["explicit"] == 3


async def test_a_client_in_the_same_process() -> None:
    held = Held()
    async with Client(held.server, elicit=lambda question: {"name": "Ann"}) as client:
        assert (await client.call("greet")).text == "Hello, Ann!"
        assert (await client.call("in_a_thread")).text == "Hello, Ann!"
    assert held.began["greet"] == held.began["in_a_thread"] == 1


async def test_a_function_may_end_while_its_caller_is_asked() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "gives_up"))["result"]["requestState"]
        held.release.set()
        assert held.server.engine.held_runs.bounds.waiting == 1
        await until(lambda: held.server.engine.held_runs.bounds.waiting == 0)
        last = await once(client, "gives_up", answers=NAME, state=state)
    assert last["result"]["content"][0]["text"] == "nobody"


async def test_a_connection_that_is_asked_in_the_middle_of_a_call_needs_no_held_run() -> None:
    held = Held()
    async with serving(held.server) as address:
        session = Session(address.port)
        await session.open(capabilities=EVERYTHING)
        assert (await session.call("quick")).text == "quick"
        assert held.server.engine.held_runs.bounds.waiting == 0


async def test_a_call_that_asks_nothing_leaves_nothing_behind() -> None:
    held = Held()
    async with serving(held.server) as address:
        before = len(asyncio.all_tasks())
        for _ in range(5):
            assert (await Listener(address.port).call("quick")).text == "quick"
        await until(lambda: len(asyncio.all_tasks()) <= before)
    assert held.server.engine.held_runs.runs == {}
