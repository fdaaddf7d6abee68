"""The transitions of a task, and the order of entries in its log."""

from __future__ import annotations

import pytest

from antiphon.model.task import EntryKind, Task, TaskHistory

TASK = {"id": "t1", "tool": "sleep", "created": 1, "updated": 1}


def test_a_log_begins_with_the_creation_of_its_task() -> None:
    folding = TaskHistory()
    with pytest.raises(ValueError, match="The first entry of a task's log must be 'created'"):
        folding.add("recorded", 1, {})
    folding.add("created", 1, {"task": TASK})
    folding.add("recorded", 2, {"message": "on it"})
    assert folding.task == Task("t1", "sleep", 1, 2, message="on it")


@pytest.mark.parametrize("kind", ["created", "recorded", "emitted", "asked", "answered", "ended"])
def test_a_finished_task_takes_no_entry(kind: EntryKind) -> None:
    cancelled = Task("t1", "sleep", 1, 1).after("cancelled", {}, 2)
    with pytest.raises(ValueError, match=f"A task that is cancelled cannot be {kind}"):
        cancelled.after(kind, {}, 3)


def test_the_time_of_an_update_never_decreases() -> None:
    assert Task("t1", "sleep", 5, 7).after("recorded", {}, 6).updated == 7
