"""Writes tasks: in one shape for versions with tasks in the core, in another for the extension.

https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks
https://github.com/modelcontextprotocol/ext-tasks
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from msgspec import UNSET

from antiphon.errors import InvalidParams
from antiphon.model.task import Task, TaskProgress, load_result
from antiphon.wire.jsonrpc import excerpt

__all__ = [
    "EXTENSION",
    "PROGRESS",
    "QUESTION",
    "RELATED",
    "core_task",
    "extension_task",
    "one_task",
    "related_task",
    "timestamp",
]

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
QUESTION = "dev.antiphon/question"
"""The key of the question that a message of a task asks, or that a posted response answers, in `_meta`."""
PROGRESS = "dev.antiphon/progress"
"""The key of a task's progress in its `_meta`: the numbers of which `statusMessage` is the text."""

_CORE: Mapping[str, str] = {
    "working": "working",
    "waiting": "input_required",
    "parked": "working",
    "done": "completed",
    "faulted": "failed",
    "cancelled": "cancelled",
}
_MESSAGES: Mapping[str, str] = {
    "working": "Task has been created for {tool} tool invocation.",
    "input_required": "Input Required to Proceed call tasks/result",
    "completed": "Task has been completed successfully, call tasks/result",
    "failed": "Task has failed, call tasks/result",
    "cancelled": "Task has been cancelled",
}


@lru_cache(maxsize=256)
def timestamp(milliseconds: int) -> str:
    """Return a time as ISO 8601, in UTC."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def core_task(task: Task) -> dict[str, Any]:
    """Write a task of 2025-11-25 or the draft, in which the task of a failed tool has failed."""
    status = "failed" if task.state == "done" and task.failed else _CORE[task.state]
    value = {
        "taskId": task.id,
        "status": status,
        "statusMessage": task.message or _MESSAGES[status].format(tool=task.tool),
        "createdAt": timestamp(task.created),
        "lastUpdatedAt": timestamp(task.updated),
        "ttl": task.ttl,
        "pollInterval": task.poll,
    }
    return value if task.progress is None else {**value, "_meta": _progress_meta(task.progress)}


def extension_task(dialect: Any, task: Task, *, detailed: bool) -> dict[str, Any]:
    """Write a task of the extension; in detail, with its open questions, its result or its error."""
    value: dict[str, Any] = {
        "taskId": task.id,
        "status": _CORE[task.state],
        "createdAt": timestamp(task.created),
        "lastUpdatedAt": timestamp(task.updated),
        "ttlMs": task.ttl,
        "pollIntervalMs": task.poll,
    }
    if task.message is not None:
        value["statusMessage"] = task.message
    if task.progress is not None:
        value["_meta"] = _progress_meta(task.progress)
    if not detailed:
        return value
    if task.state == "waiting":
        # In the extension, a key is never used again after an answer to it.
        questions = {task.unique_key(key): question for key, question in task.open_questions.items()}
        value.update(dialect.open_questions(questions))
    elif task.result is not None:
        # The result is the one of the call, and results of this version name their type.
        value["result"] = {**dialect.tool_result(load_result(task.result)), "resultType": "complete"}
    elif task.fault is not None:
        error: dict[str, Any] = {"code": task.fault.code, "message": task.fault.message}
        needs, data = task.fault.needs, task.fault.data
        data = data if needs is None else dialect.missing_capabilities(needs)
        value["error"] = error if data is None else {**error, "data": data}
        value.setdefault("statusMessage", task.fault.message)
    return value


def related_task(meta: Any) -> Any:
    """Return the id of the task that metadata names; `UNSET` if they name none."""
    related = meta.get(RELATED) if isinstance(meta, dict) else None
    return related.get("taskId", UNSET) if isinstance(related, dict) else UNSET


def one_task(*ids: Any) -> Any:
    """Return the id that is in all places that name a task; raises `InvalidParams` if they disagree."""
    named = [id for id in ids if id is not UNSET]
    if any(id != named[0] for id in named):
        raise InvalidParams(f"The message names two tasks, {excerpt(named[0])} and {excerpt(named[1])}.")
    return named[0] if named else UNSET


def _progress_meta(progress: TaskProgress) -> dict[str, Any]:
    return {PROGRESS: progress}
