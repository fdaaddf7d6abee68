"""Writes the outcome of a run into the log of its task.

Owns the form of the entry. An outcome that is not JSON becomes an error, so that the task ends in any case.
"""

from __future__ import annotations

import logging
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import InternalError, MissingCapability, RequestError, StoreError
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
from antiphon.runtime.tasks.claimed_task import ClaimedTask

__all__ = ["Outcome", "write_outcome"]

logger = logging.getLogger("antiphon")

Outcome: TypeAlias = Result | InputRequired | RequestError
"""The end of a run: a result, questions to wait for, or an error in place of a result."""


async def write_outcome(claimed: ClaimedTask, outcome: Outcome) -> None:
    """Write the result, the error, or the questions that the task waits for; raises `StoreError`."""
    try:
        new, progress = claimed.journal.take_unwritten(), claimed.close_progress()
        kind, data = _entry(outcome, new, progress)
        if again := _asked_again(outcome, claimed.journal):
            data["again"] = again
        await claimed.write(kind, data)
    except StoreError:
        raise
    except Exception as error:
        logger.error(
            "The outcome of task %s cannot be stored: it is not JSON.", claimed.task.id, exc_info=error
        )
        message = (
            f"The tool {claimed.task.tool!r} returned a value that cannot be stored. The server's log has "
            f"the details, under task {claimed.task.id}."
        )
        await claimed.write(*_entry(InternalError(message), {}))


def _asked_again(outcome: Outcome, journal: Journal) -> list[str]:
    """Return the keys of questions that have an answer already, which did not fit."""
    questions = outcome.questions if isinstance(outcome, InputRequired) else {}
    return [key for key in questions if answer_entry(key) in journal.entries]


def _entry(
    outcome: Outcome, journal: dict[str, Any], progress: dict[str, Any] | None = None
) -> tuple[EntryKind, dict[str, Any]]:
    """Return the entry that records the outcome of a run, with the journal that is not written yet."""
    data: dict[str, Any] = {"journal": journal} if journal else {}
    if progress is not None:
        data["progress"] = progress
    if isinstance(outcome, InputRequired):
        return "asked", {**data, STORED_QUESTIONS: dump_questions(outcome.questions)}
    if isinstance(outcome, RequestError):
        needs = outcome.needs if isinstance(outcome, MissingCapability) else None
        fault = Fault(outcome.code, outcome.message, outcome.data, needs)
        return "faulted", {**data, "fault": msgspec.to_builtins(fault)}
    return "ended", {**data, "result": dump_result(outcome)}
