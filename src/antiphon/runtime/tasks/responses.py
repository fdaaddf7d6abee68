"""Compares the responses of a caller with the open questions of a task, and with the answers in its log.

Owns which responses answer a question, and which are refused. It must not write to the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import AlreadyAnswered, InvalidParams, TaskNotWaiting
from antiphon.model.form import problems
from antiphon.model.question import Elicit, ElicitResult, read_answer
from antiphon.model.task import Task, answer_entry, load_questions, unique_key
from antiphon.store.contract import Entry, Record, Store

__all__ = [
    "MAX_REPEAT_ENTRIES",
    "SortedResponses",
    "is_same_answer",
    "last_answered",
    "not_waiting",
    "sort_responses",
    "were_given",
    "without_overdue",
]

MAX_REPEAT_ENTRIES = 64
"""How many entries at the end of a log are searched for a repeated answer to somebody else's task."""
_READ_PAGE_ENTRIES = 16
"""How many entries are read at once. Each may hold a whole batch of segments."""
_MAX_PROBLEM_CHARACTERS = 2000
"""How much of what is wrong with a response is recorded. It may quote the response."""


class SortedResponses(NamedTuple):
    """Responses to the questions of a task. Those to open questions have the keys of the questions."""

    valid: dict[str, Any]
    unfit: dict[str, str]
    """What is wrong with responses that do not match their forms."""
    malformed: dict[str, str]
    """What is wrong with responses that do not answer their kind of question."""
    others: dict[str, Any]
    """The responses to questions that are not open, by the keys that the caller sent."""

    @property
    def answers_any(self) -> bool:
        """Whether one of the responses is to an open question."""
        return bool(self.valid or self.unfit or self.malformed)


def sort_responses(
    task: Task, responses: Mapping[str, Any], *, keys_are_unique: bool = False
) -> SortedResponses:
    """Sort responses by whether they fit an open question of a task.

    With `keys_are_unique`, a question that was asked again has another key than before.
    """
    found = SortedResponses({}, {}, {}, dict(responses))
    for key, question in load_questions(task.questions).items():
        given = task.unique_key(key)
        if given not in responses:
            if keys_are_unique or key not in responses:
                continue
            given = key
        response = found.others.pop(given)
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


async def were_given(
    store: Store, record: Record, task: Task, responses: Mapping[str, Any], *, keys_are_unique: bool = False
) -> bool:
    """Return whether all these responses are the answers that questions of a task have got.

    A caller that lost the connection repeats its request, and the task may have gone on meanwhile. Raises
    `AlreadyAnswered` if a question has another answer.
    """
    found = await _answers(store, record, task, responses, keys_are_unique=keys_are_unique)
    if other := [key for key, answer in found.items() if not is_same_answer(answer, responses[key])]:
        raise AlreadyAnswered(
            f"Cannot answer {' and '.join(map(repr, other))} of task {task.id}: there is another answer "
            "already, and the first one counts. Get the task to see how it goes on."
        )
    return bool(responses) and len(found) == len(responses)


def is_same_answer(answer: Any, other: Any) -> bool:
    """Return whether two responses are the same JSON."""
    if isinstance(answer, bool) or isinstance(other, bool):  # in Python, True equals 1
        return answer is other
    if isinstance(answer, dict) and isinstance(other, dict):
        return answer.keys() == other.keys() and all(
            is_same_answer(value, other[name]) for name, value in answer.items()
        )
    if isinstance(answer, list) and isinstance(other, list):
        return len(answer) == len(other) and all(map(is_same_answer, answer, other))
    return bool(answer == other)


async def last_answered(store: Store, record: Record) -> list[str]:
    """Return the keys of the questions that the last answers of a task's log are for."""
    async for entry in _backwards(store, record):
        if entry.kind == "answered" and entry.data["responses"]:
            return list(entry.data["responses"])
    return []


async def _answers(
    store: Store, record: Record, task: Task, keys: Mapping[str, Any], *, keys_are_unique: bool
) -> dict[str, Any]:
    """Return the last answers to the questions of these keys that the log of a task has."""
    found: dict[str, Any] = {}
    times = dict(task.times_asked)

    def note(key: str, response: Any) -> None:
        for name in {unique_key(key, times.get(key)), key}:
            if name in keys and (name != key or not keys_are_unique or times.get(key, 1) == 1):
                found.setdefault(name, response)

    async for entry in _backwards(store, record):
        if len(found) == len(keys):
            break
        if entry.kind in ("asked", "parked"):
            times.update({key: times.get(key, 1) - 1 for key in entry.data.get("again", ())})
        elif entry.kind == "answered":
            for key, response in entry.data["responses"].items():
                note(key, response)
        elif entry.kind == "created":  # the answers to questions from before the call became a task
            for key in keys:
                journal, before = entry.data.get("journal", {}), entry.data.get("responses", {})
                if (response := before.get(key, journal.get(answer_entry(key)))) is not None:
                    note(key, response)
    return found


async def _backwards(store: Store, record: Record) -> AsyncIterator[Entry]:
    """Yield the entries of a log, the newest first."""
    end = record.version
    while end > 0:
        start = max(end - _READ_PAGE_ENTRIES, 0)
        for entry in reversed(await store.read(record.id, after=start, limit=end - start)):
            yield entry
        end = start
