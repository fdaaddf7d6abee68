"""Reads segments for a client: from the responses of the draft, and from the notifications of the extension.

Reading is strict, because segments are merged by their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from antiphon.errors import BadAnswer
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import RequestId
from antiphon.model.segment import Segment, StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.wire.client import results, tasks
from antiphon.wire.jsonrpc import Frame

if TYPE_CHECKING:
    from antiphon.wire.client.dialect import ClientDialect

__all__ = [
    "call_outcome",
    "is_partial",
    "is_task_alone",
    "notification_part",
    "questions",
    "response_part",
    "task_result",
]


def is_partial(frame: Frame) -> bool:
    """Return whether a response is one of several to its request, and not the last.

    A response with questions is the last one, although the output is not complete.
    """
    result = frame.result
    if not isinstance(result, dict):
        return False
    return result.get("isComplete") is False and result.get("resultType") != "input_required"


def is_task_alone(frame: Frame) -> bool:
    """Return whether a response has a task and nothing else: segments may follow on the same stream."""
    result = frame.result
    if not isinstance(result, dict) or not isinstance(result.get("task"), dict):
        return False
    return result.keys().isdisjoint(("content", "partial-content", "isComplete"))


def questions(dialect: ClientDialect, fields: Mapping[str, Any]) -> InputRequired | StreamPart:
    """Return the questions in a result, or the part of a stream that ends with them; raises `BadAnswer`."""
    is_part = "isComplete" in fields
    return response_part(dialect, fields) if is_part else results.input_required(dialect, fields)


def call_outcome(dialect: ClientDialect, fields: Mapping[str, Any]) -> Result | TaskStatus | StreamPart:
    """Return the outcome of a call: a result, a task, or the last part of its stream."""
    return response_part(dialect, fields) if "isComplete" in fields else tasks.call_outcome(dialect, fields)


def task_result(dialect: ClientDialect, fields: Mapping[str, Any]) -> Result | StreamPart:
    """Return the result of a task, or a part of its stream."""
    return response_part(dialect, fields) if "isComplete" in fields else tasks.task_result(fields)


def response_part(dialect: ClientDialect, fields: Mapping[str, Any]) -> StreamPart:
    """Return the part of a stream in a response of the draft; raises `BadAnswer`."""
    contents = fields.get("partial-content", [])
    if not isinstance(contents, list):
        raise BadAnswer("The server sent partial content that is not a list.")
    task = tasks.status(dialect, fields["task"]) if isinstance(fields.get("task"), dict) else None
    complete = fields.get("isComplete") is True
    is_asking = fields.get("resultType") == "input_required"
    return StreamPart(
        segments=tuple(_segment(content) for content in contents),
        task_id=task.id if task is not None else tasks.related(fields.get("_meta")),
        task=task,
        is_complete=complete,
        end=tasks.task_result(fields) if complete and not is_asking else None,
        stopped=results.input_required(dialect, fields) if is_asking else None,
    )


def notification_part(params: Mapping[str, Any]) -> tuple[RequestId | None, StreamPart]:
    """Return the part of a stream in a notification, and the id of its request; raises `BadAnswer`."""
    first, request_id, task_id = params.get("seqNr"), params.get("requestId"), params.get("taskId")
    blocks = results.blocks(params.get("content"))
    return (
        request_id if isinstance(request_id, str | int) else None,
        StreamPart(
            tuple(Segment(number, block) for number, block in enumerate(blocks, _number(first))),
            task_id=task_id if isinstance(task_id, str) else None,
        ),
    )


def _segment(content: Any) -> Segment:
    if not isinstance(content, dict):
        raise BadAnswer("The server sent a segment that is not an object.")
    block = {key: value for key, value in content.items() if key != "seqNr"}
    (read,) = results.blocks([block])
    return Segment(_number(content.get("seqNr")), read)


def _number(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise BadAnswer(f"The server sent a segment with the number {value!r}: numbers start at 1.")
    return value
