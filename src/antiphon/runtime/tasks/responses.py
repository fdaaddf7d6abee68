"""Compares the responses of a caller with the open questions of a task.

Owns which responses answer a question, and which are refused. It must not write to the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import InvalidParams, TaskNotWaiting
from antiphon.model.form import problems
from antiphon.model.question import Elicit, ElicitResult, read_answer
from antiphon.model.task import Task, load_questions
from antiphon.store.contract import Record, Store

__all__ = [
    "MAX_REPEAT_ENTRIES",
    "SortedResponses",
    "is_repeated",
    "not_waiting",
    "sort_responses",
    "without_overdue",
]

MAX_REPEAT_ENTRIES = 64
"""How many entries at the end of a log are searched for an answer that a caller repeats."""

_MAX_PROBLEM_CHARACTERS = 2000
"""How much of what is wrong with a response is recorded. It may quote the response."""


class SortedResponses(NamedTuple):
    """Responses to open questions, by key."""

    valid: dict[str, Any]
    unfit: dict[str, str]
    """What is wrong with responses that do not match their forms."""
    malformed: dict[str, str]
    """What is wrong with responses that do not answer their kind of question."""


def sort_responses(task: Task, responses: Mapping[str, Any]) -> SortedResponses:
    """Sort the responses to a task's open questions by whether they fit; leave out all others."""
    found = SortedResponses({}, {}, {})
    for key, question in load_questions(task.questions).items():
        given = task.unique_key(key)
        if given not in responses and key not in responses:
            continue
        response = responses[given] if given in responses else responses[key]
        try:
            answer = read_answer(question, key, response)
        except InvalidParams as error:
            found.malformed[key] = error.message
            continue
        wrong = []
        if isinstance(question, Elicit) and isinstance(answer, ElicitResult) and answer.action == "accept":
            wrong = problems(question.schema, answer.content or {})
        if wrong:
            found.unfit[key] = "; ".join(wrong)[:_MAX_PROBLEM_CHARACTERS]
        else:
            found.valid[key] = response
    return found


def without_overdue(task: Task, passed: int) -> Task:
    """Return a task without the questions whose deadlines have passed.

    Raises `TaskNotWaiting` if no question is left.
    """
    overdue = {
        key for key, wait in task.waits.items() if wait.deadline is not None and wait.deadline <= passed
    }
    questions = {key: asked for key, asked in task.questions.items() if key not in overdue}
    if not questions:
        raise TaskNotWaiting(f"Cannot answer task {task.id}: the time to answer is over.")
    return msgspec.structs.replace(task, questions=questions)


def not_waiting(task: Task) -> TaskNotWaiting:
    """Return the error for a response to a task that has no open question."""
    if task.state == "cancelled":
        return TaskNotWaiting(f"Cannot answer task {task.id}: it was cancelled.")
    if task.has_ended:
        return TaskNotWaiting(f"Cannot answer task {task.id}: it has ended. Get its result.")
    return TaskNotWaiting(
        f"Cannot answer task {task.id}: it asks nothing at the moment. Get the task to see what it asks."
    )


async def is_repeated(store: Store, record: Record, responses: Mapping[str, Any]) -> bool:
    """Return whether the last entries of a task's log have these responses.

    A caller that lost the connection repeats its request, and the task may have gone on meanwhile.
    """
    after = max(record.version - MAX_REPEAT_ENTRIES, 0)
    found: dict[str, Any] = {}
    for entry in await store.read(record.id, after=after, limit=MAX_REPEAT_ENTRIES):
        if entry.kind == "answered":
            found.update(entry.data["responses"])
    return bool(responses) and all(
        response in (found.get(key), found.get(key.rpartition("~")[0])) for key, response in responses.items()
    )
