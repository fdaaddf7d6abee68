"""The schema of an operation's results, and the media types that its requests accept.

Owns when a schema is listed: only if every successful answer fits it. It must not know results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from antiphon.openapi.answers import NEXT_PAGE, is_json
from antiphon.openapi.document import Document
from antiphon.openapi.inputs import media_type_of
from antiphon.openapi.schemas import Schema, SchemaConverter

__all__ = ["MAX_OUTPUT_SCHEMA_BYTES", "Output", "read_output"]

MAX_OUTPUT_SCHEMA_BYTES = 64 * 1024
"""The size of the largest output schema that is listed."""
_MAX_COMPARED = 20_000
"""How many parts of two schemas are compared."""
_NEXT: Schema = {
    "type": "object",
    "description": "If there is a next page: call again with the same arguments and these.",
}


@dataclass(frozen=True, slots=True)
class Output:
    """The results of an operation."""

    schema: Schema | None
    """The output schema, or `None` if the tool lists none."""
    accept: str
    """The header `Accept` of the requests."""
    media_type: str | None
    """The media type of a successful answer, if the document names one."""
    is_open: bool
    """Whether an object that the API returns may have a further key."""


def read_output(
    document: Document, converter: SchemaConverter, raw: Mapping[str, Any], *, lists_schema: bool
) -> Output:
    """Return the results of an operation; raises `DefinitionError`."""
    responses = raw.get("responses")
    successes = [
        document.resolve(response)
        for status, response in (responses.items() if isinstance(responses, Mapping) else ())
        if str(status).startswith("2")
    ]
    contents = [each["content"] if isinstance(each.get("content"), Mapping) else {} for each in successes]
    kinds = list(dict.fromkeys(str(kind) for content in contents for kind in content))
    preferred = next((kind for kind in kinds if is_json(media_type_of(kind))), kinds[0] if kinds else None)
    accept = "*/*" if preferred is None or not _is_line(preferred) else f"{preferred}, */*;q=0.5"
    media_type = media_type_of(preferred) if preferred is not None and "*" not in preferred else None
    schemas = [_json_schema(document, content) for content in contents]
    schema = None
    is_open = True
    if schemas and schemas[0] is not None and all(_is_same(each, schemas[0]) for each in schemas):
        references: set[str] = set()
        converted = converter.convert(document.resolve(schemas[0]), references)
        closed = (converted.get(each, True) for each in ("additionalProperties", "unevaluatedProperties"))
        is_open = all(value is not False for value in closed)
        schema = _as_object(converted) if lists_schema else None
        if schema is not None:
            schema = converter.with_definitions(schema, references)
            if len(msgspec.json.encode(schema)) > MAX_OUTPUT_SCHEMA_BYTES:
                schema = None
    return Output(schema, accept, media_type, is_open)


def _json_schema(document: Document, content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the schema of an answer that is always JSON, or `None`."""
    if not content or not all(is_json(media_type_of(str(kind))) for kind in content):
        return None
    schemas = [document.resolve(media).get("schema") for media in content.values()]
    first = schemas[0]
    return first if isinstance(first, Mapping) and all(_is_same(each, first) for each in schemas) else None


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two schemas are equal. Those that are too large to compare count as different.

    Each pair is compared once: by aliases of YAML, a short text describes a tree that has no end in practice.
    """
    pending, compared = [(first, second)], set[tuple[int, int]]()
    while pending:
        one, other = pending.pop()
        pair = (id(one), id(other))
        if one is other or pair in compared:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if one.keys() != other.keys():
                return False
            pending.extend((value, other[key]) for key, value in one.items())
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif type(one) is not type(other) or one != other:
            return False
        else:
            continue
        compared.add(pair)
        if len(compared) > _MAX_COMPARED:
            return False
    return True


def _as_object(schema: Schema) -> Schema | None:
    """Return the schema of an object, or of a list in an object; `None` for another schema."""
    if schema.get("type") == "array":
        properties = {"items": schema, NEXT_PAGE: _NEXT}
        return {"type": "object", "properties": properties, "required": ["items"]}
    if schema.get("type") == "object":
        return schema
    if "type" not in schema and "properties" in schema:
        return {"type": "object", **schema}
    return None


def _is_line(text: str) -> bool:
    return text.isascii() and text.isprintable()
