"""Finds the outcome of an ended task in its head.

This is the only place in which a store looks into a head: lists can be limited to an outcome, and tallies
count outcomes. The databases compute the same in SQL, in their schema. Knows nothing else about tasks.
"""

from __future__ import annotations

from typing import Any, get_args

from antiphon.store.contract import Outcome, Phase, Record, TaskFilter

__all__ = ["OUTCOMES", "matches", "outcome_of", "status_of"]

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def outcome_of(head: Any) -> Outcome | None:
    """Return the outcome of an ended task; `None` if the head does not say it."""
    if not isinstance(head, dict):
        return None
    state, result = head.get("state"), head.get("result")
    if state == "faulted" or (
        state == "done" and isinstance(result, dict) and result.get("is_error") is True
    ):
        return "failed"
    return state if state in ("done", "cancelled") else None


def status_of(phase: Phase, head: Any) -> str:
    """Return the status under which a task is counted (see `tally_rules.py`)."""
    return phase if phase != "ended" else outcome_of(head) or "ended"


def matches(filter: TaskFilter, record: Record) -> bool:
    """Return whether a filter applies to a task."""
    return (
        (filter.phase is None or record.phase == filter.phase)
        and (filter.tool is None or record.tool == filter.tool)
        and (filter.created_before is None or record.created < filter.created_before)
        and (filter.created_since is None or record.created >= filter.created_since)
        and (
            filter.outcome is None or (record.phase == "ended" and outcome_of(record.head) == filter.outcome)
        )
    )
