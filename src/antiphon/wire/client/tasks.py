"""Tasks, read for a client: one shape of the versions that have them in the core, one of the extension.

Reading is generous with what only informs, times and messages, and strict with what a caller must rely
on: an id, a status, and a result where there has to be one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from antiphon.errors import BadAnswer, RequestError
from antiphon.model.outcome import DONE, Done, Result
from antiphon.model.task import Fault
from antiphon.model.task_status import STATUSES, TaskStatus, TaskStatuses
from antiphon.wire.client import results as answers
from antiphon.wire.server.tasks import RELATED

if TYPE_CHECKING:
    from antiphon.wire.client.dialect import ClientDialect

__all__ = ["acknowledged", "called", "fault_error", "page", "redeemed", "status"]

Fields = Mapping[str, Any]


def called(dialect: ClientDialect, fields: Fields) -> Result | TaskStatus:
    """What `tools/call` gave: a result, or a task in place of it."""
    if fields.get("resultType") == "task":
        return status(dialect, fields)
    if isinstance(fields.get("task"), dict) and "content" not in fields:
        return status(dialect, fields["task"])
    return answers.result(fields)


def status(dialect: ClientDialect, fields: Fields) -> TaskStatus:
    """How a task stands; raises `BadAnswer`."""
    id, state = fields.get("taskId"), fields.get("status")
    if not isinstance(id, str) or not id:
        raise BadAnswer("The server sent a task without a taskId.")
    if not isinstance(state, str) or state not in STATUSES:
        raise BadAnswer(f"The server says that the task {id} is {state!r}, which is no status of a task.")
    inlined = fields.get("result")
    message = fields.get("statusMessage")
    return TaskStatus(
        id=id,
        status=state,  # type: ignore[arg-type]
        message=message if isinstance(message, str) else None,
        created_at=_moment(fields.get("createdAt")),
        updated_at=_moment(fields.get("lastUpdatedAt")),
        ttl=_seconds(fields, "ttlMs", "ttl"),
        poll_interval=_seconds(fields, "pollIntervalMs", "pollInterval"),
        questions=dialect.read_questions(fields) if state == "input_required" else {},
        result=answers.result(inlined) if state == "completed" and isinstance(inlined, dict) else None,
        error=_fault(fields.get("error")) if state == "failed" else None,
    )


def acknowledged(dialect: ClientDialect, fields: Fields) -> TaskStatus | Done:
    """The answer to a request about a task: how it stands now, or nothing."""
    return status(dialect, fields) if "taskId" in fields else DONE


def redeemed(fields: Fields) -> Result:
    """What a task gave, as if it had been an answer."""
    result = answers.result(fields)
    if result.meta and RELATED in result.meta:
        result.meta = {key: value for key, value in result.meta.items() if key != RELATED} or None
    return result


def page(dialect: ClientDialect, fields: Fields) -> TaskStatuses:
    """Some of the caller's tasks."""
    tasks, cursor = fields.get("tasks"), fields.get("nextCursor")
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise BadAnswer("The server sent a page of tasks without 'tasks'.")
    return TaskStatuses(
        tuple(status(dialect, task) for task in tasks), cursor if isinstance(cursor, str) else None
    )


def fault_error(task: TaskStatus) -> RequestError:
    """The error that a task ended with, as the class that has its code."""
    fault = task.error or Fault(-32603, task.message or f"The task {task.id} failed and did not say why.")
    return answers.error({"code": fault.code, "message": fault.message, "data": fault.data})


def _fault(value: Any) -> Fault | None:
    if not isinstance(value, dict):
        return None
    error = answers.error(value)
    return Fault(error.code, error.message, error.data)


def _seconds(fields: Fields, *keys: str) -> float | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53:
            return value / 1000
    return None


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
