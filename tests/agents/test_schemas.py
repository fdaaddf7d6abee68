"""Schemas of arguments as the APIs accept them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon.agents.schemas import (
    object_schema,
    strict_schema,
    with_api_keys,
    with_keys_of_tool,
    without_nulls,
)

TEXT = {"type": "string"}


def test_a_schema_without_properties_gets_some() -> None:
    assert object_schema({"$schema": "x", "type": "object"}) == {"type": "object", "properties": {}}
    assert object_schema({}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("keyword", "required"), [("anyOf", ["a"]), ("oneOf", ["a"]), ("allOf", ["a", "b", "c"])]
)
def test_alternatives_at_the_top_become_properties(keyword: str, required: list[str]) -> None:
    branches = [
        {"properties": {"b": TEXT}, "required": ["b", "a"]},
        {"properties": {"c": TEXT}, "required": ["c", "a"]},
        "nonsense",
    ]
    schema = {"type": "object", "properties": {"a": TEXT}, keyword: branches, "$defs": {}}
    found = object_schema(schema)
    assert set(found["properties"]) == {"a", "b", "c"}
    assert found["required"] == required
    assert keyword not in found
    assert "$defs" in found


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_property_that_differs_between_alternatives_has_the_values_of_each(keyword: str) -> None:
    read = {"properties": {"action": {"const": "read"}, "path": TEXT}, "required": ["action", "path"]}
    delete = {"properties": {"action": {"const": "delete"}, "id": TEXT}, "required": ["action", "id"]}
    found = object_schema({"type": "object", keyword: [read, delete, read]})
    assert found["properties"] == {
        "action": {"anyOf": [{"const": "read"}, {"const": "delete"}]},
        "path": TEXT,
        "id": TEXT,
    }
    above = object_schema({"properties": {"action": TEXT}, keyword: [read, delete]})
    assert above["properties"]["action"] == TEXT


def test_references_at_the_top_are_resolved() -> None:
    definitions = {"A": {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}}
    expected = {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "$defs": definitions}
    assert object_schema({"$ref": "#/$defs/A", "$defs": definitions}) == expected
    assert object_schema({"anyOf": [{"$ref": "#/$defs/A"}], "$defs": definitions}) == expected
    assert object_schema({"$ref": "#/$defs/Ghost"}) == {"type": "object", "properties": {}}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Search",
    "properties": {
        "query": {"type": "string", "title": "Query"},
        "limit": {"type": "integer", "default": 3},
        "where": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
    },
    "required": ["query", "places"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"city": TEXT, "zip": TEXT},
            "required": ["city"],
        }
    },
}


def test_strict_mode_requires_all_properties_and_lets_optional_ones_be_null() -> None:
    found = strict_schema(SCHEMA, optional=False)
    assert found is not None
    assert found["required"] == ["query", "limit", "where", "places"]
    assert found["additionalProperties"] is False
    assert found["properties"]["query"] == TEXT
    assert found["properties"]["limit"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert found["$defs"]["Place"]["required"] == ["city", "zip"]
    assert found["$defs"]["Place"]["additionalProperties"] is False


def test_strict_mode_keeps_optional_properties_where_the_api_knows_them() -> None:
    found = strict_schema(SCHEMA, optional=True)
    assert found is not None
    assert found["required"] == ["query", "places"]
    assert found["properties"]["limit"] == {"type": "integer"}
    assert found["$defs"]["Place"]["additionalProperties"] is False


def test_strict_mode_agrees_with_the_sdk() -> None:
    from openai import pydantic_function_tool

    class Search(BaseModel):
        query: str
        tags: list[str]

    expected = pydantic_function_tool(Search)["function"]["parameters"]
    found = strict_schema(object_schema(Search.model_json_schema()), optional=False)
    assert found is not None
    assert {name: part["type"] for name, part in found["properties"].items()} == {
        name: part["type"] for name, part in expected["properties"].items()
    }
    assert (found["required"], found["additionalProperties"]) == (
        expected["required"],
        expected["additionalProperties"],
    )


@pytest.mark.parametrize(
    "part",
    [
        {},
        True,
        {"type": "object"},
        {"type": "object", "additionalProperties": TEXT},
        {"type": "object", "properties": {}, "additionalProperties": True},
        {"type": "array"},
        {"oneOf": [TEXT]},
        {"allOf": [TEXT]},
        {"type": "object", "properties": {}, "patternProperties": {"x": TEXT}},
        {"description": "anything"},
        {"$ref": "#/properties/other"},
        {"type": ["object", "null"], "properties": {"inner": {}}},
        {"type": ["integer", "null"], "default": 10},
        {"anyOf": [{"type": "integer"}, {"type": "null", "title": "Nothing"}], "default": 10},
    ],
)
def test_a_schema_that_strict_mode_cannot_express_has_none(part: Any) -> None:
    assert strict_schema({"type": "object", "properties": {"part": part}}, optional=False) is None


@pytest.mark.parametrize("optional", [True, False])
def test_arguments_without_named_properties_have_no_strict_form(optional: bool) -> None:
    for schema in ({}, {"type": "object"}, {"$ref": "#/$defs/Ghost"}, {"$ref": "#"}):
        assert strict_schema(schema, optional=optional) is None
    closed = {"type": "object", "additionalProperties": False}
    for schema in (closed, {"type": "object", "properties": {}}):
        assert strict_schema(schema, optional=optional) == {**closed, "properties": {}, "required": []}


def test_a_reference_to_a_reference_is_followed() -> None:
    place = {"type": "object", "properties": {"city": TEXT}, "required": ["city"]}
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": place}}
    assert object_schema(schema)["properties"] == {"city": TEXT}
    found = strict_schema(schema, optional=False)
    assert found is not None
    assert found["properties"] == {"city": TEXT}


def test_a_default_besides_null_stays_where_the_api_knows_optional_properties() -> None:
    limit = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 10}
    assert strict_schema({"type": "object", "properties": {"limit": limit}}, optional=True) is not None


def test_a_schema_that_is_too_deep_has_no_strict_form() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    assert strict_schema({"type": "object", "properties": {"part": schema}}, optional=False) is None


def test_bounds_are_left_to_the_server_and_definitions_have_one_place() -> None:
    part = {"type": ["string", "null"], "minLength": 2, "pattern": "x", "format": "uri", "title": "Part"}
    schema = {
        "type": "object",
        "properties": {"part": part, "day": {"$ref": "#/definitions/Day", "description": "when"}},
        "required": ["part", "day"],
        "definitions": {"Day": {"type": "string", "format": "date", "maxLength": 10}},
    }
    assert strict_schema(schema, optional=True) == {
        "type": "object",
        "properties": {"part": {"type": ["string", "null"]}, "day": {"$ref": "#/$defs/Day"}},
        "required": ["part", "day"],
        "additionalProperties": False,
        "$defs": {"Day": {"type": "string", "format": "date"}},
    }


def test_nulls_of_optional_arguments_are_removed_from_a_call() -> None:
    arguments = {
        "query": "x",
        "limit": None,
        "where": None,
        "places": [{"city": "Oslo", "zip": None}],
        "other": None,
    }
    assert without_nulls(arguments, SCHEMA) == {
        "query": "x",
        "where": None,
        "places": [{"city": "Oslo"}],
        "other": None,
    }


def test_nulls_inside_alternatives_are_removed_from_a_call() -> None:
    point = {"type": "object", "properties": {"kind": {"const": "point"}, "z": TEXT}, "required": ["kind"]}
    zone = {
        "type": "object",
        "properties": {"kind": {"enum": ["zone"]}, "z": {"type": ["string", "null"]}},
        "required": ["kind"],
    }
    either = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Point"}, zone]}
    schema = {
        "type": "object",
        "properties": {
            "where": either,
            "list": {"anyOf": [{"type": "array", "items": either}, {"type": "null"}]},
        },
        "$defs": {"Point": point},
    }
    assert strict_schema(schema, optional=False) is not None
    one, two = {"kind": "point", "z": None}, {"kind": "zone", "z": None}
    assert without_nulls({"where": one, "list": [one, two]}, schema) == {
        "where": {"kind": "point"},
        "list": [{"kind": "point"}, two],
    }
    assert without_nulls({"where": {"else": None}}, schema) == {"where": {"else": None}}


def test_keys_that_an_api_refuses_are_mapped_and_back() -> None:
    long = "k" * 65
    schema = {
        "type": "object",
        "properties": {"filter[id]": TEXT, "filter_id_": {"type": "integer"}, long: TEXT, "größe": TEXT},
        "required": ["filter[id]", "ghost"],
    }
    found, keys = with_api_keys(schema)
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key) for key in found["properties"])
    assert list(found["properties"].values()) == list(schema["properties"].values())
    assert [keys[key] for key in found["properties"]] == list(schema["properties"])
    assert [keys.get(key, key) for key in found["required"]] == ["filter[id]", "ghost"]
    given = dict.fromkeys(found["properties"], 1) | {"other": 2}
    assert with_keys_of_tool(given, keys) == dict.fromkeys(schema["properties"], 1) | {"other": 2}


def test_keys_that_the_apis_accept_stay() -> None:
    schema = {"type": "object", "properties": {"a.b-c_D": TEXT}}
    assert with_api_keys(schema) == (schema, {})
