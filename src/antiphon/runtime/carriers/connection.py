"""The connection as the carrier: the journal stays in memory while the question is on the open stream.

For protocol versions in which a server asks its client in the middle of a request. The function waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from antiphon.errors import Failure, InvalidParams
from antiphon.model.outcome import InputRequired
from antiphon.model.question import Question, read_answer, with_problem
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.execution.journal import Journal

if TYPE_CHECKING:
    from antiphon.runtime.execution.call import Call
    from antiphon.runtime.execution.run import Run

__all__ = ["ConnectionCarrier", "ask_until_valid"]

MAX_ATTEMPTS = 10
"""How often a question is asked again after an answer that does not fit."""
ANSWER_TIMEOUT_SECONDS = 3600.0
"""How long a person may take to answer while the connection is held open."""


async def ask_until_valid(
    key: str,
    question: Question,
    ask: Callable[[Question], Awaitable[Any]],
    check: Callable[[Any], Awaitable[str | None]],
    problem: str | None = None,
) -> Any:
    """Ask until `check` finds nothing wrong with the response, and return that response.

    A question that is asked again says what was wrong; `problem` is that of an earlier answer. Raises
    `Failure` after too many responses that do not fit.
    """
    for _ in range(MAX_ATTEMPTS):
        response = await ask(with_problem(question, problem))
        problem = await check(response)
        if problem is None:
            return response
    raise Failure(f"No answer to {key!r} fits what was asked for: {problem}.")


class ConnectionCarrier:
    """Asks on the connection of the call, and keeps the journal in this process meanwhile."""

    __slots__ = ()

    returns_questions = False
    sheds = False
    anyone_answers: bool = False
    parking = None

    async def open(self, call: Call[Any]) -> Journal:
        """Return a new journal: every call of these versions starts from the beginning.

        Raises `InvalidParams` for a request state, which these versions do not have.
        """
        if call.request.request_state is not None:
            raise InvalidParams("This protocol version has no request state: make the call without it.")
        return Journal()

    def confirm(self) -> Awaitable[None] | None:
        """Return `None`: no other process has the journal."""
        return None

    async def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Any:
        """Ask on the connection, and wait for an answer that fits; raises `Failure`."""
        answer: Any = None

        async def accept(response: Any) -> str | None:
            nonlocal answer
            answer = read_answer(question, key, response)
            return None if check is None else check(answer)

        response = await ask_until_valid(
            key, question, lambda asked: self.ask_once(run.call, key, asked), accept
        )
        self.record(run, key, response)
        return answer

    def record(self, run: Run, key: str, response: Any) -> None:
        """Record the response to a question."""
        run.record_answer(key, response)

    async def close(
        self, call: Call[Any], journal: Journal, stopped: InputRequired
    ) -> InputRequired | Mapping[str, Any]:
        """Ask the questions that a function returned, all at once, and return the responses."""
        questions = stopped.questions
        if not questions:
            await asyncio.sleep(0)  # run again with the state alone, and let others have their turn
        asking = (self.ask_once(call, key, question) for key, question in questions.items())
        return dict(zip(questions, await asyncio.gather(*asking), strict=True))

    async def ask_once(self, call: Call[Any], key: str, question: Question) -> Any:
        """Ask once. The time that a person takes does not count as the tool's."""
        if not call.caller.can_ask:
            raise Failure(
                "This needs an answer from the caller, and the caller cannot be asked on this connection. "
                "Accept text/event-stream, or use a protocol version with multi round-trip requests."
            )
        if call.output is not None:
            await call.output.flush()
        work, loop = call.work, asyncio.get_running_loop()
        work.pause_deadline(loop.time(), ANSWER_TIMEOUT_SECONDS)
        try:
            return await call.caller.ask(key, question)
        finally:
            work.resume_deadline(loop.time())
