"""Converts `key=value` words of the command line into the arguments of a tool, typed by its schema.

Pure, except that `key=@file` reads a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from antiphon.cli.exit_codes import CommandError

__all__ = ["allowed_types", "allowed_values", "parse_arguments"]

Schema = Mapping[str, Any]

MAX_SCHEMA_NODES = 200
"""How many references and members of unions are followed: a schema can refer to itself a thousandfold."""
MAX_QUOTED_CHARACTERS = 60
"""How much of a value an error message quotes."""

_JSON_TYPES: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def parse_arguments(pairs: Sequence[str], args: str | None, schema: Schema) -> dict[str, Any]:
    """Parse the arguments of a call. `args` is a JSON object; the pairs override its values.

    Raises `CommandError`.
    """
    arguments = _parse_object(args) if args is not None else {}
    seen: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        is_json = key.endswith(":")
        key = key.removesuffix(":")
        if not equals or not key:
            raise CommandError(f"{pair!r} is not an argument. Write key=value.")
        if key in seen:
            raise CommandError(f"The argument {key} is given twice.")
        seen.add(key)
        text = _read_file(key, value[1:]) if value.startswith("@") else value
        arguments[key] = _parse_json(key, text) if is_json else _parse_value(key, text, schema)
    return arguments


def allowed_types(schema: Any, root: Schema) -> frozenset[str]:
    """Return the JSON types that a schema allows. An empty set means that the schema does not say."""
    found: set[str] = set()
    nodes, seen = [schema], 0
    while nodes and seen < MAX_SCHEMA_NODES:
        node = nodes.pop()
        seen += 1
        if isinstance(node, Mapping):
            found.update(_own_types(node))
            nodes += _members(node, root)[:MAX_SCHEMA_NODES]
    return frozenset(found)


def allowed_values(schema: Any, root: Schema) -> list[str]:
    """Return the values of an enumeration or of a boolean, as a user types them; empty for other schemas."""
    found: list[Any] = []
    nodes, seen = [schema], 0
    while nodes and seen < MAX_SCHEMA_NODES:
        node = nodes.pop(0)
        seen += 1
        if not isinstance(node, Mapping):
            continue
        values = node.get("enum")
        found += values if isinstance(values, list) else [node["const"]] if "const" in node else []
        if node.get("type") == "boolean":
            found += [True, False]
        nodes += _members(node, root)[:MAX_SCHEMA_NODES]
    return [
        value if isinstance(value, str) else json.dumps(value)
        for value in found
        if isinstance(value, str | int | float)
    ]


def _own_types(schema: Schema) -> Iterator[str]:
    """Yield the types that a schema names itself."""
    kind = schema.get("type")
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, list):
        yield from (each for each in kind if isinstance(each, str))
    elif isinstance(schema.get("$ref"), str):
        return
    elif "const" in schema:
        yield _JSON_TYPES[type(schema["const"])]
    elif isinstance(values := schema.get("enum"), list):
        yield from {_JSON_TYPES[type(value)] for value in values}


def _members(schema: Schema, root: Schema) -> list[Any]:
    """Return the schemas that a schema without types of its own refers to."""
    if isinstance(schema.get("type"), str | list):
        return []
    if isinstance(reference := schema.get("$ref"), str):
        return [_resolve(reference, root)]
    if "const" in schema or isinstance(schema.get("enum"), list):
        return []
    unions = (schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf"))
    return [member for union in unions if isinstance(union, list) for member in union]


def _resolve(reference: str, root: Schema) -> Any:
    """Return the part of the schema that a reference names, or `None` if there is none."""
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _parse_value(key: str, text: str, schema: Schema) -> Any:
    properties = schema.get("properties")
    allowed = allowed_types(properties.get(key) if isinstance(properties, Mapping) else None, schema)
    if "string" in allowed:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if not allowed:
            return text
        value = {"true": True, "false": False}.get(text.lower(), text) if "boolean" in allowed else text
    if allowed and not _is_allowed(value, allowed):
        expected = " or ".join(sorted(allowed))
        raise CommandError(f"Invalid value for {key}: {_quote(text)} is not of type {expected}.")
    return value


def _is_allowed(value: Any, allowed: frozenset[str]) -> bool:
    name = _JSON_TYPES[type(value)]
    if name == "integer":
        return not allowed.isdisjoint({"integer", "number"})
    return name in allowed or (isinstance(value, float) and "integer" in allowed and value.is_integer())


def _parse_json(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"{key} is not valid JSON: {error}.") from None


def _parse_object(text: str) -> dict[str, Any]:
    value = _parse_json("--args", text)
    if not isinstance(value, dict):
        raise CommandError("--args must be a JSON object: '{\"key\": …}'.")
    return value


def _read_file(key: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{key}: cannot read {name}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"{key}: cannot read {name}: it is not UTF-8 text.") from None


def _quote(text: str) -> str:
    if len(text) <= MAX_QUOTED_CHARACTERS:
        return repr(text)
    return repr(text[: MAX_QUOTED_CHARACTERS - 3]) + "…"
