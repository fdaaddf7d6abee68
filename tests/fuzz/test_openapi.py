"""OpenAPI documents, the arguments of a model and the answers of an API: whatever they contain."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote

import jsonschema
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import DefinitionError, Failure, Result, Server
from antiphon.openapi.answers import to_result
from antiphon.openapi.api import Answer
from antiphon.openapi.document import Document
from antiphon.openapi.inputs import Inputs, read_inputs
from antiphon.openapi.operations import FoundOperation, find_operations
from antiphon.openapi.requests import write_request
from antiphon.openapi.schemas import SchemaConverter
from antiphon.openapi.segments import Segments
from tests.fuzz.strategies import ANY_TEXT, JSON_VALUES, near, target

some = settings(max_examples=target.max_examples // 5)
"""Fewer examples: to check a schema against the schema of schemas takes long."""

KEYWORDS = near(
    "pattern",
    *("type", "items", "properties", "required", "enum", "default", "$ref", "nullable", "anyOf", "allOf"),
    *("minimum", "exclusiveMinimum", "additionalProperties", "description", "format", "readOnly", "examples"),
)
VALUES = JSON_VALUES | near(
    "object", "array", "string", "binary", "#/components/schemas/A", "#/paths", True, 1
)
SCHEMAS = st.recursive(
    st.dictionaries(KEYWORDS, VALUES, max_size=4),
    lambda inner: st.dictionaries(
        KEYWORDS,
        inner | st.lists(inner, max_size=2) | st.dictionaries(ANY_TEXT, inner, max_size=2),
        max_size=4,
    ),
    max_leaves=6,
)
PLACES = near("path", "query", "header", "cookie", "nowhere")
MEDIA_TYPES = near(
    "application/json", "multipart/form-data", "text/plain", "application/x-www-form-urlencoded", "x"
)


@st.composite
def documents(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """A document with one operation, parts of which may be anything."""
    parameters = [
        {"name": draw(ANY_TEXT), "in": draw(PLACES), "schema": draw(SCHEMAS)}
        for _ in range(draw(st.integers(0, 2)))
    ]
    operation = {
        "operationId": draw(ANY_TEXT | JSON_VALUES),
        "parameters": draw(JSON_VALUES) if draw(st.integers(0, 9)) == 0 else parameters,
        "requestBody": {
            "content": {draw(MEDIA_TYPES): {"schema": draw(SCHEMAS)}},
            "required": draw(st.booleans()),
        },
        "responses": {"200": {"content": {"application/json": {"schema": draw(SCHEMAS)}}}},
        draw(ANY_TEXT): draw(JSON_VALUES),
    }
    return {
        "openapi": draw(near("3.0.3", "3.1.0")),
        "paths": {"/" + draw(ANY_TEXT): {"post": operation}},
        "components": {"schemas": {"A": draw(SCHEMAS)}},
    }


@some
@given(documents())
def test_a_document_is_refused_or_becomes_a_tool_with_valid_schemas(document: dict[str, Any]) -> None:
    try:
        server = Server.from_openapi(document, base_url="http://127.0.0.1:9")
    except DefinitionError:
        return
    (tool,) = server.engine.registry.tools.values()
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,59}", tool.name)
    msgspec.json.encode(tool.definition)
    for schema in filter(None, (tool.definition.input_schema, tool.definition.output_schema)):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"


def files() -> tuple[FoundOperation, Inputs]:
    """An operation with parameters in each place."""
    parameters = [
        {"name": name, "in": place, "schema": {}}
        for name, place in (("a", "path"), ("b", "path"), ("q", "query"), ("X-H", "header"), ("c", "cookie"))
    ]
    closed = {"type": "object", "properties": {"x": {}}}
    opened = {"type": "object", "additionalProperties": True}
    parameters += [{"name": name, "in": "query", "schema": of} for name, of in (("o", closed), ("p", opened))]
    paths = {"/files/{a}/x{b}/end": {"get": {"parameters": parameters}}}
    document = Document({"openapi": "3.1.0", "paths": paths})
    (found,) = find_operations(document)
    return found, read_inputs(document, SchemaConverter(document, "request"), found, (), Segments())


FOUND, INPUTS = files()


OBJECTS = JSON_VALUES | st.dictionaries(near("x", "q", "Q[]", "a", "p") | ANY_TEXT, JSON_VALUES, max_size=3)


@some
@given(ANY_TEXT | JSON_VALUES, JSON_VALUES, OBJECTS, OBJECTS)
def test_arguments_stay_in_their_places(in_path: Any, elsewhere: Any, closed: Any, opened: Any) -> None:
    arguments = {"a": in_path, "b": in_path, "q": elsewhere, "X-H": elsewhere, "c": elsewhere}
    arguments |= {"o": closed, "p": opened}
    try:
        request = write_request(FOUND.operation, INPUTS, arguments, "files")
    except Failure:
        return
    assert re.fullmatch(r"/files/[^/?#\s]+/x[^/?#\s]+/end", request.path)
    parts = re.split(r"[/\\]", unquote(unquote(request.path)))
    assert len(parts) == 5
    assert "." not in parts
    assert ".." not in parts
    assert re.fullmatch(r"([^&#\s]*=[^&#\s]*&?)*", request.query)
    names = [name for name, _ in parse_qsl(request.query, keep_blank_values=True)]
    free = set(opened) if isinstance(opened, dict) else {"p"}
    assert set(names) <= {"q", "x", "o"} | free
    assert names.count("q") <= (len(elsewhere) if isinstance(elsewhere, list) else 1)
    assert all(value.isprintable() and value.isascii() for value in request.headers.values())


LINKS = st.lists(
    near("<", ">", "</x?q=1>", ';rel="next"', "rel=next", ",", ";", '"', "?q=", "&", "%"), max_size=8
)
KINDS = near(
    "application/json", "text/plain; charset=x", "text/plain; charset=idna", "image/png", "", "a/b", "é"
)


@some
@given(
    st.integers(200, 599),
    KINDS | ANY_TEXT,
    st.binary(max_size=30) | JSON_VALUES.map(msgspec.json.encode),
    LINKS,
)
def test_an_answer_becomes_a_result_or_a_failure(
    status: int, kind: str, body: bytes, links: list[str]
) -> None:
    answer = Answer(status, kind, body, "http://127.0.0.1:9/x", link="".join(links), secrets=("s3cret",))
    try:
        result = to_result(answer, "GET /x", INPUTS, {}, is_open=True)
    except Failure:
        assert not 200 <= status < 300
    else:
        assert isinstance(result, Result)
