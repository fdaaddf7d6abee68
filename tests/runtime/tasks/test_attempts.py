"""Tasks whose attempts fail: the worker is lost or cannot begin, or the function ends its run by itself."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from antiphon import Client, Context, Limits, Server
from antiphon.errors import StoreError, StoreUnavailable, TooLarge
from antiphon.model.task import Task, answer_entry
from antiphon.runtime.tasks import attempts
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.records import head_of, task_of
from tests.runtime.faulty_store import FaultyStore, claim_in_vain, end_of, log_entries, lose, queued_task
from tests.support.polling import until

LEASE = Limits().lease_seconds


class Clock:
    """The clock of a store."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Counting:
    """A server with a tool, and how often the tool ran."""

    def __init__(self, store: Any, **options: Any) -> None:
        self.store = store
        self.runs = 0
        self.server = Server("tests", store=store)

        @self.server.tool(task="optional", **options)
        async def count(number: int = 1) -> int:
            self.runs += 1
            return number


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def opened(clock: Any = None) -> Any:
    store = FaultyStore() if clock is None else FaultyStore(clock)
    await store.open()
    return store


async def attempts_in(store: Any, id: str) -> list[dict[str, Any]]:
    return [data for kind, data in await log_entries(store, id) if "attempt" in data]


# Workers that are lost


async def test_a_task_whose_worker_was_lost_runs_again_at_once_and_the_log_says_so() -> None:
    store = await opened()
    id = await queued_task(store, "count", lost=1)
    counting = Counting(store)
    async with counting.server.running():
        task = await end_of(store, id)
        (noted,) = await attempts_in(store, id)
    assert (task.state, task.message, counting.runs) == ("done", None, 1)
    assert (noted["attempt"], noted["by"]) == (1, 2)
    assert noted["message"] == "The worker was lost while it ran the task. Attempt 2 of 5 follows."


async def test_a_task_whose_workers_were_lost_runs_again_after_a_delay_that_grows(clock: Clock) -> None:
    store = await opened(clock)
    id = await queued_task(store, "count", lost=2)
    counting = Counting(store)
    async with counting.server.running():
        await until(lambda: store.calls["release"] == 1)
        assert (await attempts_in(store, id))[-1].items() >= {"attempt": 2, "released": True}.items()
        assert task_of(await store.get(id)).message is not None
        clock.now += 0.9
        assert await store.oldest_ready() is None
        clock.now += 0.2
        assert (await end_of(store, id)).state == "done"
    assert counting.runs == 1


async def test_tasks_during_which_a_worker_was_lost_again_and_again_are_kept_apart(clock: Clock) -> None:
    store = await opened(clock)
    server, started, gate = Server("tests", store=store), list[str](), asyncio.Event()

    @server.tool(task="optional")
    async def first() -> str:
        started.append("first")
        await gate.wait()
        return "ended"

    @server.tool(task="optional")
    async def second() -> str:
        started.append("second")
        await gate.wait()
        return "ended"

    ids = [await queued_task(store, name, lost=3, group=2) for name in ("first", "second")]
    async with server.running():
        await until(lambda: store.calls["release"] == 2)
        clock.now += 2.1
        await until(lambda: store.calls["release"] == 3)  # one of the two runs, the other is given back
        await until(lambda: started)
        assert len(started) == 1
        gate.set()
        await end_of(store, ids[started[0] == "second"])
        clock.now += 5.1
        assert [(await end_of(store, id)).state for id in ids] == ["done", "done"]
    assert sorted(started) == ["first", "second"]


async def test_claims_that_end_before_the_function_begins_are_no_attempts(clock: Clock) -> None:
    store = await opened(clock)
    id = await queued_task(store, "count", lost=2)
    await claim_in_vain(store, 3)  # the store is away for longer than a lease, again and again
    counting = Counting(store)
    async with counting.server.running():
        await until(lambda: store.calls["release"] == 1)
    clock.now += 1.1
    await store.open()
    await claim_in_vain(store, 5)
    async with counting.server.running():
        assert (await end_of(store, id)).state == "done"
        assert [noted["attempt"] for noted in await attempts_in(store, id)] == [1, 2, 2]
    assert counting.runs == 1


async def test_the_delays_double_up_to_a_minute() -> None:
    delays = [attempts.delay_after(count, 1.0, 60.0) for count in range(9)]
    assert delays == [0, 1, 2, 4, 8, 16, 32, 60, 60]


async def wait_for_reports(store: Any, clock: Clock) -> None:
    """Let the time pass in which a worker that lives may report that it lost a task in an outage."""
    await until(lambda: store.calls["release"] >= 1)
    clock.now += 2 * LEASE - 0.1
    assert await store.oldest_ready() is None
    clock.now += 0.2


async def test_a_task_is_given_up_after_its_last_attempt(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    store = await opened(clock)
    id = await queued_task(store, "count", lost=5)
    counting = Counting(store)
    async with counting.server.running():
        await wait_for_reports(store, clock)
        task = await end_of(store, id)
    assert counting.runs == 0
    assert task.fault is not None
    assert task.fault.message == (
        "The task was given up after 5 attempts: each time, its worker was lost while it ran the task."
    )
    assert f"Task {id} has failed: The task was given up after 5 attempts" in caplog.text


@pytest.mark.parametrize("most", [1, 2])
async def test_a_tool_says_how_often_its_tasks_are_tried(clock: Clock, most: int) -> None:
    store = await opened(clock)
    id = await queued_task(store, "count", lost=most)
    counting = Counting(store, max_attempts=most)
    async with counting.server.running():
        await wait_for_reports(store, clock)
        task = await end_of(store, id)
    assert task.fault is not None
    assert f"after {most} attempt" in task.fault.message


async def test_a_task_that_must_not_run_again_fails_when_its_worker_is_lost_after_an_answer(
    clock: Clock,
) -> None:
    store = await opened(clock)
    server, runs = Server("tests", store=store), 0

    @server.tool(task="required", resume=False, poll_interval=0.01)
    async def ask(ctx: Context) -> str:
        nonlocal runs
        runs += 1
        return str(await ctx.elicit("Who?", str, key="who"))

    async with Client(server, elicit=lambda question: asyncio.Event().wait()) as client:  # type: ignore[arg-type, return-value]
        handle = await client.submit("ask")
        id = handle.id
        assert id is not None
        await until(lambda: store.calls["append"] == 1)
    await store.open()
    record = await store.get(id)
    answer = {"responses": {"who": {"action": "accept", "content": {"value": "Ada"}}}}
    task = task_of(record).after("answered", answer, now_ms())
    await store.append(id, [("answered", answer)], expect=2, phase="ready", head=head_of(task))
    await lose(store, id)
    store.calls.clear()
    async with server.running():
        await wait_for_reports(store, clock)
        ended = await end_of(store, id)
    assert runs == 1
    assert ended.fault is not None
    assert "its worker was lost" in ended.fault.message


async def test_the_log_of_an_early_version_counts_from_the_next_claim_on() -> None:
    store = await opened()
    id = await queued_task(store, "count")
    await claim_in_vain(store, 6)
    step = {"journal": {answer_entry("old"): 1}}  # without the token of the claim
    task = task_of(await store.get(id)).after("recorded", step, now_ms())
    await store.append(id, [("recorded", step)], expect=1, phase="ready", head=head_of(task))
    counting = Counting(store)
    async with counting.server.running():
        assert (await end_of(store, id)).state == "done"
        (noted,) = await attempts_in(store, id)
    assert (noted["attempt"], noted["by"]) == (1, 7)


# Workers of another version


async def test_a_worker_claims_only_tasks_of_tools_that_it_has() -> None:
    store = await opened()
    stranger = await queued_task(store, "new_tool")
    id = await queued_task(store, "count")
    async with Counting(store).server.running():
        await end_of(store, id)
        assert await log_entries(store, stranger) == []
        assert (await store.get(stranger)).phase == "ready"


async def test_a_tool_that_was_added_later_is_claimed() -> None:
    store = await opened()
    id = await queued_task(store, "late")
    counting = Counting(store)
    async with counting.server.running():

        @counting.server.tool(task="optional")
        async def late() -> str:
            return "late"

        assert (await end_of(store, id)).state == "done"


async def test_arguments_of_another_version_are_given_back_and_cost_no_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = await opened()
    id = await queued_task(store, "count", {"number": 2, "unit": "mm"})
    old = Counting(store, max_attempts=1)
    async with old.server.running():
        await until(lambda: store.calls["release"] == 1)
        ((_, noted),) = await log_entries(store, id)
        task = task_of(await store.get(id))
    assert (old.runs, noted["mismatches"], noted["released"], task.state) == (0, 1, True, "working")
    assert task.message == "The task waits for a server of the version that began it."
    assert (
        f"Cannot continue task {id}: Its arguments do not fit the tool 'count' of this version" in caplog.text
    )
    assert "unit" in caplog.text
    assert "Released for a worker that has the version which began the task." in caplog.text


async def test_a_task_that_was_given_back_runs_at_a_worker_of_the_right_version(clock: Clock) -> None:
    store = await opened(clock)
    # It must not run again after a worker was lost, but none was lost: it did not run.
    id = await queued_task(store, "count", {"unit": "mm"}, resume=False)
    async with Counting(store).server.running():
        await until(lambda: store.calls["release"] == 1)
    new = Server("tests", store=store)

    @new.tool(task="optional", resume=False)
    async def count(unit: str) -> str:
        return f"1 {unit}"

    clock.now += 10
    await store.open()
    async with new.running():
        task = await end_of(store, id)
    assert task.result is not None
    assert task.result["content"][0]["text"] == "1 mm"


@pytest.mark.usefixtures("quick_claims")
async def test_a_task_that_no_worker_can_begin_waits_and_does_not_fail(clock: Clock) -> None:
    store = await opened(clock)
    id = await queued_task(store, "count", {"unit": "mm"})
    counting = Counting(store, max_attempts=3)
    async with counting.server.running():
        for number in range(1, 8):  # more often than it has attempts
            await until(lambda least=number: store.calls["release"] >= least)  # type: ignore[misc]
            clock.now += 91  # the longest delay
        task = task_of(await store.get(id))
    assert (counting.runs, task.state) == (0, "working")


async def test_arguments_that_fit_nowhere_fail_at_once() -> None:
    store = await opened()
    counting = Counting(store)
    async with Client(counting.server) as client:
        handle = await client.submit("count", unit="mm")
        task = await end_of(store, str(handle.id))
    assert task.failed
    assert task.result is not None
    assert "Invalid arguments for the tool 'count'" in task.result["content"][0]["text"]
    assert store.calls["release"] == 0


async def test_a_tool_that_vanished_after_the_claim_releases_the_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = await opened()
    id = await queued_task(store, "count")
    counting = Counting(store)
    read = store.inner.read

    async def reading(*args: Any, **kwargs: Any) -> Any:
        if "count" in counting.server.task_tools:
            counting.server.remove_tool("count")
        return await read(*args, **kwargs)

    store.inner.read = reading
    async with counting.server.running():
        await until(lambda: store.calls["release"] == 1)
    assert f"Cannot run task {id}: this process no longer has the tool 'count'." in caplog.text
    assert (counting.runs, store.calls["append"]) == (0, 1)


# Functions that end in their own way


class Unwritable:
    """A server whose tools end their runs as they should not, beside one that works."""

    def __init__(self, store: Any) -> None:
        self.runs = 0
        self.server = server = Server("tests", store=store)

        @server.tool(task="optional")
        async def cancels_itself() -> str:
            self.runs += 1
            raise asyncio.CancelledError

        @server.tool(task="optional")
        async def exits() -> str:
            self.runs += 1
            sys.exit(3)

        @server.tool(task="optional")
        async def interrupts() -> str:
            self.runs += 1
            raise KeyboardInterrupt

        @server.tool(task="optional")
        def exits_in_a_thread() -> str:
            self.runs += 1
            sys.exit(3)

        @server.tool(task="optional")
        async def exits_in_a_step(ctx: Context) -> str:
            self.runs += 1
            return await ctx.step(sys.exit, 3)

        @server.tool(task="optional")
        async def runs_out_of_memory() -> str:
            self.runs += 1
            raise MemoryError

        @server.tool(task="optional")
        async def unwritable() -> str:
            self.runs += 1
            return "a lone \ud800"

        @server.tool(task="optional")
        async def healthy() -> str:
            return "fine"


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("cancels_itself", "it raised CancelledError, though nobody cancelled the task"),
        ("exits", "failed with an internal error"),
        ("interrupts", "failed with an internal error"),
        ("exits_in_a_thread", "failed with an internal error"),
        ("exits_in_a_step", "failed with an internal error"),
        ("runs_out_of_memory", "failed with an internal error"),
        ("unwritable", "returned a value that cannot be stored"),
    ],
)
async def test_a_function_that_ends_its_run_in_its_own_way_fails_its_task_once(
    tool: str, expected: str
) -> None:
    store = await opened()
    unwritable = Unwritable(store)
    id, beside = await queued_task(store, tool), await queued_task(store, "healthy")
    async with unwritable.server.running():
        task = await end_of(store, id)
        assert (await end_of(store, beside)).state == "done"
    assert unwritable.runs == 1
    assert expected in _said(task)


def _said(task: Task) -> str:
    if task.fault is not None:
        return task.fault.message
    assert task.result is not None
    assert task.failed
    return str(task.result["content"][0]["text"])


async def test_a_function_that_cancels_itself_after_its_call_became_a_task_fails_the_task() -> None:
    store = await opened()
    server = Server("tests", store=store)

    @server.tool(task="optional", answer_within=60.0)
    async def convert(ctx: Context) -> str:
        await ctx.promise()
        raise asyncio.CancelledError

    async with Client(server) as client:
        handle = await client.submit("convert")
        task = await end_of(store, str(handle.id))
    assert "though nobody cancelled the task" in _said(task)


class Away:
    """A server whose tool meets a store that fails, so many times."""

    def __init__(self, store: Any, error: StoreError, times: int, **options: Any) -> None:
        self.runs, self.server = 0, Server("tests", store=store)

        @self.server.tool(task="optional", **options)
        async def count() -> str:
            self.runs += 1
            if self.runs <= times:
                raise error
            return "counted"


async def test_a_store_of_the_function_that_refuses_is_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST_REFUSAL_SECONDS", 0.0)
    store = await opened()
    id = await queued_task(store, "count")
    async with Away(store, TooLarge("The artifact is too large."), 1).server.running():
        assert (await end_of(store, id)).state == "done"
        noted, begun = await attempts_in(store, id)
    assert (noted["attempt"], noted["message"]) == (1, "The artifact is too large.")
    assert (begun["attempt"], "message" in begun) == (1, False)


@pytest.mark.usefixtures("quick_claims")
@pytest.mark.parametrize("lost", [0, 1])
async def test_outages_that_a_function_meets_are_no_attempts_and_are_said_once(
    clock: Clock, lost: int
) -> None:
    store, outages = await opened(clock), 7  # more than there are attempts
    id = await queued_task(store, "count", lost=lost)
    away = Away(store, StoreUnavailable("The store of the artifacts is away."), outages)
    async with away.server.running():
        for outage in range(1, outages + 1):
            await until(lambda least=outage: store.calls["release"] >= least)  # type: ignore[misc]
            assert task_of(await store.get(id)).message == "The store of the artifacts is away."
            clock.now += 91  # the longest delay
        assert (await end_of(store, id)).state == "done"
        messages = [data.get("message") for _, data in await log_entries(store, id)]
        noted = {each["attempt"] for each in await attempts_in(store, id)}
    assert away.runs == outages + 1
    assert messages.count("The store of the artifacts is away.") == 1
    assert noted <= {lost}


async def test_a_function_that_must_not_run_again_fails_at_an_outage_that_it_meets() -> None:
    store = await opened()
    id = await queued_task(store, "count")
    away = Away(store, StoreUnavailable("The store of the artifacts is away."), 1, resume=False)
    async with away.server.running():
        task = await end_of(store, id)
    assert (away.runs, _said(task)) == (
        1,
        "The task was given up after 1 attempt: The store of the artifacts is away.",
    )
