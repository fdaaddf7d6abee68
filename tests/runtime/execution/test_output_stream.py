"""Segments on their way into a task's log or onto a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from antiphon import Text
from antiphon.errors import StoreUnavailable
from antiphon.model.content import Block
from antiphon.runtime.execution.output_stream import LoggedOutput, StreamedOutput
from tests.support.loop_time import LoopTime
from tests.support.polling import turns


class Log:
    """Records segments when its gate is open, or fails."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, list[str]]] = []
        self.failures: list[Exception] = []
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def take(self, first: int, blocks: Sequence[Block]) -> None:
        self.begun.set()
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop()
        self.taken.append((first, [block.text for block in blocks if isinstance(block, Text)]))


def texts(*words: str) -> list[Block]:
    return [Text(word) for word in words]


async def test_a_failed_write_raises_at_the_next_emit_and_leaves_no_gap() -> None:
    log = Log()
    log.failures.append(StoreUnavailable("It is away."))
    emissions = LoggedOutput(log.take, logged=0)
    await emissions.emit(texts("a"))
    with pytest.raises(StoreUnavailable):
        await emissions.flush()
    with pytest.raises(StoreUnavailable):
        await emissions.emit(texts("b"))
    with pytest.raises(StoreUnavailable):
        await emissions.flush()
    assert log.taken == []


async def test_segments_emitted_during_a_failed_write_are_not_written() -> None:
    log = Log()
    log.gate.clear()
    log.failures.append(StoreUnavailable("It is away."))
    emissions = LoggedOutput(log.take, logged=0)
    await emissions.emit(texts("a"))
    flushing = asyncio.create_task(emissions.flush())
    await log.begun.wait()
    await emissions.emit(texts("b"))
    log.gate.set()
    with pytest.raises(StoreUnavailable):
        await flushing
    with pytest.raises(StoreUnavailable):
        await emissions.flush()
    assert log.taken == []


async def test_a_run_that_restarts_does_not_write_logged_segments_again() -> None:
    log = Log()
    emissions = LoggedOutput(log.take, logged=0)
    await emissions.emit(texts("a", "b"))
    await emissions.restart()
    assert not emissions.has_emitted
    await emissions.emit(texts("a", "b", "c"))
    await emissions.flush()
    assert log.taken == [(1, ["a", "b"]), (3, ["c"])]


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_delayed_flush_sends_nothing_after_the_result_was_taken(is_taken: bool) -> None:
    log, loop_time = Log(), LoopTime.here()
    with loop_time.stopped():
        output = StreamedOutput(10_000, log.take, sent=0)
        await output.emit(texts("one"))
        await output.emit(texts("two"))  # soon after the first, so a timer sends it
        loop_time.advance(60)
        await turns(2)  # the timer has fired: the flush is scheduled, and has not begun
        assert output.sent == 1
        if is_taken:
            rest = await output.remaining()
            assert [block.text for block in rest if isinstance(block, Text)] == ["one", "two"]
        await turns(5)
    assert log.taken == [(1, ["one"])] + [(2, ["two"])] * (not is_taken)
