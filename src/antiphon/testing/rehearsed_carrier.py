"""The carrier of a rehearsed task: time passes at once, and the test sends events and answers for others.

Owns the time of the rehearsal. The journal is encrypted and decrypted between two rounds, as in a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from antiphon import wall_clock
from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question
from antiphon.model.task import others_entry
from antiphon.model.waiting import OtherAnswer, wake_time
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.carriers.client import ClientCarrier
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.run import Run
from antiphon.store.contract import Event

__all__ = ["RehearsedCarrier"]


class RehearsedCarrier:
    """Carries the journal of a task that is rehearsed, and is its parking."""

    returns_questions = True
    sheds = False
    anyone_answers = True

    def __init__(self, carrier: ClientCarrier, events: Mapping[tuple[str, str], Sequence[Any]]) -> None:
        self._carrier = carrier
        self._events = events
        self._began = self._now = int(wall_clock.now() * 1000)
        self._answers: dict[str, list[OtherAnswer]] = {}
        self.parking = self

    @property
    def passed(self) -> int:
        """How many milliseconds have passed for the task."""
        return self._now - self._began

    def now(self) -> int:
        """Return the time of the rehearsal in milliseconds since 1970. It passes while the task waits."""
        return self._now

    def has_read_until(self, time: int) -> bool:
        """Return whether a time has come: the test answers between two rounds."""
        return self._now >= time

    async def events(self, name: str, key: str, *, after: int) -> Sequence[Event]:
        """Return the next event that the test sends."""
        sent = self._events.get((name, key), ())
        number = after + 1
        return [Event(number, f"rehearsed-{number}", self._now, sent[after])] if after < len(sent) else []

    def answer(self, key: str, principal: str, response: Any) -> None:
        """Answer a question to others; the next round finds the answer in the journal."""
        self._answers.setdefault(key, []).append((principal, self.now(), response))

    def wake(self, stopped: InputRequired) -> bool:
        """Let the time pass until the task wakes by itself; return false if it never does."""
        until = wake_time(stopped.waits.values())
        if until is None:
            return False
        self._now = max(self._now, until)
        return True

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal in the request state, with the answers of others."""
        journal = await self._carrier.open(call)
        for key, answers in self._answers.items():
            journal.entries[others_entry(key)] = [list(answer) for answer in answers]
        return journal

    def confirm(self) -> Awaitable[None] | None:
        """Return `None`: a rehearsal always goes on."""
        return None

    def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Awaitable[Any] | None:
        """Return `None`: the test answers before the next round."""
        return None

    async def close(self, call: Call[Any], journal: Journal, stopped: InputRequired) -> InputRequired:
        """Seal the journal into the outcome."""
        return await self._carrier.close(call, journal, stopped)
