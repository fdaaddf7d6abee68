"""Segments merge to the same, in whatever order, pieces and repetitions they come."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.streaming.segment_tracker import SegmentTracker, whole_outcome
from antiphon.errors import BadAnswer
from antiphon.model.content import Image, Text
from antiphon.model.outcome import Result
from antiphon.model.segment import Segment, StreamPart
from antiphon.model.task_status import TaskStatus

LIMIT = 1 << 20


def segment(number: int) -> Segment:
    return Segment(number, Text(f"text {number}"))


def part(*numbers: int, task_id: str | None = None) -> StreamPart:
    return StreamPart(tuple(map(segment, numbers)), task_id=task_id)


def numbers(segments: list[Segment]) -> list[int]:
    return [segment.number for segment in segments]


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    """Some numbers, each at least once, in any order, cut into messages anywhere, some of them empty."""
    count = draw(st.integers(0, 12))
    again = draw(st.lists(st.integers(1, count), max_size=12)) if count else []
    order = draw(st.permutations([*range(1, count + 1), *again]))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=6)))
    edges = [0, *cuts, len(order)]
    return count, [order[begin:end] for begin, end in pairwise(edges)]


@given(arrivals())
def test_what_comes_in_any_order_is_handed_on_in_one(arrived: tuple[int, list[list[int]]]) -> None:
    count, messages = arrived
    tracker = SegmentTracker(LIMIT)
    handed = [each for message in messages for each in tracker.take(part(*message))]
    assert handed == [segment(number) for number in range(1, count + 1)]
    assert (tracker.last, tracker.missing) == (count, None)
    assert tracker.merged(Result()).content == tuple(Text(f"text {number}") for number in range(1, count + 1))


@given(arrivals(), st.integers(0, 12), st.integers(0, 6))
def test_the_whole_content_supplies_what_has_not_come(
    arrived: tuple[int, list[list[int]]], after: int, lost: int
) -> None:
    count, messages = arrived
    tracker = SegmentTracker(LIMIT, after)
    handed = [each for message in messages[lost:] for each in tracker.take(part(*message))]
    handed += tracker.settle(tuple(Text(f"text {number}") for number in range(1, count + 1)))
    assert handed == [segment(number) for number in range(after + 1, count + 1)]
    assert tracker.missing is None


def test_what_comes_early_waits_for_what_is_missing() -> None:
    tracker = SegmentTracker(LIMIT)
    assert numbers(tracker.take(part(1, 3, 5))) == [1]
    assert (tracker.last, tracker.missing) == (1, 2)
    with pytest.raises(BadAnswer, match="not segment 2"):
        tracker.check()
    assert numbers(tracker.take(part(2))) == [2, 3]
    assert (tracker.last, tracker.missing) == (3, 4)
    assert numbers(tracker.take(part(4))) == [4, 5]
    tracker.check()


def test_a_number_belongs_to_what_came_first_with_it() -> None:
    tracker = SegmentTracker(LIMIT)
    tracker.take(part(1))
    assert tracker.take(StreamPart((Segment(1, Text("other")),))) == []
    tracker.take(part(3))
    assert tracker.take(StreamPart((Segment(3, Text("other")), segment(2)))) == [segment(2), segment(3)]


def test_a_result_with_less_than_what_came_early_is_a_bad_answer() -> None:
    tracker = SegmentTracker(LIMIT)
    tracker.take(part(1, 4))
    with pytest.raises(BadAnswer, match="not segment 3"):
        tracker.settle((Text("text 1"), Text("text 2")))


def test_segments_of_another_task_are_a_bad_answer() -> None:
    tracker = SegmentTracker(LIMIT)
    tracker.take(part(1))
    tracker.take(part(2, task_id="t1"))
    tracker.take(part(3))
    with pytest.raises(BadAnswer, match="of the task t2 on the stream of t1"):
        tracker.take(part(4, task_id="t2"))


def take_all(tracker: SegmentTracker, endless: Callable[[int], StreamPart]) -> None:
    for number in range(1, 1000):
        tracker.take(endless(number))


@pytest.mark.parametrize(
    "endless",
    [
        lambda number: StreamPart((Segment(number, Text("x" * 1000)),)),
        lambda number: StreamPart((Segment(1, Text("x" * 1000)),)),
        lambda number: StreamPart((Segment(number + 1, Text("ü" * 500)),)),
        lambda number: StreamPart((Segment(number, Image("A" * 1000, "image/png")),)),
        lambda number: StreamPart((Segment(number, {"type": "video", "of": "x" * 1000}),)),  # type: ignore[arg-type]
        lambda number: StreamPart((Segment(number, Text("")),)),
        lambda number: StreamPart(()),
    ],
    ids=["new", "again", "early", "pictures", "unknown", "empty text", "nothing"],
)
def test_everything_that_comes_counts_and_is_bounded(endless: Callable[[int], StreamPart]) -> None:
    tracker = SegmentTracker(100_000)
    with pytest.raises(BadAnswer, match="more than 100000 bytes of segments.*max_message="):
        take_all(tracker, endless)


@pytest.mark.parametrize(
    ("end", "merged"),
    [
        (Result(data={"n": 1}, meta={"k": 2}), ["text 1", "text 2"]),
        (Result(["text 1", "text 2", "text 3"]), ["text 1", "text 2", "text 3"]),
        (Result("It broke.", is_error=True), ["text 1", "text 2", "It broke."]),
        (Result(["text 1", "text 2", "It broke."], is_error=True), ["text 1", "text 2", "It broke."]),
        (Result(is_error=True), ["text 1", "text 2"]),
    ],
)
def test_the_last_message_says_the_rest_of_the_result(end: Result, merged: list[str]) -> None:
    tracker = SegmentTracker(LIMIT)
    tracker.take(part(1, 2))
    result = tracker.merged(end)
    assert [block.text for block in result.content if isinstance(block, Text)] == merged
    assert (result.data, result.structured) == (end.data, end.structured)
    assert (result.meta, result.is_error) == (end.meta, end.is_error)


def test_a_part_for_somebody_who_wanted_none() -> None:
    whole = whole_outcome(StreamPart((segment(1), segment(2)), is_complete=True, end=Result(data=3)), LIMIT)
    assert isinstance(whole, Result)
    assert (whole.text, whole.data) == ("text 1\ntext 2", 3)
    task = TaskStatus("t1", "working")
    assert whole_outcome(StreamPart((), task_id="t1", task=task), LIMIT) is task
    with pytest.raises(BadAnswer, match="the client did not ask for parts"):
        whole_outcome(StreamPart((segment(1),)), LIMIT)
    with pytest.raises(BadAnswer, match="not segment 1"):
        whole_outcome(StreamPart((segment(2),), is_complete=True, end=Result()), LIMIT)
