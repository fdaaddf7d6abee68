"""The inputs of an operation: its parameters and the fields of its body, as the arguments of one tool.

Owns the names and the schema of the arguments. It must not know how an argument is written in a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeAlias

from antiphon.openapi.document import Document
from antiphon.openapi.names import argument_name
from antiphon.openapi.operations import FoundOperation
from antiphon.openapi.schemas import Schema, SchemaConverter, bounded_text, without_derived_title
from antiphon.openapi.segments import Segments, variables_of
from antiphon.printable import printable

__all__ = ["Body", "Encoding", "Inputs", "Parameter", "media_type_of", "read_inputs"]

Place: TypeAlias = Literal["path", "query", "header", "cookie"]
Encoding: TypeAlias = Literal["json", "form", "multipart", "text", "binary"]
_PLACES: tuple[Place, ...] = ("path", "query", "header", "cookie")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The name of a header or a cookie."""
_DEFAULT_STYLES: Mapping[str, str] = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_CONTROLLED = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that belong to the author or to HTTP. A parameter of such a name is no argument."""
_ENCODINGS: tuple[tuple[Encoding, str], ...] = (
    ("json", "application/json"),
    ("json", "+json"),
    ("form", "application/x-www-form-urlencoded"),
    ("multipart", "multipart/form-data"),
    ("text", "text/"),
    ("json", "*/*"),
)
"""The encodings of a body, in the order of preference, with a part of their media types."""
_FILE: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The name of the file."},
        "text": {"type": "string", "description": "The content, if it is text."},
        "base64": {
            "type": "string",
            "contentEncoding": "base64",
            "description": "The content in base64, if it is not text.",
        },
        "media_type": {"type": "string", "description": "The media type, such as image/png."},
    },
    "additionalProperties": False,
}
"""The argument for a file. It has `text` or `base64`."""


@dataclass(frozen=True, slots=True)
class ObjectFields:
    """The fields that an object may have as the value of a parameter."""

    names: frozenset[str]
    is_open: bool
    """Whether it may have others too."""
    taken: frozenset[str] = frozenset()
    """What no field may be called, in lower case, if each field becomes a parameter of the query."""
    taken_in_brackets: tuple[str, ...] = ()
    """How none may begin, up to its closing bracket, if it becomes one in brackets: `x]` beside `p[x]`."""

    def problem_of(self, name: str) -> str | None:
        """Return why an object may not have a field, or `None`."""
        if not self.is_open and name not in self.names:
            return f"There is no such field: {printable(name, 100)!r}"
        in_brackets = f"{name.strip().lower()}]"
        if _base_name(name) in self.taken or in_brackets.startswith(self.taken_in_brackets):
            return f"The field {printable(name, 100)!r} has the name of another parameter"
        return None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation."""

    argument: str
    """The name of the tool's argument."""
    name: str
    """The name in the request."""
    place: Place
    required: bool
    style: str
    explode: bool
    is_json: bool
    """Whether the value is written as JSON."""
    types: tuple[str, ...]
    """The JSON types that the schema names; empty if it names none."""
    required_types: tuple[str, ...] = ()
    """The types of a value in the path, one of which it must have; empty if it may have any."""
    values: tuple[Any, ...] = ()
    """All values that a value in the path may have; empty if the schema does not list them."""
    takes_slashes: bool = False
    """Whether a value in the path may be several segments."""
    fields: ObjectFields | None = None
    """The fields that an object may have; `None` if the value is not taken apart."""


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an operation's requests."""

    media_type: str
    encoding: Encoding
    required: bool
    argument: str | None
    """The argument that is the whole body; `None` if each field is an argument of its own."""
    fields: Mapping[str, str]
    """The names of the fields, by argument."""
    files: frozenset[str]
    """The fields that are files."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of an operation, and the schema of the arguments."""

    parameters: tuple[Parameter, ...]
    body: Body | None
    schema: Schema
    other_paths: Callable[[], Sequence[re.Pattern[str]]] = tuple
    """Returns patterns for the paths of other operations that values could make."""


def media_type_of(text: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return text.partition(";")[0].strip().lower()


class _Reader:
    """Collects the arguments of one operation."""

    def __init__(
        self, document: Document, converter: SchemaConverter, segments: Segments, requires_headers: bool
    ) -> None:
        self.document = document
        self.requires_headers = requires_headers
        self.segments = segments
        self.converter = converter
        self.properties: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}
        self.required: list[str] = []
        self.references: set[str] = set()

    def add(self, name: str, place: str, schema: Any, *, required: bool, description: Any = None) -> str:
        """Add an argument, and return its name."""
        argument = argument_name(name, place, self.properties, self.numbers)
        converted = without_derived_title(name, self.converter.convert(schema, self.references))
        if converted is True:
            converted = {}
        if isinstance(description, str) and description.strip() and isinstance(converted, dict):
            converted = {**converted, "description": bounded_text(description)}
        self.properties[argument] = converted
        if required:
            self.required.append(argument)
        return argument

    def schema(self) -> Schema:
        """Return the schema of all arguments."""
        schema: Schema = {"type": "object", "properties": self.properties}
        if self.required:
            schema["required"] = self.required
        schema["additionalProperties"] = False
        return self.converter.with_definitions(schema, self.references)

    # Parameters

    def parameters(
        self, path: str, owners: list[Any], hidden: Collection[tuple[str, str]]
    ) -> tuple[Parameter, ...]:
        """Add the parameters of a path and of its operation, which has the last word."""
        in_path = dict.fromkeys(variables_of(path))
        # A variable of the path that the document does not describe is a text.
        found: dict[tuple[str, str], Mapping[str, Any]] = {
            ("path", name): {"schema": {"type": "string"}} for name in in_path
        }
        for owner in owners:
            for value in owner if isinstance(owner, list) else ():
                raw = self.document.resolve(value)
                found[str(raw.get("in")), str(raw.get("name"))] = raw
        in_query = [name for place, name in (*found, *hidden) if place == "query"]
        return tuple(
            self._parameter(path, name, place, raw, in_query)
            for place in _PLACES
            for (of, name), raw in found.items()
            if of == place
            and (place != "path" or name in in_path)
            and (place in ("path", "query") or _TOKEN.fullmatch(name))
            and (place, name) not in hidden
            and not (place == "header" and (name.lower() in _CONTROLLED or (place, name.lower()) in hidden))
        )

    def _parameter(
        self, path: str, name: str, place: Place, raw: Mapping[str, Any], in_query: Sequence[str]
    ) -> Parameter:
        content = raw.get("content")
        media = next(iter(content.values()), None) if isinstance(content, Mapping) else None
        schema = (raw if media is None else self.document.resolve(media)).get("schema", True)
        required = place == "path" or raw.get("required") is True
        if place == "header" and not self.requires_headers:
            required = False
        style = str(raw.get("style", _DEFAULT_STYLES[place]))
        argument = self.add(name, place, schema, required=required, description=raw.get("description"))
        given = raw.get("explode")
        explode = given if isinstance(given, bool) else style == "form"
        types = _types(self.document, schema)
        fields = None
        if media is None and (place != "query" or "object" in types):
            fields = _object_fields(self.document, schema)
            others = [each for each in in_query if each != name] if place == "query" else []
            if style == "deepObject":
                fields = replace(fields, taken_in_brackets=_in_brackets(name, others))
            elif explode:
                fields = replace(fields, taken=frozenset(map(_base_name, others)))
        return Parameter(
            argument,
            name,
            place,
            required,
            style,
            explode,
            media is not None,
            types,
            *(_allowed(self.document, schema) if place == "path" else ((), ())),
            takes_slashes=place == "path" and self.segments.has(path, name, raw),
            fields=fields,
        )

    # Body

    def body(self, raw: Mapping[str, Any]) -> Body | None:
        """Add the fields of a body, or the body as one argument."""
        content = raw.get("content")
        if not isinstance(content, Mapping) or not content:
            return None
        key, encoding = _preferred(content)
        schema = self.document.resolve(content[key]).get("schema", True)
        media_type = str(key)
        required = raw.get("required") is True
        is_line = media_type.isascii() and media_type.isprintable()
        sent = media_type if "*" not in media_type and is_line else "application/json"
        if encoding in ("text", "binary"):
            text = {"type": "string", "description": "The body of the request."}
            if encoding == "binary":
                text = {**text, "contentEncoding": "base64", "description": "The body, in base64."}
            argument = self.add("body", "body", text, required=required, description=raw.get("description"))
            return Body(sent, encoding, required, argument, {}, frozenset())
        properties = _fields(self.document, schema)
        if properties is None:
            argument = self.add("body", "body", schema, required=required, description=raw.get("description"))
            return Body(sent, encoding, required, argument, {}, frozenset())
        needed = self.document.resolve(_unwrapped(self.document, schema)).get("required")
        fields: dict[str, str] = {}
        files = set()
        for name, value in properties.items():
            must = required and isinstance(needed, list) and name in needed
            if encoding == "multipart" and (file := _file_schema(self.document, value)) is not None:
                files.add(name)
                value = file
            fields[self.add(name, "body", value, required=must)] = name
        return Body(sent, encoding, required, None, fields, frozenset(files))


def read_inputs(
    document: Document,
    converter: SchemaConverter,
    found: FoundOperation,
    hidden: Collection[tuple[str, str]],
    segments: Segments,
    *,
    requires_headers: bool = True,
) -> Inputs:
    """Return the inputs of an operation; raises `DefinitionError`.

    `hidden` has the places and names of the headers, in lower case, and of the query parameters that the
    author sets: they are no arguments. `segments` knows which values may contain slashes. Without
    `requires_headers`, no header is a required argument.
    """
    raw = found.raw
    reader = _Reader(document, converter, segments, requires_headers)
    owners = [found.item.get("parameters"), raw.get("parameters")]
    parameters = reader.parameters(found.operation.path, owners, hidden)
    takes_slashes = any(each.takes_slashes for each in parameters)

    @cache  # found at the first call: a document may have thousands of paths
    def other_paths() -> Sequence[re.Pattern[str]]:
        return segments.other_paths(found.operation, takes_slashes=takes_slashes)

    has_body = "requestBody" in raw and raw["requestBody"] is not None
    body = reader.body(document.resolve(raw["requestBody"])) if has_body else None
    return Inputs(parameters, body, reader.schema(), other_paths)


def _preferred(content: Mapping[Any, Any]) -> tuple[Any, Encoding]:
    """Return the key of the media type to send, and its encoding."""
    for encoding, part in _ENCODINGS:
        for key in content:
            if part in media_type_of(str(key)):
                return key, encoding
    return next(iter(content)), "binary"


def _unwrapped(document: Document, schema: Any) -> Any:
    """Return the schema behind references, and behind an `allOf` of one schema."""
    resolved = document.resolve(schema)
    members = resolved.get("allOf")
    if isinstance(members, list) and len(members) == 1 and "properties" not in resolved:
        return document.resolve(members[0])
    return resolved


def _fields(document: Document, schema: Any) -> Mapping[str, Any] | None:
    """Return the properties of an object whose fields can be arguments, or `None`.

    They cannot if the object may have other fields, or if it is one of several.
    """
    if not isinstance(schema, Mapping):
        return None
    resolved = _unwrapped(document, schema)
    properties = resolved.get("properties")
    if not isinstance(properties, Mapping) or not properties or "allOf" in resolved:
        return None
    if resolved.get("additionalProperties", False) is not False or not all(map(_is_name, properties)):
        return None
    for keyword in ("anyOf", "oneOf"):
        members = resolved.get(keyword)
        if isinstance(members, list) and any(
            not isinstance(member, Mapping) or set(member) - {"required"} for member in members
        ):
            return None
    return {
        name: value
        for name, value in properties.items()
        if not (isinstance(value, Mapping) and value.get("readOnly") is True)
    }


def _object_fields(document: Document, schema: Any) -> ObjectFields:
    """Return the fields of an object that are parts of the request themselves.

    As with the fields of a body, a schema that names some has no others, unless it says so.
    """
    names: set[str] = set()
    seen: set[int] = set()
    remaining = [schema]
    is_open = is_closed = False
    while remaining:
        each = remaining.pop()
        if not isinstance(each, Mapping):
            continue
        resolved = document.resolve(each)
        if id(resolved) in seen:
            continue
        seen.add(id(resolved))
        properties = resolved.get("properties")
        for name, value in properties.items() if isinstance(properties, Mapping) else ():
            if not (isinstance(value, Mapping) and value.get("readOnly") is True):
                names.add(str(name))
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            others = resolved.get(keyword)
            is_open |= others is True or isinstance(others, Mapping)
            is_closed |= others is False
        is_open |= bool(resolved.get("patternProperties"))
        for keyword in ("allOf", "anyOf", "oneOf"):
            members = resolved.get(keyword)
            remaining += members if isinstance(members, list) else ()
    return ObjectFields(frozenset(names), is_open or not (names or is_closed))


def _base_name(name: str) -> str:
    """Return the name of the parameter that an API may read a name as: `ids` for `ids[]` or `IDS[0]`."""
    return name.partition("[")[0].strip().lower()


def _in_brackets(name: str, others: Iterable[str]) -> tuple[str, ...]:
    """Return the names that parameters like `filter[x]` have inside `filter`, in lower case: `x]`."""
    before = f"{name}[".lower()
    return tuple(each.lower().removeprefix(before) for each in others if each.lower().startswith(before))


def _is_simple(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_name(name: Any) -> bool:
    return isinstance(name, str)


def _file_schema(document: Document, schema: Any, depth: int = 0) -> Schema | None:
    """Return the schema of the argument for a file or a list of files, or `None` for another field."""
    if not isinstance(schema, Mapping) or depth > 2:  # a list of files, each of which may be null
        return None
    resolved = document.resolve(schema)
    members = resolved.get("anyOf")
    if isinstance(members, list):
        found = (_file_schema(document, each, depth + 1) for each in members)
        return next((file for file in found if file is not None), None)
    types = _types(document, resolved)
    if "array" in types:
        inner = _file_schema(document, resolved.get("items"), depth + 1)
        return None if inner is None else {"type": "array", "items": inner}
    if resolved.get("format") != "binary" and "contentMediaType" not in resolved:
        return None
    description = resolved.get("description")
    return {**_FILE, "description": description} if isinstance(description, str) else _FILE


def _allowed(document: Document, schema: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return the types that a schema requires by itself, and the values that it lists."""
    if not isinstance(schema, Mapping):
        return (), ()
    resolved = _unwrapped(document, schema)
    kinds, values = resolved.get("type"), resolved.get("enum")
    if "const" in resolved:
        values = [resolved["const"]]
    return (
        tuple(str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind is not None),
        tuple(values) if isinstance(values, list) and all(map(_is_simple, values)) else (),
    )


def _types(document: Document, schema: Any) -> tuple[str, ...]:
    """Return the JSON types that a schema names, itself or in its alternatives."""
    if not isinstance(schema, Mapping):
        return ()
    resolved = document.resolve(schema)
    alternatives = (resolved.get("anyOf"), resolved.get("oneOf"))
    members = [each for members in alternatives if isinstance(members, list) for each in members]
    kinds: list[Any] = []
    for each in (resolved, *(document.resolve(each) for each in members if isinstance(each, Mapping))):
        kind = each.get("type")
        kinds += kind if isinstance(kind, list) else [kind]
    return tuple(kind for kind in kinds if isinstance(kind, str))
