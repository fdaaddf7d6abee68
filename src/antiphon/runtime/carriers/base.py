"""The contract of a carrier: where the journal of a call is while its function does not run.

A question that the journal cannot answer goes to the carrier of the call. The carrier either gets the answer
while the function waits, or stops the run, so that the function is run again when the answer is there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question
from antiphon.runtime.execution.journal import Journal
from antiphon.store.contract import Event

if TYPE_CHECKING:
    from antiphon.runtime.execution.call import Call
    from antiphon.runtime.execution.run import Run

__all__ = ["GATHER_TURNS", "Carrier", "Check", "Parking"]

GATHER_TURNS = 3
"""How many turns of the event loop a run waits for further questions before those that it has are sent."""

Check: TypeAlias = Callable[[Any], str | None]
"""Returns what is wrong with an answer, or `None` if the answer fits the question."""


class Parking(Protocol):
    """What the run of a task needs to wait without a worker: the time, and the events that have arrived."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970, never before the time at which the task was woken."""

    def has_read_until(self, time: int) -> bool:
        """Return whether the run knows all answers that were written before a time.

        Only then it can give up a question at that time.
        """

    async def events(self, name: str, key: str, *, after: int) -> Sequence[Event]:
        """Return the next events of a name and key that are numbered above `after`.

        Raises `StoreUnavailable`.
        """


class Carrier(Protocol):
    """Keeps the journal of a call between two runs of its function."""

    @property
    def returns_questions(self) -> bool:
        """Whether a question ends the request. The caller makes the request again, with the answers."""

    @property
    def sheds(self) -> bool:
        """Whether a busy server may end a run at a checkpoint, for the caller to make the request again."""

    @property
    def anyone_answers(self) -> bool:
        """Whether other clients can answer a question, so that the caller need not be able to."""

    @property
    def parking(self) -> Parking | None:
        """How the run waits for a time, an event or somebody else; `None` if the call is not a task."""

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal of a call; raises `InvalidParams` if it belongs to another caller or call."""

    def confirm(self) -> Awaitable[None] | None:
        """Make sure that this run may go on; call it before each step, question and segment.

        Returns `None` if it may. Otherwise await the result, which raises `StoreError` if the journal now
        belongs to another process or to nobody.
        """

    def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Awaitable[Any] | None:
        """Return an awaitable for the answer to a question; `None` if the run has to stop at the question.

        The awaitable raises `Failure` if there is no way to reach the caller.
        """

    async def close(
        self, call: Call[Any], journal: Journal, stopped: InputRequired
    ) -> InputRequired | Mapping[str, Any]:
        """Take the journal of a run that stopped with questions.

        Returns the outcome of the request, or the responses with which to run the function again.
        """
