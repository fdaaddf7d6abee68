"""Bounds of held runs: how many, how much memory, and for how long. And states that callers must not use."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
from typing import Any

import pytest

from antiphon import BearerTokens, Limits, Principal
from antiphon.errors import RequestError
from antiphon.model.outcome import InputRequired
from antiphon.model.request import CallTool, RequestMeta
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.held import registry
from antiphon.runtime.held.run import HeldRun
from tests.asking.driving import EVERYTHING, Able, accept, once
from tests.held.held_server import Held
from tests.support.loop_time import LoopTime
from tests.support.polling import until
from tests.support.serving import serving

NAME = {"name": accept(name="Ann")}


def text(frame: dict[str, Any]) -> str:
    return str(frame["result"]["content"][0]["text"])


async def test_a_flood_of_runs_evicts_those_that_have_waited_longest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held(limits=Limits(max_held_runs=10, principal_share=1.0))
    async with serving(held.server) as address:
        client = Able(address.port)
        states = [(await once(client, "greet"))["result"]["requestState"] for _ in range(30)]
        await until(lambda: held.unwound["greet"] == 20)
        assert held.server.engine.held_runs.bounds.waiting == 10
        assert sum("max_held_runs" in record.message for record in caplog.records) == 1  # once per minute
        evicted = await once(client, "greet", answers=NAME, state=states[0])
        assert evicted["result"]["isError"]
        assert "too many calls wait" in text(evicted)
        assert text(await once(client, "greet", answers=NAME, state=states[-1])) == "Hello, Ann!"
    assert held.began["greet"] == 30


async def test_so_many_ended_runs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_ENDED_RUNS", 2)
    held = Held(limits=Limits(max_held_runs=1, principal_share=1.0))
    async with serving(held.server) as address:
        client = Able(address.port)
        states = [(await once(client, "greet"))["result"]["requestState"] for _ in range(4)]
        await until(lambda: held.unwound["greet"] == 3)
        ended = [text(await once(client, "greet", answers=NAME, state=state)) for state in states[:3]]
    assert ["too many calls wait" in each for each in ended] == [False, True, True]


async def test_one_principal_evicts_only_its_own_runs() -> None:
    tokens = BearerTokens({"a": Principal("ann"), "b": Principal("bob")})
    held = Held(limits=Limits(max_held_runs=10), authenticate=tokens)
    async with serving(held.server) as address:
        ann = Able(address.port, headers={"authorization": "Bearer a"})
        bob = Able(address.port, headers={"authorization": "Bearer b"})
        state = (await once(bob, "greet"))["result"]["requestState"]
        for _ in range(30):
            await once(ann, "greet")
        assert held.server.engine.held_runs.bounds.waiting == 6
        assert text(await once(bob, "greet", answers=NAME, state=state)) == "Hello, Ann!"


async def test_runs_with_much_memory_evict_others(caplog: pytest.LogCaptureFixture) -> None:
    held = Held(limits=Limits(max_memory_bytes=8 * 1024 * 1024))
    async with serving(held.server) as address:
        client = Able(address.port)
        for _ in range(8):
            await once(client, "greet", {"greeting": "x" * 500_000})
        assert 1 <= held.server.engine.held_runs.bounds.waiting <= 4
        await until(lambda: held.unwound["greet"] >= 4)
    assert any("max_held_runs" in record.message for record in caplog.records)


async def test_without_room_a_call_that_asks_fails_at_once() -> None:
    held = Held(limits=Limits(max_held_runs=0))
    async with serving(held.server) as address:
        frame = await once(Able(address.port), "greet")
    assert "too many calls wait" in text(frame)
    assert held.unwound["greet"] == 1


async def test_a_run_that_nobody_answers_ends() -> None:
    held = Held(limits=Limits(state_lifetime=3600))
    async with serving(held.server) as address:
        await once(Able(address.port), "greet")
        await LoopTime.here().advance_until(lambda: held.unwound["greet"] == 1, 3600)
        assert held.server.engine.held_runs.bounds.waiting == 0
        assert held.server.engine.held_runs.runs == {}


async def test_a_result_is_not_kept_for_ever() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "greet"))["result"]["requestState"]
        await once(client, "greet", answers=NAME, state=state)
        await LoopTime.here().advance_until(lambda: not held.server.engine.held_runs.runs, 3600)
        late = await once(client, "greet", answers=NAME, state=state)
    assert "no longer kept" in text(late)
    assert held.began["greet"] == 1


async def test_a_caller_that_answers_for_ever_needs_no_memory() -> None:
    held = Held()
    capabilities = EVERYTHING
    state: str | None = None
    sizes = []
    async with held.server.running():
        engine = held.server.engine

        async def answer(name: str) -> Any:
            request = CallTool(
                name="for_ever",
                input_responses={key: accept(name=name) for key in keys},
                request_state=state,
            )
            work = Supervised.here()
            meta = RequestMeta(capabilities=capabilities)
            return await engine.handle(Call(request, engine.client_carrier, Caller(), work, 1, meta))

        keys: list[str] = []
        tracemalloc.start()
        try:
            for number in range(1500):
                outcome = await answer("x" * 1000 + str(number))
                assert isinstance(outcome, InputRequired)
                keys, state = list(outcome.questions), outcome.sealed
                if number in (500, 1499):
                    sizes.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        assert (await answer("enough")).text == "enough"
    assert held.began["for_ever"] == 1
    assert sizes[1] - sizes[0] < 300_000  # the answers alone would be a million bytes


async def test_functions_that_wait_in_threads_leave_the_pool_to_others() -> None:
    held = Held(limits=Limits(max_threads=2, max_held_runs=20))
    async with serving(held.server) as address:
        for _ in range(10):
            await once(Able(address.port), "in_a_thread")
        assert (await Able(address.port).call("plain_in_a_thread")).text == "plain"
    await until(lambda: held.unwound["in_a_thread"] == 10)


async def test_a_run_that_has_ended_does_not_wait_for_the_garbage_collector() -> None:
    held = Held()
    async with held.server.running():
        engine = held.server.engine
        gc.collect()
        gc.disable()
        try:
            for name in ("quick", "quick_emits", "refuses"):
                meta = RequestMeta(capabilities=EVERYTHING)
                call = Call(CallTool(name=name), engine.client_carrier, Caller(), Supervised.here(), 1, meta)
                with contextlib.suppress(RequestError):
                    await engine.handle(call)
                del call
            assert [each for each in gc.get_objects() if isinstance(each, HeldRun)] == []
        finally:
            gc.enable()


# States


async def test_states_of_other_callers_tools_and_arguments_are_refused() -> None:
    tokens = BearerTokens({"a": Principal("ann"), "b": Principal("bob")})
    held = Held(authenticate=tokens)
    async with serving(held.server) as address:
        ann = Able(address.port, headers={"authorization": "Bearer a"})
        bob = Able(address.port, headers={"authorization": "Bearer b"})
        state = (await once(ann, "greet"))["result"]["requestState"]
        altered = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
        for refused in (
            await once(bob, "greet", answers=NAME, state=state),
            await once(ann, "other", answers=NAME, state=state),
            await once(ann, "greet", {"greeting": "Bye"}, answers=NAME, state=state),
            await once(ann, "greet", answers=NAME, state=altered),
            await once(ann, "greet", answers=NAME, state="x"),
            await once(ann, "replayed", answers=NAME, state=state),
        ):
            assert "The request state is not valid" in refused["error"]["message"]
        assert text(await once(ann, "greet", answers=NAME, state=state)) == "Hello, Ann!"
    assert held.began["greet"] == 1


async def test_a_sealed_journal_does_not_start_a_run_that_is_held() -> None:
    held = Held()
    async with serving(held.server) as address:
        client = Able(address.port)
        state = (await once(client, "replayed"))["result"]["requestState"]
        held.server.remove_tool("replayed")
        held.register_replayed(replay=False)
        refused = await once(client, "replayed", answers=NAME, state=state)
        assert "The request state is not valid" in refused["error"]["message"]
        state = (await once(client, "replayed"))["result"]["requestState"]
        held.server.remove_tool("replayed")
        held.register_replayed(replay=True)
        refused = await once(client, "replayed", answers=NAME, state=state)
        assert "The request state is not valid" in refused["error"]["message"]


async def test_the_state_of_a_process_that_was_restarted() -> None:
    held, restarted = Held(), Held()
    async with serving(held.server) as address:
        state = (await once(Able(address.port), "greet"))["result"]["requestState"]
        prompt = {"name": "story", "arguments": {"hero": "Ann"}}
        asked = (await Able(address.port).ask("prompts/get", prompt)).result
    async with serving(restarted.server) as address:
        lost = await once(Able(address.port), "greet", answers=NAME, state=state)
        assert lost["result"]["isError"]
        assert "the process that ran it was lost" in text(lost)
        refused = await Able(address.port).ask(
            "prompts/get", {**prompt, "requestState": asked["requestState"], "inputResponses": {}}
        )
        assert "the process that ran it was lost" in refused.error["message"]
    assert restarted.began["greet"] == 0


async def test_many_callers_at_once() -> None:
    held = Held()
    async with serving(held.server) as address:

        async def one(number: int) -> str:
            client = Able(address.port)
            state = (await once(client, "greet"))["result"]["requestState"]
            answers = {"name": accept(name=str(number))}
            return text(await once(client, "greet", answers=answers, state=state))

        answers = await asyncio.gather(*(one(number) for number in range(50)))
    assert answers == [f"Hello, {number}!" for number in range(50)]
    assert held.began["greet"] == 50
