"""Returns the entry of a log that records how a run ended.

Must not know the store. The entry takes along the part of the journal that is not in the log yet.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from antiphon.errors import MissingCapability, RequestError
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.task import (
    STORED_QUESTIONS,
    EntryKind,
    Fault,
    answer_entry,
    dump_questions,
    dump_result,
)
from antiphon.runtime.execution.journal import Journal

__all__ = ["Outcome", "outcome_entry"]

Outcome: TypeAlias = Result | InputRequired | RequestError
"""The end of a run: a result, questions to wait for, or an error in place of a result."""


def outcome_entry(
    outcome: Outcome, journal: Journal | None = None, progress: dict[str, Any] | None = None
) -> tuple[EntryKind, dict[str, Any]]:
    """Return the kind and the data of the entry for an outcome."""
    new = {} if journal is None else journal.take_unwritten()
    data: dict[str, Any] = {"journal": new} if new else {}
    if progress is not None:
        data["progress"] = progress
    if isinstance(outcome, InputRequired):
        questions = outcome.questions
        if journal is not None and (again := [key for key in questions if _is_answered(journal, key)]):
            data["again"] = again
        return "asked", {**data, STORED_QUESTIONS: dump_questions(questions)}
    if isinstance(outcome, RequestError):
        needs = outcome.needs if isinstance(outcome, MissingCapability) else None
        fault = Fault(outcome.code, outcome.message, outcome.data, needs)
        return "faulted", {**data, "fault": msgspec.to_builtins(fault)}
    return "ended", {**data, "result": dump_result(outcome)}


def _is_answered(journal: Journal, key: str) -> bool:
    """Return whether a question has an answer already, which did not fit."""
    return answer_entry(key) in journal.entries
