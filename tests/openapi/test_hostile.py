"""Documents that are broken, odd or hostile: refused with a reason, and never fetched from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from antiphon import Client, DefinitionError, Server, Text
from antiphon.openapi import answers, schemas
from antiphon.openapi.answers import to_result
from antiphon.openapi.api import Answer
from antiphon.openapi.inputs import Inputs
from antiphon.openapi.names import argument_name

BASE = {"base_url": "http://127.0.0.1:9"}


def with_paths(paths: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A document with some paths."""
    return {"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "paths": paths, **parts}


def with_schema(schema: Any, *, version: str = "3.1.0", **schemas: Any) -> dict[str, Any]:
    """A document whose only operation has a query parameter of a schema."""
    operation = {"parameters": [{"name": "q", "in": "query", "schema": schema}]}
    return with_paths({"/a": {"get": operation}}, components={"schemas": schemas}) | {"openapi": version}


def schema_of(document: Any) -> dict[str, Any]:
    """The input schema of the only tool of a document. It is valid."""
    (tool,) = Server.from_openapi(document, base_url="http://127.0.0.1:9").engine.registry.tools.values()
    schema = tool.definition.input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(schema)
    return schema


def test_a_schema_may_refer_to_itself() -> None:
    tree = {
        "type": "object",
        "properties": {"parts": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}},
    }
    schema = schema_of(with_schema({"$ref": "#/components/schemas/Tree"}, Tree=tree))
    assert schema["properties"]["q"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/Tree"}
    with pytest.raises(DefinitionError, match="more than 20 references follow one another"):
        schema_of(with_schema({"$ref": "#/components/schemas/A"}, A={"$ref": "#/components/schemas/A"}))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "https://user:pass@evil.example/s"}, r"'https://\*\*\*@evil.example/s', and nothing is"),
        ({"$ref": "other.json#/A"}, "refers to another document"),
        ({"$ref": "#/components/schemas/Gone"}, "leads nowhere"),
        ({"$ref": "#anchor"}, "leads nowhere"),
        ("text", "a str stands where the document needs"),
        ({"properties": {"a": 5}}, "a int stands where the document needs a schema"),
    ],
    ids=str,
)  # fmt: skip
def test_a_schema_that_cannot_be_read_names_the_operation(schema: Any, reason: str) -> None:
    with pytest.raises(DefinitionError, match=f"^GET /a of the document: .*{reason}") as raised:
        Server.from_openapi(with_schema(schema), **BASE)
    assert str(raised.value).endswith("To leave the operation out, pass exclude={\"paths\": ['/a']}.")


def test_references_of_parameters_in_a_circle() -> None:
    parameters = {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}
    document = with_paths(
        {"/a": {"get": {"parameters": [{"$ref": "#/components/parameters/a"}]}}},
        components={"parameters": parameters},
    )
    with pytest.raises(DefinitionError, match="more than 20 references follow one another"):
        Server.from_openapi(document, **BASE)


def test_depth_and_size_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"items": deep}
    with pytest.raises(DefinitionError, match="nested more than 100 levels"):
        Server.from_openapi(with_schema(deep), **BASE)
    text = '{"openapi":"3.1.0","paths":' + '{"a":' * 100_000 + "1" + "}" * 100_001
    with pytest.raises(DefinitionError, match="nested too deeply|not JSON"):
        Server.from_openapi(text, **BASE)
    wide: dict[str, Any] = {"type": "string"}
    for _ in range(40):  # one object in memory for each level, as YAML aliases make them
        wide = {"anyOf": [wide, wide]}
    with monkeypatch.context() as patch:
        patch.setattr(schemas, "MAX_SCHEMA_NODES", 5000)
        with pytest.raises(DefinitionError, match="more than 5000 schemas"):
            Server.from_openapi(with_schema(wide), **BASE)
    value: Any = []
    for _ in range(100_000):
        value = [value]
    assert schema_of(with_schema({"default": value, "enum": [value]}))["properties"] == {"q": {}}


def test_aliases_of_yaml_are_compared_once() -> None:
    def tree(name: str, leaf: str) -> str:
        levels = [f"  {name}0: &{name}0 {{type: {leaf}}}"]
        levels += [
            f"  {name}{n}: &{name}{n} {{allOf: [*{name}{n - 1}, *{name}{n - 1}]}}" for n in range(1, 32)
        ]
        return "\n".join(levels)

    def output(second: str) -> Any:
        text = f"""
openapi: 3.1.0
x-a:
{tree("a", "string")}
x-b:
{tree("b", second)}
paths:
  /a:
    get:
      operationId: a
      responses:
        200: {{content: {{application/json: {{schema: *a31}}, application/x+json: {{schema: *b31}}}}}}
"""
        return Server.from_openapi(text, **BASE).engine.registry.tools["a"].definition.output_schema

    assert output("integer") is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schemas, "MAX_SCHEMA_NODES", 5000)
        with pytest.raises(DefinitionError, match="more than 5000 schemas"):
            output("string")


def test_names_that_become_the_same_are_counted_once() -> None:
    class Counting(dict[str, Any]):
        questions = 0

        def __contains__(self, name: object) -> bool:
            Counting.questions += 1
            return super().__contains__(name)

    taken, numbers = Counting(), dict[str, int]()
    for number in range(1000):
        taken[argument_name(f"a{chr(0x4E00 + number)}", "query", taken, numbers)] = number
    assert list(taken)[:4] == ["a_", "a__query", "a__query_2", "a__query_3"]
    assert Counting.questions < 5000
    parts = {f"c{number}": {"x": {"type": "string"}} for number in range(1000)}
    fields = {name: {"$ref": f"#/components/schemas/{name}/x"} for name in parts}
    schema = schema_of(with_schema({"type": "object", "properties": fields}, **parts))
    assert {"x", "x_2", "x_1000"} < set(schema["$defs"])


def test_too_many_operations_need_a_filter() -> None:
    paths: dict[str, Any] = {f"/{number}": {"get": {}} for number in range(100_000)}
    with pytest.raises(DefinitionError, match="has 100000 operations, and a server offers at most 5000"):
        Server.from_openapi(with_paths(paths), **BASE)
    some = with_paths(dict(list(paths.items())[:6_000]))
    server = Server.from_openapi(some, include={"paths": ["/123?"]}, **BASE)
    assert server.tools == tuple(f"get_123{number}" for number in range(10))


async def test_odd_names_become_names_that_models_take() -> None:
    ids = ["a/b", "a_b", "a b", "ü/é", "", "x" * 500, "x" * 501, "\x1b[31m\ud800", None, 7]
    paths = {
        f"/{number}/\ud800": {"get": {"operationId": id, "summary": "\x1b[2J", "tags": [None, "t"]}}
        for number, id in enumerate(ids)
    }
    server = Server.from_openapi(with_paths(paths), **BASE)
    assert len(set(server.tools)) == len(ids)
    assert all(
        len(name) <= 59 and name.isascii() and name.replace("_", "").replace("-", "").isalnum()
        for name in server.tools
    )
    assert server.tools[8] == "get_8"
    part = Server.from_openapi(with_paths(paths), include={"paths": ["/1/*"]}, **BASE)
    assert part.tools == (server.tools[1],)
    async with Client(server) as client:
        assert len(await client.tools()) == len(ids)


def test_names_of_arguments_differ_and_fit() -> None:
    fields = {"id": {}, "body": {}, "$odd[name]": {}, "x" * 100: {}, "": {}, "id_body": {}}
    body = {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "properties": fields}}},
    }
    parameters = [{"name": "id", "in": place} for place in ("cookie", "header", "query", "path")]
    schema = schema_of(with_paths({"/{id}": {"post": {"parameters": parameters, "requestBody": body}}}))
    assert list(schema["properties"]) == [
        *("id", "id_query", "id_header", "id_cookie"),
        *("id_body", "body", "_odd_name_", "x" * 64, "value", "id_body_body"),
    ]


def test_schemas_of_3_0_become_json_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "nullable": True, "minimum": 1, "exclusiveMinimum": True},
            "b": {"type": "string", "enum": ["x"], "nullable": True, "example": "x", "xml": {"name": "b"}},
            "c": {"allOf": [{"$ref": "#/components/schemas/C"}], "nullable": True},
            "d": {"$ref": "#/components/schemas/C", "description": "Means nothing there."},
            "e": {"type": "float", "required": True, "minLength": -1, "pattern": 5, "x-any": 1},
            "f": {"type": "string", "readOnly": True},
            "g": {"type": "number", "maximum": 5, "exclusiveMaximum": False, "multipleOf": 0},
        },
        "required": ["a", "f"],
    }
    found = schema_of(with_schema(schema, version="3.0.3", C={"type": "boolean"}))["properties"]["q"]
    assert found == {
        "type": "object",
        "properties": {
            "a": {"type": ["integer", "null"], "exclusiveMinimum": 1},
            "b": {"type": ["string", "null"], "enum": ["x", None], "examples": ["x"]},
            "c": {"anyOf": [{"allOf": [{"$ref": "#/$defs/C"}]}, {"type": "null"}]},
            "d": {"$ref": "#/$defs/C"},
            "e": {},
            "g": {"type": "number", "maximum": 5},
        },
        "required": ["a"],
    }


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({}, "not OpenAPI 3: its version is 'None'"),
        ({"swagger": "2.0"}, "its version is '2.0'. Convert it"),
        ({"openapi": "3.1.0"}, "has no paths"),
        (5, "A int is not an OpenAPI document"),
        ("https://u:p@host.example/openapi.json", r"'https://\*\*\*@host.example/\S*' is a URL"),
        ("nowhere.json", "The file 'nowhere.json' cannot be read: No such file"),
        ("{not json", "The document is not JSON"),
        ("a: [\nb", "The document is not YAML"),
        ("- a\n- b", "is not an OpenAPI document: it has no fields"),
        (with_paths({"/a": {"$ref": "x.yaml"}}), "The path '/a': it refers to another document"),
        (with_paths({"/a": {"get": {}}}), "does not name the address of the API: pass base_url="),
        (with_paths({"/a": {"get": {}}}, servers=[{"url": "/v1"}]), "does not name the address of the API"),
        (with_paths({"/a": {"get": {}}}, servers=[{"url": "http://h/?a=b"}]), "not the address of an API"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_is_no_document_is_refused(source: Any, reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason):
        Server.from_openapi(source)


def test_mistakes_in_options() -> None:
    document = with_paths({"/a": {"get": {"operationId": "a"}}})
    for option, reason in (
        ({"tols": 1}, "There is no option 'tols'"),
        ({"base_url": "ftp://x"}, "not the address of an API"),
        ({"timeout": 0}, "timeout=0 is not a time"),
        ({"headers": {"A": "b\r\nC: d"}}, "the header 'A' is invalid"),
        ({"headers": {"A b": "c"}}, "the header 'A b' is invalid"),
        ({"headers": "A: b"}, "a str is not a mapping"),
        ({"include": "issues"}, "is not a filter"),
        ({"client": object()}, "a object is not an HTTP client"),
        ({"max_response_bytes": "4MB"}, "max_response_bytes='4MB' is not a size"),
        ({"max_response_bytes": -1}, "max_response_bytes=-1 is not a size"),
        ({"names": {"a": 5}}, "names: '5' is not a name for a tool"),
        ({"names": {5: "a"}}, "the document has no operationId '5'"),
    ):
        with pytest.raises(DefinitionError, match=reason) as raised:
            Server.from_openapi(document, **{**BASE, **option})  # type: ignore[arg-type]
        assert "C: d" not in str(raised.value)


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("UTF-8", "Schön".encode(), "Schön"),
        ("ISO_8859-1", "Schön".encode("latin-1"), "Schön"),
        ("windows-1252", "5 €".encode("cp1252"), "5 €"),
        ("utf-16", "Schön".encode("utf-16"), "Schön"),
        ("Shift_JIS", "日本".encode("shift_jis"), "日本"),
        ("unicode_escape", rb"\ud800", r"\ud800"),
        ("punycode", b"a-b", "a-b"),
        ("utf-7", b"+2AA-", "+2AA-"),
        ("rot13", b"abc", "abc"),
        ("utf-16", b"\x00\xd8", "\ufffd"),
    ],
)
def test_the_charset_of_an_answer_is_one_of_text(charset: str, body: bytes, text: str) -> None:
    answer = Answer(200, f"text/plain; charset={charset}", body, "http://127.0.0.1:9/a")
    inputs = Inputs((), None, {})
    assert to_result(answer, "GET /a", inputs, {}, is_open=True).content == (Text(text),)


def test_a_next_page_that_no_argument_reaches_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    link = '</a?cursor=abc>; rel="next"'
    answer = Answer(200, "application/json", b"[1]", "http://127.0.0.1:9/a", link=link)
    result = to_result(answer, "GET /a", Inputs((), None, {}), {}, is_open=True)
    assert result.data == {"items": [1]}
    assert "GET /a has a next page, but the document does not describe the parameter 'cursor'" in caplog.text


def test_json_that_is_nested_too_deeply_is_text() -> None:
    for body in (b'{"a":' * 400 + b"1" + b"}" * 400, b"[" * 900 + b"]" * 900):
        answer = Answer(200, "application/json", body, "http://127.0.0.1:9/a")
        result = to_result(answer, "GET /a", Inputs((), None, {}), {}, is_open=True)
        assert (result.data, result.text) == (None, body.decode())
    wide = Answer(200, "application/json", b"[" + b"[]," * 900 + b"[]]", "http://127.0.0.1:9/a")
    assert len(to_result(wide, "GET /a", Inputs((), None, {}), {}, is_open=True).data["items"]) == 901


def test_keywords_of_another_type_are_left_out() -> None:
    fields = {"type": "object", "properties": {"a": {}}, "anyOf": 5, "oneOf": True}
    body = {"content": {"application/json": {"schema": fields}}}
    assert schema_of(with_paths({"/a": {"post": {"requestBody": body}}}))["properties"] == {"a": {}}


def test_every_charset_is_one_that_python_has() -> None:
    for charset in answers.CHARSETS:
        b"".decode(charset)


def test_yaml_and_files_and_servers_with_variables(tmp_path: Path) -> None:
    text = """
openapi: 3.0.0
info: {title: Dates, version: 2020-01-01}
servers:
  - url: https://{region}.example.com/v1/
    variables: {region: {default: eu}}
paths:
  /days:
    get:
      operationId: days
      parameters:
        - {name: since, in: query, schema: {type: string, default: 2020-01-01}}
      responses: {200: {description: ok, content: {application/json: {schema: {type: object}}}}}
"""
    file = tmp_path / "dates.yaml"
    file.write_text(text)
    for source in (text, file, str(file)):
        server = Server.from_openapi(source)
        tool = server.engine.registry.tools["days"]
        assert tool.definition.input_schema["properties"]["since"]["default"] == "2020-01-01"
        assert tool.definition.output_schema == {"type": "object"}
        assert server.engine.info.version == "2020-01-01"
