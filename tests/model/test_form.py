"""Validation of answers to forms, also to forms that other libraries create."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.model.form import defaults, field_problem, problems, problems_by_field

CLOSED = {"properties": {"name": {"type": "string"}}, "additionalProperties": False}


def test_an_unknown_field_is_a_problem_only_if_the_form_forbids_more_properties() -> None:
    content = {"name": "Ada", "age": 36}
    assert problems(CLOSED, content) == ["age: there is no such field"]
    assert problems({"properties": CLOSED["properties"]}, content) == []


def test_what_is_wrong_is_known_by_field() -> None:
    schema = {"properties": {"name": {"maxLength": 2}, "age": {"type": "integer"}}, "required": ["age"]}
    assert problems_by_field(schema, {"name": "Ada"}) == {
        "age": "this is required",
        "name": "this must have at most 2 characters",
    }


def test_a_field_of_an_unknown_type_accepts_any_value() -> None:
    for value in (1, "x", None, {"a": []}):
        assert field_problem({"type": "colour"}, value) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [([], "choose at least 1"), (["a"], None), (["a", "b"], None), (["a", "b", "a"], "choose at most 2")],
)
def test_a_list_has_a_least_and_a_greatest_number_of_choices(value: list[str], problem: str | None) -> None:
    field = {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2}
    assert field_problem(field, value) == problem


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"properties": {"a": {"default": 1}, "b": {}, "c": {"default": None}}}, {"a": 1, "c": None}),
        ({"properties": {"a": True}}, {}),
        ({"properties": [1, 2]}, {}),
        ({}, {}),
    ],
)
def test_a_malformed_form_has_no_defaults(schema: Any, found: dict[str, Any]) -> None:
    assert defaults(schema) == found
