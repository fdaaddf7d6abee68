"""The lanes of stores: who is told what when work fails, is given up, or comes too late."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres import batcher as postgres
from antiphon.store.sqlite import batch_thread as sqlite


class Batches:
    """Does work when it is told to, and notes in which batches it came."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def run(self, jobs: list[postgres.Job[str]]) -> None:
        self.seen.append([job.operation for job in jobs])
        self.begun.set()
        await self.go.wait()
        for job in jobs:
            if job.operation == "refused":
                job.fail(ValueError("refused"))
            else:
                job.succeed(job.operation.upper())


async def test_what_was_given_up_before_its_turn_is_not_done() -> None:
    batches = Batches()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    first = batcher.submit("first")
    await batches.begun.wait()
    second, third = batcher.submit("second"), batcher.submit("third")
    second.cancel()
    batches.go.set()
    assert await asyncio.gather(first, third) == ["FIRST", "THIRD"]
    assert batches.seen == [["first"], ["third"]]
    third = batcher.submit("third")
    third.cancel()
    assert await batcher.submit("fourth") == "FOURTH"
    await batcher.close()
    assert batches.seen[2:] == [["fourth"]]


async def test_a_batch_that_everybody_gave_up_is_none() -> None:
    batches = Batches()
    batches.go.set()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    batcher.submit("nobody").cancel()
    await batcher.close()
    assert batches.seen == []


async def test_what_is_given_up_while_it_is_done_does_not_disturb_the_others() -> None:
    batches = Batches()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    futures = [batcher.submit(work) for work in ("done", "refused", "other", "refused")]
    await batches.begun.wait()
    futures[0].cancel()
    futures[1].cancel()
    batches.go.set()
    assert await futures[2] == "OTHER"
    with pytest.raises(ValueError, match="refused"):
        await futures[3]
    await batcher.close()


async def test_work_that_breaks_fails_all_of_its_batch_and_the_lane_goes_on() -> None:
    async def run(jobs: list[postgres.Job[str]]) -> None:
        if jobs[0].operation == "broken":
            raise ZeroDivisionError("a defect")
        jobs[0].succeed("fine")

    batcher = postgres.Batcher(run, max_batch=10, max_queued=10)
    results = await asyncio.gather(batcher.submit("broken"), batcher.submit("other"), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 2
    assert await batcher.submit("next") == "fine"
    await batcher.close()


async def test_a_batch_that_is_stopped_is_not_waited_for() -> None:
    batches = Batches()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    futures = [batcher.submit("a"), batcher.submit("b")]
    await batches.begun.wait()
    for task in batcher._running:
        task.cancel()
    for future in futures:
        with pytest.raises(StoreUnavailable, match="was stopped"):
            await future
    await batcher.close()


async def test_a_lane_that_is_full_refuses_more() -> None:
    batches = Batches()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=2)
    waiting = [batcher.submit("a"), batcher.submit("b")]
    with pytest.raises(StoreUnavailable, match="overloaded: 2 operations"):
        batcher.submit("c")
    batches.go.set()
    assert await asyncio.gather(*waiting) == ["A", "B"]
    assert await batcher.submit("c") == "C"
    await batcher.close()


async def test_a_lane_that_is_closed_takes_nothing_more() -> None:
    batches = Batches()
    batches.go.set()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    last = batcher.submit("last")
    await batcher.close()
    assert await last == "LAST"
    with pytest.raises(StoreUnavailable, match="closed"):
        batcher.submit("late")


async def test_a_thread_that_is_closed_takes_nothing_more_and_may_be_closed_twice() -> None:
    thread: sqlite.BatchThread[str] = sqlite.BatchThread(
        "test",
        lambda work: sqlite.BatchResult([(each.upper(), None) for each in work]),
        max_batch=10,
        max_queued=10,
    )
    last = thread.submit("last")
    await thread.close()
    assert await last == "LAST"
    with pytest.raises(StoreUnavailable, match="closed"):
        thread.submit("late")
    await thread.close()


async def test_work_that_breaks_in_a_thread_fails_and_the_thread_goes_on() -> None:
    def run(work: list[str]) -> sqlite.BatchResult:
        return sqlite.BatchResult([(10 // len(each), None) for each in work])

    thread: sqlite.BatchThread[str] = sqlite.BatchThread("test", run, max_batch=10, max_queued=10)
    with pytest.raises(StoreUnavailable, match=r"ZeroDivisionError.*Report this"):
        await thread.submit("")
    assert await thread.submit("ab") == 5
    await thread.close()
