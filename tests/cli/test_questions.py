"""`antiphon call` without a terminal: options answer the questions, or the command ends with an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiphon import Client
from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.exit_codes import CommandError
from tests.cli import questions_server as tools
from tests.cli.command import antiphon


def test_prints_an_unanswered_question_and_how_to_answer_it(questions_url: str) -> None:
    done = antiphon("call", questions_url, "order", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "questions asks: What would you like?",
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


def test_answers_fields_and_accepts_defaults_for_the_rest(questions_url: str) -> None:
    done = antiphon("call", questions_url, "order", "--answer", "name=Ada", "--answer", "price=2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)["structuredContent"]
    assert (data["name"], data["price"], data["count"], data["size"]) == ("Ada", 2, 1, "small")


def test_answer_options_override_the_answers_file(questions_url: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"name": "Ada", "price": 1, "extras": ["milk"], "unasked": None}))
    done = antiphon("call", questions_url, "order", "--answers", file, "--answer", "price=2.5")
    data = json.loads(done.stdout)
    assert (data["name"], data["price"], data["extras"]) == ("Ada", 2.5, ["milk"])


def test_uses_repeated_answers_in_order(questions_url: str) -> None:
    assert antiphon("call", questions_url, "both", "--answer", "name=Ada").stdout == "Ada Ada\n"
    done = antiphon("call", questions_url, "both", "--answer", "name=Ada", "--answer", "name=Bob")
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
def test_an_invalid_answer_is_a_usage_error(questions_url: str, answers: list[str], message: str) -> None:
    options = [word for answer in answers for word in ("--answer", answer)]
    done = antiphon("call", questions_url, "order", *options)
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
def test_an_invalid_answers_file_is_a_usage_error(
    questions_url: str, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "answers.json"
    if content is not None:
        file.write_text(content)
    done = antiphon("call", questions_url, "order", "--answers", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_does_not_repeat_an_answer_that_the_server_rejected(questions_url: str) -> None:
    done = antiphon("call", questions_url, "born", "--answer", "value=2026-02-31")
    assert done.returncode == 2
    assert "The server rejected the answer and asked again." in done.stderr
    done = antiphon(
        "call", questions_url, "born", "--answer", "value=2026-02-31", "--answer", "value=2026-03-01"
    )
    assert done.stdout == "2026-03-01\n"


@pytest.mark.parametrize(
    ("tool", "default_answer", "code", "printed"),
    [
        ("confirm", "accept", 0, "done\n"),
        ("confirm", "decline", 1, ""),
        ("log_in", "accept", 0, "logged in\n"),
        ("log_in", "cancel", 1, ""),
        ("order", "accept", 2, ""),
        ("order", "cancel", 1, ""),
    ],
)
def test_default_answer_answers_all_other_questions(
    questions_url: str, tool: str, default_answer: str, code: int, printed: str
) -> None:
    done = antiphon("call", questions_url, tool, "--default-answer", default_answer)
    assert (done.returncode, done.stdout) == (code, printed)


@pytest.mark.parametrize(
    ("tool", "shown"),
    [
        ("confirm", "Answer it with --default-answer accept, or run the command in a terminal."),
        (
            "log_in",
            "  https://xn--bcher-kva.example/login?for=42\nError: The question has no answer. Open the URL",
        ),
    ],
)
def test_accepts_nothing_without_an_option(questions_url: str, tool: str, shown: str) -> None:
    done = antiphon("call", questions_url, tool)
    assert (done.returncode, done.stdout) == (2, "")
    assert shown in done.stderr


def test_a_form_that_cannot_be_shown_exits_with_code_3(questions_url: str) -> None:
    done = antiphon("call", questions_url, "odd")
    assert (done.returncode, done.stdout) == (3, "")
    assert "asked for a form that cannot be shown" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_answers_and_stops_in_every_version(version: str) -> None:
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
