"""Answers the questions of a task through an `ElicitationHandler`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import CommandError
from antiphon.client.callbacks import Callbacks, handlers_for
from antiphon.client.input_rounds import InputRounds
from antiphon.model.question import Question

__all__ = ["answer_questions"]

MAX_ATTEMPTS = 10
"""How often a question is asked again because its answer was invalid."""


async def answer_questions(
    handler: ElicitationHandler, questions: Mapping[str, Question], key: str | None
) -> dict[str, dict[str, Any]]:
    """Return the responses to all questions, or to the one with the given key.

    Raises `CommandError` if there is no such question, or if only a program can answer it.
    """
    if key is not None and key not in questions:
        keys = ", ".join(questions) or "none"
        raise CommandError(f"The task has no question {key!r}. Its questions: {keys}.")
    callbacks, _ = handlers_for(handler, None, None)
    rounds = InputRounds(Callbacks(callbacks), MAX_ATTEMPTS)
    chosen = questions if key is None else {key: questions[key]}
    for name, question in chosen.items():
        if not rounds.can_answer(question):
            raise CommandError(f"The question {name!r} is for a program: a person cannot answer it.")
    return {name: await rounds.answer(name, question) for name, question in chosen.items()}
