"""Converts the schemas of an OpenAPI document to JSON Schema 2020-12.

References become `$defs`, so that a schema may refer to itself. Keywords that JSON Schema does not have, and
values that it does not allow, are left out. It must not know operations or tools.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from antiphon.errors import DefinitionError
from antiphon.openapi.document import Document
from antiphon.openapi.names import numbered
from antiphon.printable import printable_text

__all__ = [
    "MAX_SCHEMA_DEPTH",
    "MAX_SCHEMA_NODES",
    "Schema",
    "SchemaConverter",
    "bounded_text",
    "without_derived_title",
]

MAX_SCHEMA_DEPTH = 100
"""How deep the schemas of a document may be nested."""
MAX_SCHEMA_NODES = 200_000
"""How many schemas a document may have. One that several places share, by a YAML alias, counts for each."""
MAX_TEXT_CHARACTERS = 1000
"""The length of the longest description inside a schema."""
_MAX_VALUE_DEPTH, _MAX_VALUE_NODES = 8, 1000
"""The bounds of a default or a value of an enumeration."""

Schema: TypeAlias = dict[str, Any]
Direction: TypeAlias = Literal["request", "response"]

_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_SINGLE = (
    "items",
    "not",
    "additionalProperties",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
)
"""The keywords whose value is a schema."""
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPPINGS = ("properties", "patternProperties", "dependentSchemas")


def bounded_text(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return a description without control characters, shortened to a number of characters."""
    text = printable_text(text).strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def without_derived_title(name: str, schema: Any) -> Any:
    """Return a property's schema without the title that pydantic derives from the name of the property.

    It costs tokens and adds no information.
    """
    if isinstance(schema, dict) and schema.get("title") == name.replace("_", " ").title():
        del schema["title"]
    return schema


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_pattern(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARACTERS:
        return False
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_value(value: Any) -> bool:
    """Return whether a value is JSON, and small."""
    remaining = [(value, 0)]
    for count, (each, depth) in enumerate(remaining):  # grows while it is read
        if count >= _MAX_VALUE_NODES or depth > _MAX_VALUE_DEPTH:
            return False
        if isinstance(each, Mapping):
            if not all(map(_is_text, each)):
                return False
            remaining.extend((inner, depth + 1) for inner in each.values())
        elif isinstance(each, list):
            remaining.extend((inner, depth + 1) for inner in each)
        elif not (each is None or isinstance(each, str | bool) or _is_number(each)):
            return False
    return True


_PLAIN: Mapping[str, Callable[[Any], bool]] = {
    "title": _is_text,
    "format": _is_text,
    "pattern": _is_pattern,
    "contentEncoding": _is_text,
    "contentMediaType": _is_text,
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "minLength": _is_count,
    "maxLength": _is_count,
    "minItems": _is_count,
    "maxItems": _is_count,
    "minContains": _is_count,
    "maxContains": _is_count,
    "minProperties": _is_count,
    "maxProperties": _is_count,
    "uniqueItems": lambda value: isinstance(value, bool),
    "deprecated": lambda value: isinstance(value, bool),
    "readOnly": lambda value: isinstance(value, bool),
    "writeOnly": lambda value: isinstance(value, bool),
    "required": _is_names,
    "default": _is_value,
    "const": _is_value,
    "enum": lambda value: isinstance(value, list) and bool(value) and _is_value(value),
    "dependentRequired": lambda value: isinstance(value, Mapping) and all(map(_is_names, value.values())),
}
"""The keywords that are kept as they are, each with the check of its value."""


class SchemaConverter:
    """Converts the schemas of one document, for requests or for responses.

    Each part that references name is converted once, and shared by all schemas that refer to it.
    """

    def __init__(self, document: Document, direction: Direction) -> None:
        self._document = document
        self._for_requests = direction == "request"
        self._hidden = "readOnly" if self._for_requests else "writeOnly"
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._definitions: dict[str, Any] = {}
        self._uses: dict[str, frozenset[str]] = {}
        self._found: set[str] = set()
        self._remaining = MAX_SCHEMA_NODES

    def convert(self, schema: Any, references: set[str]) -> Any:
        """Return a schema whose references lead to `$defs`, and add these references to a set.

        Raises `DefinitionError`.
        """
        self._found = references
        return self.convert_part(schema, 0)

    def with_definitions(self, schema: Schema, references: set[str]) -> Schema:
        """Return a converted schema with the `$defs` that it needs; raises `DefinitionError`."""
        needed: dict[str, Any] = {}
        pending = list(references)
        while pending:
            reference = pending.pop()
            name = self._names[reference]
            if name not in needed:
                if name not in self._definitions:
                    self._define(reference, name)
                needed[name] = self._definitions[name]
                pending.extend(self._uses[name])
        return {**schema, "$defs": dict(sorted(needed.items()))} if needed else schema

    def _define(self, reference: str, name: str) -> None:
        found: set[str] = set()
        self._definitions[name] = self.convert(self._document.at(reference), found)
        self._uses[name] = frozenset(found)

    def convert_part(self, schema: Any, depth: int) -> Any:
        """Convert a schema that stands at a depth of another one."""
        self._remaining -= 1
        if self._remaining < 0:
            raise DefinitionError(f"the document has more than {MAX_SCHEMA_NODES} schemas")
        if depth > MAX_SCHEMA_DEPTH:
            raise DefinitionError(f"its schemas are nested more than {MAX_SCHEMA_DEPTH} levels deep")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise DefinitionError(f"a {type(schema).__name__} stands where the document needs a schema")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            converted: Schema = {"$ref": self._referred(reference)}
            if self._document.is_3_0:  # other keywords beside a reference mean nothing there
                return converted
        else:
            converted = {}
        self._add_plain(schema, converted)
        for keyword in _SINGLE:
            if isinstance(schema.get(keyword), Mapping | bool):
                converted[keyword] = self.convert_part(schema[keyword], depth + 1)
        for keyword in _LISTS:
            members = schema.get(keyword)
            if isinstance(members, list) and members:
                converted[keyword] = [self.convert_part(member, depth + 1) for member in members]
        if isinstance(schema.get("items"), list) and schema["items"]:  # the form before 2020-12
            converted["prefixItems"] = [self.convert_part(each, depth + 1) for each in schema["items"]]
        for keyword in _MAPPINGS:
            members = schema.get(keyword)
            if isinstance(members, Mapping):
                converted[keyword] = {
                    str(name): without_derived_title(str(name), self.convert_part(member, depth + 1))
                    for name, member in members.items()
                    if not self._is_hidden(member)
                }
        return self._completed(schema, converted)

    def _referred(self, reference: str) -> str:
        """Return the reference into `$defs` for a reference into the document; raises `DefinitionError`."""
        self._found.add(reference)
        name = self._names.get(reference)
        if name is None:
            self._document.at(reference)  # raises if it leads nowhere
            base = _UNFIT.sub("_", reference.rpartition("/")[2])[:64] or "schema"
            name = self._names[reference] = numbered(base, self._taken, self._numbers)
            self._taken.add(name)
        return f"#/$defs/{name}"

    def _is_hidden(self, member: Any) -> bool:
        return isinstance(member, Mapping) and member.get(self._hidden) is True

    def _add_plain(self, schema: Mapping[str, Any], converted: Schema) -> None:
        kinds = schema.get("type")
        if isinstance(kinds, str) and kinds in _TYPES:
            converted["type"] = kinds
        elif isinstance(kinds, list):
            known = list(dict.fromkeys(kind for kind in kinds if kind in _TYPES))
            if known:
                converted["type"] = known[0] if len(known) == 1 else known
        if isinstance(description := schema.get("description"), str) and description.strip():
            converted["description"] = bounded_text(description)
        for keyword, is_valid in _PLAIN.items():
            if keyword in schema and is_valid(schema[keyword]):
                converted[keyword] = schema[keyword]
        if self._for_requests:
            examples = schema.get("examples", [schema["example"]] if "example" in schema else None)
            if isinstance(examples, list) and examples and _is_value(examples):
                converted["examples"] = examples

    def _completed(self, schema: Mapping[str, Any], converted: Schema) -> Schema:
        """Add what depends on several keywords."""
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if schema.get(exclusive) is True and bound in converted:
                converted[exclusive] = converted.pop(bound)
        properties = schema.get("properties")
        if "required" in converted and isinstance(properties, Mapping):
            names = [name for name in converted["required"] if not self._is_hidden(properties.get(name))]
            converted["required"] = names
        if not converted.get("required", True):
            del converted["required"]
        return _nullable(converted) if self._document.is_3_0 and schema.get("nullable") is True else converted


def _nullable(schema: Schema) -> Schema:
    """Return a schema of OpenAPI 3.0 that also allows null."""
    if "type" not in schema and any(keyword in schema for keyword in ("allOf", "anyOf", "oneOf")):
        return {"anyOf": [schema, {"type": "null"}]}
    if "enum" in schema and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(kind := schema.get("type"), str) and kind != "null":
        schema["type"] = [kind, "null"]
    elif isinstance(kind, list) and "null" not in kind:
        schema["type"] = [*kind, "null"]
    return schema
