"""What a task looks like: a line of a list, a page about it, or JSON. Knows no server and no store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.cli import render
from antiphon.model.outcome import Result
from antiphon.model.question import Elicit, OpenUrl, Question, Sample
from antiphon.model.task import Fault, Task, load_questions, load_result
from antiphon.model.task_status import TaskStatus
from antiphon.store.contract import Entry, Record
from antiphon.wire.client import results as answers
from antiphon.wire.server.tasks import core_task, timestamp

__all__ = ["Shown", "as_json", "change", "log_lines", "page", "table"]

_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


class Shown(msgspec.Struct, frozen=True):
    """A task to look at. Times are in milliseconds, as its log has them."""

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

    @classmethod
    def told(cls, status: TaskStatus) -> Shown:
        """As a server tells it to its caller."""
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
    def kept(cls, record: Record, whole: Task | None = None) -> Shown:
        """As a store keeps it; its result without the segments in its log, unless it is given `whole`."""
        task = msgspec.convert(record.head, Task) if whole is None else whole
        return cls(
            task.id,
            core_task(task)["status"],
            task.message,
            task.created,
            task.updated,
            task.ttl,
            load_questions(task.questions),
            None if task.result is None else _result(task.result),
            task.fault,
            task.tool,
            record.principal,
        )


def _result(data: Mapping[str, Any]) -> Result:
    """A result, with blocks that can be read, and not as they were written."""
    result = load_result(data)
    result.content = answers.result({"content": list(result.content)}).content
    return result


def as_json(shown: Shown) -> dict[str, Any]:
    """A task for programs, in the words of the wire."""
    value: dict[str, Any] = {"taskId": shown.id, "status": shown.status}
    if shown.message is not None:
        value["statusMessage"] = shown.message
    for key, at in (("createdAt", shown.created), ("lastUpdatedAt", shown.updated)):
        if at is not None:
            value[key] = timestamp(at)
    value["ttl"] = shown.ttl
    if shown.tool is not None:
        value |= {"tool": shown.tool, "principal": shown.principal}
    if shown.questions:
        value["questions"] = {key: msgspec.to_builtins(ask) for key, ask in shown.questions.items()}
    if shown.result is not None:
        value["result"] = msgspec.json.decode(render.as_json(shown.result))
    if shown.fault is not None:
        value["error"] = shown.fault
    return value


def table(tasks: Sequence[Shown]) -> str:
    """Tasks in lines, under a heading."""
    operator = any(task.tool is not None for task in tasks)
    heading = ["ID", "STATUS", *(["TOOL", "PRINCIPAL"] if operator else []), "AGE", "TTL", "MESSAGE"]
    rows = [heading, *(_row(task, operator) for task in tasks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heading))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(task: Shown, operator: bool) -> list[str]:
    who = [render.clean(task.tool or "-"), render.clean(task.principal or "-")] if operator else []
    age = "-" if task.created is None else _span(_now() - task.created)
    asked = ", ".join(task.questions)
    message = task.message or (f"asks {asked}" if asked else "")
    words = render.clean(message).replace("\n", " ")
    return [render.clean(task.id), task.status, *who, age, _ttl(task), words]


def page(task: Shown) -> str:
    """Everything about one task."""
    return "\n".join(f"{name:<10} {render.clean(value)}" for name, value in _facts(task))


def _facts(task: Shown) -> Iterator[tuple[str, str]]:
    yield "id", task.id
    yield "status", task.status
    if task.tool is not None:
        yield "tool", task.tool
        yield "principal", task.principal or "-"
    for name, at in (("created", task.created), ("updated", task.updated)):
        if at is not None:
            yield name, f"{timestamp(at)} ({_span(_now() - at)} ago)"
    yield "ttl", _ttl(task)
    if task.message:
        yield "message", task.message
    for key, ask in task.questions.items():
        yield "questions", f"{key}: {_question(ask)}"
    if task.result is not None:
        text = task.result.text or render.compact(task.result.data)
        yield ("failure" if task.result.is_error else "result"), text
    if task.fault is not None:
        yield "error", f"{task.fault.message} ({task.fault.code})"


def change(task: Shown) -> str:
    """One change of a task, on a line."""
    at = timestamp(task.updated if task.updated is not None else _now())[11:19]
    said = task.message or "; ".join(f"{key}: {_question(ask)}" for key, ask in task.questions.items())
    return render.clean(f"{at} {task.status}{f': {said}' if said else ''}").replace("\n", " ")


def log_lines(entries: Sequence[Entry]) -> str:
    """A log, an entry on a line."""
    return "\n".join(
        f"{entry.number:>4}  {timestamp(entry.at)}  {entry.kind:<10} "
        f"{_short(render.clean(render.compact(entry.data)))}"
        for entry in entries
    )


def _question(ask: Question) -> str:
    if isinstance(ask, Elicit):
        return f"{ask.message} ({', '.join(ask.schema.get('properties', {})) or 'yes or no'})"
    if isinstance(ask, OpenUrl):
        return f"{ask.message} {ask.url}"
    return (
        "wants an answer of the client's model" if isinstance(ask, Sample) else "wants the client's folders"
    )


def _ttl(task: Shown) -> str:
    if task.ttl is None:
        return "-"
    left = None if task.created is None else task.created + task.ttl - _now()
    return _span(task.ttl) if left is None else f"{_span(task.ttl)} ({_span(left)} left)"


def _span(milliseconds: int) -> str:
    seconds = max(0, milliseconds) // 1000
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _now() -> int:
    return int(time.time() * 1000)


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"
