"""From `key=value` on the command line to the arguments of a tool, as its schema types them.

Pure but for reading the files that `key=@file` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from antiphon.cli.exit_codes import CommandError

__all__ = ["read_arguments", "types_of"]

Schema = Mapping[str, Any]

_NAMES: Mapping[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def read_arguments(pairs: Sequence[str], whole: str | None, schema: Schema) -> dict[str, Any]:
    """The arguments of a call: those in `whole`, a JSON object, and over them each pair.

    Raises `CommandError` for what cannot be read.
    """
    found = _object(whole) if whole is not None else {}
    seen: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        forced = key.endswith(":")
        key = key.removesuffix(":")
        if not equals or not key:
            raise CommandError(f"{pair!r} is not an argument: write key=value.")
        if key in seen:
            raise CommandError(f"{key} is given twice.")
        seen.add(key)
        text = _file(key, value[1:]) if value.startswith("@") else value
        found[key] = _json(key, text) if forced else _typed(key, text, schema)
    return found


def types_of(schema: Any, root: Schema) -> frozenset[str]:
    """The JSON types that a schema allows; none where it does not say."""
    return frozenset(_types(schema, root, depth=0))


def _types(schema: Any, root: Schema, depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth > 20:
        return
    kind = schema.get("type")
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, list):
        yield from kind
    elif isinstance(reference := schema.get("$ref"), str):
        yield from _types(_resolve(reference, root), root, depth + 1)
    elif "const" in schema:
        yield _NAMES[type(schema["const"])]
    elif isinstance(allowed := schema.get("enum"), list):
        yield from (_NAMES[type(value)] for value in allowed)
    else:
        for member in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
            yield from _types(member, root, depth + 1)


def _resolve(reference: str, root: Schema) -> Any:
    """What a reference into the same schema points at."""
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found


def _typed(key: str, text: str, schema: Schema) -> Any:
    properties = schema.get("properties")
    allowed = types_of(properties.get(key) if isinstance(properties, Mapping) else None, schema)
    if "string" in allowed:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if not allowed:
            return text
        value = {"true": True, "false": False}.get(text.lower(), text) if "boolean" in allowed else text
    if allowed and not _fits(value, allowed):
        raise CommandError(f"{key}: {_short(text)} is not of type {' or '.join(sorted(allowed))}.")
    return value


def _fits(value: Any, allowed: frozenset[str]) -> bool:
    name = _NAMES[type(value)]
    if name == "integer":
        return not allowed.isdisjoint({"integer", "number"})
    return name in allowed or (isinstance(value, float) and "integer" in allowed and value.is_integer())


def _json(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"{key} is not JSON: {error}.") from None


def _object(text: str) -> dict[str, Any]:
    value = _json("--args", text)
    if not isinstance(value, dict):
        raise CommandError("--args is a JSON object: '{\"key\": …}'.")
    return value


def _file(key: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{key}: cannot read {name}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"{key}: {name} is not text in UTF-8.") from None


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57]) + "…"
