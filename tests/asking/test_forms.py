"""Which types make a form, and how the user's input is read."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.forms import Form


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Everything(BaseModel):
    text: Annotated[str, Field(min_length=2, max_length=5, title="Text", description="Some text")]
    number: float = 1.5
    whole: Annotated[int, Field(ge=0, le=10)] = 3
    yes: bool = True
    color: Color = Color.RED
    size: Literal["s", "m"] = "s"
    several: list[Literal["a", "b"]] = ["a"]
    when: date | None = None


@dataclass
class Point:
    x: int
    y: int = 2


class Login(TypedDict):
    name: str


class Nested(BaseModel):
    inner: Everything


class Words(BaseModel):
    words: list[str]


class Bounded(BaseModel):
    number: Annotated[int, Field(gt=0)]


def test_every_kind_of_field_has_the_shape_that_the_specification_allows() -> None:
    assert Form.of(Everything).schema == {
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "minLength": 2,
                "maxLength": 5,
                "title": "Text",
                "description": "Some text",
            },
            "number": {"type": "number", "default": 1.5},
            "whole": {"type": "integer", "minimum": 0, "maximum": 10, "default": 3},
            "yes": {"type": "boolean", "default": True},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "size": {"type": "string", "enum": ["s", "m"], "default": "s"},
            "several": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
            "when": {"type": "string", "format": "date"},
        },
        "required": ["text"],
    }


def test_a_form_is_read_as_the_type() -> None:
    value, wrong = Form.of(Everything).read({"text": "abc", "color": "blue", "when": "2026-11-15"})
    assert wrong is None
    assert (value.color, value.when, value.several) == (Color.BLUE, date(2026, 11, 15), ["a"])


@pytest.mark.parametrize(
    ("wanted", "content", "expected"),
    [
        (Point, {"x": 1}, Point(1, 2)),
        (Login, {"name": "ada"}, {"name": "ada"}),
        (str, {"value": "x"}, "x"),
        (int, {"value": 4}, 4),
        (bool, {"value": False}, False),
        (Literal["a", "b"], {"value": "b"}, "b"),
        (Color, {"value": "red"}, Color.RED),
        ({"type": "object", "properties": {"x": {"type": "string"}}}, {"x": "y"}, {"x": "y"}),
    ],
)
def test_other_types_can_be_asked_for(wanted: Any, content: dict[str, Any], expected: Any) -> None:
    assert Form.of(wanted).read(content) == (expected, None)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({}, "text: this is required"),
        ({"text": "a"}, "text: this must have at least 2 characters"),
        ({"text": "abcdef"}, "text: this must have at most 5 characters"),
        ({"text": 5}, "text: this must be of type string"),
        ({"text": "abc", "whole": 11}, "whole: this must be at most 10"),
        ({"text": "abc", "whole": -1}, "whole: this must be at least 0"),
        ({"text": "abc", "whole": True}, "whole: this must be of type integer"),
        ({"text": "abc", "color": "green"}, "color: this must be one of red, blue"),
        ({"text": "abc", "several": ["a", "c"]}, "several: each of these must be one of a, b"),
        ({"text": "abc", "when": "tomorrow"}, "when: this must be written as date"),
    ],
)
def test_what_does_not_fit_is_said(content: dict[str, Any], problem: str) -> None:
    value, wrong = Form.of(Everything).read(content)
    assert (value, wrong) == (None, problem)


def test_the_type_has_the_last_word() -> None:
    value, wrong = Form.of(date).read({"value": "2026-02-31"})
    assert value is None
    assert wrong is not None


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Nested, "a form cannot have the field"),
        (Words, "a form cannot have the field"),
        (Bounded, "use ge and le"),
        (dict, "has no fields. Use a model"),
        (Form, "Cannot make a form of"),
        ({"type": "string"}, "needs the type object, and properties"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "a form cannot have the field 'a'"),
        ({"type": "object", "properties": {"a": True}}, "a form cannot have the field 'a'"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "a form cannot have the field 'a'"),
    ],
)
def test_a_type_that_fits_no_form_is_refused_with_the_way_out(wanted: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Form.of(wanted)


class Kept(BaseModel):
    kind: Literal["only"] = "only"
    name: str | None = "nobody"


def test_a_single_choice_is_a_choice_and_a_default_is_kept() -> None:
    assert Form.of(Kept).schema["properties"] == {
        "kind": {"type": "string", "enum": ["only"], "default": "only"},
        "name": {"type": "string", "default": "nobody"},
    }
    assert Form.of(Kept).read({}) == (Kept(), None)


def test_the_key_of_a_question_stays_the_same_however_many_others_there_were() -> None:
    form = Form.of(Login)
    first = form.key("Who?")
    others = {form.key(f"Who is number {number}?") for number in range(1000)}
    assert len(others) == 1000
    assert first not in others
    assert form.key("Who?") == first
    assert len(form.keys) < 1000
