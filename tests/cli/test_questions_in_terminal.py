"""`antiphon call` in a terminal: prompts for the answers to questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.call.terminal import Terminal
from antiphon.client import Elicitation
from antiphon.errors import RequestError
from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, in_terminal


def test_prompts_for_each_field_until_the_answer_is_valid(questions_url: str) -> None:
    with in_terminal("call", questions_url, "order", "--json") as terminal:
        shown = terminal.expect("Full name (name) (text, at least 2 characters): ")
        assert shown.startswith("questions asks: What would you like?\n")
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


def test_shows_labels_and_does_not_number_numeric_choices(questions_url: str) -> None:
    with in_terminal("call", questions_url, "paint") as terminal:
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
    ],
)
def test_declines_and_cancels_by_word_and_by_key(questions_url: str, keys: str, how: str) -> None:
    with in_terminal("call", questions_url, "order") as terminal:
        terminal.expect("characters): ")
        terminal.press(keys)
        assert terminal.wait() == (1, "")
    assert f"This was {how}: What would you like?" in terminal.screen


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "DRAFT-2026-v1"])
def test_ctrl_c_is_not_an_answer(questions_url: str, version: str) -> None:
    with in_terminal("call", questions_url, "stubborn", "--protocol", version) as terminal:
        assert "Ctrl-C ends the command without an answer." in terminal.expect("name (text): ")
        terminal.press(CTRL_C)
        assert terminal.wait() == (130, "")
    assert "so be it" not in terminal.screen
    assert "Traceback" not in terminal.screen


def test_ctrl_c_after_a_question_interrupts_the_command(questions_url: str) -> None:
    with in_terminal("call", questions_url, "stubborn") as terminal:
        terminal.expect("name (text): ")
        terminal.type_line("!cancel")
        terminal.expect("info: so be it: cancel")
        terminal.press(CTRL_C)
        assert terminal.wait() == (130, "")
    assert "Traceback" not in terminal.screen


@pytest.mark.parametrize(("word", "code", "printed"), [("yes", 0, "logged in\n"), ("no", 1, "")])
def test_shows_a_url_and_does_not_open_it(questions_url: str, word: str, code: int, printed: str) -> None:
    with in_terminal("call", questions_url, "log_in", env={"BROWSER": "/bin/false"}) as terminal:
        shown = terminal.expect("Will you open it? (yes or no): ")
        assert "questions asks: Please log in." in shown
        assert "https://xn--bcher-kva.example/login?for=42" in shown
        assert "Its host is xn--bcher-kva.example. The URL is not opened for you." in shown
        terminal.type_line("")
        terminal.expect("Will you open it? (yes or no): ")
        terminal.type_line(word)
        assert terminal.wait() == (code, printed)


def test_a_form_without_fields_prompts_for_yes_or_no(questions_url: str) -> None:
    with in_terminal("call", questions_url, "confirm") as terminal:
        terminal.expect("Accept? (yes or no): ")
        terminal.type_line("yes")
        assert terminal.wait() == (0, "done\n")


def test_prompts_for_concurrent_questions_one_at_a_time(questions_url: str) -> None:
    with in_terminal("call", questions_url, "both") as terminal:
        for message, name in (("First?", "Ada"), ("Second?", "Bob")):
            terminal.expect(message)
            terminal.expect("name (text): ")
            terminal.type_line(name)
        assert terminal.wait() == (0, "Ada Bob\n")


def test_does_not_prompt_for_fields_that_have_an_answer(questions_url: str) -> None:
    answered = ("--answer", "name=Ada", "--answer", "price=free", "--answer", "extras=milk,sugar")
    with in_terminal(
        "call", questions_url, "order", *answered, "--answer", "size=large", "--answer", "express=true"
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


def test_prompts_again_if_the_server_rejects_the_answer(questions_url: str) -> None:
    with in_terminal("call", questions_url, "born", "--answer", "value=2026-02-31") as terminal:
        terminal.expect("value (a date, such as 2026-11-30): ")
        terminal.type_line("1815-12-10")
        assert terminal.wait() == (0, "1815-12-10\n")


def test_a_question_cannot_control_the_terminal(questions_url: str) -> None:
    with in_terminal("call", questions_url, "hostile") as terminal:
        assert "Your]0;gotcha name?" in terminal.expect("name (text): ")
        terminal.type_line("Ada")
        assert terminal.wait() == (0, "done\n")
    assert "\x07" not in terminal.screen


def test_no_input_never_prompts(questions_url: str) -> None:
    with in_terminal("call", questions_url, "order", "--no-input") as terminal:
        assert terminal.wait() == (2, "")
    assert "The question has no answer." in terminal.screen


async def answer_typed(
    question: Elicitation, lines: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[str]]:
    """Return the answer for these typed lines, and the output."""
    typed, shown = iter(lines), list[str]()

    async def line(terminal: Terminal, prompt: str) -> str:
        shown.append(prompt)
        return next(typed)

    monkeypatch.setattr(Terminal, "is_interactive", lambda: True)
    monkeypatch.setattr(Terminal, "show", lambda terminal, text, style="": shown.append(text))
    monkeypatch.setattr(Terminal, "read_line", line)
    return await ElicitationHandler(PreparedAnswers())(question), shown


@pytest.mark.parametrize(
    ("least", "lines", "chosen", "said"),
    [(0, ("",), [], []), (1, ("", "2"), ["b"], ["tags: choose at least 1."])],
)
async def test_enter_answers_a_list_that_may_be_empty(
    least: int, lines: tuple[str, ...], chosen: list[str], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": least}
    question = Elicitation("Which?", {"properties": {"tags": tags}, "required": ["tags"]})
    answer, shown = await answer_typed(question, lines, monkeypatch)
    assert answer == {"tags": chosen}
    assert [line for line in shown if line.startswith("tags: ")] == said


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.b/c", "a.b"),
        ("https://www.bank.example@evil.example/", "evil.example"),
        ("https://evil.example\\@www.bank.example/", "evil.example"),
        ("https://аррӏе.example:81?x", "xn--80ak6aa92e.example:81"),
    ],
)
async def test_shows_the_host_that_a_url_leads_to(
    url: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, shown = await answer_typed(Elicitation("Go.", mode="url", url=url), ["yes"], monkeypatch)
    assert answer == {}
    assert f"Its host is {host}. The URL is not opened for you." in shown
    assert not any("bank.example@" in line for line in shown)
    assert any("user name" in line for line in shown) == ("bank.example@evil" in url)


@pytest.mark.parametrize(
    "url", ["http://[::1", "mailto:ada", "file:///etc/passwd", "javascript:alert(1)", ""]
)
async def test_refuses_a_url_that_is_not_a_web_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestError, match="cannot answer"):
        await answer_typed(Elicitation("Go.", mode="url", url=url), ["yes"], monkeypatch)
