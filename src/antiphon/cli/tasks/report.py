"""Formats tasks as a table, as details, as a status line or as JSON. Knows no server and no store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.cli import render
from antiphon.model.outcome import Result
from antiphon.model.question import Elicit, OpenUrl, Question, Sample
from antiphon.model.task import HISTORY_FORMAT, Fault, Task, load_questions, load_result
from antiphon.model.task_status import TaskStatus
from antiphon.model.waiting import Wait
from antiphon.printable import printable, printable_text, printable_url
from antiphon.store.contract import Entry, Outcome, Record
from antiphon.wire.client import results
from antiphon.wire.server.tasks import core_task, timestamp

__all__ = [
    "TaskView",
    "as_json",
    "details",
    "duration",
    "history",
    "log_lines",
    "status_line",
    "table",
]

MAX_ENTRY_CHARACTERS = 200
"""How much of a log entry a line shows."""

_MAX_MESSAGE_CHARACTERS = 120
"""How much of a message a row of the list shows."""
_OUTCOMES: Mapping[str, Outcome] = {"completed": "done", "cancelled": "cancelled"}
_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


class TaskView(msgspec.Struct, frozen=True):
    """A task as it is printed. Times and `ttl` are in milliseconds."""

    id: str
    status: str
    message: str | None = None
    created: int | None = None
    updated: int | None = None
    ttl: int | None = None
    questions: Mapping[str, Question] = {}
    result: Result | None = None
    fault: Fault | None = None
    tool: str | None = None
    principal: str | None = None
    server: str | None = None
    """The server that the task belongs to; empty for a task of every server on the store."""
    asks_others: Mapping[str, Wait] = {}
    """The questions to others than the caller, by key. Only an operator sees them."""

    @property
    def has_failed(self) -> bool:
        """Whether the task ended with an error, or with a result that says that the tool failed."""
        return self.status == "failed" or (self.result is not None and self.result.is_error)

    @property
    def outcome(self) -> Outcome | None:
        """How the task ended; `None` if it has not ended."""
        if self.has_failed:
            return "failed"
        return _OUTCOMES.get(self.status)

    @classmethod
    def from_status(cls, status: TaskStatus) -> TaskView:
        """Create the view of a status that a server sent."""
        return cls(
            status.id,
            status.status,
            status.message,
            None if status.created_at is None else int(status.created_at.timestamp() * 1000),
            None if status.updated_at is None else int(status.updated_at.timestamp() * 1000),
            None if status.ttl is None else int(status.ttl * 1000),
            status.questions,
            status.result,
            status.error,
        )

    @classmethod
    def from_record(cls, record: Record, whole: Task | None = None) -> TaskView:
        """Create the view of a record in a store.

        A record does not contain the segments of a streamed result; pass the `whole` task to show them.
        """
        try:
            task = msgspec.convert(record.head, Task) if whole is None else whole
        except msgspec.ValidationError as error:
            return cls(
                record.id,
                "unreadable",
                f"The record is damaged, or another version wrote it: {error}",
                record.created,
                record.updated,
                tool=record.tool,
                principal=record.principal,
                server=record.server,
            )
        return cls(
            task.id,
            core_task(task)["status"],
            task.message,
            task.created,
            task.updated,
            task.ttl,
            task.open_questions,
            None if task.result is None else _load_result(task.result),
            task.fault,
            task.tool,
            record.principal,
            record.server,
            {key: wait for key, wait in task.waits.items() if wait.question is not None},
        )


def _load_result(data: Mapping[str, Any]) -> Result:
    """Return a stored result with its content as blocks of the model."""
    content = data["content"]
    if isinstance(content, msgspec.Raw):  # segments from the log
        content = msgspec.json.decode(content)
    result = load_result({**data, "content": ()})
    result.content = results.result({"content": list(content)}).content
    return result


def as_json(task: TaskView) -> dict[str, Any]:
    """Return a task as JSON, with the keys of the protocol."""
    value: dict[str, Any] = {"taskId": task.id, "status": task.status}
    if task.message is not None:
        value["statusMessage"] = task.message
    for key, at in (("createdAt", task.created), ("lastUpdatedAt", task.updated)):
        if at is not None:
            value[key] = timestamp(at)
    value["ttl"] = task.ttl
    if task.tool is not None:
        value |= {"tool": task.tool, "principal": task.principal, "server": task.server}
    if task.questions:
        value["questions"] = {key: msgspec.to_builtins(question) for key, question in task.questions.items()}
    if task.asks_others:
        value["asksOthers"] = {
            key: {
                "to": asked.to,
                "people": asked.people,
                "answeredBy": asked.answered_by,
                "question": msgspec.to_builtins(_question(asked)),
            }
            for key, asked in task.asks_others.items()
        }
    if task.result is not None:
        value["result"] = msgspec.json.decode(render.result_as_json(task.result))
    if task.fault is not None:
        value["error"] = task.fault
    return value


def table(tasks: Sequence[TaskView]) -> str:
    """Return tasks as a table, one line for each. It names their servers if there is more than one."""
    owners = ["TOOL", "PRINCIPAL"] if any(task.tool is not None for task in tasks) else []
    if len({task.server for task in tasks}) > 1:
        owners.append("SERVER")
    heading = ["ID", "STATUS", *owners, "AGE", "TTL", "MESSAGE"]
    return render.columns([heading, *(_row(task, owners) for task in tasks)])


def _row(task: TaskView, owners: Sequence[str]) -> list[str]:
    values = {"TOOL": task.tool, "PRINCIPAL": task.principal, "SERVER": task.server}
    owner = [printable(values[name] or "-") for name in owners]
    age = "-" if task.created is None else duration(now() - task.created)
    message = printable(task.message or _reason(task))
    if len(message) > _MAX_MESSAGE_CHARACTERS:
        message = f"{message[: _MAX_MESSAGE_CHARACTERS - 1]}…"
    return [printable(task.id), task.status, *owner, age, _ttl(task), message]


def _reason(task: TaskView) -> str:
    """Return what a task waits for, or why it failed."""
    if task.questions:
        return f"asks {', '.join(task.questions)}"
    if task.fault is not None:
        return task.fault.message
    return task.result.text if task.result is not None and task.result.is_error else ""


def details(task: TaskView) -> str:
    """Return all properties of a task, one on a line."""
    return "\n".join(f"{name:<10} {_indented(value)}" for name, value in _properties(task))


def _properties(task: TaskView) -> Iterator[tuple[str, str]]:
    yield "id", task.id
    yield "status", task.status
    if task.tool is not None:
        yield "tool", task.tool
        yield "principal", task.principal or "-"
        yield "server", task.server or "-"
    for name, at in (("created", task.created), ("updated", task.updated)):
        if at is not None:
            yield name, f"{timestamp(at)} ({duration(now() - at)} ago)"
    yield "ttl", _ttl(task)
    if task.message:
        yield "message", task.message
    for key, question in task.questions.items():
        yield "question", f"{key}: {_describe(question)}"
    for key, asked in task.asks_others.items():
        yield "asks", f"{', '.join(asked.asked_names)}: {key}: {_describe(_question(asked))}"
    if task.result is not None:
        text = task.result.text or render.compact(task.result.data)
        yield ("failure" if task.result.is_error else "result"), text
    if task.fault is not None:
        yield "error", f"{task.fault.message} ({task.fault.code})"


def status_line(task: TaskView) -> str:
    """Return the time of the last change, the status and the message of a task on one line."""
    at = timestamp(task.updated if task.updated is not None else now())[11:19]
    questions = "; ".join(f"{key}: {_describe(question)}" for key, question in task.questions.items())
    message = task.message or questions
    return printable(f"{at} {task.status}{f': {message}' if message else ''}")


def log_lines(entries: Sequence[Entry]) -> str:
    """Return the log of a task, one entry on a line."""
    return "\n".join(
        f"{entry.number:>4}  {timestamp(entry.at)}  {entry.kind:<10} "
        f"{printable(render.compact(entry.data), MAX_ENTRY_CHARACTERS)}"
        for entry in entries
    )


def history(task: TaskView, log: Sequence[Entry]) -> dict[str, Any]:
    """Return the log of a task in the format that `antiphon.testing.replay_history` reads."""
    return {"format": HISTORY_FORMAT, "taskId": task.id, "tool": task.tool, "log": log}


def _describe(question: Question) -> str:
    if isinstance(question, Elicit):
        return f"{question.message} ({', '.join(question.schema.get('properties', {})) or 'yes or no'})"
    if isinstance(question, OpenUrl):
        return f"{question.message} {printable_url(question.url)}"
    if isinstance(question, Sample):
        return "asks the client's model"
    return "asks for the client's roots"


def _question(asked: Wait) -> Question:
    return load_questions({"": asked.question})[""]


def _ttl(task: TaskView) -> str:
    if task.ttl is None:
        return "-"
    left = None if task.created is None else task.created + task.ttl - now()
    return duration(task.ttl) if left is None else f"{duration(task.ttl)} ({duration(left)} left)"


def duration(milliseconds: int) -> str:
    """Return a duration for people, in its largest unit."""
    seconds = max(0, milliseconds) // 1000
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def now() -> int:
    return int(time.time() * 1000)


def _indented(text: str) -> str:
    """Return a text whose further lines do not look like lines of the report."""
    return printable_text(text).replace("\n", f"\n{'':<11}")
