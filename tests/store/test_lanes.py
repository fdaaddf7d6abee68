"""The lanes of stores: who is told what when work fails, is given up, or comes too late."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres import lane as postgres
from antiphon.store.sqlite import lane as sqlite


class Batches:
    """Does work when it is told to, and notes in which batches it came."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def run(self, jobs: list[postgres.Job[str]]) -> None:
        self.seen.append([job.work for job in jobs])
        self.begun.set()
        await self.go.wait()
        for job in jobs:
            if job.work == "refused":
                job.failed(ValueError("refused"))
            else:
                job.done(job.work.upper())


async def test_what_was_given_up_before_its_turn_is_not_done() -> None:
    batches = Batches()
    lane = postgres.Lane(batches.run, batch=10, bound=10)
    first = lane.submit("first")
    await batches.begun.wait()
    second, third = lane.submit("second"), lane.submit("third")
    second.cancel()
    batches.go.set()
    assert await asyncio.gather(first, third) == ["FIRST", "THIRD"]
    assert batches.seen == [["first"], ["third"]]
    third = lane.submit("third")
    third.cancel()
    assert await lane.submit("fourth") == "FOURTH"
    await lane.close()
    assert batches.seen[2:] == [["fourth"]]


async def test_a_batch_that_everybody_gave_up_is_none() -> None:
    batches = Batches()
    batches.go.set()
    lane = postgres.Lane(batches.run, batch=10, bound=10)
    lane.submit("nobody").cancel()
    await lane.close()
    assert batches.seen == []


async def test_what_is_given_up_while_it_is_done_does_not_disturb_the_others() -> None:
    batches = Batches()
    lane = postgres.Lane(batches.run, batch=10, bound=10)
    futures = [lane.submit(work) for work in ("done", "refused", "other", "refused")]
    await batches.begun.wait()
    futures[0].cancel()
    futures[1].cancel()
    batches.go.set()
    assert await futures[2] == "OTHER"
    with pytest.raises(ValueError, match="refused"):
        await futures[3]
    await lane.close()


async def test_work_that_breaks_fails_all_of_its_batch_and_the_lane_goes_on() -> None:
    async def run(jobs: list[postgres.Job[str]]) -> None:
        if jobs[0].work == "broken":
            raise ZeroDivisionError("a defect")
        jobs[0].done("fine")

    lane = postgres.Lane(run, batch=10, bound=10)
    results = await asyncio.gather(lane.submit("broken"), lane.submit("other"), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 2
    assert await lane.submit("next") == "fine"
    await lane.close()


async def test_a_batch_that_is_stopped_is_not_waited_for() -> None:
    batches = Batches()
    lane = postgres.Lane(batches.run, batch=10, bound=10)
    futures = [lane.submit("a"), lane.submit("b")]
    await batches.begun.wait()
    for task in lane._under_way:
        task.cancel()
    for future in futures:
        with pytest.raises(StoreUnavailable, match="was stopped"):
            await future
    await lane.close()


async def test_a_lane_that_is_full_refuses_more() -> None:
    batches = Batches()
    lane = postgres.Lane(batches.run, batch=10, bound=2)
    waiting = [lane.submit("a"), lane.submit("b")]
    with pytest.raises(StoreUnavailable, match="behind: 2 operations"):
        lane.submit("c")
    batches.go.set()
    assert await asyncio.gather(*waiting) == ["A", "B"]
    assert await lane.submit("c") == "C"
    await lane.close()


async def test_a_lane_that_is_closed_takes_nothing_more() -> None:
    batches = Batches()
    batches.go.set()
    lane = postgres.Lane(batches.run, batch=10, bound=10)
    last = lane.submit("last")
    await lane.close()
    assert await last == "LAST"
    with pytest.raises(StoreUnavailable, match="closed"):
        lane.submit("late")


async def test_a_thread_that_is_closed_takes_nothing_more_and_may_be_closed_twice() -> None:
    thread: sqlite.Lane[str] = sqlite.Lane(
        "test", lambda work: sqlite.Done([(each.upper(), None) for each in work]), batch=10, bound=10
    )
    last = thread.submit("last")
    await thread.close()
    assert await last == "LAST"
    with pytest.raises(StoreUnavailable, match="closed"):
        thread.submit("late")
    await thread.close()


async def test_work_that_breaks_in_a_thread_fails_and_the_thread_goes_on() -> None:
    def run(work: list[str]) -> sqlite.Done:
        return sqlite.Done([(10 // len(each), None) for each in work])

    thread: sqlite.Lane[str] = sqlite.Lane("test", run, batch=10, bound=10)
    with pytest.raises(StoreUnavailable, match=r"ZeroDivisionError.*Report this"):
        await thread.submit("")
    assert await thread.submit("ab") == 5
    await thread.close()
