"""Dependencies of calls that are stopped: closed, and never while a thread uses them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, aclosing, closing
from typing import Annotated, Any

import pytest

from antiphon import Client, Depends, Limits, Result, Server
from tests.runtime.execution.injected import Db, async_generator, coroutine, events, generator
from tests.support.loop_time import LoopTime
from tests.support.polling import DEADLINE, until

TIMEOUT = 60


@pytest.fixture(autouse=True)
def forget() -> None:
    events.clear()


async def stopped(client: Client, tool: str, event: str, times: int = 1) -> Result:
    """Call a tool, which is stopped by its timeout once something has happened so many times."""
    calling = asyncio.create_task(client.call(tool, check=False, timeout=3600))
    await until(lambda: events.count(event) == times)
    LoopTime.here().advance(TIMEOUT)
    return await calling


async def test_a_cancelled_call_closes_its_dependencies() -> None:
    server = Server("tests")

    @server.tool
    async def wait(db: Annotated[Db, Depends(async_generator)]) -> str:
        events.append("call")
        await asyncio.Event().wait()
        return "never"

    async with Client(server) as client:
        call = asyncio.create_task(client.call("wait"))
        await until(lambda: "call" in events)
        call.cancel()
        await until(lambda: "close async_generator" in events)
    assert events[-2:] == ["async_generator saw CancelledError", "close async_generator"]


async def test_dependencies_stay_open_while_a_thread_still_uses_them() -> None:
    server = Server("tests", limits=Limits(call_timeout=TIMEOUT))
    release = threading.Event()

    @server.tool
    def work(db: Annotated[Db, Depends(generator)], other: Annotated[Db, Depends(async_generator)]) -> str:
        events.append("call")
        release.wait(DEADLINE)
        events.append(f"still open: {db.is_open} {other.is_open}")
        return "late"

    async with Client(server) as client:
        result = await stopped(client, "work", "call")
        assert "did not finish within 60 seconds" in result.text
        assert "close generator" not in events
        release.set()
        await until(lambda: "close generator" in events)
    assert events[3:] == [
        "still open: True True",
        "async_generator saw CancelledError",
        "close async_generator",
        "generator saw CancelledError",
        "close generator",
    ]


hold = threading.Event()


def slow_to_open() -> Iterator[str]:
    events.append("opening")
    hold.wait(DEADLINE)
    events.append("opened")
    try:
        yield "value"
    finally:
        events.append("closed")


async def test_a_dependency_that_opens_while_its_call_is_stopped_is_closed() -> None:
    server = Server("tests", limits=Limits(call_timeout=TIMEOUT))

    @server.tool
    async def use(value: Annotated[str, Depends(slow_to_open)]) -> str:
        events.append("call")
        return value

    hold.clear()
    async with Client(server) as client:
        assert (await stopped(client, "use", "opening")).is_error
        hold.set()
    assert events == ["opening", "opened", "closed"], "the server waits for it when it stops"


async def test_a_call_that_is_stopped_before_a_thread_is_free_does_not_run_later() -> None:
    server = Server("tests", limits=Limits(call_timeout=TIMEOUT, max_threads=1))
    begun, release = threading.Event(), threading.Event()

    @server.tool
    def block() -> None:
        begun.set()
        release.wait(DEADLINE)

    @server.tool
    def following() -> str:
        return "on the one thread, after the others"

    @server.tool
    def use(db: Annotated[Db, Depends(coroutine)]) -> str:
        events.append("call")
        return db.name

    async with Client(server) as client:
        blocked = asyncio.create_task(client.call("block", check=False, timeout=3600))
        await until(begun.is_set)
        assert (await stopped(client, "use", "open coroutine")).is_error
        release.set()
        await blocked
        assert (await client.call("following")).text == "on the one thread, after the others"
    assert events == ["open coroutine"]


async def test_a_call_that_is_stopped_before_a_thread_is_free_closes_its_dependencies_at_once() -> None:
    server = Server("tests", limits=Limits(max_threads=1))
    begun, release = threading.Event(), threading.Event()

    @server.tool
    def block() -> str:
        begun.set()
        release.wait(DEADLINE)
        return "the thread was not free before"

    @server.tool(timeout=TIMEOUT)
    def use(db: Annotated[Db, Depends(async_generator)]) -> str:
        events.append("call")
        return db.name

    async with Client(server) as client:
        blocked = asyncio.create_task(client.call("block", timeout=3600))
        await until(begun.is_set)
        assert (await stopped(client, "use", "open async_generator")).is_error
        await until(lambda: "close async_generator" in events)
        assert not blocked.done()
        release.set()
        assert (await blocked).text == "the thread was not free before"
    assert "call" not in events


class AsyncDb(Db):
    async def aclose(self) -> None:
        self.close()


def slow_closing() -> closing[Db]:
    events.append("opening")
    hold.wait(DEADLINE)
    return closing(Db("slow"))


def slow_aclosing() -> AbstractAsyncContextManager[AsyncDb]:
    events.append("opening")
    hold.wait(DEADLINE)
    return aclosing(AsyncDb("slow"))


def slow_failing() -> closing[Db]:
    events.append("opening")
    hold.wait(DEADLINE)
    raise RuntimeError("no database")


@pytest.mark.parametrize("function", [slow_closing, slow_aclosing])
async def test_an_object_that_a_function_returns_after_its_call_is_stopped_is_closed(function: Any) -> None:
    server = Server("tests", limits=Limits(call_timeout=TIMEOUT))

    @server.tool
    async def use(first: Annotated[Db, Depends(async_generator)], value: Any = Depends(function)) -> None:
        events.append("call")

    hold.clear()
    async with Client(server) as client:
        assert (await stopped(client, "use", "opening")).is_error
        hold.set()
    assert events[:4] == ["open async_generator", "opening", "open slow", "close slow"]
    assert events[-1] == "close async_generator"


async def test_a_function_that_fails_after_its_call_is_stopped_keeps_nothing_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("tests", limits=Limits(call_timeout=TIMEOUT))

    @server.tool
    async def use(first: Annotated[Db, Depends(async_generator)], value: Any = Depends(slow_failing)) -> None:
        events.append("call")

    hold.clear()
    async with Client(server) as client:
        assert (await stopped(client, "use", "opening")).is_error
        hold.set()
    assert events[-1] == "close async_generator"
    assert "A dependency of 'use' failed while it was opened." in caplog.text


async def test_a_shutdown_closes_what_needs_no_thread_and_names_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("tests", limits=Limits(drain_timeout=0.05))
    release = threading.Event()

    @server.tool(timeout=TIMEOUT)
    def work(
        first: Annotated[Db, Depends(async_generator)],
        second: Annotated[Db, Depends(generator)],
    ) -> str:
        events.append("working")
        release.wait(DEADLINE)
        return "late"

    @server.tool(timeout=TIMEOUT)
    async def use(
        first: Annotated[Db, Depends(async_generator)], value: Any = Depends(slow_closing)
    ) -> None: ...

    hold.clear()
    try:
        with caplog.at_level(logging.WARNING, "antiphon"):
            async with Client(server) as client:
                assert (await stopped(client, "work", "working")).is_error
                assert (await stopped(client, "use", "opening")).is_error
        assert events.count("open async_generator") == events.count("close async_generator") == 2
    finally:
        hold.set()
        release.set()
    for tool, dependency in (("work", "generator"), ("use", "slow_closing")):
        assert f"a part of '{tool}'. These dependencies are still open: {dependency}. Let" in caplog.text
