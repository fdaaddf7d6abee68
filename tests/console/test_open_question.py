"""Questions of servers that do not keep to the specification: the page gets a form all the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.console.inbox.open_question import OpenQuestion, checked_response
from antiphon.console.routes import Problem
from antiphon.model.question import Elicit, OpenUrl


def question_with(schema: Any) -> OpenQuestion:
    return OpenQuestion(task_id="t", key="k", tool="x", owner="", question=Elicit("Which?", schema))


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        ({}, {}),
        ({"properties": [1, 2], "required": 3}, {}),
        ({"properties": {"a": 1}, "required": ["a", "b"]}, {"a": {"title": "a"}}),
        ({"properties": {"a": {"enum": 5, "title": 7, "description": []}}}, {"a": {"title": "a"}}),
        ({"properties": {"a": {"oneOf": [1, None]}}}, {"a": {"title": "a"}}),
        ({"properties": {"a": {"type": "array", "items": 4}}}, {"a": {"type": "array", "title": "a"}}),
        (
            {"properties": {"a": {"type": "object", "properties": {}}}},
            {"a": {"type": "object", "title": "a"}},
        ),
    ],
)
def test_a_malformed_form_has_the_fields_that_can_be_read(schema: Any, fields: Any) -> None:
    shown = question_with(schema).details()["schema"]
    assert shown["properties"] == fields
    assert set(shown["required"]) <= set(fields)
    msgspec.json.encode(shown)


@pytest.mark.parametrize("schema", [{"properties": 1}, {"properties": {"a": 1}}, {"required": 1}])
def test_the_server_decides_about_answers_to_a_malformed_form(schema: Any) -> None:
    answer = {"action": "accept", "content": {"a": 1}}
    assert checked_response(Elicit("Which?", schema), answer) == answer


def test_a_form_that_is_too_large_for_a_page_is_refused() -> None:
    with pytest.raises(Problem, match="too large") as raised:
        question_with({"properties": {"a": {"description": "x" * 300_000}}}).details()
    assert raised.value.status == 413


def test_an_address_that_is_not_of_the_web_is_shown_and_not_linked() -> None:
    asked = OpenUrl("Look.", "javascript:alert(1)")
    details = OpenQuestion(task_id="t", key="k", tool="x", owner="", question=asked).details()
    assert (details["url"], details["shownUrl"]) == (None, "javascript:alert(1)")


def test_a_form_with_one_yes_or_no_is_a_decision() -> None:
    boolean = {"type": "boolean", "title": "Ship it", "description": "Today."}
    decision = question_with({"properties": {"ship": boolean}}).details()["decision"]
    assert decision == {"name": "ship", "title": "Ship it", "help": "Today."}
    unnamed = question_with({"properties": {"value": {"type": "boolean"}}}).details()["decision"]
    assert unnamed == {"name": "value", "title": "", "help": ""}
    for other in ({"a": boolean, "b": boolean}, {"a": {"type": "string"}}, {}):
        assert question_with({"properties": other}).details()["decision"] is None
