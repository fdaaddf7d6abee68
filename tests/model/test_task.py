"""What may follow what in the log of a task."""

from __future__ import annotations

import pytest

from antiphon.model.task import EntryKind, Task, TaskHistory

TASK = {"id": "t1", "tool": "sleep", "created": 1, "updated": 1}


def test_a_log_is_folded_from_its_creation_on() -> None:
    folding = TaskHistory()
    with pytest.raises(ValueError, match="The first entry of a task's log must be 'created'"):
        folding.add("recorded", 1, {})
    folding.add("created", 1, {"task": TASK})
    folding.add("recorded", 2, {"message": "on it"})
    assert folding.task == Task("t1", "sleep", 1, 2, message="on it")


@pytest.mark.parametrize("kind", ["created", "recorded", "emitted", "asked", "answered", "ended"])
def test_nothing_follows_an_end(kind: EntryKind) -> None:
    cancelled = Task("t1", "sleep", 1, 1).after("cancelled", {}, 2)
    with pytest.raises(ValueError, match=f"A task that is cancelled cannot be {kind}"):
        cancelled.after(kind, {}, 3)


def test_time_does_not_run_backwards_in_a_task() -> None:
    assert Task("t1", "sleep", 5, 7).after("recorded", {}, 6).updated == 7
