"""Servers that stream nonsense, too much, or never to an end: an error in time and in bounded memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from antiphon.client import Stream
from antiphon.client.streaming import task_segments
from antiphon.client.tasks import requests
from antiphon.errors import BadAnswer, TaskLost, TimedOut, Unreachable
from antiphon.testing import Clock
from tests.client.fakes import Answer, Reply
from tests.client.streams import DIALECTS, LIMIT, TASK, Modern, blocks, on, read, read_into, streaming
from tests.support.polling import DEADLINE

pytestmark = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_segments, "GAP_SECONDS", 0.02)
    monkeypatch.setattr(requests, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(task_segments, "LATE_RESULT_SECONDS", 0.2)


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def texts_into(texts: list[str], stream: Stream) -> None:
    async for segment in stream:
        texts.append(segment.text)


async def test_a_number_that_comes_twice_is_read_once(dialect: Modern) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1, 2)
        await dialect.part(reply, 2, of="another text")
        await dialect.part(reply, 1, 3)
        await dialect.end(reply, 3)

    async with streaming(dialect, answer) as (stream, _):
        assert await read(stream) == [1, 2, 3]
        assert stream.result.text == "text 1\ntext 2\ntext 3"
        assert stream.task_id is None


async def test_a_gap_in_an_answer_that_its_end_does_not_fill_is_a_bad_answer(dialect: Modern) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1)
        await dialect.part(reply, 3)
        await dialect.end(reply, 1)

    async with streaming(dialect, answer) as (stream, _):
        with pytest.raises(BadAnswer, match="later segments, but not segment 2"):
            await read(stream)


def skipping(dialect: Modern, asked: list[int], whole: int) -> Answer:
    """A server that never sends segment 2 by itself. When it has refused to often enough, the task ends."""

    async def follow(reply: Reply) -> None:
        if dialect.name != "2026-07-28" and "stream" not in reply.request.params:
            await reply.result({"content": blocks(range(1, whole + 1)), "isError": False})
            return
        asked.append(dialect.after(reply))
        await reply.events()
        await dialect.part(reply, 1, task_id=TASK)
        await dialect.part(reply, 3, 4, task_id=TASK)
        await reply.hang()

    async def look(reply: Reply) -> None:
        await dialect.status(reply, "completed" if len(asked) == 4 else "working", whole)

    return on(dialect, dialect.promise, follow, look)


async def test_a_gap_in_a_task_is_asked_for_again_and_then_filled_from_the_whole_result(
    dialect: Modern,
) -> None:
    asked: list[int] = []
    async with streaming(dialect, skipping(dialect, asked, 4), task=True) as (stream, _):
        assert await read(stream) == [1, 2, 3, 4]
        assert stream.result.text == "text 1\ntext 2\ntext 3\ntext 4"
    assert asked == [0, 1, 1, 1]


async def test_a_gap_in_a_task_that_its_whole_result_does_not_fill_is_a_bad_answer(dialect: Modern) -> None:
    async with streaming(dialect, skipping(dialect, [], 1), task=True) as (stream, _):
        with pytest.raises(BadAnswer, match="later segments, but not segment 2"):
            await read(stream)


async def test_a_gap_in_a_task_is_filled_by_asking_again(dialect: Modern) -> None:
    async def follow(reply: Reply) -> None:
        await reply.events()
        if dialect.after(reply) == 0:
            await dialect.part(reply, 1, 3, 5, task_id=TASK)
            await reply.hang()
        assert dialect.after(reply) == 1
        await dialect.part(reply, 2, 3, 4, task_id=TASK)
        await dialect.end(reply, 5, task_id=TASK)

    def look(reply: Reply) -> Any:
        return dialect.status(reply, "working", 5)

    async with streaming(dialect, on(dialect, dialect.promise, follow, look), task=True) as (stream, fake):
        assert await read(stream) == [1, 2, 3, 4, 5]
        assert stream.result.text.endswith("text 5")
        assert stream.task_id == TASK
    assert fake.methods().count("tasks/cancel") == 0


@pytest.mark.parametrize("big", [False, True])
async def test_a_stream_without_an_end_is_bounded_in_bytes(dialect: Modern, big: bool) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        for number in range(1, 1_000_000):
            await dialect.part(reply, number, of="x" * (60_000 if big else 10))

    before = resident()
    async with streaming(dialect, answer) as (stream, _):
        got: list[str] = []
        with pytest.raises(BadAnswer, match=f"more than {LIMIT} bytes of segments.*max_message="):
            await texts_into(got, stream)
        assert 0 < sum(map(len, got)) <= LIMIT
        assert resident() - before < 32 << 20


async def test_a_stream_that_nobody_reads_is_bounded_in_bytes_too(dialect: Modern) -> None:
    closed = asyncio.Event()

    async def answer(reply: Reply) -> None:
        try:
            await reply.events()
            for number in range(1, 1_000_000):
                await dialect.part(reply, number, of="x" * 1000)
        finally:
            closed.set()

    async with streaming(dialect, answer) as (stream, _):
        await asyncio.wait_for(closed.wait(), DEADLINE)
        with pytest.raises(BadAnswer, match="max_message="):
            await texts_into([], stream)


async def test_the_same_number_without_end_is_bounded_in_bytes(dialect: Modern) -> None:
    async def follow(reply: Reply) -> None:
        await reply.events()
        while True:
            await dialect.part(reply, 1, of="x" * 1000)

    async with streaming(dialect, on(dialect, dialect.promise, follow), task=True) as (stream, fake):
        with pytest.raises(BadAnswer, match="max_message="):
            await texts_into([], stream)
    assert "tasks/cancel" in fake.methods()


async def test_an_answer_that_falls_silent_times_out(dialect: Modern) -> None:
    was_read = asyncio.Semaphore(0)

    async def answer(reply: Reply) -> None:
        await reply.events()
        for number in range(1, 4):
            await dialect.part(reply, number)
            await was_read.acquire()
        await reply.hang()

    with Clock() as clock:
        async with streaming(dialect, answer, timeout=60, deadline=None) as (stream, fake):
            for number in range(1, 4):
                assert (await anext(stream)).number == number  # each segment gives it more time
                await clock.advance(50)
                was_read.release()
            await clock.advance(50)
            with pytest.raises(TimedOut, match="sent nothing for 60 s"):
                await anext(stream)
            await asyncio.wait_for(fake.gone.wait(), DEADLINE)


async def test_a_timeout_is_for_all_of_a_stream(dialect: Modern) -> None:
    was_read = asyncio.Semaphore(0)

    async def answer(reply: Reply) -> None:
        await reply.events()
        for number in range(1, 1000):
            await dialect.part(reply, number)
            await was_read.acquire()

    with Clock() as clock:
        async with streaming(dialect, answer, timeout=60, within=120, deadline=None) as (stream, fake):
            for number in range(1, 4):
                assert (await anext(stream)).number == number
                await clock.advance(45)
                was_read.release()
            with pytest.raises(TimedOut, match="'tool' has not ended within 120 s"):
                await read(stream)
            await asyncio.wait_for(fake.gone.wait(), DEADLINE)
            with pytest.raises(TimedOut):
                assert stream.result


async def test_a_task_that_never_ends_is_stopped_at_the_timeout(dialect: Modern) -> None:
    async def follow(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1, task_id=TASK)
        await reply.hang()

    answer = on(dialect, dialect.promise, follow)
    with Clock() as clock:
        opened = streaming(dialect, answer, task=True, timeout=60, within=300, deadline=None)
        async with opened as (stream, fake):
            assert (await anext(stream)).number == 1
            await clock.advance(300)
            with pytest.raises(TimedOut, match="within 300 s"):
                await anext(stream)
    assert fake.methods().count("tasks/cancel") == 1


async def test_a_call_that_begins_as_a_stream_of_a_task_may_be_silent(dialect: Modern) -> None:
    was_read = asyncio.Event()

    async def call(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1, task_id=TASK)
        await was_read.wait()
        await dialect.part(reply, 2, task_id=TASK)
        await dialect.end(reply, 2)

    answer = on(dialect, call, Reply.hang)
    with Clock() as clock:
        async with streaming(dialect, answer, task=True, timeout=60, deadline=None) as (stream, _):
            assert (await anext(stream)).number == 1
            await clock.advance(3600)
            was_read.set()
            assert await read(stream) == [2]


@pytest.mark.parametrize("begun", [False, True])
async def test_segments_of_another_task_are_a_bad_answer(dialect: Modern, begun: bool) -> None:
    async def follow(reply: Reply) -> None:
        await reply.events()
        if begun:
            await dialect.part(reply, 1, task_id=TASK)
        await dialect.part(reply, 2 if begun else 1, task_id="t2")
        await reply.hang()

    async with streaming(dialect, on(dialect, dialect.promise, follow), task=True) as (stream, _):
        with pytest.raises(BadAnswer, match="of the task t2 on the stream of t1"):
            await read(stream)


async def test_a_call_whose_segments_change_their_task_is_a_bad_answer(dialect: Modern) -> None:
    async def call(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1, task_id=TASK)
        await dialect.part(reply, 2, task_id="t2")
        await reply.hang()

    async with streaming(dialect, on(dialect, call, Reply.hang), task=True) as (stream, _):
        with pytest.raises(BadAnswer, match="of the task t2 on the stream of t1"):
            await read(stream)


@pytest.mark.parametrize("number", [0, -1, "1", 1.5, True, None])
async def test_a_number_that_is_none_is_a_bad_answer(dialect: Modern, number: Any) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1)
        await dialect.part(reply, number, of="text")
        await reply.hang()

    async with streaming(dialect, answer) as (stream, _):
        with pytest.raises(BadAnswer, match="numbers start at 1"):
            await read(stream)


async def test_a_number_as_large_as_can_be_is_only_missing_all_before_it(dialect: Modern) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 2**62)
        await dialect.end(reply, 0)

    async with streaming(dialect, answer) as (stream, _):
        with pytest.raises(BadAnswer, match="not segment 1"):
            await read(stream)


NEVER = 99.0


async def cut_at(reply: Reply, dialect: Modern, point: float, task_id: str | None) -> None:
    """Send five segments and the end; break off before all, after one of them, or in the middle of one."""
    if point < 0:
        return
    await reply.events()
    for number in range(dialect.after(reply) + 1, 6):
        if point < number:
            if point > number - 1:
                await reply.raw(b'data: {"jsonrpc": "2.0", "met')
            return
        await dialect.part(reply, number, task_id=task_id)
    if point == NEVER:
        await dialect.end(reply, 5, task_id=None if reply.request.method == "tools/call" else task_id)


@pytest.mark.parametrize("point", [-1, 0, 0.5, 1, 5])
async def test_an_answer_that_is_cut_is_unreachable_after_what_came(dialect: Modern, point: float) -> None:
    got: list[int] = []
    async with streaming(dialect, lambda reply: cut_at(reply, dialect, point, None)) as (stream, _):
        with pytest.raises(Unreachable):
            await read_into(got, stream)
    assert got == list(range(1, max(0, int(point)) + 1))


@pytest.mark.parametrize("first", [-1, 0.5, 1, 2.5, 5])
async def test_a_task_that_is_cut_anywhere_is_taken_up_again(dialect: Modern, first: float) -> None:
    points = [first, -1, 2.5, 4]
    asked: list[int] = []

    async def call(reply: Reply) -> None:
        if first < 1:  # without a segment there is nothing that names the task
            await dialect.promise(reply)
        else:
            await cut_at(reply, dialect, points.pop(0), TASK)

    async def follow(reply: Reply) -> None:
        asked.append(dialect.after(reply))
        await cut_at(reply, dialect, points.pop(0) if points else NEVER, TASK)

    async with streaming(dialect, on(dialect, call, follow), task=True) as (
        stream,
        fake,
    ):
        assert await read(stream) == [1, 2, 3, 4, 5]
        assert stream.result.text == "text 1\ntext 2\ntext 3\ntext 4\ntext 5"
    assert asked == sorted(asked)
    assert fake.methods().count("tools/call") == 1
    assert "tasks/cancel" not in fake.methods()


async def test_a_task_whose_segments_never_come_gives_its_result(dialect: Modern) -> None:
    looks = 0

    async def cut(reply: Reply) -> None:
        if "stream" in reply.request.params or dialect.name == "2026-07-28":
            await reply.raw(b"")
        else:
            await reply.result({"content": [{"type": "text", "text": f"text {n}"} for n in (1, 2)]})

    async def look(reply: Reply) -> None:
        nonlocal looks
        looks += 1
        await dialect.status(reply, "completed" if looks > 5 else "working", 2)

    async with streaming(dialect, on(dialect, dialect.promise, cut, look), task=True) as (stream, _):
        assert await read(stream) == [1, 2]
        assert stream.result.text == "text 1\ntext 2"


async def test_a_server_that_goes_away_in_the_middle_of_a_task_is_unreachable(dialect: Modern) -> None:
    async def follow(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1, task_id=TASK)

    async def gone(reply: Reply) -> None:
        await reply.raw(b"")

    answer = on(dialect, dialect.promise, follow, gone)
    async with streaming(dialect, answer, task=True, reconnect_timeout=0.2) as (stream, _):
        with pytest.raises(Unreachable):
            await read(stream)


async def test_a_task_that_is_gone_is_lost(dialect: Modern) -> None:
    async def unknown(reply: Reply) -> None:
        await reply.error(-32602)

    answer = on(dialect, dialect.promise, unknown, unknown)
    async with streaming(dialect, answer, task=True) as (stream, fake):
        with pytest.raises(TaskLost, match="does not know the task t1"):
            await read(stream)
    assert "tasks/cancel" not in fake.methods()


async def test_a_last_response_for_another_request_is_a_bad_answer(dialect: Modern) -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1)
        await reply.event({"id": "other", "result": {"content": []}})
        await reply.hang()

    async with streaming(dialect, answer) as (stream, _):
        with pytest.raises(BadAnswer, match="with a message for 'other'"):
            await read(stream)


async def test_segments_for_another_request_are_not_read(dialect: Modern) -> None:
    async def answer(reply: Reply) -> None:
        id, reply.request.body["id"] = reply.request.id, 4711
        await reply.events()
        await dialect.part(reply, 1, of="not for you")
        reply.request.body["id"] = id
        await dialect.part(reply, 1)
        await dialect.end(reply, 1)

    async with streaming(dialect, answer) as (stream, _):
        if dialect.name == "2026-07-28":
            assert await read(stream) == [1]
        else:
            with pytest.raises(BadAnswer, match="with a message for 4711"):
                await read(stream)


NONSENSE: dict[str, list[Any]] = {
    "2026-07-28": ["text", 5, [5], [{"type": "text", "text": 5}]],
    "2025-11-25": [
        {"partial-content": "text", "isComplete": False},
        {"partial-content": [5], "isComplete": False},
        {"partial-content": [{"seqNr": 1, "type": "text", "text": 5}], "isComplete": False},
        {"partial-content": [], "isComplete": True, "content": "text"},
        {"partial-content": [], "isComplete": 1},
        {"partial-content": [], "isComplete": False, "task": {"taskId": 5}},
    ],
}


async def test_a_part_that_cannot_be_read_is_a_bad_answer(dialect: Modern) -> None:
    for nonsense in NONSENSE[dialect.name]:

        async def answer(reply: Reply, nonsense: Any = nonsense) -> None:
            message = {"id": reply.request.id, "result": nonsense}
            if dialect.name == "2026-07-28":
                params = {"requestId": reply.request.id, "seqNr": 1, "content": nonsense}
                message = {"method": "notifications/tools/partial_result", "params": params}
            await reply.events()
            await reply.event(message)
            await reply.hang()

        async with streaming(dialect, answer) as (stream, _):
            with pytest.raises(BadAnswer):
                await read(stream)
