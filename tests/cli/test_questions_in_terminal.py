"""`antiphon call` at a terminal: it asks what a tool asks, on a real pseudo-terminal."""

from __future__ import annotations

import json

import pytest

from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, in_terminal


def test_asks_for_each_field_until_what_is_typed_fits(curious: str) -> None:
    with in_terminal("call", curious, "order", "--json") as terminal:
        shown = terminal.expect("Full name (name) (text, at least 2 characters): ")
        assert shown.startswith("curious asks: What would you like?\n")
        assert "Type !decline (or Ctrl-D) to decline" in shown
        terminal.type_line("")
        assert "name: this is required." in terminal.expect("characters): ")
        terminal.type_line("A")
        assert "name: this must have at least 2 characters." in terminal.expect("characters): ")
        terminal.type_line("Ada Lovelace")
        assert "How big it is\n  1. small\n  2. large\n" in terminal.expect("size (1 to 2) [small]: ")
        terminal.type_line("3")
        assert "size: choose a number from 1 to 2." in terminal.expect("[small]: ")
        terminal.type_line("2")
        terminal.expect("count (a whole number, 1 to 9) [1]: ")
        terminal.type_line("10")
        assert "count: this must be at most 9." in terminal.expect("[1]: ")
        terminal.type_line("")
        terminal.expect("price (a number): ")
        terminal.type_line("cheap")
        assert "price: this must be a number." in terminal.expect("price (a number): ")
        terminal.type_line("2.5")
        terminal.expect("extras (1 to 2; separate several with commas) [none]: ")
        terminal.type_line("2, milk")
        terminal.expect("express (yes or no) [no]: ")
        terminal.type_line("maybe")
        assert "express: answer yes or no." in terminal.expect("[no]: ")
        terminal.type_line("Y")
        terminal.expect("note (text, optional): ")
        terminal.type_line("")
        code, printed = terminal.wait()
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
    with in_terminal("call", curious, "paint") as terminal:
        assert "  1. Red (r)\n  2. Blue (b)\n" in terminal.expect("color (1 to 2): ")
        terminal.type_line("blue")
        assert "  2\n  1\n" in terminal.expect("year (one of these): ")
        terminal.type_line("1")
        code, printed = terminal.wait()
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
    with in_terminal("call", curious, "order") as terminal:
        terminal.expect("characters): ")
        terminal.press(keys)
        assert terminal.wait() == (1, "")
    assert f"This was {how}: What would you like?" in terminal.screen


def test_after_a_question_ctrl_c_is_about_the_command_again(curious: str) -> None:
    with in_terminal("call", curious, "stubborn") as terminal:
        terminal.expect("name (text): ")
        terminal.press(CTRL_C)
        terminal.expect("info: so be it: cancel")
        terminal.press(CTRL_C)
        assert terminal.wait() == (130, "")
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize(("word", "code", "printed"), [("yes", 0, "logged in\n"), ("no", 1, "")])
def test_an_address_is_shown_and_not_opened(curious: str, word: str, code: int, printed: str) -> None:
    with in_terminal("call", curious, "log_in", env={"BROWSER": "/bin/false"}) as terminal:
        shown = terminal.expect("Will you open it? (yes or no): ")
        assert "curious asks: Please log in." in shown
        assert "https://bücher.example/login?for=42" in shown
        assert "Its host is xn--bcher-kva.example. The URL is not opened for you." in shown
        terminal.type_line("")
        terminal.expect("Will you open it? (yes or no): ")
        terminal.type_line(word)
        assert terminal.wait() == (code, printed)


def test_a_form_without_fields_is_a_yes_or_no(curious: str) -> None:
    with in_terminal("call", curious, "confirm") as terminal:
        terminal.expect("Accept? (yes or no): ")
        terminal.type_line("yes")
        assert terminal.wait() == (0, "done\n")


def test_questions_of_one_moment_are_asked_one_after_the_other(curious: str) -> None:
    with in_terminal("call", curious, "both") as terminal:
        for message, name in (("First?", "Ada"), ("Second?", "Bob")):
            terminal.expect(message)
            terminal.expect("name (text): ")
            terminal.type_line(name)
        assert terminal.wait() == (0, "Ada Bob\n")


def test_what_the_command_line_answers_is_not_asked(curious: str) -> None:
    answered = ("--answer", "name=Ada", "--answer", "price=free", "--answer", "extras=milk,sugar")
    with in_terminal(
        "call", curious, "order", *answered, "--answer", "size=large", "--answer", "express=true"
    ) as terminal:
        assert "Invalid answer for price: this must be a number." in terminal.expect("count (")
        terminal.type_line("2")
        terminal.expect("price (a number): ")
        terminal.type_line("1")
        terminal.expect("note (text, optional): ")
        terminal.type_line("hot")
        code, printed = terminal.wait()
    assert code == 0
    assert json.loads(printed)["extras"] == ["milk", "sugar"]
    assert "Full name" not in terminal.screen


def test_an_answer_that_only_the_server_can_refuse_is_asked_for_again(curious: str) -> None:
    with in_terminal("call", curious, "born", "--answer", "value=2026-02-31") as terminal:
        terminal.expect("value (a date, such as 2026-11-30): ")
        terminal.type_line("1815-12-10")
        assert terminal.wait() == (0, "1815-12-10\n")


def test_what_a_server_says_cannot_control_the_terminal(curious: str) -> None:
    with in_terminal("call", curious, "hostile") as terminal:
        assert "Your]0;gotcha name?" in terminal.expect("name (text): ")
        terminal.type_line("Ada")
        assert terminal.wait() == (0, "done\n")
    assert "\x07" not in terminal.screen


def test_no_input_asks_nobody(curious: str) -> None:
    with in_terminal("call", curious, "order", "--no-input") as terminal:
        assert terminal.wait() == (2, "")
    assert "The question has no answer." in terminal.screen
