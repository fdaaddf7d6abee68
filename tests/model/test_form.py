"""Whether an answer fits a form, also one that no type of ours would make."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.model.form import defaults, field_problem, problems

CLOSED = {"properties": {"name": {"type": "string"}}, "additionalProperties": False}


def test_a_field_that_the_form_does_not_have_is_a_problem_only_where_the_form_says_so() -> None:
    content = {"name": "Ada", "age": 36}
    assert problems(CLOSED, content) == ["age: there is no such field"]
    assert problems({"properties": CLOSED["properties"]}, content) == []


def test_a_field_of_a_type_that_is_not_known_takes_anything() -> None:
    for value in (1, "x", None, {"a": []}):
        assert field_problem({"type": "colour"}, value) is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [([], "choose at least 1"), (["a"], None), (["a", "b"], None), (["a", "b", "a"], "choose at most 2")],
)
def test_a_list_may_say_how_many_to_choose(value: list[str], problem: str | None) -> None:
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
def test_the_defaults_of_a_form_are_found_also_where_it_is_none(schema: Any, found: dict[str, Any]) -> None:
    assert defaults(schema) == found
