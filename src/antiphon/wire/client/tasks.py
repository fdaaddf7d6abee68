"""Reads tasks for a client: in one shape of versions with tasks in the core, in another of the extension.

Reading is lenient with times and messages, and strict with the id, the status and the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon.errors import BadAnswer, RequestError
from antiphon.model.notification import Progress
from antiphon.model.outcome import DONE, Done, Result
from antiphon.model.task import Fault
from antiphon.model.task_status import STATUSES, TaskStatus, TaskStatuses
from antiphon.wire.client import results
from antiphon.wire.jsonrpc import excerpt
from antiphon.wire.server.tasks import PROGRESS, RELATED

if TYPE_CHECKING:
    from antiphon.wire.client.dialect import ClientDialect

__all__ = [
    "acknowledgement",
    "call_outcome",
    "fault_error",
    "moment",
    "page",
    "related",
    "status",
    "task_result",
]

Fields = Mapping[str, Any]


def call_outcome(dialect: ClientDialect, fields: Fields) -> Result | TaskStatus:
    """Return the outcome of a call: a result, or the task that the call has become."""
    if fields.get("resultType") == "task":
        return status(dialect, fields)
    if isinstance(fields.get("task"), dict) and "content" not in fields:
        return status(dialect, fields["task"])
    return results.result(fields)


def status(dialect: ClientDialect, fields: Fields) -> TaskStatus:
    """Return the status of a task; raises `BadAnswer`."""
    id, state = fields.get("taskId"), _state(fields.get("status"))
    if not isinstance(id, str) or not id:
        raise BadAnswer("The server sent a task without a taskId.")
    if not isinstance(state, str) or state not in STATUSES:
        raise BadAnswer(f"The server sent the task {excerpt(id)} with the unknown status {excerpt(state)!r}.")
    inlined = fields.get("result")
    message = fields.get("statusMessage")
    return TaskStatus(
        id=id,
        status=state,  # type: ignore[arg-type]
        message=message if isinstance(message, str) else None,
        created_at=moment(fields.get("createdAt")),
        updated_at=moment(fields.get("lastUpdatedAt")),
        ttl=_seconds(fields, "ttlMs", "ttl"),
        poll_interval=_seconds(fields, "pollIntervalMs", "pollInterval"),
        questions=dialect.read_questions(fields) if state == "input_required" else {},
        result=results.result(inlined) if state == "completed" and isinstance(inlined, dict) else None,
        error=_fault(fields.get("error")) if state == "failed" else None,
        progress=_progress(id, fields.get("_meta")),
    )


def _state(stated: Any) -> Any:
    """Return a status as MCP spells it; early proposals for tasks spelled it in other ways too."""
    spelled = stated.lower() if isinstance(stated, str) else stated
    return "input_required" if spelled in ("input_require", "inputrequired") else spelled


def acknowledgement(dialect: ClientDialect, fields: Fields) -> TaskStatus | Done:
    """Return the status in the response to a request about a task, if the response has one."""
    return status(dialect, fields) if "taskId" in fields else DONE


def related(meta: Any) -> str | None:
    """Return the id of the task that metadata names; `None` if it names none."""
    named = meta.get(RELATED) if isinstance(meta, dict) else None
    task_id = named.get("taskId") if isinstance(named, dict) else None
    return task_id if isinstance(task_id, str) else None


def task_result(fields: Fields) -> Result:
    """Return the result of a task."""
    result = results.result(fields)
    if result.meta and RELATED in result.meta:
        result.meta = {key: value for key, value in result.meta.items() if key != RELATED} or None
    return result


def page(dialect: ClientDialect, fields: Fields) -> TaskStatuses:
    """Return one page of the caller's tasks; raises `BadAnswer`."""
    tasks, cursor = fields.get("tasks"), fields.get("nextCursor")
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise BadAnswer("The server sent a page of tasks without 'tasks'.")
    return TaskStatuses(
        tuple(status(dialect, task) for task in tasks), cursor if isinstance(cursor, str) else None
    )


def fault_error(task: TaskStatus) -> RequestError:
    """Return the error that a task ended with, as the class with its code."""
    fault = task.error or Fault(
        -32603, task.message or f"The task {excerpt(task.id)} failed and gave no reason."
    )
    return results.error({"code": fault.code, "message": fault.message, "data": fault.data})


def _fault(value: Any) -> Fault | None:
    if not isinstance(value, dict):
        return None
    error = results.error(value)
    return Fault(error.code, error.message, error.data)


def _progress(id: str, meta: Any) -> Progress | None:
    """Return the progress of a task, if the server sends the numbers with the status message."""
    found = meta.get(PROGRESS) if isinstance(meta, dict) else None
    try:
        return None if found is None else msgspec.convert({**found, "token": id}, Progress)
    except (TypeError, msgspec.ValidationError):
        return None


def _seconds(fields: Fields, *keys: str) -> float | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53:
            return value / 1000
    return None


def moment(value: Any) -> datetime | None:
    """Return a time of the wire; `None` if it is not one."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    if not 1970 < moment.year < 9999:  # times at the ends of the calendar cannot be converted
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
