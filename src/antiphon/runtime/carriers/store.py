"""The store as the carrier: a task's journal is in the task's log.

A task that asks something is parked: its function is stopped, and run again when the answer is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.execution.journal import Journal

if TYPE_CHECKING:
    from antiphon.runtime.execution.call import Call
    from antiphon.runtime.execution.run import Run

__all__ = ["StoreCarrier"]


class StoreCarrier:
    """Carries the journal of one task. The claim on the task writes the journal into the log."""

    __slots__ = ("_journal",)

    returns_questions = True
    sheds = False
    anyone_answers = True

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal of the task."""
        return self._journal

    async def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Any:
        """Stop the run; the worker parks the task."""
        await run.suspend(key, question)

    async def close(self, call: Call[Any], journal: Journal, stopped: InputRequired) -> InputRequired:
        """Return the questions as they are: the log has the journal already."""
        return stopped
