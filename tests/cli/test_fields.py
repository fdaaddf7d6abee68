"""The fields of a form: parsing, validation and hints."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.cli.call.fields import Field, form_fields


def field(**schema: Any) -> Field:
    return Field("x", schema, True)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "string", "format": "email"}, " a@b.c ", "a@b.c"),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "7.0", 7.0),
        ({"type": "number"}, "-2.5e3", -2500.0),
        ({"type": "boolean"}, "TRUE", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["A", "a", "b"]}, "a", "a"),
        ({"type": "string", "enum": ["A", "a", "b"]}, "B ", "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["Alpha", "Beta"]}, "beta", "b"),
        ({"type": "integer", "enum": [10, 20]}, "20", 20),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b, c"]}}, '["b, c"]', ["b, c"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "Alpha"}]}}, "alpha", ["a"]),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}}, "none", []),
        ({"type": "array", "items": {"type": "string", "enum": ["none"]}}, "none", ["none"]),
    ],
)
def test_parses_the_text_of_a_field(schema: dict[str, Any], text: str, value: Any) -> None:
    read = field(**schema).parse(text)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ({"type": "integer"}, "7.5", "this must be of type integer"),
        ({"type": "number"}, "nan", "this must be a number"),
        ({"type": "number"}, "inf", "this must be a number"),
        ({"type": "boolean"}, "1", "answer yes or no"),
        ({"type": "string", "format": "date"}, "today", "this must be written as date"),
        ({"type": "string", "enum": ["A", "a"]}, "1", "choose one of A, a"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, "a,b", "choose at most 1"),
        ({"type": "array", "items": {"enum": ["a"]}}, "[", "this is not a JSON array"),
    ],
)
def test_reports_why_a_value_is_invalid(schema: dict[str, Any], text: str, problem: str) -> None:
    with pytest.raises(ValueError) as wrong:
        field(**schema).parse(text)
    assert str(wrong.value) == problem


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"type": "array", "items": {"type": "string"}}, "values separated by commas"),
        ({"type": "array", "minItems": 2}, "values separated by commas, at least 2"),
        (
            {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1},
            "1 to 2; separate several with commas, at most 1",
        ),
        ({"type": "string", "format": "uri"}, "a URI"),
    ],
)
def test_describes_the_expected_value_of_a_field(schema: dict[str, Any], hint: str) -> None:
    assert field(**schema).hint == hint


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 5},
        {"properties": {"x": True}},
        {"properties": {"x": {"type": "object"}}},
        {"required": "x"},
    ],
)
def test_refuses_schemas_that_are_not_forms(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        form_fields(schema)
