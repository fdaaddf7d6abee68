"""Writes the HTTP request of a call: its path, its query, its headers and its body.

Arguments come from a model. Path values cannot leave their place in the path, and headers cannot begin a new
line. It must not know which client sends the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec

from antiphon.errors import Failure
from antiphon.openapi.bodies import encode_body, invalid_argument, written
from antiphon.openapi.inputs import Inputs, ObjectFields, Parameter
from antiphon.openapi.options import Operation
from antiphon.printable import printable

__all__ = ["ApiRequest", "write_request"]

_IN_A_PATH = "/%!$&'()*+,;=:@~"
"""The characters that a path has besides letters and digits."""
_MAX_NAMED_VALUES = 20
_MAX_DECODINGS = 5
"""How often a path is decoded to see where it leads: a proxy and the API may each decode it."""
_TEXTS: Mapping[str, re.Pattern[str]] = {
    "integer": re.compile(r"-?[0-9]+"),
    "number": re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
    "boolean": re.compile(r"true|false"),
    "null": re.compile(r"(?!)"),  # a value in the path cannot be null
}
"""What values of simple types look like in a path."""
_DELIMITERS: Mapping[str, str] = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request, without the address of the API and the headers of the author."""

    method: str
    path: str
    """The path with its values."""
    query: str
    headers: Mapping[str, str]
    body: bytes | None = None


def write_request(
    operation: Operation, inputs: Inputs, arguments: Mapping[str, Any], tool: str
) -> ApiRequest:
    """Return the request for the arguments of a call; raises `Failure` for arguments that do not fit."""
    _check_arguments(inputs, arguments, tool)
    path = operation.path
    query: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for parameter in inputs.parameters:
        value = arguments.get(parameter.argument)
        if value is None and parameter.place != "path":
            continue
        if parameter.is_json:
            value = msgspec.json.encode(value).decode()
        elif parameter.fields is not None and isinstance(value, Mapping):
            _check_fields(parameter, parameter.fields, value, tool)
        if parameter.place == "path":
            path = path.replace(f"{{{parameter.name}}}", _path_value(parameter, value, tool))
        elif parameter.place == "query":
            query.extend(_query_pairs(parameter, value))
        elif parameter.place == "header":
            headers[parameter.name] = _line(_simple(value, parameter.explode), parameter.argument, tool)
        else:
            cookies.append(f"{parameter.name}={quote(_simple(value, explode=False), safe='')}")
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    # The values are encoded already. What the document writes between them may not be.
    path = quote(path, safe=_IN_A_PATH, errors="replace")
    _check_path(path, inputs, tool)
    body: bytes | None = None
    if inputs.body is not None:
        body, content_type = encode_body(inputs.body, arguments, tool)
        if content_type is not None:
            headers["Content-Type"] = content_type
    return ApiRequest(operation.method, path, urlencode(query, quote_via=quote), headers, body)


def _check_arguments(inputs: Inputs, arguments: Mapping[str, Any], tool: str) -> None:
    known = inputs.schema["properties"]
    problems = [
        f"- {name}: This argument is required"
        for name in inputs.schema.get("required", ())
        if name not in arguments
    ]
    problems += [
        f"- {printable(str(name), 100)}: There is no such argument" for name in arguments if name not in known
    ]
    if problems:
        raise Failure(f"Invalid arguments for the tool {tool!r}:\n" + "\n".join(problems[:20]))


def _check_fields(parameter: Parameter, fields: ObjectFields, value: Mapping[str, Any], tool: str) -> None:
    """Raise `Failure` if an object has fields that it may not have, or an API could read others in it."""
    has_commas = parameter.place != "query" or not (parameter.explode or parameter.style == "deepObject")
    for name, inner in value.items():
        problem = fields.problem_of(name)
        if problem is None and has_commas and ("," in name + written(inner) or "=" in name):
            problem = (
                f"The field {printable(name, 100)!r} cannot have a comma: the API would read another field"
            )
        if problem is not None:
            raise invalid_argument(tool, parameter.argument, problem)


def _simple(value: Any, explode: bool) -> str:
    """Return a value in the style `simple`: lists and objects with commas."""
    if isinstance(value, Mapping):
        pairs = ((str(key), written(inner)) for key, inner in value.items())
        return ",".join(f"{key}={inner}" if explode else f"{key},{inner}" for key, inner in pairs)
    if isinstance(value, list):
        return ",".join(map(written, value))
    return written(value)


def _path_value(parameter: Parameter, value: Any, tool: str) -> str:
    """Return a value for the path, percent-encoded."""
    text = _simple(value, parameter.explode)
    if not text or value is None:
        raise invalid_argument(tool, parameter.argument, "A value in the path cannot be empty")
    parts = _parts(text)
    if ".." in parts or "." in parts or not text.isprintable():
        raise invalid_argument(
            tool,
            parameter.argument,
            "A value in the path cannot contain '.' or '..' as a part, or a line break",
        )
    if len(parts) > 1 and not parameter.takes_slashes:
        raise invalid_argument(
            tool,
            parameter.argument,
            "A value in the path cannot contain a slash or a backslash. Pass one name or id, not a path",
        )
    _check_kind(parameter, text, tool)
    encoded = quote(text, safe=",=" if isinstance(value, list | Mapping) else "")
    if parameter.style == "label":
        return f".{encoded}"
    return f";{quote(parameter.name, safe='')}={encoded}" if parameter.style == "matrix" else encoded


def _check_kind(parameter: Parameter, text: str, tool: str) -> None:
    """Raise `Failure` if a value in the path does not fit the type or the values of its schema."""
    if parameter.values and text not in (allowed := [written(each) for each in parameter.values]):
        shown = ", ".join(printable(each, 100) for each in allowed[:_MAX_NAMED_VALUES])
        raise invalid_argument(tool, parameter.argument, f"The value has to be one of {shown}")
    patterns = [_TEXTS.get(kind) for kind in parameter.required_types]
    if patterns and not any(pattern is None or pattern.fullmatch(text) for pattern in patterns):
        kinds = " or ".join(kind for kind in parameter.required_types if kind != "null")
        raise invalid_argument(tool, parameter.argument, f"The value has to be of the type {kinds}")


def _parts(path: str) -> list[str]:
    """Return the parts of a path or of a value as an API sees them that decodes them more than once."""
    for _ in range(_MAX_DECODINGS):
        if (decoded := unquote(path)) == path:
            break
        path = decoded
    return re.split(r"[/\\]", path)


def _check_path(path: str, inputs: Inputs, tool: str) -> None:
    """Raise `Failure` if values lead out of the path of the operation.

    Two of them may make such a part side by side, and some may make the path of another operation.
    """
    parts = _parts(path)
    if "." in parts or ".." in parts:
        raise Failure(f"The tool {tool!r} cannot be called with these values: they would leave the path.")
    decoded = "/".join(parts)
    if any(pattern.fullmatch(decoded) for pattern in inputs.other_paths()):
        raise Failure(
            f"The tool {tool!r} cannot be called with these values: they make the path of another operation."
        )


def _query_pairs(parameter: Parameter, value: Any) -> Iterator[tuple[str, str]]:
    name = parameter.name
    # An object for another type is not taken apart: its keys would be parameters that the API does not offer.
    if isinstance(value, Mapping) and "object" in parameter.types:
        if parameter.style == "deepObject":
            for key, inner in value.items():
                yield f"{name}[{key}]", written(inner)
        elif parameter.explode:
            for key, inner in value.items():
                yield str(key), written(inner)
        else:
            yield name, _simple(value, explode=False)
    elif isinstance(value, list):
        if parameter.explode or parameter.style == "deepObject":
            for inner in value:
                yield name, written(inner)
        elif value:
            yield name, _DELIMITERS.get(parameter.style, ",").join(map(written, value))
    else:
        yield name, written(value)


def _line(text: str, argument: str, tool: str) -> str:
    """Return the value of a header; raises `Failure` if it is not one line of ASCII."""
    if not text.isascii() or not text.isprintable():
        raise invalid_argument(tool, argument, "The value of a header is one line of ASCII characters")
    return text
