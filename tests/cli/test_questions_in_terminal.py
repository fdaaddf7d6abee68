"""`antiphon call` at a terminal: it asks what a tool asks, on a real pseudo-terminal."""

from __future__ import annotations

import json

import pytest

from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, at_a_terminal


def test_asks_for_each_field_until_what_is_typed_fits(curious: str) -> None:
    with at_a_terminal("call", curious, "order", "--json") as person:
        shown = person.sees("Full name (name) (text, at least 2 characters): ")
        assert shown.startswith("curious asks: What would you like?\n")
        assert "!decline or Ctrl-D" in shown
        person.types("")
        assert "name: this is required." in person.sees("characters): ")
        person.types("A")
        assert "name: this must have at least 2 characters." in person.sees("characters): ")
        person.types("Ada Lovelace")
        assert "How big it is\n  1. small\n  2. large\n" in person.sees("size (1 to 2) [small]: ")
        person.types("3")
        assert "size: this must be one of 1 to 2." in person.sees("[small]: ")
        person.types("2")
        person.sees("count (a whole number, 1 to 9) [1]: ")
        person.types("10")
        assert "count: this must be at most 9." in person.sees("[1]: ")
        person.types("")
        person.sees("price (a number): ")
        person.types("cheap")
        assert "price: this must be a number." in person.sees("price (a number): ")
        person.types("2.5")
        person.sees("extras (1 to 2; several with commas) [none]: ")
        person.types("2, milk")
        person.sees("express (yes or no) [no]: ")
        person.types("maybe")
        assert "express: say yes or no." in person.sees("[no]: ")
        person.types("Y")
        person.sees("note (text, or nothing): ")
        person.types("")
        code, printed = person.ends()
    assert code == 0
    assert json.loads(printed)["structuredContent"] == {
        "name": "Ada Lovelace",
        "size": "large",
        "count": 1,
        "price": 2.5,
        "extras": ["sugar", "milk"],
        "express": True,
        "note": None,
    }


def test_shows_labels_and_leaves_choices_that_look_like_numbers_unnumbered(curious: str) -> None:
    with at_a_terminal("call", curious, "paint") as person:
        assert "  1. Red (r)\n  2. Blue (b)\n" in person.sees("color (1 to 2): ")
        person.types("blue")
        assert "  2\n  1\n" in person.sees("year (one of these): ")
        person.types("1")
        code, printed = person.ends()
    assert (code, json.loads(printed)) == (0, {"color": "b", "year": "1"})


@pytest.mark.parametrize(
    ("keys", "how"),
    [
        ("!decline\n", "declined"),
        (CTRL_D, "declined"),
        ("!cancel\n", "dismissed without an answer"),
        (CTRL_C, "dismissed without an answer"),
    ],
)
def test_a_question_can_be_refused_by_word_and_by_key(curious: str, keys: str, how: str) -> None:
    with at_a_terminal("call", curious, "order") as person:
        person.sees("characters): ")
        person.presses(keys)
        assert person.ends() == (1, "")
    assert f"This was {how}: What would you like?" in person.screen


def test_after_a_question_ctrl_c_is_about_the_command_again(curious: str) -> None:
    with at_a_terminal("call", curious, "stubborn") as person:
        person.sees("name (text): ")
        person.presses(CTRL_C)
        person.sees("info: so be it: cancel")
        person.presses(CTRL_C)
        assert person.ends() == (130, "")
    assert "Traceback" not in person.screen


@pytest.mark.parametrize(("word", "code", "printed"), [("yes", 0, "logged in\n"), ("no", 1, "")])
def test_an_address_is_shown_and_not_opened(curious: str, word: str, code: int, printed: str) -> None:
    with at_a_terminal("call", curious, "log_in", env={"BROWSER": "/bin/false"}) as person:
        shown = person.sees("Will you? (yes or no): ")
        assert "curious asks: Please log in." in shown
        assert "https://bücher.example/login?for=42" in shown
        assert "That is on xn--bcher-kva.example. It is not opened for you." in shown
        person.types("")
        person.sees("Will you? (yes or no): ")
        person.types(word)
        assert person.ends() == (code, printed)


def test_a_form_without_fields_is_a_yes_or_no(curious: str) -> None:
    with at_a_terminal("call", curious, "confirm") as person:
        person.sees("Agree? (yes or no): ")
        person.types("yes")
        assert person.ends() == (0, "done\n")


def test_questions_of_one_moment_are_asked_one_after_the_other(curious: str) -> None:
    with at_a_terminal("call", curious, "both") as person:
        for message, name in (("First?", "Ada"), ("Second?", "Bob")):
            person.sees(message)
            person.sees("name (text): ")
            person.types(name)
        assert person.ends() == (0, "Ada Bob\n")


def test_what_the_command_line_answers_is_not_asked(curious: str) -> None:
    answered = ("--answer", "name=Ada", "--answer", "price=free", "--answer", "extras=milk,sugar")
    with at_a_terminal(
        "call", curious, "order", *answered, "--answer", "size=large", "--answer", "express=true"
    ) as person:
        assert "The answer price: this must be a number." in person.sees("count (")
        person.types("2")
        person.sees("price (a number): ")
        person.types("1")
        person.sees("note (text, or nothing): ")
        person.types("hot")
        code, printed = person.ends()
    assert code == 0
    assert json.loads(printed)["extras"] == ["milk", "sugar"]
    assert "Full name" not in person.screen


def test_an_answer_that_only_the_server_can_refuse_is_asked_for_again(curious: str) -> None:
    with at_a_terminal("call", curious, "born", "--answer", "value=2026-02-31") as person:
        person.sees("value (a date, as 2026-11-30): ")
        person.types("1815-12-10")
        assert person.ends() == (0, "1815-12-10\n")


def test_what_a_server_says_cannot_control_the_terminal(curious: str) -> None:
    with at_a_terminal("call", curious, "hostile") as person:
        assert "Your]0;gotcha name?" in person.sees("name (text): ")
        person.types("Ada")
        assert person.ends() == (0, "done\n")
    assert "\x07" not in person.screen


def test_no_input_asks_nobody(curious: str) -> None:
    with at_a_terminal("call", curious, "order", "--no-input") as person:
        assert person.ends() == (2, "")
    assert "A question is open." in person.screen
