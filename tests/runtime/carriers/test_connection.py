"""The connection as the carrier: the function waits while its caller answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon import Client, Context, InputRequired, Limits, Server
from antiphon.errors import Failure
from antiphon.model.outcome import InputRequired as Stopped
from antiphon.model.question import Elicit
from antiphon.model.request import CallTool
from antiphon.runtime.carriers.connection import ConnectionCarrier
from antiphon.runtime.execution import invoke
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.supervisor import Supervised
from tests.support.memory import in_memory
from tests.support.polling import until

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
    caller, work, loop = Slow(), Supervised.here(), asyncio.get_running_loop()
    began = loop.time()
    work.deadline = began + 1.0
    call: Call[CallTool] = Call(CallTool(name="t"), ConnectionCarrier(), caller, work)
    stopped = Stopped({key: Elicit("?", FORM) for key in ("a", "b")})
    closing = asyncio.create_task(ConnectionCarrier().close(call, None, stopped))  # type: ignore[arg-type]
    await until(lambda: len(caller.answers) == 2)
    assert work.deadline > loop.time() + 3000
    caller.answers["a"].set_result(1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert work.deadline > loop.time() + 3000  # one of them is still open
    caller.answers["b"].set_result(2)
    assert await closing == {"a": 1, "b": 2}
    now = loop.time()
    assert 1.0 - (now - began) <= work.deadline - now <= 1.0  # what passed while nothing was asked counts


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
            await asyncio.sleep(0)

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


async def test_a_call_that_took_too_long_is_answered_to_a_slow_reader() -> None:
    server = Server("tests", limits=Limits(call_timeout=0.1))

    @server.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    async with Client(server) as client:
        channel: Any = client._connection.channel
        deliver = channel._connection._write

        async def slowly(frame: bytes) -> None:
            await asyncio.sleep(0.5)  # several ticks of the supervisor
            await deliver(frame)

        channel._connection._write = slowly
        late = await client.call("hang", check=False)
    assert "did not finish within 0.1 seconds" in late.text
