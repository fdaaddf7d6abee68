"""Writes segments: as responses in the draft, as notifications in the extension.

The draft (SEP-1905) sends several responses to one request; each says whether it is the last. The extension
`dev.antiphon/streaming` of 2026-07-28 sends notifications, and one complete response at the end;
docs/reference/streaming.md is its specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.model.content import Text
from antiphon.model.request import RequestId
from antiphon.model.segment import SegmentPage, Segments, StreamEnd
from antiphon.wire.server.tasks import RELATED, core_task

__all__ = [
    "FALLBACK",
    "NO_SEGMENTS",
    "PARTIAL_RESULT",
    "STREAMING",
    "declared_modes",
    "last_response",
    "partial_response",
    "partial_result_params",
    "segment_page",
]

STREAMING = "dev.antiphon/streaming"
PARTIAL_RESULT = "notifications/tools/partial_result"

FALLBACK: Mapping[str, Any] = {"io.modelcontextprotocol/fallback-mode": "task"}
"""The `_meta` of a task that was made because no response mode that the caller offered is possible."""

NO_SEGMENTS: Mapping[str, Any] = {"partial-content": [], "isError": False, "isComplete": False}
"""The fields of a response without segments, on a stream that continues."""

_builtins = msgspec.to_builtins


def declared_modes(capabilities: Mapping[str, Any]) -> Sequence[Any]:
    """Return the response modes in declared capabilities; empty without any."""
    found: Any = capabilities
    for key in ("tasks", "responses", "modes"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, list | tuple) else ()


# In the draft


def partial_response(segments: Segments) -> dict[str, Any]:
    """Return the result object of segments that are not the last."""
    value: dict[str, Any] = {} if segments.task is None else {"task": core_task(segments.task)}
    value["partial-content"] = _numbered(segments.first, segments.blocks)
    value["isError"] = value["isComplete"] = False
    if segments.task_id is not None:
        value["_meta"] = {RELATED: {"taskId": segments.task_id}}
    return value


def segment_page(page: SegmentPage, outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the result object of a task's segments; `outcome` is the result object of its outcome."""
    value: dict[str, Any] = {} if page.task is None else {"task": core_task(page.task)}
    value.update({key: field for key, field in outcome.items() if key not in ("content", "isError")})
    why = None if page.message is None else [Text(page.message)]
    if page.is_error and page.first == 1 and not _has_segments(page):
        value["content"] = why if page.end is None else page.end.content
    else:
        value["partial-content"] = _numbered(page.first, page.blocks)
        if why is not None:  # the message is no segment: `tasks/result` gives it as an error
            value["content"] = why
    value["isError"] = page.is_error
    value["isComplete"] = page.is_complete
    value["_meta"] = {**value.get("_meta", {}), RELATED: {"taskId": page.task_id}}
    return value


def last_response(end: StreamEnd, outcome: dict[str, Any]) -> dict[str, Any]:
    """Return the result object that ends an answer in segments."""
    result = end.result
    value = {key: field for key, field in outcome.items() if key != "content"}
    if result.is_error and not end.sent and not result.emitted:
        value["content"] = result.content
    else:
        value["partial-content"] = _numbered(end.sent + 1, result.content[end.sent :])
    return {**value, "isComplete": True}


def _has_segments(page: SegmentPage) -> bool:
    """Return whether a failed task has segments besides its error message."""
    if page.end is None:
        return len(page.blocks) > 0
    return page.end.emitted > 0 or len(page.blocks) > len(page.end.content)


def _numbered(first: int, blocks: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"seqNr": number, **_builtins(block)} for number, block in enumerate(blocks, first)]


# In the extension


def partial_result_params(segments: Segments, request_id: RequestId | None) -> dict[str, Any]:
    """Return the parameters of the notification that brings segments."""
    value: dict[str, Any] = {"requestId": request_id, "seqNr": segments.first, "content": segments.blocks}
    if segments.task_id is not None:
        value["taskId"] = segments.task_id
    return value
