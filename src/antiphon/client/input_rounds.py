"""Repeats a request until the server stops asking: answers its questions and sends it again.

Owns the loop and its bound, and the asking itself, for tasks too. Each round is a request of its own, with a
new id and exactly the state that the round before returned.
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
    """Answers the questions of one client's server, in at most `max_rounds` rounds a request."""

    def __init__(self, callbacks: Callbacks, max_rounds: int) -> None:
        self._callbacks = callbacks
        self._max_rounds = max_rounds

    async def drive(self, request: R, send: Callable[[R], Awaitable[Any]]) -> Any:
        """Send a request, round by round, and return its final outcome.

        Raises `BadAnswer` if the server does not stop asking, and the `RequestError` of a callback that
        refuses to answer.
        """
        for _ in range(self._max_rounds):
            outcome = await send(request)
            if not isinstance(outcome, InputRequired):
                return outcome
            answers = {key: await self._ask(question) for key, question in outcome.questions.items()}
            request = msgspec.structs.replace(request, input_responses=answers, request_state=outcome.sealed)
        raise BadAnswer(f"The server is still asking after {self._max_rounds} rounds.")

    def can_answer(self, question: Question) -> bool:
        """Return whether a callback answers this kind of question."""
        return self._callbacks.knows(write_question(question)[0])

    @property
    def can_answer_anything(self) -> bool:
        """Whether a callback answers any kind of question."""
        return self._callbacks.know_anything

    async def answer(self, key: str, question: Question) -> dict[str, Any]:
        """Return the response to a question, asking again until the answer fits the form.

        Raises `ClientError` if no answer fits, and the `RequestError` of a callback that refuses.
        """
        wrong: list[str] = []
        for _ in range(self._max_rounds):
            response = await self._ask(question)
            wrong = _problems(question, response)
            if not wrong:
                return response
        raise ClientError(f"The answers to {key!r} do not fit the form: {'; '.join(wrong)}.")

    async def _ask(self, question: Question) -> dict[str, Any]:
        method, params = write_question(question)
        return dict(await self._callbacks.answer(method, params))


def _problems(question: Question, response: Mapping[str, Any]) -> list[str]:
    """Return the reasons why a response does not fit the form; only accepted forms can be wrong.

    Raises `BadAnswer` if the form has no valid schema.
    """
    content = accepted_content(response)
    if content is None or not isinstance(question, Elicit):
        return []
    try:
        return problems(question.schema, content)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadAnswer(f"The server asks for a form that cannot be read: {error}.") from error


def responses(questions: Mapping[str, Question], answers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the responses for answers by key, as they go to the server."""
    return {key: write_answer(questions.get(key), answer) for key, answer in answers.items()}
