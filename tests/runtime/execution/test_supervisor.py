"""Deadlines, ticks and shutdown of supervised calls."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.runtime.execution.supervisor import StopReason, Supervised, Supervisor
from tests.support.polling import forever, until


async def sleeping(warden: Supervisor, box: list[Supervised], deadline: float | None = None) -> str:
    """Sleep in a supervised task; return why it was stopped."""
    watched = Supervised()
    warden.enter(watched, asyncio.get_running_loop())
    if deadline is not None:
        watched.deadline = watched.started + deadline
    box.append(watched)
    try:
        await forever()
    except asyncio.CancelledError:
        assert watched.stop_reason is not None
        watched.uncancel()
        return watched.stop_reason
    finally:
        warden.leave(watched)
    return "slept"


async def test_a_deadline_stops_a_task() -> None:
    warden = Supervisor()
    async with asyncio.timeout(30):
        assert await sleeping(warden, [], deadline=0.05) == "deadline"
    assert len(warden) == 0


async def test_a_deadline_may_be_set_later_or_moved() -> None:
    warden = Supervisor()
    box: list[Supervised] = []
    task = asyncio.create_task(sleeping(warden, box))
    await until(lambda: box)
    box[0].deadline = box[0].started + 0.01
    async with asyncio.timeout(30):
        assert await task == "deadline"


@pytest.mark.parametrize("reason", ["cancelled", "disconnected", "shutdown"])
async def test_stopping_tells_why_and_the_first_reason_counts(reason: StopReason) -> None:
    warden = Supervisor()
    box: list[Supervised] = []
    task = asyncio.create_task(sleeping(warden, box))
    await until(lambda: box)
    box[0].stop(reason)
    box[0].stop("deadline")
    assert await task == reason
    assert task.cancelling() == 0


async def test_stopping_all() -> None:
    warden = Supervisor()
    box: list[Supervised] = []
    tasks = [asyncio.create_task(sleeping(warden, box)) for _ in range(10)]
    await until(lambda: len(box) == 10)
    assert len(warden) == 10
    warden.stop("shutdown")
    assert await asyncio.gather(*tasks) == ["shutdown"] * 10
    assert len(warden) == 0


async def test_draining_waits_for_the_last_one() -> None:
    warden = Supervisor()
    assert await warden.drained(0)
    box: list[Supervised] = []
    task = asyncio.create_task(sleeping(warden, box))
    await until(lambda: box)
    assert not await warden.drained(0.01)
    draining = asyncio.create_task(warden.drained(60))
    box[0].stop("cancelled")
    assert await draining
    await task


async def test_a_long_call_gets_ticks() -> None:
    warden = Supervisor()
    ticks: list[float] = []
    box: list[Supervised] = []
    task = asyncio.create_task(sleeping(warden, box))
    await until(lambda: box)
    box[0].tick = ticks.append  # type: ignore[method-assign]
    await until(lambda: len(ticks) >= 2)
    assert ticks == sorted(ticks)
    box[0].stop("cancelled")
    await task


async def test_no_timer_runs_without_calls() -> None:
    warden = Supervisor()
    for _ in range(3):
        watched = Supervised()
        warden.enter(watched, asyncio.get_running_loop())
        warden.leave(watched)
    await until(lambda: not warden.ticks)


def test_one_that_has_no_task_yet_is_stopped_all_the_same() -> None:
    watched = Supervised()
    watched.stop("cancelled")
    watched.stop("deadline")
    watched.uncancel()
    assert (watched.stop_reason, watched.task) == ("cancelled", None)


async def test_a_task_that_was_stopped_before_it_began_is_cancelled() -> None:
    warden, watched = Supervisor(), Supervised()
    watched.stop("cancelled")
    watched.stop("deadline")  # the first reason counts

    async def work() -> str:
        warden.enter(watched, asyncio.get_running_loop())
        try:
            await forever()
        except asyncio.CancelledError:
            assert watched.stop_reason is not None
            return watched.stop_reason
        finally:
            warden.leave(watched)
        return "slept"

    task = asyncio.create_task(work())
    await asyncio.wait({task}, timeout=60)
    assert task.done()
    assert task.result() == "cancelled"
