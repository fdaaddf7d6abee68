"""A task whose function waits in its process while a question is open.

The worker keeps its claim and the lease meanwhile. The questions are in the log of the task, so that callers
find them as those of any other task, and an answer may arrive through any process. Owns the wait for answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.errors import InternalError, StoreError, StoreUnavailable
from antiphon.model.question import Question
from antiphon.model.task import HELD, STORED_QUESTIONS, dump_questions
from antiphon.runtime.budget import decoded_size
from antiphon.runtime.carriers.process import ProcessCarrier
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.held.bounds import BoundReason, HeldBounds, HeldItem
from antiphon.runtime.held.open_questions import OpenQuestions
from antiphon.runtime.held.registry import RUN_BYTES
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.outcomes import Outcome
from antiphon.runtime.tasks.repetition import STORE_RETRY_SECONDS

__all__ = ["HeldTask", "HeldTaskWork", "held_bounds"]

logger = logging.getLogger("antiphon")

_EVICTED = (
    "The task was ended while it waited for the answer, because too many calls and tasks wait in its process."
)
_STOPPED = "The task was ended while it waited for the answer, because its process was stopped."
_ADVICE = "Its tool has replay=False, and is not run again: make the call again."
_READ_ENTRIES = 16
"""How many entries of the log are read at once. Each may hold a whole batch of segments."""
_POLL_SECONDS = 5.0
"""How often the log is read for answers although the store reported no change."""


def held_bounds(environment: Environment) -> HeldBounds | None:
    """Return the bounds of the runs that wait in this process; `None` without any."""
    return None if environment.held_runs is None else environment.held_runs.bounds


class HeldTaskWork(Supervised):
    """The asyncio task that runs a function which waits in this process, with the timeout of its tool."""

    _timeout: asyncio.Timeout | None = None

    def limit_by(self, timeout: asyncio.Timeout) -> None:
        """Move the timeout by the time that the function waits for answers."""
        self._timeout = timeout
        self.deadline = timeout.when() or math.inf

    def pause_deadline(self, now: float, longest: float) -> None:
        """Stop counting time towards the timeout: a person is asked."""
        super().pause_deadline(now, longest)
        self._reschedule()

    def resume_deadline(self, now: float) -> None:
        """Count time again."""
        super().resume_deadline(now)
        self._reschedule()

    def _reschedule(self) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self.deadline if math.isfinite(self.deadline) else None)


class HeldTask(HeldItem):
    """The function of a claimed task, which waits for answers in this process. `work` runs the function."""

    __slots__ = (
        "_asked",
        "_bounds",
        "_claimed",
        "_ended",
        "_following",
        "_lock",
        "_new",
        "_questions",
        "_read",
        "_writing",
        "_written",
        "carrier",
        "work",
    )

    def __init__(self, claimed: ClaimedTask, work: Supervised, bounds: HeldBounds | None) -> None:
        super().__init__(f"task {claimed.task.id}", claimed.owner.id)
        self._claimed = claimed
        self._bounds = bounds
        self._questions = OpenQuestions(self._send)
        self._new: set[str] = set()  # the keys of questions that the log does not have yet
        self._asked: set[str] = set()  # the keys of all questions that the log had at any time
        self._written: set[str] = set()  # the keys of the questions that are open in the log
        self._read = 0  # the number of the last entry that was read
        self._lock = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()
        self._following: asyncio.Task[None] | None = None
        self._ended: str | None = None
        self.work = work
        self.carrier = ProcessCarrier(
            self.ask, journal=claimed.journal, confirm=claimed.confirm, anyone_answers=True
        )
        """Carries the call of the task."""

    async def ask(self, key: str, question: Question) -> Any:
        """Write a question into the log, and wait for the response."""
        self._new.add(key)
        try:
            return await self._questions.ask(key, question)
        finally:
            self._new.discard(key)
            if not self._questions.open:
                self._claimed.held = None
                if self._bounds is not None:
                    self._bounds.remove(self)
            if key in self._written and self._ended is None and self._claimed.stopped is None:
                self._write_soon()  # the function has withdrawn the question

    async def outcome(self, work: Awaitable[Outcome]) -> Outcome:
        """Return the outcome of a run, or the error of a run that was ended while it waited."""
        try:
            return await work
        except asyncio.CancelledError:
            if self._ended is None:
                raise
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                task.uncancel()
            return InternalError(f"{self._ended} {_ADVICE}")
        finally:
            self._questions.close()
            if self._following is not None:
                self._following.cancel()
            if self._writing:
                await asyncio.wait(self._writing)

    def end(self, reason: BoundReason) -> None:
        """Cancel the function, because too many wait. The task fails."""
        self._end(_EVICTED)

    def stop(self) -> None:
        """Cancel the function, because the process stops. The task fails."""
        self._end(_STOPPED)

    def _end(self, message: str) -> None:
        if self._ended is None:
            self._ended = message
            self._cancel()

    def _cancel(self) -> None:
        if self.work.task is not None:
            self.work.task.cancel()

    def _send(self) -> None:
        """Write the open questions, and wait for their answers in the background."""
        self._claimed.held = self
        if self._bounds is not None:
            self._bounds.remove(self)
            self.size = self.size or RUN_BYTES + self._arguments_size()
            self._bounds.add(self)
        if self._new:
            self._write_soon()
        if self._following is None or self._following.done():
            # Every answer before this question was read, or belongs to a question that is not open.
            self._read = max(self._read, self._claimed.version)
            self._following = asyncio.get_running_loop().create_task(self._follow())

    def _arguments_size(self) -> int:
        return decoded_size(msgspec.json.encode(self._claimed.created["arguments"]))

    def _write_soon(self) -> None:
        writing = asyncio.get_running_loop().create_task(self._write())
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self) -> None:
        """Write which questions are open. If the claim is lost, cancel the run."""
        async with self._lock:
            questions, new = dict(self._questions.open), self._new
            if not new and self._written == questions.keys():
                return
            again = sorted(new & self._asked)
            self._new, self._written = set(), set(questions)
            self._asked |= new
            try:
                await self._claimed.write("asked", self._entry(questions, again))
            except StoreError:  # the worker learns of it too, but maybe later
                self._cancel()

    def _entry(self, questions: Mapping[str, Question], again: Sequence[str]) -> dict[str, Any]:
        """Return the data of the entry that says which questions are open, and which were asked again."""
        data: dict[str, Any] = {STORED_QUESTIONS: dump_questions(questions), HELD: True}
        if again:
            data["again"] = list(again)
        if new := self._claimed.journal.take_unwritten():
            data["journal"] = new
        return data

    async def _follow(self) -> None:
        """Read the answers from the log, while there are open questions."""
        store, id = self._claimed.store, self._claimed.task.id
        async with store.watch(id) as watch:
            while self._questions.open:
                try:
                    entries = await store.read(id, after=self._read, limit=_READ_ENTRIES)
                except StoreUnavailable as error:
                    logger.info("Cannot read the answers of %s; trying again: %s", self.label, error)
                    await asyncio.sleep(STORE_RETRY_SECONDS)
                    continue
                for entry in entries:
                    self._read = entry.number
                    if entry.kind == "answered":
                        self._written -= entry.data["responses"].keys()
                        self._questions.answer(entry.data["responses"])
                if entries:
                    await asyncio.sleep(0)  # the function may ask again at once
                else:
                    await watch.wait(_POLL_SECONDS)
