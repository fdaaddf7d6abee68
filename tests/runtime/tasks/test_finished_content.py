"""The content of a finished task: only its segments are read, once, and without holding the event loop."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon import Context, Server
from antiphon.model.identity import ANONYMOUS
from antiphon.model.outcome import Result
from antiphon.model.task import MAX_ENTRY_RANGES, EntryRanges, Task, dump_result
from antiphon.runtime.execution.output_stream import LoggedOutput
from antiphon.runtime.execution.run import REPLAY_ENTRIES
from antiphon.runtime.tasks import finished_content
from antiphon.runtime.tasks.claims import read_history
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.records import head_of, phase_of
from antiphon.runtime.tasks.segment_reader import READ_PAGE_ENTRIES
from tests.promises.speaking import TASKS
from tests.runtime.faulty_store import FaultyStore, created_task
from tests.runtime.tasks.test_service import promises
from tests.support.memory import InMemory, in_memory
from tests.support.polling import turns
from tests.support.speakers import KEY

PATIENT = {KEY + "clientCapabilities": {"extensions": {TASKS: {}}}}


class CountingStore(FaultyStore):
    """A store in memory that counts the entries that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.entries_read = 0

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        """Read entries, and count them."""
        found = await self.inner.read(*args, **kwargs)
        self.entries_read += len(found)
        return found


async def open_store() -> Any:
    store = CountingStore()
    await store.open()
    return store


async def write(store: Any, task: Task, version: int, entries: list[tuple[Any, Any]]) -> Task:
    """Append entries to the log of a task, and return the task after them."""
    for kind, data in entries:
        task = task.after(kind, data, now_ms())
    await store.append(task.id, entries, expect=version, phase=phase_of(task), head=head_of(task))
    return task


@asynccontextmanager
async def counting_turns() -> AsyncIterator[list[int]]:
    """Count the turns of the event loop that other tasks get."""
    counted = [0]

    async def count() -> None:
        while True:
            counted[0] += 1
            await turns()

    counter = asyncio.create_task(count())
    await turns()
    counted[0] = 0
    try:
        yield counted
    finally:
        counter.cancel()


async def written() -> None:
    """Wait until the emitted segments are in the log: nothing in memory takes more turns."""
    await turns(10)


async def end(client: InMemory, id: str) -> None:
    """Wait for the end of a task, in a version in which nobody reads its content meanwhile."""
    async with asyncio.timeout(30):
        while (await client.result("tasks/get", {"taskId": id}))["status"] != "completed":
            pass


@pytest.mark.parametrize("steps", [50, 500])
async def test_a_look_at_a_finished_task_reads_its_segments_alone_and_once(steps: int) -> None:
    store = await open_store()
    server = Server("tests", store=store)

    async def work(number: int) -> int:
        return number

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        for number in range(steps):
            await ctx.step(work, number)
            if number % 10 == 0:
                await ctx.emit(f"at {number}")
                await written()
        return "done"

    async with in_memory(server) as client:
        id = (await client.result("tools/call", {"name": "tool"}, meta=PATIENT))["taskId"]
        await end(client, id)
        log = await store.inner.read(id)
        store.entries_read = 0
        expected = [f"at {number}" for number in range(0, steps, 10)] + ["done"]
        for _ in range(2):
            shown = await client.result("tasks/get", {"taskId": id}, meta=PATIENT)
            assert [block["text"] for block in shown["result"]["content"]] == expected
        assert 0 < store.entries_read <= 1 + sum(entry.kind == "emitted" for entry in log)
        store.entries_read = 0
        assert (await client.result("tasks/get", {"taskId": id}))["status"] == "completed"
        assert store.entries_read == 0  # in this version, a status has no content


async def test_a_worker_that_takes_a_task_over_knows_where_its_segments_are() -> None:
    store = await open_store()
    task, _, _ = await created_task(store)
    await write(store, task, 1, [emitted(1, "1"), ("recorded", {"journal": {}}), emitted(2, "2")])
    server = Server("tests", store=store)

    @server.tool(task="required")
    async def count(ctx: Context) -> str:
        for number in ("1", "2", "3"):
            await ctx.emit(number)
        await written()
        return "4"

    async with in_memory(server) as client:
        await end(client, task.id)
        log = list(await store.read(task.id))
        numbers = [entry.number for entry in log if entry.kind == "emitted"]
        ranges = log[-1].data["segment_entries"]
        assert [number for first, end in ranges for number in range(first, end + 1)] == numbers
        shown = await client.result("tasks/get", {"taskId": task.id}, meta=PATIENT)
        assert [block["text"] for block in shown["result"]["content"]] == ["1", "2", "3", "4"]


def emitted(first: int, *texts: str) -> tuple[str, Any]:
    """Return the entry of segments."""
    return "emitted", {"first": first, "blocks": [{"type": "text", "text": text} for text in texts]}


def ended(**more: Any) -> tuple[str, Any]:
    """Return the entry of a result."""
    return "ended", {"result": dump_result(Result("end")), **more}


async def content(store: Any, id: str) -> list[str]:
    """Return the texts of a finished task."""
    service = promises(store)
    whole = await service.with_content(await service.get(id, ANONYMOUS))
    assert whole.result is not None
    return [block["text"] for block in json.loads(bytes(whole.result["content"]))]


async def test_a_task_that_an_earlier_version_finished_has_its_content_too() -> None:
    store = await open_store()
    task, _, _ = await created_task(store)
    await write(
        store, task, 1, [emitted(1, "a", "b"), ("recorded", {"journal": {}}), emitted(3, "c"), ended()]
    )
    assert await content(store, task.id) == ["a", "b", "c", "end"]


async def test_large_content_is_assembled_in_slices() -> None:
    store = await open_store()
    task, _, _ = await created_task(store)
    entries = 1600
    segments = [emitted(number, str(number)) for number in range(1, entries + 1)]
    for more in ({"segment_entries": [[2, entries + 1]]}, {}):
        if more:
            await write(store, task, 1, [*segments, ended(**more)])
        async with counting_turns() as counted:
            assert len(await content(store, task.id)) == entries + 1
        assert counted[0] >= entries // 16 - 1


async def test_the_cache_of_content_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_content, "MAX_BYTES", 100)
    monkeypatch.setattr(finished_content, "MAX_TASK_BYTES", 80)
    store = await open_store()
    task, _, _ = await created_task(store)
    task = await write(store, task, 1, [emitted(1, "a"), ended(segment_entries=[[2, 2]])])
    cache = finished_content.FinishedContent(store)
    first = await cache.of(task)
    assert await cache.of(task) == first
    assert (len(cache.contents), cache.bytes) == (1, len(bytes(first)))
    cache.keep(("another", 1), b"x" * 60)
    assert list(cache.contents) == [("another", 1)]
    cache.keep(("large", 1), b"x" * 81)
    assert (list(cache.contents), cache.bytes) == ([("another", 1)], 60)


# Replaying


async def test_a_long_log_is_read_without_holding_the_event_loop() -> None:
    store = await open_store()
    task, _, _ = await created_task(store)
    entries = 1600
    recorded = [("recorded", {"journal": {f"step:{number}": number}}) for number in range(entries)]
    await write(store, task, 1, recorded)
    (claim,) = await store.claim("tests", lease=60.0, limit=1)
    async with counting_turns() as counted:
        history = await read_history(store, claim)
    assert history is not None
    assert len(history.journal) == entries
    assert counted[0] >= entries // 16 - 1


async def test_a_replay_does_not_hold_the_event_loop() -> None:
    server, steps, counts = Server("tests", store="memory:"), 1000, list[int]()

    async def work(number: int) -> int:
        return number

    @server.tool(task="required")
    async def tool(ctx: Context) -> str:
        async with counting_turns() as counted:
            for number in range(steps):
                assert await ctx.step(work, number) == number
        counts.append(counted[0])
        return await ctx.elicit("Who?", str, key="name")

    async with in_memory(server) as client:
        task = {"taskId": (await client.result("tools/call", {"name": "tool", "task": {}}))["task"]["taskId"]}
        assert "name" in (await client.result("tasks/result", task))["inputRequests"]
        answer = {"name": {"action": "accept", "content": {"value": "Ada"}}}
        result = await client.result("tasks/result", {**task, "inputResponses": answer})
        assert result["content"][0]["text"] == "Ada"
    assert counts[-1] >= 5


async def test_segments_that_are_emitted_again_do_not_hold_the_event_loop() -> None:
    async def write_segments(first: int, blocks: Any) -> None:
        raise AssertionError

    segments = 5000
    output = LoggedOutput(write_segments, logged=segments)
    async with counting_turns() as counted:
        for _ in range(segments):
            await output.emit(["segment"])  # type: ignore[list-item]
    assert counted[0] >= 10


# Segments that alternate with steps


class TurnStore(CountingStore):
    """A store that notes how many entries were read in each turn of the event loop."""

    def __init__(self, counted: list[int]) -> None:
        super().__init__()
        self._counted = counted
        self.read_in_turn: Counter[int] = Counter()

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        """Read entries, and note the turn."""
        found = await super().read(*args, **kwargs)
        self.read_in_turn[self._counted[0]] += len(found)
        return found


async def test_segments_that_alternate_with_steps_are_replayed_and_read_in_small_slices() -> None:
    pairs, handled, runs = 600, Counter[int](), 0

    async def work(number: int) -> int:
        return number

    async with counting_turns() as counted:
        store = TurnStore(counted)
        server = Server("tests", store=store)  # type: ignore[arg-type]

        @server.tool(task="required", poll_interval=0.01)
        async def tool(ctx: Context) -> str:
            nonlocal runs
            runs += 1
            handled.clear()
            for number in range(pairs):
                handled[counted[0]] += 1
                await ctx.emit(f"segment {number}")
                if runs == 1:
                    await written()
                await ctx.step(work, number)
            return await ctx.elicit("Who?", str, key="name")

        async with in_memory(server) as client:
            started = await client.result("tools/call", {"name": "tool", "task": {}})
            task = {"taskId": started["task"]["taskId"]}
            assert "name" in (await client.result("tasks/result", task))["inputRequests"]
            log = await store.inner.read(task["taskId"], limit=10 * pairs)
            assert sum(entry.kind == "emitted" for entry in log) > pairs // 2
            store.read_in_turn.clear()
            answer = {"name": {"action": "accept", "content": {"value": "Ada"}}}
            result = await client.result("tasks/result", {**task, "inputResponses": answer})
            assert len(result["content"]) == pairs + 1
            log = await store.inner.read(task["taskId"], limit=10 * pairs)
    # A page of the log, and pages that the store reads together, are the work of one turn.
    assert max(store.read_in_turn.values()) <= 2 * READ_PAGE_ENTRIES
    assert max(handled.values()) <= REPLAY_ENTRIES
    assert len(log[-1].data["segment_entries"]) <= MAX_ENTRY_RANGES


@pytest.mark.parametrize("every", [2, 3, 50])
def test_the_ranges_of_entries_are_few_and_cover_all_entries(every: int) -> None:
    ranges, numbers = EntryRanges(), range(2, 20_000 * every, every)
    for number in numbers:
        ranges.add(number)
    assert len(ranges.ranges) <= MAX_ENTRY_RANGES
    starts = [first for first, _ in ranges.ranges]
    assert starts == sorted(starts)
    covered = {number for first, end in ranges.ranges for number in range(first, end + 1)}
    assert covered.issuperset(numbers)
    assert max(covered) == numbers[-1]


def test_steps_between_segments_are_not_in_the_ranges() -> None:
    ranges = EntryRanges()
    for start in range(0, 100_000, 1000):  # ten segments, then many steps
        for number in range(start, start + 10):
            ranges.add(number)
    assert ranges.ranges == [[start, start + 9] for start in range(0, 100_000, 1000)]
