"""How a log counts the runs that were lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.model.task import Task
from antiphon.model.task_history import TaskHistory

TASK = Task(id="count_1", tool="count", created=0, updated=0)
CREATED = ("created", {"task": msgspec.to_builtins(TASK)})
STEP = {"journal": {"step:a": 1}}
ASKED = {"asks": {"name": ["elicit", {}]}}
HELD_ASKED = {**ASKED, "held": True}
NOTED = ("recorded", {"attempt": 1, "released": True, "by": 2})
ANSWERED = ("answered", {"responses": {"name": {}}})
FAULTED = {"fault": {"code": -32603, "message": "broken"}}


def history(*entries: tuple[str, dict[str, Any]]) -> TaskHistory:
    read = TaskHistory()
    for kind, data in (CREATED, *entries):
        read.add(kind, 0, data)  # type: ignore[arg-type]
    return read


def by(token: int, data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "by": token}


@pytest.mark.parametrize(
    ("entries", "token", "lost"),
    [
        ([], 1, 0),
        # The first run writes nothing, so one of the claims may have run.
        ([], 2, 1),
        ([], 4, 1),
        # Progress of the first claim, which was then lost itself.
        ([("recorded", by(1, STEP))], 2, 1),
        # Progress forgives the losses before it.
        ([("recorded", by(3, STEP))], 4, 1),
        ([("emitted", by(3, {"first": 1, "blocks": []}))], 5, 1),
        # A parked task was not lost; the worker after the answer was.
        ([("asked", by(1, ASKED)), ANSWERED], 2, 0),
        ([("asked", by(1, ASKED)), ANSWERED], 3, 1),
        # An answer goes to the function that waits in its process, and forgives no loss of the process.
        ([("asked", by(1, HELD_ASKED)), ANSWERED], 2, 1),
        ([("asked", by(1, HELD_ASKED)), NOTED, ANSWERED], 3, 1),
        ([("asked", by(1, HELD_ASKED)), ANSWERED, ("recorded", by(1, STEP)), NOTED], 3, 1),
        # A run that was released in order is none that was lost, and forgives none.
        ([("recorded", by(1, {"released": True}))], 2, 0),
        ([("recorded", by(3, {"released": True}))], 4, 1),
        # A loss that was noted, and after which the task ran at once or with a delay.
        ([("recorded", by(2, {"attempt": 1}))], 3, 2),
        ([("recorded", by(3, {"attempt": 2, "released": True}))], 4, 2),
        # After a failed attempt each run writes its beginning: claims that wrote nothing did not run.
        ([("recorded", by(2, {"attempt": 1}))], 6, 2),
        ([("recorded", by(3, {"attempt": 2, "released": True}))], 9, 2),
        ([("recorded", by(3, {"attempt": 2, "released": True})), ("recorded", by(5, {"attempt": 2}))], 9, 3),
        # A worker that could not begin has lost nothing.
        ([("recorded", by(1, {"attempt": 1, "refused": 1, "released": True}))], 2, 0),
        # An operator's retry starts the count again.
        ([("faulted", by(6, FAULTED)), ("recorded", {"retry": True})], 7, 0),
        ([("faulted", by(6, FAULTED)), ("recorded", {"retry": True})], 8, 1),
        # Early versions do not name their claims.
        ([("asked", ASKED), ANSWERED], 7, 0),
        ([("recorded", STEP)], 7, 1),
        ([("recorded", STEP), ("recorded", by(7, {"attempt": 1}))], 8, 2),
    ],
)
def test_counts_the_runs_that_were_lost(
    entries: list[tuple[str, dict[str, Any]]], token: int, lost: int
) -> None:
    assert history(*entries).lost_runs(token) == lost


def test_refusals_are_counted_apart() -> None:
    read = history(("recorded", by(2, {"attempt": 2, "refused": 1, "released": True})))
    assert (read.lost_runs(3), read.noted_attempts, read.refusals) == (1, 2, 1)


def test_only_a_failed_task_can_be_retried() -> None:
    read = history(("faulted", by(1, FAULTED)), ("recorded", {"retry": True, "message": "again"}))
    assert read.task is not None
    assert (read.task.state, read.task.fault, read.task.message) == ("working", None, "again")
    failed = {"result": {"content": [], "is_error": True}}
    assert history(("ended", by(1, failed)), ("recorded", {"retry": True})).task == TASK
    succeeded = {"result": {"content": [], "is_error": False}}
    with pytest.raises(ValueError, match="A task that is done cannot be recorded"):
        history(("ended", by(1, succeeded)), ("recorded", {"retry": True}))
    with pytest.raises(ValueError, match="A task that is faulted cannot be recorded"):
        history(("faulted", by(1, FAULTED)), ("recorded", by(1, STEP)))


def test_a_message_describes_one_state() -> None:
    read = history(("recorded", by(1, {"attempt": 1, "message": "again"})))
    assert read.task is not None
    assert read.task.message == "again"
    assert read.task.after("asked", ASKED, 0).message is None


# Claims that a worker lost in an outage, and reports

REPORTABLE = [
    # The claim wrote nothing, and neither has the next one.
    ([], 1, {3: 1}),
    # The next claim has counted the loss, and runs.
    ([("recorded", by(2, {"attempt": 1}))], 1, {3: 1}),
    # Of two claims that were lost, the worker of one has died.
    ([("recorded", by(2, {"attempt": 1})), ("recorded", by(3, {"attempt": 2, "released": True}))], 1, {4: 1}),
    ([("recorded", by(2, {"attempt": 1})), ("recorded", by(3, {"attempt": 2, "released": True}))], 2, {4: 1}),
    # The claim ran after a loss, and wrote that it began.
    ([("recorded", by(2, {"attempt": 1}))], 2, {3: 1, 5: 1}),
    # The claim recorded a step, and was lost in the next one.
    ([("recorded", by(1, STEP))], 1, {2: 0}),
    # Workers that could not begin have lost nothing, and stay counted apart.
    (
        [
            ("recorded", by(1, {"attempt": 1, "refused": 1, "released": True})),
            ("recorded", by(2, {"attempt": 1})),
        ],
        2,
        {3: 0},
    ),
]


@pytest.mark.parametrize(("entries", "token", "lost"), REPORTABLE)
def test_a_claim_that_was_lost_in_an_outage_is_no_lost_run(
    entries: list[tuple[str, dict[str, Any]]], token: int, lost: dict[int, int]
) -> None:
    found = history(*entries).survival(token, 0)
    assert found is not None
    read = history(*entries, ("recorded", found[0]))
    assert {next: read.lost_runs(next) for next in lost} == lost


@pytest.mark.parametrize(
    ("entries", "token"),
    [
        ([("recorded", by(1, {"released": True}))], 1),  # it was released in order
        ([("recorded", by(2, STEP))], 1),  # the task has made progress since
        ([("asked", by(1, ASKED)), ANSWERED], 1),
        ([("faulted", by(2, FAULTED))], 1),  # it has ended
        ([("recorded", STEP)], 1),  # an early version does not name its claims
    ],
)
def test_nothing_is_reported_of_a_claim_that_does_not_count(
    entries: list[tuple[str, dict[str, Any]]], token: int
) -> None:
    assert history(*entries).survival(token, 0) is None


def test_a_worker_that_counts_before_it_sees_the_report_counts_no_loss() -> None:
    found = history().survival(1, 0)
    assert found is not None
    late = by(2, {"attempt": 1, "seen": 1})
    read = history(("recorded", found[0]), ("recorded", late))
    assert (read.lost_runs(2), read.noted_attempts) == (0, 0)
    assert read.lost_runs(3) == 1  # the second worker itself was lost
    progress = history(("recorded", found[0]), ("recorded", late), ("recorded", by(2, STEP)))
    assert progress.lost_runs(3) == 1


def test_claims_that_were_given_back_are_counted_before_and_after_the_report() -> None:
    read = history()
    read.quiet_releases = 3  # two before the claim with the token 3, and one after it
    found = read.survival(3, 2)
    assert found is not None
    data, left = found
    assert (data["attempt"], left) == (0, 1)
    after = history(("recorded", data))
    after.quiet_releases = left
    assert after.lost_runs(5) == 0  # the claim 4 was given back
    assert after.lost_runs(6) == 1


def test_who_ran_beside_a_task_counts_until_it_makes_progress() -> None:
    entries: list[tuple[str, dict[str, Any]]] = [
        ("recorded", by(2, {"attempt": 1, "group": 12})),
        ("recorded", by(3, {"attempt": 2, "released": True, "most": 6})),
    ]
    read = history(*entries)
    assert (read.group, read.most) == (12, 6)
    later = history(*entries, ("recorded", by(4, {"attempt": 2, "most": 6, "group": 5})))
    assert (later.group, later.most) == (5, 6)
    progress = history(*entries, ("recorded", by(4, STEP)))
    assert (progress.group, progress.most) == (0, 0)


def test_versions_without_reports_read_one_as_a_release() -> None:
    for entries, token, lost in REPORTABLE:
        found = history(*entries).survival(token, 0)
        assert found is not None
        data = {key: value for key, value in found[0].items() if key != "survived"}
        read = history(*entries, ("recorded", data))
        assert all(read.lost_runs(next) <= count for next, count in lost.items())
