"""The process as the carrier: the function waits in memory, and the answers come from elsewhere.

For functions that must not be run again, if a question ends the request, or if the call is a task. Answers
come with another request, or through the log of the task. They are not recorded in the journal.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from antiphon.model.question import Question
from antiphon.model.task import answer_entry
from antiphon.runtime.carriers.connection import ConnectionCarrier
from antiphon.runtime.execution.fingerprints import fingerprint_key
from antiphon.runtime.execution.journal import Journal

if TYPE_CHECKING:
    from antiphon.runtime.execution.call import Call
    from antiphon.runtime.execution.run import Run

__all__ = ["ProcessCarrier"]


class ProcessCarrier(ConnectionCarrier):
    """Asks through `ask`, and keeps the function waiting in this process meanwhile."""

    __slots__ = ("_ask_caller", "_confirm", "_journal", "anyone_answers")

    def __init__(
        self,
        ask: Callable[[str, Question], Awaitable[Any]],
        *,
        journal: Journal | None = None,
        confirm: Callable[[], Awaitable[None] | None] | None = None,
        anyone_answers: bool = False,
    ) -> None:
        self._ask_caller = ask
        self._journal = journal
        self._confirm = confirm
        self.anyone_answers = anyone_answers
        """Whether other clients can answer: those of the owner of a task can."""

    async def open(self, call: Call[Any]) -> Journal:
        """Return the journal of the task, or a new one."""
        return Journal() if self._journal is None else self._journal

    def confirm(self) -> Awaitable[None] | None:
        """Return `None` if this process surely holds the run, else an awaitable that asks the store."""
        return None if self._confirm is None else self._confirm()

    def record(self, run: Run, key: str, response: Any) -> None:
        """Note that a question was answered, without keeping the answer: a caller may answer for ever."""
        run.record_answer(key, response)
        run.journal.forget(answer_entry(key), fingerprint_key(answer_entry(key)))

    async def ask_once(self, call: Call[Any], key: str, question: Question) -> Any:
        """Ask once. The time that a person takes does not count as the tool's."""
        if call.output is not None:
            await call.output.flush()
        work, loop = call.work, asyncio.get_running_loop()
        work.pause_deadline(loop.time(), math.inf)
        try:
            return await self._ask_caller(key, question)
        finally:
            work.resume_deadline(loop.time())
