"""Requests that arrive together are served in batches, each in an asyncio task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from antiphon.transport.server.http.batched_start import MAX_BATCH, BatchedStart
from tests.support.polling import turns, until

variable: contextvars.ContextVar[int] = contextvars.ContextVar("tests_variable", default=0)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return a function that runs a test on an event loop."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test)

    return run


async def from_callback(function: Callable[[], None]) -> None:
    """Call a function as the event loop calls a protocol: outside of every task."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def call() -> None:
        function()
        done.set_result(None)

    loop.call_soon(call)
    await done


def test_requests_are_served_in_order_after_all_of_them_were_read(run: Any) -> None:
    async def test() -> None:
        events: list[str] = []

        async def work(number: int) -> None:
            events.append(f"served {number}")

        def read() -> None:
            for number in range(3):
                batch.add(work(number), loop)
                events.append(f"read {number}")

        batch, loop = BatchedStart(), asyncio.get_running_loop()
        await from_callback(read)
        await turns()
        assert events == ["read 0", "read 1", "read 2", "served 0", "served 1", "served 2"]

    run(test())


def test_a_full_batch_is_served_before_the_next_request_is_read(run: Any) -> None:
    async def test() -> None:
        served: list[int] = []
        served_when_read: list[int] = []

        async def work(number: int) -> None:
            served.append(number)

        def read() -> None:
            for number in range(2 * MAX_BATCH + 3):
                batch.add(work(number), loop)
                served_when_read.append(len(served))

        batch, loop = BatchedStart(), asyncio.get_running_loop()
        await from_callback(read)
        assert served_when_read == ([0] * (MAX_BATCH - 1) + [MAX_BATCH] * MAX_BATCH + [2 * MAX_BATCH] * 4)
        await turns()
        assert served == list(range(2 * MAX_BATCH + 3))

    run(test())


def test_each_request_has_a_task_and_a_context_of_its_own(run: Any) -> None:
    async def test() -> None:
        tasks: list[Any] = []

        async def work(number: int) -> None:
            before = variable.get()
            variable.set(number)
            task = asyncio.current_task()
            async with asyncio.timeout(60):
                await turns()
            tasks.append((task, asyncio.current_task(), before, variable.get()))

        batch, loop = BatchedStart(), asyncio.get_running_loop()
        await from_callback(lambda: [batch.add(work(number), loop) for number in (1, 2)] and None)
        await until(lambda: len(tasks) == 2)
        for number, (first, second, before, after) in enumerate(tasks, 1):
            assert first is second is not None
            assert (before, after) == (0, number)
        assert tasks[0][0] is not tasks[1][0]
        assert variable.get() == 0

    run(test())


def test_a_request_that_fails_leaves_the_others_alone(run: Any) -> None:
    async def test() -> None:
        served: list[int] = []
        problems: list[Any] = []

        async def work(number: int) -> None:
            if number == 1:
                raise ValueError("The work failed.")
            served.append(number)

        batch, loop = BatchedStart(), asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: problems.append(context["exception"]))
        await from_callback(lambda: [batch.add(work(number), loop) for number in range(3)] and None)
        await turns()
        assert served == [0, 2]
        assert [type(problem) for problem in problems] == [ValueError]

    run(test())


def test_an_interrupt_does_not_lose_the_requests_behind() -> None:
    served: list[int] = []

    async def work(number: int) -> None:
        if number == 1:
            raise KeyboardInterrupt
        served.append(number)

    async def test() -> None:
        batch, loop = BatchedStart(), asyncio.get_running_loop()
        await from_callback(lambda: [batch.add(work(number), loop) for number in range(4)] and None)
        await turns()

    async def later() -> None:
        await turns()

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(test())
        loop.run_until_complete(later())
    finally:
        loop.close()
    assert served == [0, 2, 3]


def test_a_finalizer_that_uses_the_loop_meanwhile_is_not_taken_for_a_request(run: Any) -> None:
    async def test() -> None:
        called: list[str] = []

        class Work(Coroutine[Any, Any, None]):
            """A coroutine whose task finds, while it is created, that something calls the loop."""

            def __getattribute__(self, name: str) -> Any:
                if name == "__class__" and not called:
                    called.append("looked at")
                    asyncio.get_running_loop().call_soon(called.append, "called")
                return super().__getattribute__(name)

            def send(self, value: Any) -> Any:
                called.append("served")
                raise StopIteration

            def throw(self, *error: Any) -> Any:
                raise AssertionError

            def close(self) -> None:
                pass

            def __await__(self) -> Any:
                raise AssertionError

        batch, loop = BatchedStart(), asyncio.get_running_loop()
        await from_callback(lambda: batch.add(Work(), loop))
        await until(lambda: "called" in called)
        assert sorted(called) == ["called", "looked at", "served"]

    run(test())


def test_requests_that_are_added_inside_a_task_are_served_too(run: Any) -> None:
    async def test() -> None:
        served: list[int] = []

        async def work(number: int) -> None:
            served.append(number)

        batch, loop = BatchedStart(), asyncio.get_running_loop()
        for number in range(2 * MAX_BATCH):
            batch.add(work(number), loop)
        await until(lambda: len(served) == 2 * MAX_BATCH)
        assert served == list(range(2 * MAX_BATCH))

    run(test())


async def test_a_loop_whose_method_is_replaced_keeps_the_other_one() -> None:
    served, called = list[int](), list[Any]()

    async def work(number: int) -> None:
        served.append(number)

    batch, loop = BatchedStart(), asyncio.get_running_loop()
    call_soon = loop.call_soon

    def other(*arguments: Any, **options: Any) -> Any:
        called.append(arguments)
        return call_soon(*arguments, **options)

    loop.call_soon = other  # type: ignore[method-assign, assignment]
    try:
        await from_callback(lambda: [batch.add(work(number), loop) for number in range(3)] and None)
        await until(lambda: served == [0, 1, 2])
        assert loop.call_soon is other
    finally:
        del loop.call_soon
    assert called


async def test_tasks_come_from_the_task_factory_of_the_loop() -> None:
    served: list[int] = []
    made: list[asyncio.Task[Any]] = []

    def factory(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(asyncio.Task(work, loop=loop, **options))
        return made[-1]

    async def work(number: int) -> None:
        served.append(number)

    batch, loop = BatchedStart(), asyncio.get_running_loop()
    loop.set_task_factory(factory)
    try:
        await from_callback(lambda: [batch.add(work(number), loop) for number in range(3)] and None)
        await until(lambda: served == [0, 1, 2])
    finally:
        loop.set_task_factory(None)
    assert len(made) == 3


def test_requests_are_served_on_a_new_loop_after_one_that_was_stopped(run: Any) -> None:
    batch, served = BatchedStart(), list[str]()

    async def work(name: str) -> None:
        served.append(name)

    async def stopped() -> None:
        batch.add(work("lost"), asyncio.get_running_loop())  # nothing runs after this

    async def test() -> None:
        batch.add(work("served"), asyncio.get_running_loop())
        await until(lambda: bool(served))

    loop = asyncio.new_event_loop()
    task = loop.create_task(stopped())
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert task.done()
    loop.close()
    run(test())
    assert served == ["served"]


async def test_a_loop_that_cannot_be_changed_serves_requests_too() -> None:
    loop = asyncio.get_running_loop()
    served: list[int] = []

    class Fixed:
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            if name == "__dict__":
                raise AttributeError
            return getattr(loop, name)

        def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
            loop.call_soon(callback, *arguments)

    async def work(number: int) -> None:
        served.append(number)

    batch = BatchedStart()
    fixed: Any = Fixed()
    await from_callback(lambda: [batch.add(work(number), fixed) for number in range(3)] and None)
    await until(lambda: len(served) == 3)
    assert served == [0, 1, 2]
