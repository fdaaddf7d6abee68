"""The timeline of a task: what a log says about runs, steps, questions, waits and output."""

from __future__ import annotations

import random
from typing import Any

from antiphon.console.timeline import MAX_BARS, MAX_TICKS, Timeline, timeline_of
from antiphon.store.contract import Entry

ASKED = ["elicit", {"message": "Which day?", "schema": {}}]


def log(*entries: tuple[int, str, Any]) -> list[Entry]:
    """Return a log of entries, each a time, a kind and its data."""
    return [Entry(number, kind, at, data) for number, (at, kind, data) in enumerate(entries, 1)]


def shown(timeline: Timeline, kind: str) -> list[tuple[str, int, int | None, str]]:
    return [(bar.label, bar.start, bar.end, bar.state) for bar in timeline.bars if bar.kind == kind]


def test_steps_begin_after_the_entry_before_them_and_belong_to_a_run() -> None:
    entries = log(
        (0, "created", {}),
        (100, "recorded", {"journal": {"step:fetch": 1, "print:step:fetch": "ab"}, "by": 1}),
        (300, "recorded", {"journal": {"step:pay": 2, "nested:pay/charge(12)": 3}, "by": 1}),
        (350, "ended", {"result": {"content": [], "is_error": False}, "by": 1}),
    )
    found = timeline_of([entries], created=0, ended=350)
    assert shown(found, "run") == [("Run 1", 0, 350, "ok")]
    assert shown(found, "step") == [
        ("fetch", 0, 100, "ok"),
        ("pay", 100, 300, "ok"),
        ("pay/charge(12)", 100, 300, "ok"),
    ]


def test_a_question_lasts_until_its_answer_and_says_who_answered() -> None:
    entries = log(
        (0, "created", {}),
        (10, "asked", {"asks": {"day": ASKED}, "by": 1}),
        (60, "answered", {"responses": {"day": {"action": "accept", "content": {}}}}),
        (70, "parked", {"asks": {}, "waits": {"ok": {"question": ASKED, "to": ["boss"]}}, "by": 2}),
        (
            90,
            "answered",
            {"responses": {}, "others": {"ok": ["ann", 90, {"action": "decline"}]}, "resolved": ["ok"]},
        ),
        (95, "faulted", {"fault": {"code": 1, "message": "refused"}, "by": 3}),
    )
    found = timeline_of([entries], created=0, ended=95)
    assert shown(found, "question") == [("Which day?", 10, 60, "ok"), ("Which day?", 70, 90, "declined")]
    assert [bar.detail for bar in found.bars if bar.kind == "question"] == [
        "To the caller.",
        "To boss. Answered by ann.",
    ]
    assert shown(found, "run") == [
        ("Run 1", 0, 10, "ok"),
        ("Run 2", 60, 70, "ok"),
        ("Run 3", 90, 95, "failed"),
    ]
    assert found.bars[-1].detail == "refused"


def test_sleeps_and_events_end_when_the_task_is_woken() -> None:
    entries = log(
        (0, "created", {}),
        (10, "parked", {"asks": {}, "waits": {"sleep:night": {"until": 500}}, "by": 1}),
        (510, "woken", {}),
        (520, "parked", {"asks": {}, "waits": {"event:e": {"event": ["paid", "7"]}}, "by": 2}),
        (700, "woken", {"event": ["paid", "7"]}),
        (720, "recorded", {"journal": {"sleep:short": 730}, "by": 3}),
        (800, "parked", {"asks": {}, "waits": {"sleep:": {"until": 9000}}, "by": 3}),
    )
    found = timeline_of([entries], created=0, ended=None)
    assert shown(found, "sleep") == [
        ("night", 10, 510, "ok"),
        ("short", 700, 730, "ok"),
        ("sleep", 800, None, "open"),
    ]
    assert shown(found, "event") == [("paid 7", 520, 700, "ok")]


def test_failed_attempts_at_a_step_show_their_error_and_the_wait_after_it() -> None:
    tried = {"tried:pay": {"count": 2, "last": [[5, "OSError: no", 50], [60, "OSError: still no", 160]]}}
    entries = log((0, "created", {}), (60, "recorded", {"journal": tried, "by": 1}))
    found = timeline_of([entries], created=0, ended=None)
    assert shown(found, "retry") == [("pay", 60, 160, "failed")]
    assert found.bars[-1].detail == "OSError: still no"


def test_a_run_whose_worker_was_lost_is_told_from_one_that_goes_on() -> None:
    entries = log(
        (0, "created", {}),
        (10, "recorded", {"journal": {"step:a": 1}, "by": 1}),
        (900, "recorded", {"attempt": 1, "by": 2}),
        (950, "recorded", {"released": True, "message": "The server stops.", "by": 2}),
    )
    found = timeline_of([entries], created=0, ended=None)
    assert shown(found, "run") == [
        ("Run 1", 0, 10, "lost"),
        ("Run 2", 10, 950, ""),
        ("Run 3", 950, None, "open"),
    ]


def test_a_task_that_is_queued_has_an_open_run() -> None:
    found = timeline_of([log((0, "created", {}))], created=0, ended=None)
    assert shown(found, "run") == [("Run 1", 0, None, "open")]


def test_bars_and_output_are_bounded() -> None:
    steps = [(n, "recorded", {"journal": {f"step:s#{n}": n}, "by": 1}) for n in range(1, 1001)]
    output = [(2000 + n, "emitted", {"first": n, "blocks": ["x", "y"], "by": 1}) for n in range(1000)]
    entries = log((0, "created", {}), *steps, *output)
    found = timeline_of([entries], created=0, ended=None)
    assert len(found.bars) == MAX_BARS
    assert found.left_out == 1001 - MAX_BARS
    assert len(found.output) <= MAX_TICKS
    assert sum(count for _, count in found.output) == 2000


def test_entries_between_the_parts_are_counted_and_end_no_step() -> None:
    entries = log(*[(n, "recorded", {"journal": {f"step:{n}": n}, "by": 1}) for n in range(100)])
    found = timeline_of([entries[:5], entries[-5:]], created=0, ended=None, total=100)
    assert found.entries_left_out == 90
    assert shown(found, "run")[0][:3] == ("Run 1", 0, 4)


def test_damaged_entries_break_nothing() -> None:
    values: list[Any] = [None, 1, "x", [], {}, [1, 2], {"a": 1}, True, [["elicit", 3]], {"k": {"until": "x"}}]
    keys = (
        "journal",
        "asks",
        "waits",
        "responses",
        "others",
        "resolved",
        "blocks",
        "by",
        "result",
        "fault",
        "attempt",
    )
    kinds = (
        "created",
        "recorded",
        "emitted",
        "asked",
        "parked",
        "answered",
        "woken",
        "ended",
        "faulted",
        "odd",
    )
    chance = random.Random(7)
    for _ in range(300):
        data = [{key: chance.choice(values) for key in chance.sample(keys, 5)} for _ in range(12)]
        entries = [Entry(n, chance.choice(kinds), n, chance.choice([*values, *data])) for n in range(1, 30)]
        timeline_of([entries], created=0, ended=chance.choice([None, 99]), total=30)
