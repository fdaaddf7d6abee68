"""`antiphon call` without a terminal: the command line answers, or says what is open; it never hangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client
from antiphon.cli.call.fields import Field, form_fields
from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.exit_codes import CommandError
from tests.cli import questions_server as tools
from tests.cli.command import antiphon


def test_says_which_question_is_open_and_how_to_answer_it(curious: str) -> None:
    done = antiphon("call", curious, "order", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "curious asks: What would you like?",
        "  name (text, at least 2 characters)",
        "  size (one of: small, large) [small]: How big it is",
        "  count (a whole number, 1 to 9) [1]",
        "  price (a number)",
        "  extras (one of: milk, sugar) [none]",
        "  express (yes or no) [no]",
        "  note (text)",
        "Error: The question has no answer. Answer it with --answer name=… --answer price=…, "
        "or run the command in a terminal.",
    ]


def test_answers_by_field_and_takes_defaults_for_the_rest(curious: str) -> None:
    done = antiphon("call", curious, "order", "--answer", "name=Ada", "--answer", "price=2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)["structuredContent"]
    assert (data["name"], data["price"], data["count"], data["size"]) == ("Ada", 2, 1, "small")


def test_answers_come_from_a_file_and_single_ones_go_over_it(curious: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"name": "Ada", "price": 1, "extras": ["milk"], "unasked": None}))
    done = antiphon("call", curious, "order", "--answers", file, "--answer", "price=2.5")
    data = json.loads(done.stdout)
    assert (data["name"], data["price"], data["extras"]) == ("Ada", 2.5, ["milk"])


def test_several_answers_to_one_field_are_used_in_turn(curious: str) -> None:
    assert antiphon("call", curious, "both", "--answer", "name=Ada").stdout == "Ada Ada\n"
    done = antiphon("call", curious, "both", "--answer", "name=Ada", "--answer", "name=Bob")
    assert done.stdout == "Ada Bob\n"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (["price=cheap"], "Invalid answer for price: this must be a number."),
        (["name=A"], "Invalid answer for name: this must have at least 2 characters."),
        (["size=1"], "Invalid answer for size: choose one of small, large."),
        (["name"], "'name' is not an answer. Write field=value."),
    ],
)
def test_an_answer_that_does_not_fit_is_a_usage_error(curious: str, answers: list[str], message: str) -> None:
    options = [word for answer in answers for word in ("--answer", answer)]
    done = antiphon("call", curious, "order", *options)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {message}\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--answers: cannot read"),
        ("{", "--answers: "),
        ("[]", "must be a JSON object"),
        ('{"name": 5}', "Invalid answer for name: this must be of type string."),
    ],
)
def test_a_file_that_cannot_be_used_is_a_usage_error(
    curious: str, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "answers.json"
    if content is not None:
        file.write_text(content)
    done = antiphon("call", curious, "order", "--answers", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_an_answer_that_the_server_does_not_take_is_given_once(curious: str) -> None:
    done = antiphon("call", curious, "born", "--answer", "value=2026-02-31")
    assert done.returncode == 2
    assert "The server rejected the answer and asked again." in done.stderr
    done = antiphon("call", curious, "born", "--answer", "value=2026-02-31", "--answer", "value=2026-03-01")
    assert done.stdout == "2026-03-01\n"


@pytest.mark.parametrize(
    ("tool", "otherwise", "code", "printed"),
    [
        ("confirm", "accept", 0, "done\n"),
        ("confirm", "decline", 1, ""),
        ("log_in", "accept", 0, "logged in\n"),
        ("log_in", "cancel", 1, ""),
        ("order", "accept", 2, ""),
        ("order", "cancel", 1, ""),
    ],
)
def test_otherwise_says_what_to_do_with_the_rest(
    curious: str, tool: str, otherwise: str, code: int, printed: str
) -> None:
    done = antiphon("call", curious, tool, "--default-answer", otherwise)
    assert (done.returncode, done.stdout) == (code, printed)


@pytest.mark.parametrize(
    ("tool", "shown"),
    [
        ("confirm", "Answer it with --default-answer accept, or run the command in a terminal."),
        ("log_in", "  https://bücher.example/login?for=42\nError: The question has no answer. Open the URL"),
    ],
)
def test_nothing_is_agreed_to_by_itself(curious: str, tool: str, shown: str) -> None:
    done = antiphon("call", curious, tool)
    assert (done.returncode, done.stdout) == (2, "")
    assert shown in done.stderr


def test_what_is_no_form_is_exit_code_3(curious: str) -> None:
    done = antiphon("call", curious, "odd")
    assert (done.returncode, done.stdout) == (3, "")
    assert "asked for a form that cannot be shown" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_older_versions_are_answered_and_stopped_alike(version: str) -> None:
    answering = ElicitationHandler(PreparedAnswers(["name=Ada", "name=Bob"]), no_input=True)
    async with Client(tools.server, protocol=version, elicit=answering) as client:
        assert sorted((await client.call("both")).text.split()) == ["Ada", "Bob"]
    lacking = ElicitationHandler(PreparedAnswers(), no_input=True)
    async with Client(tools.server, protocol=version, elicit=lacking) as client:
        try:
            assert (await client.call("both", check=False)).is_error
        except Exception:
            assert version == "2026-07-28"
    assert isinstance(lacking.error, CommandError)
    assert lacking.error.code == 2


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
def test_reads_what_is_written_for_a_field(schema: dict[str, Any], text: str, value: Any) -> None:
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
def test_says_what_is_wrong_with_what_is_written(schema: dict[str, Any], text: str, problem: str) -> None:
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
def test_says_what_is_to_be_written_in_a_field(schema: dict[str, Any], hint: str) -> None:
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
def test_what_a_person_cannot_fill_in_is_no_form(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        form_fields(schema)
