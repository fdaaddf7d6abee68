"""Encodes the bodies of requests: JSON, forms, forms with files, text and bytes.

It must not know paths, queries or headers other than the content type.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from antiphon.errors import Failure
from antiphon.openapi.inputs import Body

__all__ = ["encode_body", "invalid_argument", "written"]

_ESCAPES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


def encode_body(body: Body, arguments: Mapping[str, Any], tool: str) -> tuple[bytes | None, str | None]:
    """Return the body of a request and its content type; neither if the call has no body.

    Raises `Failure` for arguments that do not fit.
    """
    if body.argument is not None:
        if body.argument not in arguments:
            return None, None
        value = arguments[body.argument]
        if body.encoding == "text":
            return written(value).encode(), f"{body.media_type}; charset=utf-8"
        if body.encoding == "binary":
            return _decoded(value, body.argument, tool), body.media_type
    else:
        value = {name: arguments[argument] for argument, name in body.fields.items() if argument in arguments}
        if not value and not body.required:
            return None, None
    if body.encoding == "json":
        return msgspec.json.encode(value), body.media_type
    fields = value if isinstance(value, Mapping) else {"value": value}
    if body.encoding == "form":
        return urlencode(list(_pairs(fields))).encode(), body.media_type
    return _multipart(fields, body.files, tool)


def invalid_argument(tool: str, argument: str, problem: str) -> Failure:
    """Return the error for an argument that does not fit."""
    return Failure(f"Invalid arguments for the tool {tool!r}:\n- {argument}: {problem}")


def written(value: Any) -> str:
    """Return a value as text: numbers and booleans as JSON writes them, lists and objects as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return msgspec.json.encode(value).decode()


def _pairs(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a form. A list has a pair for each of its values, and null has none."""
    for name, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                yield name, written(each)


def _multipart(fields: Mapping[str, Any], files: frozenset[str], tool: str) -> tuple[bytes, str]:
    boundary = secrets.token_hex(16)
    parts: list[bytes] = []
    texts = {name: value for name, value in fields.items() if name not in files}
    for name, text in _pairs(texts):
        parts.append(_part(boundary, name, "", text.encode()))
    for name in (name for name in fields if name in files and fields[name] is not None):
        for file in fields[name] if isinstance(fields[name], list) else [fields[name]]:
            parts.append(_file_part(boundary, name, file, tool))
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"


def _file_part(boundary: str, name: str, file: Any, tool: str) -> bytes:
    is_text = isinstance(file, Mapping) and isinstance(file.get("text"), str)
    if not isinstance(file, Mapping) or is_text == isinstance(file.get("base64"), str):
        raise invalid_argument(
            tool, name, "A file is an object with its 'name', and either 'text' or 'base64'"
        )
    content = file["text"].encode() if is_text else _decoded(file["base64"], name, tool)
    kind = str(file.get("media_type") or ("text/plain" if is_text else "application/octet-stream"))
    if not kind.isascii() or not kind.isprintable():
        raise invalid_argument(tool, name, "The media type is invalid")
    filename = str(file.get("name") or "file").translate(_ESCAPES)
    return _part(boundary, name, f'; filename="{filename}"\r\nContent-Type: {kind}', content)


def _part(boundary: str, name: str, rest: str, content: bytes) -> bytes:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name.translate(_ESCAPES)}"{rest}\r\n\r\n'
    return head.encode(errors="replace") + content + b"\r\n"


def _decoded(value: Any, argument: str, tool: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise invalid_argument(tool, argument, "This is not base64") from None
