"""The output of a task for the page: arguments, blocks of content, results and artifacts, bounded in size.

Pure. A page shows what people can read, and says what it leaves out. The whole result can be copied as JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from antiphon.model.artifact import ArtifactRecord
from antiphon.model.task import Task

__all__ = [
    "MAX_ARTIFACT_BYTES",
    "MAX_BLOCKS",
    "artifact_json",
    "artifact_of",
    "bounded_blocks",
    "bounded_data",
    "result_json",
]

MAX_BLOCKS = 200
"""How many blocks of a result the page shows."""
MAX_TEXT_CHARACTERS = 128 * 1024
"""How much of one text the page shows."""
MAX_MEDIA_BYTES = 4 * 1024 * 1024
"""The size of the largest picture that the page shows, in base64."""
MAX_TOTAL_BYTES = 6 * 1024 * 1024
"""How much content one response has."""
MAX_ARTIFACT_BYTES = 2 * 1024 * 1024
"""How much of an artifact the page shows."""
MAX_DATA_BYTES = 256 * 1024
"""How much structured data the page shows."""

_encode = msgspec.json.Encoder().encode


def bounded_blocks(blocks: Iterable[Any]) -> list[Any]:
    """Return blocks for the page. Long texts are cut, and what is too large is named with its size."""
    found: list[Any] = []
    left = MAX_TOTAL_BYTES
    for block in blocks:
        if len(found) >= MAX_BLOCKS or left <= 0:
            found.append({"type": "omitted", "reason": "The page shows the first blocks only."})
            break
        shown = _bounded(block)
        left -= len(_encode(shown))
        found.append(shown)
    return found


def bounded_data(value: Any, most: int = MAX_DATA_BYTES) -> dict[str, Any]:
    """Return structured data for the page: the value, or the beginning of its JSON if it is large."""
    encoded = _encode(value)
    if len(encoded) <= most:
        return {"value": msgspec.Raw(encoded)}
    return {"preview": encoded[:most].decode(errors="ignore"), "size": len(encoded)}


def result_json(task: Task) -> dict[str, Any] | None:
    """Return the result of a task for the page, without content that the page shows elsewhere.

    `rest` is the end of the output of a task that streams, which comes after its segments. The text of an
    error and the link to an artifact are not repeated.
    """
    if task.result is None:
        return None
    content = task.result.get("content")
    blocks = bounded_blocks(content if isinstance(content, list | tuple) else ())
    rest: list[Any] = []
    if task.segments or task.failed:
        rest = [block for block in blocks if block["type"] == "text"]
        blocks = [block for block in blocks if block["type"] != "text"]
    if (artifact := artifact_of(task)) is not None:
        blocks = [block for block in blocks if block["type"] != "resource_link"]
    return {
        "content": blocks,
        "rest": rest if task.segments else [],
        "artifact": artifact,
        "data": bounded_data(task.result["data"]) if "data" in task.result else None,
    }


def artifact_of(task: Task) -> str | None:
    """Return the id of the artifact that a result names, or `None`."""
    meta = None if task.result is None else task.result.get("meta")
    id = meta.get("artifact_id") if isinstance(meta, Mapping) else None
    return id if isinstance(id, str) else None


def artifact_json(record: ArtifactRecord, raw: bytes) -> dict[str, Any]:
    """Return an artifact for the page, from its record and the beginning of its bytes."""
    value = {"type": record.type, "title": record.title, "mimeType": record.mime_type, "size": record.size}
    if record.encoding != "blob":
        return {**value, "text": raw.decode(errors="ignore")}
    if len(raw) < record.size:
        return {**value, "text": f"The artifact has {record.size} bytes of {record.mime_type}."}
    return {**value, "blob": base64.b64encode(raw).decode()}


def _bounded(block: Any) -> Any:
    if not isinstance(block, dict):
        return {"type": "unknown", **bounded_data(block, MAX_TEXT_CHARACTERS)}
    kind, text, data = block.get("type"), block.get("text"), block.get("data")
    if kind == "text" and isinstance(text, str):
        if len(text) <= MAX_TEXT_CHARACTERS:
            return {"type": "text", "text": text}
        return {"type": "text", "text": text[:MAX_TEXT_CHARACTERS], "size": len(text)}
    if kind in ("image", "audio") and isinstance(data, str) and len(data) > MAX_MEDIA_BYTES:
        return {"type": "omitted", "reason": f"{block.get('mimeType')}, {len(data) * 3 // 4} bytes"}
    if kind in ("image", "audio", "resource_link"):
        names = ("type", "data", "mimeType", "uri", "name", "title", "description", "size")
        return {name: block[name] for name in names if name in block}
    return {"type": kind if isinstance(kind, str) else "unknown", **bounded_data(block, MAX_TEXT_CHARACTERS)}
