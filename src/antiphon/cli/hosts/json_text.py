"""Adds one server to the text of a JSON file, and leaves everything else in the text as it is. Pure.

A host may keep other settings in the same file, so their order and their layout stay.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

__all__ = ["put_server", "read_object"]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = "  "


class _Member(NamedTuple):
    """One member of an object, with the places of its key and its value in the text."""

    key: str
    key_start: int
    start: int
    end: int


def read_object(text: str) -> dict[str, Any]:
    """Return the object that a text holds; empty for an empty text. Raises `ValueError`."""
    if not text.strip():
        return {}
    found = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def put_server(text: str, key: str, name: str, entry: dict[str, Any]) -> str:
    """Return the text with the entry of a server under `key`, in place of one that has its name.

    The text must be empty, or an object for `read_object`, with an object or nothing under `key`.
    """
    if not read_object(text):
        return f"{json.dumps({key: {name: entry}}, indent=_INDENT, ensure_ascii=False)}\n"
    root = _skip(text, 0)
    servers = _find(text, root, key)
    if servers is None:
        return _insert(text, root, key, {name: entry})
    server = _find(text, servers.start, name)
    if server is None:
        return _insert(text, servers.start, name, entry)
    margin = _margin(text, server.key_start)
    return f"{text[: server.start]}{_written(text, entry, margin)}{text[server.end :]}"


def _insert(text: str, start: int, key: str, value: Any) -> str:
    """Return the text with another member at the end of the object that begins at `start`."""
    members = _members(text, start)
    if members:
        last = members[-1]
        margin = _margin(text, last.key_start)
        gap = " " if margin is None else f"{_newline(text)}{margin}"
        return f"{text[: last.end]},{gap}{_member(text, key, value, margin)}{text[last.end :]}"
    _, end = _DECODER.raw_decode(text, start)
    if "\n" not in text.strip():
        return f"{text[:start]}{{{_member(text, key, value, None)}}}{text[end:]}"
    line = text.rfind("\n", 0, start) + 1
    outer = _SPACE.match(text, line, start)
    assert outer is not None
    margin = outer[0] + _indent(text)
    gap = _newline(text)
    return f"{text[:start]}{{{gap}{margin}{_member(text, key, value, margin)}{gap}{outer[0]}}}{text[end:]}"


def _member(text: str, key: str, value: Any, margin: str | None) -> str:
    return f"{json.dumps(key, ensure_ascii=False)}: {_written(text, value, margin)}"


def _written(text: str, value: Any, margin: str | None) -> str:
    """Return a value as JSON in the layout of the text: on one line if `margin` is `None`."""
    if margin is None:
        return json.dumps(value, ensure_ascii=False)
    written = json.dumps(value, indent=_indent(text), ensure_ascii=False)
    return written.replace("\n", f"{_newline(text)}{margin}")


def _find(text: str, start: int, key: str) -> _Member | None:
    """Return the member of an object that counts: the last one, if its key is there twice."""
    return next((member for member in reversed(_members(text, start)) if member.key == key), None)


def _members(text: str, start: int) -> list[_Member]:
    """Return the members of the object that begins at `start`."""
    found = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, end) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found.append(_Member(key, at, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _margin(text: str, start: int) -> str | None:
    """Return the space before a key that begins its line; `None` for a key that does not."""
    line = text.rfind("\n", 0, start) + 1
    before = text[line:start]
    return before if line and not before.strip() else None


def _indent(text: str) -> str:
    """Return the space by which the text indents its first members."""
    members = _members(text, _skip(text, 0))
    return (members and _margin(text, members[0].key_start)) or _INDENT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _skip(text: str, at: int) -> int:
    """Return the place of the next character that is not space."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which is not JSON")
