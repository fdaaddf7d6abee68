"""Writes segments: as responses in the draft, as notifications in the extension.

The draft (SEP-1905) sends several responses to one request; each says whether it is the last. The extension
`dev.antiphon/streaming` of 2026-07-28 sends notifications, and one complete response at the end;
docs/reference/streaming.md is its specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.model.request import RequestId
from antiphon.model.segment import SegmentPage, Segments, StreamEnd
from antiphon.wire.server.tasks import RELATED, core_task

__all__ = [
    "FALLBACK",
    "PARTIAL_RESULT",
    "STREAMING",
    "declared_modes",
    "last",
    "partial",
    "partial_result",
    "portion",
]

STREAMING = "dev.antiphon/streaming"
PARTIAL_RESULT = "notifications/tools/partial_result"

FALLBACK: Mapping[str, Any] = {"io.modelcontextprotocol/fallback-mode": "task"}
"""The `_meta` of a task that was made because no response mode that the caller offered is possible."""

_builtins = msgspec.to_builtins


def declared_modes(capabilities: Mapping[str, Any]) -> Sequence[Any]:
    """Return the response modes in declared capabilities; empty without any."""
    found: Any = capabilities
    for key in ("tasks", "responses", "modes"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, list | tuple) else ()


# In the draft


def partial(segments: Segments) -> dict[str, Any]:
    """Return the result object of segments that are not the last."""
    value: dict[str, Any] = {} if segments.task is None else {"task": core_task(segments.task)}
    value["partial-content"] = _numbered(segments.first, segments.blocks)
    value["isError"] = value["isComplete"] = False
    if segments.task_id is not None:
        value["_meta"] = {RELATED: {"taskId": segments.task_id}}
    return value


def portion(part: SegmentPage, end: dict[str, Any]) -> dict[str, Any]:
    """Return the result object of a task's segments; `end` is the result object of its outcome."""
    value: dict[str, Any] = {} if part.task is None else {"task": core_task(part.task)}
    value.update({key: field for key, field in end.items() if key not in ("content", "isError")})
    if part.is_error and part.first == 1 and part.end is not None and not _has_segments(part):
        value["content"] = part.end.content
    else:
        value["partial-content"] = _numbered(part.first, part.blocks)
    value["isError"] = part.is_error
    value["isComplete"] = part.is_complete
    value["_meta"] = {**value.get("_meta", {}), RELATED: {"taskId": part.task_id}}
    return value


def last(streamed: StreamEnd, end: dict[str, Any]) -> dict[str, Any]:
    """Return the result object that ends an answer in segments."""
    result = streamed.result
    value = {key: field for key, field in end.items() if key != "content"}
    if result.is_error and not streamed.sent and not result.emitted:
        value["content"] = result.content
    else:
        value["partial-content"] = _numbered(streamed.sent + 1, result.content[streamed.sent :])
    return {**value, "isComplete": True}


def _has_segments(part: SegmentPage) -> bool:
    """Return whether a failed task has segments besides its error message."""
    return part.end is not None and (part.end.emitted > 0 or len(part.blocks) > len(part.end.content))


def _numbered(first: int, blocks: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"seqNr": number, **_builtins(block)} for number, block in enumerate(blocks, first)]


# In the extension


def partial_result(segments: Segments, request_id: RequestId | None) -> dict[str, Any]:
    """Return the parameters of the notification that brings segments."""
    value: dict[str, Any] = {"requestId": request_id, "seqNr": segments.first, "content": segments.blocks}
    if segments.task_id is not None:
        value["taskId"] = segments.task_id
    return value
