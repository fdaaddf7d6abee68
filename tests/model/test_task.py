"""The transitions of a task, and the order of entries in its log."""

from __future__ import annotations

import pytest

from antiphon.model.task import EntryKind, Task
from antiphon.model.task_history import TaskHistory

TASK = {"id": "t1", "tool": "sleep", "created": 1, "updated": 1}


def test_a_log_begins_with_the_creation_of_its_task() -> None:
    folding = TaskHistory()
    with pytest.raises(ValueError, match="The first entry of a task's log must be 'created'"):
        folding.add("recorded", 1, {})
    folding.add("created", 1, {"task": TASK})
    folding.add("recorded", 2, {"message": "on it"})
    assert folding.task == Task("t1", "sleep", 1, 2, message="on it")


@pytest.mark.parametrize("kind", ["created", "emitted", "asked", "answered", "ended", "faulted", "cancelled"])
def test_a_finished_task_takes_no_entry(kind: EntryKind) -> None:
    cancelled = Task("t1", "sleep", 1, 1).after("cancelled", {}, 2)
    with pytest.raises(ValueError, match=f"A task that is cancelled cannot be {kind}"):
        cancelled.after(kind, {}, 3)


def test_the_time_of_an_update_never_decreases() -> None:
    assert Task("t1", "sleep", 5, 7).after("recorded", {}, 6).updated == 7


def test_an_entry_after_a_cancellation_changes_nothing_that_callers_see() -> None:
    cancelled = Task("t1", "sleep", 1, 1, keep=100).after("cancelled", {"message": "cancelled"}, 2)
    later = cancelled.after("recorded", {"unwound": True, "message": "other"}, 50)
    assert (later.state, later.message, later.expires) == ("cancelled", "cancelled", 102)


@pytest.mark.parametrize(
    ("ttl", "keep", "expires"),
    [(None, None, None), (None, 100, 1150), (60, None, 1060), (60, 100, 1060), (600, 100, 1150)],
)
def test_a_task_is_kept_from_its_end_on_unless_its_caller_asked_for_less(
    ttl: int | None, keep: int | None, expires: int | None
) -> None:
    task = Task("t1", "sleep", created=1000, updated=1000, ttl=ttl, keep=keep)
    assert task.expires == (None if ttl is None else 1000 + ttl)
    ended = task.after("recorded", {}, 1020).after("ended", {"result": {}}, 1050)
    assert ended.expires == expires


def test_a_message_is_about_the_state_in_which_it_was_set() -> None:
    task = Task("t1", "sleep", 1, 1).after("recorded", {"message": "on it"}, 2)
    assert task.after("emitted", {"blocks": []}, 3).message == "on it"
    assert task.after("asked", {"asks": {}}, 3).message is None
