"""The HTTP headers that repeat the method, the name and the arguments of a message, and how they do.

A gateway may decide by these headers. So a header that is there is compared with the body, in every version;
which ones have to be there is for the dialects.
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#request-metadata
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from antiphon.errors import DefinitionError, HeaderMismatch

__all__ = [
    "NAMED",
    "Mirrored",
    "check",
    "check_method",
    "check_name",
    "declared",
    "decode_value",
    "encode_value",
    "mirror",
    "names_only_tool",
    "repeats_name",
    "task_id_in",
]

Mirrored: TypeAlias = Mapping[str, tuple[str, ...]]
"""Header names in lower case, each with the path of the argument that it mirrors."""

NAMED: Mapping[Any, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
    "tasks/get": "task_id",
    "tasks/result": "task_id",
    "tasks/update": "task_id",
    "tasks/input_response": "task_id",
    "tasks/cancel": "task_id",
    "tasks/stream": "task_id",
    "dev.antiphon/inbox/answer": "task_id",
}
"""The field of a request that `Mcp-Name` repeats, by method. The messages of other methods name nothing."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_PREFIX, _SUFFIX = "=?base64?", "?="
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?\Z")
"""A number as JSON writes it."""
_SAFE_INTEGER = 2**53 - 1
_ALLOWED_TYPES = ("string", "integer", "boolean")


def encode_value(value: str | int | bool) -> str:
    """Return an argument as a header value; in base64 if plain ASCII cannot hold it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return f"{_PREFIX}{base64.b64encode(text.encode()).decode()}{_SUFFIX}"


def decode_value(raw: str) -> str:
    """Return the argument in a header value; raises `HeaderMismatch` if the value is invalid."""
    text = raw.strip(" \t")
    if not text.isascii() or any(character < " " and character != "\t" for character in text):
        raise HeaderMismatch("A header value has characters that are not allowed in headers.")
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    try:
        return base64.b64decode(text[len(_PREFIX) : -len(_SUFFIX)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise HeaderMismatch(f"The header value {text!r} is marked as base64, and is not base64.") from None


def declared(schema: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the headers that a tool's input schema declares with `x-mcp-header`.

    Raises `DefinitionError` if the specification does not allow the annotation.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path, name, prop in _annotated(schema):
        if not isinstance(name, str) or not _TOKEN.match(name):
            raise DefinitionError(f"x-mcp-header {name!r} is not a header name.")
        if path is None:
            raise DefinitionError(f"x-mcp-header {name!r} is on a property that is not always there.")
        if prop.get("type") not in _ALLOWED_TYPES:
            raise DefinitionError(
                f"x-mcp-header {name!r} is on a property that is not a string, integer or boolean."
            )
        header = f"mcp-param-{name.lower()}"
        if header in found:
            raise DefinitionError(f"x-mcp-header {name!r} is declared twice.")
        found[header] = path
    return found


def _annotated(schema: Any) -> Iterator[tuple[tuple[str, ...] | None, Any, Mapping[str, Any]]]:
    """Yield every annotation in a schema, with its path, or `None` where it is not allowed."""
    # A server can nest a schema deeper than a function may call itself.
    nodes: list[tuple[Any, tuple[str, ...] | None]] = [(schema, ())]
    while nodes:
        node, path = nodes.pop()
        if isinstance(node, Sequence) and not isinstance(node, str):
            nodes += [(item, None) for item in reversed(node)]
        if not isinstance(node, Mapping):
            continue
        if "x-mcp-header" in node:
            yield path or None, node["x-mcp-header"], node
        below: list[tuple[Any, tuple[str, ...] | None]] = []
        for key, value in node.items():
            if key == "properties" and isinstance(value, Mapping):
                below += [(prop, None if path is None else (*path, name)) for name, prop in value.items()]
            elif key not in ("enum", "const", "default", "examples"):
                below.append((value, None))
        nodes += reversed(below)


def mirror(mirrored: Mirrored, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for arguments; an argument that is absent or null has none."""
    headers = {}
    for header, path in mirrored.items():
        value = _at(arguments, path)
        if isinstance(value, str | int):
            headers[header] = encode_value(value)
    return headers


def check(
    mirrored: Mirrored, arguments: Mapping[str, Any], headers: Mapping[bytes, bytes], *, required: bool = True
) -> None:
    """Raise `HeaderMismatch` unless the headers repeat the arguments.

    `required` means that an argument, unless it is null, has to have its header.
    """
    for header, path in mirrored.items():
        value = _at(arguments, path)
        raw = headers.get(header.encode())
        if raw is None:
            if value is not None and required:
                raise HeaderMismatch(f"Header mismatch: {header} is missing, and the body has that argument.")
            continue
        given = decode_value(raw.decode("latin-1"))
        if value is None or not _same(given, value):
            found = "not that argument" if value is None else repr(value)
            raise HeaderMismatch(f"Header mismatch: {header} is {given!r}, and the body has {found}.")


def check_method(method: str | None, headers: Mapping[bytes, bytes]) -> None:
    """Raise `HeaderMismatch` if `Mcp-Method` is there and differs. `None` is the method of a response."""
    raw = headers.get(b"mcp-method")
    if raw is None:
        return
    given = raw.decode("latin-1").strip(" \t")  # it is never encoded: a gateway compares it as it is
    if given != method:
        found = "no method" if method is None else repr(method)
        raise HeaderMismatch(f"Header mismatch: Mcp-Method is {given!r}, and the body has {found}.")


def check_name(name: str | None, headers: Mapping[bytes, bytes]) -> None:
    """Raise `HeaderMismatch` if `Mcp-Name` is there and differs. `None` if the message names nothing."""
    raw = headers.get(b"mcp-name")
    if raw is None:
        return
    if name is not None and repeats_name(raw, name.encode()):
        return
    given = decode_value(raw.decode("latin-1"))
    if given != name:
        found = "no name" if name is None else repr(name)
        raise HeaderMismatch(f"Header mismatch: Mcp-Name is {given!r}, and the body has {found}.")


def repeats_name(raw: bytes | None, name: bytes) -> bool:
    """Return whether a header has a name as everybody reads it: as it is, not encoded, no space around it."""
    return raw == name and name[:2] != b"=?" and name.strip() == name


def names_only_tool(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the headers name nothing but a tool. The id of a task may be a secret, for example."""
    return not headers.get(b"mcp-name") or headers.get(b"mcp-method") == b"tools/call"


def task_id_in(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the id of the task whose status is requested; `None` if the headers name none."""
    return headers.get(b"mcp-name") if headers.get(b"mcp-method") == b"tasks/get" else None


def _same(given: str, value: Any) -> bool:
    if isinstance(value, bool):
        return given == ("true" if value else "false")
    if isinstance(value, int):
        # The specification compares integers as numbers. Python reads more spellings than a gateway does.
        return abs(value) <= _SAFE_INTEGER and bool(_NUMBER.match(given)) and Decimal(given) == value
    return bool(given == value)


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(key)
    return arguments
