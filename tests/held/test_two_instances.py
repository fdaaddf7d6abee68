"""Runs that one instance holds, and that the caller continues through another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Limits
from tests.asking.driving import Able, accept, once
from tests.held.held_server import VERSIONS, Held
from tests.streaming.speaking import numbered, reading, speaker, streamed
from tests.support import http
from tests.support.loop_time import LoopTime
from tests.support.polling import until
from tests.support.serving import Address, serving

NAME = {"name": accept(name="Ann")}
LEASE = 300.0
PATIENT = 1000 * LEASE
"""How long calls may take, and the requests of the tests, while the time of the event loop is moved."""
Both = tuple[Held, Address, Held, Address]


@asynccontextmanager
async def pair(store: str, **options: Any) -> AsyncIterator[Both]:
    limits = options.pop("limits", Limits(lease_seconds=LEASE, call_timeout=PATIENT))
    one, other = (Held(store=store, limits=limits, **options) for _ in range(2))
    async with serving(one.server) as here, serving(other.server) as there:
        yield one, here, other, there


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_answer_reaches_the_function_through_another_instance(store: str, version: Any) -> None:
    async with pair(store) as (one, here, other, there):
        first = (await once(version(here.port), "two_in_a_row"))["result"]
        second = await once(
            version(there.port),
            "two_in_a_row",
            answers={"first": accept(name="Ann")},
            state=first["requestState"],
        )
        last = await once(
            version(there.port),
            "two_in_a_row",
            answers={"second": accept(name="Bob")},
            state=second["result"]["requestState"],
        )
        assert last["result"]["content"][0]["text"] == "Ann Bob"
        repeated = await once(
            version(here.port),
            "two_in_a_row",
            answers={"second": accept(name="Bob")},
            state=second["result"]["requestState"],
        )
        assert repeated["result"]["content"] == last["result"]["content"]
    assert one.began["two_in_a_row"] == 1
    assert other.began["two_in_a_row"] == 0


async def test_prompts_resources_errors_and_refused_answers(store: str) -> None:
    async with pair(store) as (one, here, other, there):
        for method, params in (
            ("prompts/get", {"name": "story", "arguments": {"hero": "Ann"}}),
            ("resources/read", {"uri": "story://Ann"}),
        ):
            asked = (await Able(here.port).ask(method, params)).result
            params |= {"requestState": asked["requestState"]}
            wrong = await Able(there.port).ask(
                method, {**params, "inputResponses": {"villain": {"roots": []}}}
            )
            assert "does not answer the question" in wrong.error["message"]
            right = {"inputResponses": {"villain": accept(name="Bob")}}
            told = (await Able(there.port).ask(method, {**params, **right})).result
            assert told == (await Able(here.port).ask(method, {**params, **right})).result
            assert "Ann against Bob" in str(told)
        state = (await once(Able(here.port), "raises"))["result"]["requestState"]
        failed = (await once(Able(there.port), "raises", answers=NAME, state=state))["result"]
        assert "internal error" in failed["content"][0]["text"]
        state = (await once(Able(here.port), "refuses_later"))["result"]["requestState"]
        refused = await once(Able(there.port), "refuses_later", answers=NAME, state=state)
        assert refused["error"] == {"code": -32602, "message": "no", "data": {"why": "tests"}}
    assert one.began["story"] == one.began["told"] == 1
    assert not other.began


@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_progress_and_segments_come_through_the_other_instance(tmp_path: Path, dialect: str) -> None:
    async with pair(f"sqlite:///{tmp_path / 'tasks.db'}") as (one, here, _, there):
        client, remote = await speaker(dialect, here.port), await speaker(dialect, there.port)
        params = streamed(client, "reports")
        first = await client.ask("tools/call", params)
        params |= {
            "requestState": first.result["requestState"],
            "inputResponses": NAME,
            "_meta": {"progressToken": "two"},
        }
        async with reading(remote, "tools/call", params) as stream:
            await stream.up_to(2)
            one.release.set()
            last = await stream.rest()
    told = [frame["params"] for frame in stream.frames if frame.get("method") == "notifications/progress"]
    assert [(each["progressToken"], each["message"]) for each in told] == [("two", "half")]
    assert numbered(first.frames) == [(1, "one")]
    seen = numbered(stream.frames)
    assert seen[0] == (2, "Ann")
    if dialect == "draft":
        assert seen == [(2, "Ann"), (3, "three")]
    else:
        assert [block["text"] for block in last["result"]["content"]] == ["one", "Ann", "three"]
    assert one.began["reports"] == 1


async def test_a_caller_that_leaves_the_other_instance_cancels_the_function(tmp_path: Path) -> None:
    async with pair(f"sqlite:///{tmp_path / 'tasks.db'}") as (one, here, _, there):
        state = (await once(Able(here.port), "slow"))["result"]["requestState"]
        params = {"name": "slow", "arguments": {}, "requestState": state, "inputResponses": NAME}
        async with Able(there.port).asking("tools/call", params):
            await until(lambda: one.began["slow answered"])
        await until(lambda: one.unwound["slow"])
        again = (await once(Able(there.port), "slow", answers=NAME, state=state))["result"]
        assert "Make the call again" in again["content"][0]["text"]


async def test_an_instance_that_stops_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", PATIENT)
    limits = Limits(lease_seconds=LEASE, call_timeout=PATIENT, drain_timeout=0.2)
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    one, other = (Held(store=store, limits=limits) for _ in range(2))
    async with serving(other.server) as there:
        async with serving(one.server) as here:
            state = (await once(Able(here.port), "slow"))["result"]["requestState"]
            waiting = asyncio.create_task(once(Able(there.port), "slow", answers=NAME, state=state))
            await until(lambda: one.began["slow answered"])
            idle = (await once(Able(here.port), "greet"))["result"]["requestState"]
        asking = asyncio.create_task(once(Able(there.port), "greet", answers=NAME, state=idle))
        await LoopTime.here().advance_until(asking.done, LEASE)
        for frame in (await waiting, await asking):
            assert frame["result"]["isError"]
            assert "Make the call again" in frame["result"]["content"][0]["text"]
    assert one.unwound["slow"] == one.unwound["greet"] == 1


async def test_answers_that_are_lost_on_the_way_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", PATIENT)
    loop_time = LoopTime.here()
    async with pair(store) as (one, here, other, there):
        publish, lost = other.server.engine.relay.publish, []

        async def lose_the_first(topic: str, data: Any) -> None:
            if topic.startswith("held/") and len(lost) < 2:
                lost.append(data)
            else:
                await publish(topic, data)

        monkeypatch.setattr(other.server.engine.relay, "publish", lose_the_first)
        state = (await once(Able(here.port), "greet"))["result"]["requestState"]
        answering = asyncio.create_task(once(Able(there.port), "greet", answers=NAME, state=state))
        for number in (1, 2):
            await until(lambda number=number: len(lost) == number)
            loop_time.advance(LEASE / 3)
        last = await answering
    assert last["result"]["content"][0]["text"] == "Hello, Ann!"
    assert len(lost) == 2
    assert one.began["greet"] == 1


async def test_large_answers_and_large_results(tmp_path: Path) -> None:
    limits = Limits(lease_seconds=LEASE, max_body_bytes=200_000)
    async with pair(f"sqlite:///{tmp_path / 'tasks.db'}", limits=limits) as (one, here, _, there):
        state = (await once(Able(here.port), "greet"))["result"]["requestState"]
        answers = {"name": accept(name="x" * 150_000)}
        last = await once(Able(there.port), "greet", answers=answers, state=state)
        assert len(last["result"]["content"][0]["text"]) > 150_000
        state = (await once(Able(here.port), "large"))["result"]["requestState"]
        refused = await once(Able(there.port), "large", answers=NAME, state=state)
        assert "cannot be sent from the process that ran it" in refused["error"]["message"]
        whole = await once(Able(here.port), "large", answers=NAME, state=state)  # the outcome is kept
        assert len(whole["result"]["content"][0]["text"]) == 300_000
    assert one.began["greet"] == 1


async def test_without_a_store_another_instance_says_that_the_call_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, other = Held(), Held()
    async with serving(one.server) as here, serving(other.server) as there:
        state = (await once(Able(here.port), "greet"))["result"]["requestState"]
        lost = (await once(Able(there.port), "greet", answers=NAME, state=state))["result"]
    assert "was lost" in lost["content"][0]["text"]
    assert any("same store" in record.message for record in caplog.records)
