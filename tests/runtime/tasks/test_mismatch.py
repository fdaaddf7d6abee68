"""Tasks that one version of a tool began, and a worker with another version claims."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from antiphon import Context, Server
from antiphon.model.identity import ANONYMOUS
from antiphon.model.task import Task
from antiphon.runtime.tasks import worker
from antiphon.runtime.tasks.claims import claimed_task, read_history
from antiphon.runtime.tasks.records import task_of
from antiphon.runtime.tasks.service import TaskService
from tests.runtime.faulty_store import FaultyStore, end_of, log_entries, queued_task
from tests.support.polling import until

done: list[str] = []
ABLE = {"elicitation": {"form": {}}}
MESSAGE = "The task waits for a server of the version that began it."


def charge(amount: int) -> str:
    done.append(f"charge {amount}")
    return f"charged {amount}"


def bill(amount: int) -> str:
    done.append(f"bill {amount}")
    return f"billed {amount}"


def version(store: Any, step: Callable[[int], str], **key: Any) -> Server:
    server = Server("shop", store=store)

    @server.tool(task="required", poll_interval=0.01, task_ttl=None)
    async def pay(ctx: Context) -> str:
        try:
            paid = await ctx.step(step, 5, **key)
        except Exception:  # a mismatch is no error of the step
            paid = "failed"
        await ctx.elicit("Sure?", bool, key="sure")
        return paid

    return server


class Clock:
    """The clock of a store."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def task_in(store: Any, id: str) -> Task:
    return task_of(await store.get(id))


async def answered_task(store: Any) -> str:
    """Begin a task in the first version, and answer its question while no worker runs; return its id."""
    done.clear()
    server = version(store, charge)
    id = await queued_task(store, "pay", capabilities=ABLE)
    async with server.running():
        await until(lambda: store.calls["append"] >= 2)
        service = _service(server)
    responses = {"sure": {"action": "accept", "content": {"value": True}}}
    await store.open()
    await service.answer(id, ANONYMOUS, responses)
    return id


def _service(server: Server) -> TaskService:
    service = server.engine.tasks.service
    assert service is not None
    return service


async def test_a_task_of_another_version_is_released_and_goes_on_in_its_own_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    store: Any = FaultyStore(clock)
    await store.open()
    id = await answered_task(store)
    async with version(store, bill).running():
        await until(lambda: store.calls["release"] >= 1)
        waiting = await task_in(store, id)
        entries = await log_entries(store, id)
    assert (waiting.state, waiting.message) == ("working", MESSAGE)
    assert not any("attempt" in data for _, data in entries)
    (error,) = (record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert "about to run the step 'bill', where the journal has the step 'charge'" in error
    assert f"Cannot continue task {id}" in error
    await store.open()
    assert await store.claim("eager", lease=1.0, limit=1) == []
    clock.now += 61
    async with version(store, charge).running():
        task = await end_of(store, id)
    assert (task.state, done) == ("done", ["charge 5"])
    assert task.result is not None
    assert task.result["content"][0]["text"] == "charged 5"


async def test_a_new_version_that_names_the_old_step_goes_on() -> None:
    store: Any = FaultyStore()
    await store.open()
    id = await answered_task(store)
    async with version(store, bill, key="charge").running():
        task = await end_of(store, id)
    assert task.result is not None
    assert (task.result["content"][0]["text"], done) == ("charged 5", ["charge 5"])


async def test_a_cancelled_task_is_unwound_by_its_own_version(caplog: pytest.LogCaptureFixture) -> None:
    store: Any = FaultyStore(clock := Clock())
    await store.open()
    cleaned: list[str] = []

    def cleaning(step: Callable[[int], str]) -> Server:
        server = Server("shop", store=store)

        @server.tool(task="required", poll_interval=0.01, task_ttl=None)
        async def pay(ctx: Context) -> str:
            paid = await ctx.step(step, 5)
            try:
                await ctx.elicit("Sure?", bool, key="sure")
            finally:
                if not ctx.suspending:
                    cleaned.append(step.__name__)
            return paid

        return server

    done.clear()
    id = await queued_task(store, "pay", capabilities=ABLE)
    first = cleaning(charge)
    async with first.running():
        await until(lambda: store.calls["append"] >= 2)
        service = _service(first)
    await store.open()
    await service.cancel(id, ANONYMOUS)
    before = store.calls["release"]
    async with cleaning(bill).running():
        await until(lambda: store.calls["release"] > before)
    assert (cleaned, done) == ([], ["charge 5"])
    assert f"Cannot continue task {id}" in caplog.text
    await store.open()
    clock.now += 61
    async with cleaning(charge).running():
        await until(lambda: bool(cleaned))
    assert (cleaned, done) == (["charge"], ["charge 5"])


async def test_a_task_whose_version_does_not_come_back_does_not_fill_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "CLAIM_INTERVAL_SECONDS", 0.01)
    clock = Clock()
    store: Any = FaultyStore(clock)
    await store.open()
    id = await answered_task(store)
    lengths = []
    async with version(store, bill).running():
        for times in range(1, 21):
            await until(lambda times=times: store.calls["release"] >= times)
            lengths.append(len(await log_entries(store, id)))
            clock.now += 61 * 1.5
    assert lengths[-1] == lengths[10]
    assert (await reopened(store, id)).message == MESSAGE
    async with version(store, charge).running():
        task = await end_of(store, id)
        entries = await log_entries(store, id)
    assert (task.state, done) == ("done", ["charge 5"])
    assert not any("attempt" in data for _, data in entries)  # the worker was never lost


async def test_claims_that_were_released_without_an_entry_are_no_lost_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "CLAIM_INTERVAL_SECONDS", 0.01)
    clock = Clock()
    store: Any = FaultyStore(clock)
    await store.open()
    await answered_task(store)
    async with version(store, bill).running():
        for times in range(1, 11):
            await until(lambda times=times: store.calls["release"] >= times)
            clock.now += 61 * 1.5
    await store.open()
    (claim,) = await store.claim("one", lease=1.0, limit=1)
    history = await read_history(store, claim)
    assert history is not None
    assert history.lost_runs(claim.token) == 0
    clock.now += 1
    (later,) = await store.claim("two", lease=1.0, limit=1)
    history = await read_history(store, later)
    assert history is not None
    assert history.lost_runs(later.token) == 1
    # The entry of a release after these claims says how many of them were lost.
    claimed = claimed_task(store, later, history, lease=1.0, since=0.0)
    await claimed.release(note="released in order")
    (last,) = await store.claim("three", lease=1.0, limit=1)
    history = await read_history(store, last)
    assert history is not None
    assert (history.lost_runs(last.token), history.quiet_releases) == (1, 0)


async def reopened(store: Any, id: str) -> Task:
    await store.open()
    return await task_in(store, id)
