"""The schemas of arguments as the APIs of models accept them.

The APIs accept a part of JSON Schema. The server checks the arguments against the whole schema all the same,
so a schema for a model may allow more than the server does. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from antiphon.agents.names import api_names

__all__ = ["object_schema", "strict_schema", "with_api_keys", "with_keys_of_tool", "without_nulls"]

Schema: TypeAlias = dict[str, Any]

_MAX_DEPTH = 64
_MAX_STRICT_DEPTH = 10
"""How deep schemas may be nested in strict mode."""
_COMBINATIONS = ("anyOf", "oneOf", "allOf")
_REFUSED_AT_THE_TOP = ("$schema", "$id", "$ref", "enum", "not", "if", "then", "else", *_COMBINATIONS)
_KEPT_IN_STRICT_MODE = ("type", "description", "enum", "const")
"""Keywords of a value that every API takes in strict mode. Bounds and patterns are left to the server."""
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_MEANINGFUL = frozenset({"allOf", "else", "if", "not", "oneOf", "patternProperties", "prefixItems", "then"})
"""Keywords that strict mode refuses, and that cannot be left out: the model could not know what is meant."""
_ACCEPTED_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""The keys of properties that Anthropic accepts at the top. One other key makes it refuse the request."""
_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/([^/]+)")


class _NotStrictError(Exception):
    """A schema that strict mode cannot express."""


def object_schema(schema: Mapping[str, Any]) -> Schema:
    """Return a schema of arguments as an object with properties, without combinations at the top.

    The properties of all alternatives become properties of the object. A property that differs between the
    alternatives may have the value of each. Properties that each alternative requires stay required.
    """
    flat = _flattened(schema)
    return {**flat, "properties": flat.get("properties", {})}


def _flattened(schema: Mapping[str, Any]) -> Schema:
    """Return a schema without combinations at the top, and with properties only if it names some."""
    root = dict(schema)
    schema = {**root, **_mapping(_resolved(root, root))}
    found = {key: value for key, value in schema.items() if key not in _REFUSED_AT_THE_TOP}
    properties = dict(_mapping(schema.get("properties")))
    required = set(_names(schema.get("required")))
    for keyword in _COMBINATIONS:
        resolved = [_resolved(branch, root) for branch in _items(schema.get(keyword))]
        branches = [branch for branch in resolved if isinstance(branch, dict)]
        properties = _united([_mapping(branch.get("properties")) for branch in branches]) | properties
        needed = [set(_names(branch.get("required"))) for branch in branches]
        if needed:
            required |= set.union(*needed) if keyword == "allOf" else set.intersection(*needed)
    found["type"] = "object"
    if properties or "properties" in schema:
        found["properties"] = properties
    found.pop("required", None)
    if required:
        found["required"] = sorted(required)
    return found


def _united(branches: list[Schema]) -> Schema:
    """Return the properties of all branches; `anyOf` its schemas for a property with several."""
    found: dict[str, dict[str, Any]] = {}
    for branch in branches:
        for name, part in branch.items():
            found.setdefault(name, {})[repr(part)] = part
    return {
        name: next(iter(parts.values())) if len(parts) == 1 else {"anyOf": list(parts.values())}
        for name, parts in found.items()
    }


def strict_schema(schema: Mapping[str, Any], *, optional: bool) -> Schema | None:
    """Return a schema of arguments for an API's strict mode; `None` if strict mode cannot express it.

    Every object refuses further properties. Unless the API knows `optional` properties, each property is
    required, and one that was optional may be null; `without_nulls` removes the nulls from a call.
    """
    root = _flattened(schema)
    definitions = {**_mapping(root.get("definitions")), **_mapping(root.get("$defs"))}
    try:
        strict = _strict(root, root, optional, 0)
        if definitions:
            strict["$defs"] = {name: _strict(part, root, optional, 0) for name, part in definitions.items()}
    except _NotStrictError:
        return None
    return strict


def without_nulls(arguments: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Return arguments without the nulls of optional properties that do not accept null."""
    return dict(_without_nulls(arguments, schema, schema, 0))


def with_api_keys(schema: Schema) -> tuple[Schema, dict[str, str]]:
    """Return a schema whose properties have keys that every API accepts, and the tool's keys by these."""
    properties = _mapping(schema.get("properties"))
    if all(_ACCEPTED_KEY.fullmatch(key) for key in properties):
        return schema, {}
    keys = api_names(properties)
    found = {**schema, "properties": {keys[key]: part for key, part in properties.items()}}
    if "required" in schema:
        found["required"] = [keys.get(key, key) for key in _names(schema["required"])]
    return found, {api: key for key, api in keys.items()}


def with_keys_of_tool(arguments: dict[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments of a model with the keys that the tool knows."""
    return {keys.get(key, key): value for key, value in arguments.items()} if keys else arguments


def _strict(schema: Any, root: Schema, optional: bool, depth: int) -> Schema:
    if not isinstance(schema, dict) or depth > _MAX_STRICT_DEPTH or _MEANINGFUL & schema.keys():
        raise _NotStrictError
    if "$ref" in schema:
        found = _DEFINITION.fullmatch(str(schema["$ref"]))
        if found is None:
            raise _NotStrictError
        return {"$ref": f"#/$defs/{found[1]}"}
    strict = {key: schema[key] for key in _KEPT_IN_STRICT_MODE if key in schema}
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    if schema.get("format") in _FORMATS:
        strict["format"] = schema["format"]
    if "anyOf" in schema:
        strict["anyOf"] = [_strict(part, root, optional, depth + 1) for part in _items(schema["anyOf"])]
    if "array" in kinds:
        strict["items"] = _strict(schema.get("items"), root, optional, depth + 1)
    if "object" in kinds:
        strict |= _strict_object(schema, root, optional, depth)
    if not {"type", "enum", "const", "anyOf"} & strict.keys():
        raise _NotStrictError
    return strict


def _strict_object(schema: Schema, root: Schema, optional: bool, depth: int) -> Schema:
    # An object that takes any property has no counterpart in strict mode.
    if schema.get("additionalProperties", "properties" not in schema):
        raise _NotStrictError
    needed = set(_names(schema.get("required")))
    for name, part in _mapping(schema.get("properties")).items():
        # The model would have to write null for the default, and null is a value of its own.
        if not optional and name not in needed and _has_default_besides_null(part, root):
            raise _NotStrictError
    properties = {
        name: _strict(part, root, optional, depth + 1)
        for name, part in _mapping(schema.get("properties")).items()
    }
    if not optional:
        properties = {
            name: part if name in needed else {"anyOf": [part, {"type": "null"}]}
            for name, part in properties.items()
        }
    required = list(properties) if not optional else [name for name in properties if name in needed]
    return {"properties": properties, "required": required, "additionalProperties": False}


def _without_nulls(value: Any, schema: Any, root: Schema, depth: int) -> Any:
    schema = _resolved(schema, root)
    if depth > _MAX_DEPTH or not isinstance(schema, dict):
        return value
    if not isinstance(value, list | dict):
        return value
    alternatives = [_resolved(part, root) for part in _items(schema.get("anyOf"))]
    if alternatives:
        fitting = (part for part in alternatives if _could_be(value, part, root))
        return _without_nulls(value, next(fitting, None), root, depth + 1)
    if isinstance(value, list):
        return [_without_nulls(item, schema.get("items"), root, depth + 1) for item in value]
    properties, needed = _mapping(schema.get("properties")), _names(schema.get("required"))
    return {
        name: _without_nulls(item, properties.get(name), root, depth + 1)
        for name, item in value.items()
        if item is not None or name in needed or _accepts_null(properties.get(name), root)
    }


def _could_be(value: list[Any] | dict[str, Any], schema: Any, root: Schema) -> bool:
    """Return whether an array or an object of a strict call belongs to this alternative of a schema."""
    if not isinstance(schema, dict):
        return False
    if "anyOf" in schema:
        return True
    if isinstance(value, list):
        return "items" in schema
    properties = _mapping(schema.get("properties"))
    return value.keys() <= properties.keys() and all(
        _is_one_of(value[name], _resolved(properties[name], root)) for name in value
    )


def _is_one_of(value: Any, schema: Any) -> bool:
    """Return whether a value is the constant or among the values of a schema; true if it names none."""
    if value is None or not isinstance(schema, dict):
        return True
    return value == schema.get("const", value) and value in (_items(schema.get("enum")) or [value])


def _has_default_besides_null(schema: Any, root: Schema) -> bool:
    return isinstance(schema, dict) and schema.get("default") is not None and _accepts_null(schema, root)


def _accepts_null(schema: Any, root: Schema) -> bool:
    schema = _resolved(schema, root)
    if not isinstance(schema, dict):
        return True
    branches = [*_items(schema.get("anyOf")), *_items(schema.get("oneOf"))]
    return _names_null(schema) or any(_names_null(_resolved(branch, root)) for branch in branches)


def _names_null(schema: Any) -> bool:
    schema = _mapping(schema)
    return (
        "null" in (schema.get("type"), *_items(schema.get("type")))
        or None in _items(schema.get("enum"))
        or schema.get("const", "") is None
    )


def _resolved(schema: Any, root: Schema) -> Any:
    """Return the schema that a reference to `$defs` leads to; `None` if the reference leads elsewhere."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        found: Any = root
        for step in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        schema = found
    return None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> list[str]:
    return [name for name in _items(value) if isinstance(name, str)]
