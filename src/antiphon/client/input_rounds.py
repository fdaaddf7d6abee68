"""Drives a request through its rounds: asks whoever can answer, and sends it again with the answers.

Owns the loop and its bound, and the asking itself, for tasks too. Each round is a request of its own, with
a new id and exactly the state that the round before gave, or none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from antiphon.client.callbacks import Callbacks
from antiphon.errors import BadAnswer, ClientError
from antiphon.model.form import problems
from antiphon.model.outcome import InputRequired
from antiphon.model.question import Elicit, Question
from antiphon.model.request import CallTool, GetPrompt, ReadResource
from antiphon.wire.questions import accepted_content, write_answer, write_question

__all__ = ["InputRounds", "responses"]

R = TypeVar("R", CallTool, GetPrompt, ReadResource)


class InputRounds:
    """Takes requests to their end, in so many rounds at the most."""

    def __init__(self, handlers: Callbacks, most: int) -> None:
        self._handlers = handlers
        self._most = most

    async def drive(self, request: R, send: Callable[[R], Awaitable[Any]]) -> Any:
        """What the server gives in the end.

        Raises `BadAnswer` for a server that does not stop asking, and the `RequestError` of a handler
        that refuses to answer.
        """
        for _ in range(self._most):
            outcome = await send(request)
            if not isinstance(outcome, InputRequired):
                return outcome
            answers = {key: await self._answer(ask) for key, ask in outcome.questions.items()}
            request = msgspec.structs.replace(request, input_responses=answers, request_state=outcome.sealed)
        raise BadAnswer(f"The server is still asking after {self._most} rounds.")

    def answers(self, ask: Question) -> bool:
        """Whether there is a handler for a question."""
        return self._handlers.knows(write_question(ask)[0])

    @property
    def answers_anything(self) -> bool:
        """Whether there is a handler for any question."""
        return self._handlers.know_anything

    async def answer(self, key: str, ask: Question) -> dict[str, Any]:
        """The response to a question that is put once only: whoever answers it is asked until it fits.

        Raises `ClientError` where it never does, and the `RequestError` of a handler that refuses.
        """
        wrong: list[str] = []
        for _ in range(self._most):
            response = await self._answer(ask)
            content = accepted_content(response) if isinstance(ask, Elicit) else None
            wrong = [] if content is None or not isinstance(ask, Elicit) else problems(ask.schema, content)
            if not wrong:
                return response
        raise ClientError(f"The answers to {key!r} do not fit what was asked: {'; '.join(wrong)}.")

    async def _answer(self, ask: Question) -> dict[str, Any]:
        method, params = write_question(ask)
        return dict(await self._handlers.answer(method, params))


def responses(questions: Mapping[str, Question], answers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Answers that a person wrote down, as they go to the server.

    A form is answered with what was filled in, or with `"decline"` or `"cancel"`; anything can be
    answered with the response as it is on the wire.
    """
    return {key: write_answer(questions.get(key), answer) for key, answer in answers.items()}
