"""Checks questions and answers: whether the client can be asked, and whether a recorded response answers."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from antiphon.errors import Declined, InvalidParams, MissingCapability
from antiphon.model.capabilities import can_answer, capabilities_for, needed_capability
from antiphon.model.question import ElicitResult, Question, read_answer
from antiphon.model.task import answer_entry
from antiphon.model.waiting import Wait
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.execution.call import Call

__all__ = ["QuestionDeadline", "checked_answer", "raise_if_declined", "require", "unused_answers"]


_MAX_UNUSED_BYTES = 4096
"""How many bytes of answers that the run did not use are kept in the journal."""


class QuestionDeadline(Protocol):
    """The time within which a question has to be answered."""

    def check(self, key: str) -> None:
        """Raise `Unanswered` if an earlier run has given the question of this key up."""

    async def wait(self, key: str) -> Wait:
        """Return until when the task waits for an answer; raises `Unanswered` if the time is over."""


def unused_answers(
    responses: Mapping[str, Any], questions: Container[str], journal: Container[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the answers that a run did not use with their journal keys, the smallest first, up to a bound.

    What is no object answers no question of any version, and is left out.
    """
    unused = {
        answer_entry(key): response
        for key, response in responses.items()
        if isinstance(response, Mapping) and key not in questions and answer_entry(key) not in journal
    }
    room = _MAX_UNUSED_BYTES
    for size, entry in sorted((len(msgspec.json.encode(value)), entry) for entry, value in unused.items()):
        room -= len(entry) + size
        if room < 0:
            return
        yield entry, unused[entry]


def checked_answer(
    question: Question, key: str, response: Any, check: Check | None
) -> tuple[Any, str | None]:
    """Return the answer in a recorded response, and why it does not fit; `None` if it fits."""
    try:
        answer = read_answer(question, key, response)
    except InvalidParams as error:
        return None, error.message
    return answer, None if check is None else check(answer)


def require(question: Question, call: Call[Any]) -> None:
    """Raise `MissingCapability` if the client did not declare that it can answer a question.

    A question of a task is never refused: the task waits, and any client of its owner can answer.
    """
    if call.carrier.anyone_answers or can_answer(call.request_meta.capabilities, question):
        return
    name, mode = needed_capability(question)
    what = name if mode is None else f"{name} ({mode})"
    raise MissingCapability(
        f"This needs a client that can do {what}, and this one did not declare it.",
        needs=capabilities_for(type(question)),
    )


def raise_if_declined(answer: ElicitResult, message: str) -> None:
    """Raise `Declined` if a person did not accept a form or a page."""
    if answer.action != "accept":
        verb = "declined" if answer.action == "decline" else "dismissed without an answer"
        raise Declined(f"This was {verb}: {message}", action=answer.action)
