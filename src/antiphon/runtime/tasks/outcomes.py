"""Waits for the outcome of a run, and writes it into the log of its task.

Owns the form of the entry. A run that fails and an outcome that is not JSON become an error, so that the task
ends in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import InternalError, MissingCapability, ReplayMismatch, RequestError, StoreError
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

__all__ = ["Outcome", "await_outcome", "write_outcome"]

logger = logging.getLogger("antiphon")

Outcome: TypeAlias = Result | InputRequired | RequestError
"""The end of a run: a result, questions to wait for, or an error in place of a result."""


async def await_outcome(claimed: ClaimedTask, work: Awaitable[Outcome]) -> Outcome:
    """Return the outcome of a run. An exception that the function should not have raised becomes an error.

    Raises `StoreError` and `ReplayMismatch`, after which the task is run again.
    """
    try:
        return await work
    except RequestError as error:
        return error
    except (StoreError, ReplayMismatch):
        raise
    except Exception as error:  # without an outcome, the run would count as lost, and be repeated
        logger.error("The run of task %s failed.", claimed.task.id, exc_info=error)
        return InternalError(
            f"The tool {claimed.task.tool!r} failed with an internal error. The server's log has the "
            f"details, under task {claimed.task.id}."
        )


async def write_outcome(claimed: ClaimedTask, outcome: Outcome) -> None:
    """Write the outcome, or an error if it cannot be written as JSON; raises `StoreError`."""
    try:
        new, progress = claimed.journal.take_unwritten(), claimed.close_progress()
        await claimed.write(*_entry(outcome, claimed.journal, new, progress))
    except StoreError:
        raise
    except Exception as error:
        logger.error(
            "The outcome of task %s cannot be stored: it is not JSON.", claimed.task.id, exc_info=error
        )
        message = (
            f"The tool {claimed.task.tool!r} returned a value that cannot be stored. The server's log "
            f"has the details, under task {claimed.task.id}."
        )
        await claimed.write(*_entry(InternalError(message), claimed.journal, {}))


def _entry(
    outcome: Outcome, journal: Journal, unwritten: dict[str, Any], progress: dict[str, Any] | None = None
) -> tuple[EntryKind, dict[str, Any]]:
    """Return the entry that records the outcome of a run, with the journal that is not written yet."""
    data: dict[str, Any] = {"journal": unwritten} if unwritten else {}
    if progress is not None:
        data["progress"] = progress
    if isinstance(outcome, InputRequired):
        if again := [key for key in outcome.questions if answer_entry(key) in journal.entries]:
            data["again"] = again
        if outcome.waits:
            data["waits"] = msgspec.to_builtins(outcome.waits)
        kind: EntryKind = "parked" if outcome.waits and not outcome.questions else "asked"
        return kind, {**data, STORED_QUESTIONS: dump_questions(outcome.questions)}
    if isinstance(outcome, RequestError):
        needs = outcome.needs if isinstance(outcome, MissingCapability) else None
        fault = Fault(outcome.code, outcome.message, outcome.data, needs)
        return "faulted", {**data, "fault": msgspec.to_builtins(fault)}
    return "ended", {**data, "result": dump_result(outcome)}
