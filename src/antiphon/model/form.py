"""Validation of forms: the flat JSON schemas that a tool can ask a person to fill in.

https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#requested-schema
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["choices", "defaults", "field_problem", "problems", "problems_by_field"]

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
}
_FORMATS: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(r"[^@\s]+@[^@\s]+\Z"),
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+\Z"),
    "date": re.compile(r"\d{4}-\d{2}-\d{2}\Z"),
    "date-time": re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[+-]\d{2}:?\d{2})?\Z"),
}


def problems(schema: Mapping[str, Any], content: Mapping[str, Any]) -> list[str]:
    """Return the problems of an answer to a form, or an empty list if the answer is valid."""
    return [f"{name}: {problem}" for name, problem in problems_by_field(schema, content).items()]


def problems_by_field(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, str]:
    """Return the problems of an answer to a form, by the name of the field."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    found = {name: "this is required" for name in schema.get("required", ()) if name not in content}
    for name, value in content.items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                found[name] = "there is no such field"
        elif (problem := field_problem(properties[name], value)) is not None:
            found[name] = problem
    return found


def field_problem(field: Mapping[str, Any], value: Any) -> str | None:
    """Return the problem of a value for a field, or `None` if the value is valid."""
    kind = field.get("type", "string")
    if kind not in _TYPES:
        return None
    if not _TYPES[kind](value) and not (
        kind == "integer" and isinstance(value, float) and value.is_integer()
    ):
        return f"this must be of type {kind}"
    if kind == "array":
        return _list_problem(field, value)
    allowed = [choice for choice, _ in choices(field)]
    if allowed and value not in allowed:
        return f"this must be one of {', '.join(map(str, allowed))}"
    if kind == "string":
        return _text_problem(field, value)
    if kind in ("integer", "number"):
        return _number_problem(field, value)
    return None


def choices(field: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the values that a field allows, each with its label, or an empty list if it has no choices."""
    source = field.get("items", field)
    if isinstance(listed := source.get("enum"), Sequence):
        labels = source.get("enumNames") or listed
        return [(value, str(label)) for value, label in zip(listed, labels, strict=False)]
    titled = source.get("oneOf") or source.get("anyOf") or ()
    return [(item["const"], str(item.get("title", item["const"]))) for item in titled if "const" in item]


def defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default values of a form, by field."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    fields = {name: field for name, field in properties.items() if isinstance(field, Mapping)}
    return {name: field["default"] for name, field in fields.items() if "default" in field}


def _list_problem(field: Mapping[str, Any], value: list[Any]) -> str | None:
    allowed = [choice for choice, _ in choices(field)]
    if allowed and any(item not in allowed for item in value):
        return f"each of these must be one of {', '.join(map(str, allowed))}"
    if len(value) < field.get("minItems", 0):
        return f"choose at least {field['minItems']}"
    if len(value) > field.get("maxItems", len(value)):
        return f"choose at most {field['maxItems']}"
    return None


def _text_problem(field: Mapping[str, Any], value: str) -> str | None:
    if len(value) < field.get("minLength", 0):
        return f"this must have at least {field['minLength']} characters"
    if len(value) > field.get("maxLength", len(value)):
        return f"this must have at most {field['maxLength']} characters"
    pattern = _FORMATS.get(field.get("format", ""))
    if pattern is not None and not pattern.match(value):
        return f"this must be written as {field['format']}"
    return None


def _number_problem(field: Mapping[str, Any], value: float) -> str | None:
    if value < field.get("minimum", value):
        return f"this must be at least {field['minimum']}"
    if value > field.get("maximum", value):
        return f"this must be at most {field['maximum']}"
    return None
