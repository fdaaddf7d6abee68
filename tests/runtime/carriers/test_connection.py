"""The connection as the carrier: the function waits while its caller answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon import Context, InputRequired, Limits, Server
from antiphon.errors import Failure
from antiphon.model.outcome import InputRequired as Stopped
from antiphon.model.question import Elicit
from antiphon.model.request import CallTool
from antiphon.runtime.carriers.connection import ANSWER_TIMEOUT_SECONDS, ConnectionCarrier
from antiphon.runtime.execution import invoke
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.supervisor import TICK_SECONDS, Supervised
from tests.support.loop_time import LoopTime
from tests.support.memory import InMemory, in_memory
from tests.support.polling import forever, turns

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


class Slow(Caller):
    """A caller that answers each question when told to."""

    can_ask = True

    def __init__(self) -> None:
        self.answers: dict[str, asyncio.Future[Any]] = {}

    async def ask(self, key: str, question: Any, task_id: str | None = None) -> Any:
        self.answers[key] = asyncio.get_running_loop().create_future()
        return await self.answers[key]


async def test_the_time_of_concurrent_questions_counts_once_towards_the_deadline() -> None:
    caller, loop_time = Slow(), LoopTime.here()
    with loop_time.stopped():
        work = Supervised.here()
        work.deadline = given = work.started + 1.0
        call: Call[CallTool] = Call(CallTool(name="t"), ConnectionCarrier(), caller, work)
        stopped = Stopped({key: Elicit("?", FORM) for key in ("a", "b")})
        closing = asyncio.create_task(ConnectionCarrier().close(call, None, stopped))  # type: ignore[arg-type]
        await loop_time.let(lambda: len(caller.answers) == 2)
        assert work.deadline == work.started + ANSWER_TIMEOUT_SECONDS
        loop_time.advance(100)
        caller.answers["a"].set_result(1)
        await turns(5)
        assert work.deadline == work.started + ANSWER_TIMEOUT_SECONDS  # one of them is still open
        loop_time.advance(100)
        caller.answers["b"].set_result(2)
        assert await closing == {"a": 1, "b": 2}
        assert work.deadline == pytest.approx(given + 200)


async def test_state_alone_runs_the_function_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invoke, "MAX_RUNS", 50)
    server, ticks = Server("tests"), 0

    @server.tool
    async def count(ctx: Context) -> str | InputRequired:
        runs = (ctx.state or 0) + 1
        return f"{runs} runs" if runs == 3 else InputRequired(state=runs)

    @server.tool
    async def stuck(ctx: Context) -> InputRequired:
        return InputRequired(state=1)

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await turns()

    async with in_memory(server) as client:
        await client.initialize()
        assert (await client.result("tools/call", {"name": "count"}))["content"][0]["text"] == "3 runs"
        ticking = asyncio.create_task(tick())
        failed = await client.result("tools/call", {"name": "stuck"})
        ticking.cancel()
    assert failed["isError"] is True
    assert "50 times" in failed["content"][0]["text"]
    assert ticks >= 50  # others had their turn


async def test_a_request_state_means_nothing_here_and_is_refused() -> None:
    server = Server("tests")

    @server.tool
    async def plain(ctx: Context) -> str:
        return "ran"

    async with in_memory(server) as client:
        await client.initialize()
        error = await client.error("tools/call", {"name": "plain", "requestState": "garbage"})
    assert error["code"] == -32602


async def test_a_caller_that_cannot_be_asked_is_a_failure_that_says_what_to_do() -> None:
    call: Call[CallTool] = Call(CallTool(name="t"), ConnectionCarrier(), Caller(), Supervised.here())
    with pytest.raises(Failure, match="Accept text/event-stream"):
        await ConnectionCarrier().close(call, None, Stopped({"a": Elicit("?", FORM)}))  # type: ignore[arg-type]


class SlowReader(InMemory):
    """A client that reads nothing for a while."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.is_asked, self.reads = asyncio.Event(), asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.is_asked.set()
        await self.reads.wait()
        await super().write(data)


async def test_a_call_that_took_too_long_is_answered_to_a_slow_reader() -> None:
    server, begun = Server("tests", limits=Limits(call_timeout=20)), asyncio.Event()
    loop_time = LoopTime.here()

    @server.tool
    async def hang() -> str:
        begun.set()
        await forever()
        return "never"

    async with server.running():
        client = SlowReader(server)
        asking = asyncio.create_task(client.ask("tools/call", {"name": "hang"}, meta={}))
        await begun.wait()
        await loop_time.advance_until(client.is_asked.is_set, 20)
        for _ in range(3):
            loop_time.advance(TICK_SECONDS)
            await turns(3)
        client.reads.set()
        late = (await asking)["result"]
        await client.connection.close(within=60)
    assert "did not finish within 20 seconds" in late["content"][0]["text"]
