"""The queues of the database stores: failed, cancelled and late operations, and full queues."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres import batcher as postgres
from antiphon.store.sqlite import batch_thread as sqlite


class Batches:
    """Runs batches once `go` is set, and records them."""

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


async def test_an_operation_cancelled_while_queued_is_not_run() -> None:
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


async def test_a_batch_of_cancelled_operations_is_not_run() -> None:
    batches = Batches()
    batches.go.set()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    batcher.submit("nobody").cancel()
    await batcher.close()
    assert batches.seen == []


async def test_an_operation_cancelled_while_running_does_not_affect_the_others() -> None:
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


async def test_an_error_in_a_batch_fails_all_its_operations_and_the_next_batch_runs() -> None:
    async def run(jobs: list[postgres.Job[str]]) -> None:
        if jobs[0].operation == "broken":
            raise ZeroDivisionError("a defect")
        jobs[0].succeed("fine")

    batcher = postgres.Batcher(run, max_batch=10, max_queued=10)
    results = await asyncio.gather(batcher.submit("broken"), batcher.submit("other"), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 2
    assert await batcher.submit("next") == "fine"
    await batcher.close()


async def test_a_cancelled_batch_fails_its_operations() -> None:
    batches = Batches()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    futures = [batcher.submit("a"), batcher.submit("b")]
    await batches.begun.wait()
    for task in batcher.running:
        task.cancel()
    for future in futures:
        with pytest.raises(StoreUnavailable, match="was stopped"):
            await future
    await batcher.close()


async def test_a_full_batcher_refuses_operations() -> None:
    batches = Batches()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=2)
    waiting = [batcher.submit("a"), batcher.submit("b")]
    with pytest.raises(StoreUnavailable, match="overloaded: 2 operations"):
        batcher.submit("c")
    batches.go.set()
    assert await asyncio.gather(*waiting) == ["A", "B"]
    assert await batcher.submit("c") == "C"
    await batcher.close()


async def test_a_closed_batcher_refuses_operations() -> None:
    batches = Batches()
    batches.go.set()
    batcher = postgres.Batcher(batches.run, max_batch=10, max_queued=10)
    last = batcher.submit("last")
    await batcher.close()
    assert await last == "LAST"
    with pytest.raises(StoreUnavailable, match="closed"):
        batcher.submit("late")


async def test_a_closed_batch_thread_refuses_operations_and_may_be_closed_twice() -> None:
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


async def test_an_error_in_a_batch_thread_fails_the_operation_and_the_thread_continues() -> None:
    def run(work: list[str]) -> sqlite.BatchResult:
        return sqlite.BatchResult([(10 // len(each), None) for each in work])

    thread: sqlite.BatchThread[str] = sqlite.BatchThread("test", run, max_batch=10, max_queued=10)
    with pytest.raises(StoreUnavailable, match=r"ZeroDivisionError.*Report this"):
        await thread.submit("")
    assert await thread.submit("ab") == 5
    await thread.close()
