"""The thread pool of a server."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from antiphon.runtime.execution.executor import ThreadExecutor, share_threads
from tests.support.polling import turns, until


async def test_closing_says_which_functions_keep_the_process(caplog: pytest.LogCaptureFixture) -> None:
    began, ends = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        ends.wait(30)

    threads = ThreadExecutor(2)
    waiting = asyncio.ensure_future(threads.run(work, {}))
    await until(began.is_set)
    waiting.cancel()
    threads.close()
    ends.set()
    assert "cannot be interrupted: 1. The process ends when they have returned" in caplog.text


async def test_closing_is_silent_if_nothing_runs(caplog: pytest.LogCaptureFixture) -> None:
    threads = ThreadExecutor(2)
    assert await threads.run(lambda: "done", {}) == "done"
    threads.close()
    assert caplog.text == ""


@pytest.mark.parametrize("kind", ["of the pool", "of its own"])
async def test_a_function_counts_as_running_until_the_event_loop_has_its_result(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, loop = ThreadExecutor(2), asyncio.get_running_loop()
    running, tell = list[int](), loop.call_soon_threadsafe

    def note(*args: Any, **kwargs: Any) -> Any:
        running.append(threads.running)
        return tell(*args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", note)
    runs = threads if kind == "of the pool" else threads.apart
    assert await runs.run(lambda: "done", {}) == "done"
    assert running == [1]
    await until(lambda: threads.running == 0)
    threads.close()


class Held:
    """Functions that hold threads until they are let go, and who has begun to run one."""

    def __init__(self, threads: ThreadExecutor) -> None:
        self._threads = threads
        self.began: list[str] = []
        self._ends: list[tuple[str, threading.Event]] = []

    def start(self, share: str) -> asyncio.Task[Any]:
        """Run a function of a share, which holds its thread."""
        context = contextvars.copy_context()
        context.run(share_threads, share)
        return asyncio.create_task(self._run(share), context=context)

    async def _run(self, share: str) -> None:
        await self._threads.run(self._hold, {"share": share})

    def _hold(self, share: str) -> None:
        end = threading.Event()
        self._ends.append((share, end))
        self.began.append(share)
        assert end.wait(60)

    async def let_go(self, share: str) -> str:
        """End the oldest function of a share; return whose function has its thread then."""
        begun = len(self.began)
        held = next(each for each in self._ends if each[0] == share)
        self._ends.remove(held)
        held[1].set()
        await until(lambda: len(self.began) > begun)
        return self.began[begun]

    def let_all_go(self) -> None:
        for _, end in self._ends:
            end.set()


async def _crowd(held: Held, began: int, **numbers: int) -> list[asyncio.Task[Any]]:
    calls = [held.start(share) for share, number in numbers.items() for _ in range(number)]
    await until(lambda: len(held.began) == began)
    return calls


async def test_a_new_caller_gets_the_next_thread_although_two_others_have_all() -> None:
    threads = ThreadExecutor(4, 2)
    held = Held(threads)
    calls = await _crowd(held, 4, ada=20, bob=20)
    try:
        calls.append(held.start("eve"))
        await turns()
        assert await held.let_go("ada") == "eve"
    finally:
        for call in calls:
            call.cancel()
        held.let_all_go()


async def test_callers_take_turns_at_the_threads() -> None:
    threads = ThreadExecutor(2)
    held = Held(threads)
    calls = await _crowd(held, 2, ada=6)
    try:
        calls += await _crowd(held, 2, bob=3, eve=3)
        await turns()
        assert [await held.let_go("ada"), await held.let_go("ada")] == ["bob", "eve"]
        order = [await held.let_go(share) for share in ("bob", "eve", "ada", "bob")]
        assert {share: order.count(share) for share in order} == {"ada": 2, "bob": 1, "eve": 1}
    finally:
        for call in calls:
            call.cancel()
        held.let_all_go()


async def test_functions_whose_callers_are_gone_do_not_wait_for_a_thread() -> None:
    threads = ThreadExecutor(1)
    held = Held(threads)
    calls = await _crowd(held, 1, ada=3)
    try:
        await turns()
        assert threads.running == 3
        for call in calls[1:]:
            call.cancel()
        await asyncio.wait(calls[1:])
        assert threads.running == 1
        bob = held.start("bob")
        await turns()
        assert await held.let_go("ada") == "bob"
        held.let_all_go()
        await bob
        assert held.began == ["ada", "bob"]
    finally:
        held.let_all_go()
