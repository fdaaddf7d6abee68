"""The store as the carrier: a task's journal is in the task's log.

A task that asks something is parked: its function is stopped, and run again when the answer is in the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question
from antiphon.runtime.carriers.base import Check, Parking
from antiphon.runtime.execution.journal import Journal

if TYPE_CHECKING:
    from antiphon.runtime.execution.call import Call
    from antiphon.runtime.execution.run import Run

__all__ = ["StoreCarrier"]


class StoreCarrier:
    """Carries the journal of one task. The claim on the task writes the journal into the log.

    `confirm` asks the claim whether this process still holds the task.
    """

    __slots__ = ("_confirm", "_journal", "parking")

    returns_questions = True
    sheds = False
    anyone_answers = True

    def __init__(
        self,
        journal: Journal,
        confirm: Callable[[], Awaitable[None] | None] | None = None,
        parking: Parking | None = None,
    ) -> None:
        self._journal = journal
        self.parking = parking
        """How the run waits without a worker; `None` while the call is not a task yet."""
        self._confirm = confirm

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal of the task."""
        return self._journal

    def confirm(self) -> Awaitable[None] | None:
        """Return `None` if this process surely holds the task, else an awaitable that asks the store."""
        return None if self._confirm is None else self._confirm()

    def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Awaitable[Any] | None:
        """Return `None`: the worker parks the task."""
        return None

    async def close(self, call: Call[Any], journal: Journal, stopped: InputRequired) -> InputRequired:
        """Return the questions as they are: the log has the journal already."""
        return stopped
