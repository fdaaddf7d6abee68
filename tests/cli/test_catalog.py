"""`antiphon resources`, `read`, `prompts`, `prompt` and `complete`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from antiphon.cli.call.questions import ElicitationHandler, PreparedAnswers
from antiphon.cli.catalog.resources import read_resource, resource_row
from antiphon.cli.commands import app
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.targets import Target, split_call_words, split_read_words
from antiphon.model.catalog import ResourceDefinition
from tests.cli.command import PATIENCE, antiphon
from tests.cli.pseudo_terminal import in_terminal
from tests.cli.test_tools import on_a_terminal


def run(*words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run a command in this process. Return its exit code, its output and its messages."""
    done = CliRunner().invoke(app, list(words), env={"ANTIPHON_URL": None, **(env or {})})
    return done.exit_code, done.stdout, done.stderr


def printed(*words: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command that succeeds without a message. Return its output."""
    code, output, messages = run(*words, env=env)
    assert (code, messages) == (0, "")
    return output


def failure(*words: str) -> tuple[int, str]:
    """Run a command that fails. Return its exit code and message."""
    code, output, messages = run(*words)
    assert output == ""
    return code, messages


# antiphon resources


def test_lists_resources_and_templates(catalog_url: str) -> None:
    lines = [line.split(maxsplit=3) for line in printed("resources", catalog_url).splitlines()]
    assert lines[0] == ["URI", "TYPE", "SIZE", "DESCRIPTION"]
    assert lines[1] == ["notes://today", "text/markdown", "-", "Today: The notes of the day."]
    assert ["notes://{day}/{hour}", "-", "-", "at: The notes of an hour."] in lines


def test_a_listed_uri_is_the_one_that_can_be_read() -> None:
    uri = "note://ReadMe/Intro Ünë"
    assert resource_row(f"{uri}\x1b\x07", ResourceDefinition(uri=uri, name="intro"))[0] == uri


def test_lists_resources_as_json(catalog_url: str) -> None:
    listed = json.loads(printed("resources", catalog_url, "--json"))
    assert listed["resources"][0] == {
        "uri": "notes://today",
        "name": "today",
        "title": "Today",
        "description": "The notes of the day.\n\nA second paragraph.",
        "mimeType": "text/markdown",
    }
    assert listed["resourceTemplates"][0]["uriTemplate"] == "notes://{day}/{hour}"


def test_a_terminal_shows_resources_as_a_table(catalog_url: str) -> None:
    shown = on_a_terminal("resources", catalog_url)
    assert "\x1b[1m" in shown  # the heading
    assert "\x1b[31m" not in shown  # of the server
    assert "Escapes [31mand" in " ".join(shown.split())


def test_prints_that_a_server_has_no_prompts(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text('from antiphon import Server\nserver = Server("empty")\n')
    file = str(tmp_path / "empty.py")
    assert printed("prompts", file) == "This server has no prompts.\n"


# antiphon read


def test_prints_the_text_of_a_resource(catalog_url: str) -> None:
    assert printed("read", catalog_url, "notes://today") == "# Notes\n\nBuy **tea**.\n"
    assert printed("read", "data://table.csv", env={"ANTIPHON_URL": catalog_url}) == "a,b\n1,**2**\n"
    assert printed("read", catalog_url, "notes://Monday/08", "--protocol", "2025-06-18") == "Monday at 08\n"


def test_prints_a_resource_as_json(catalog_url: str) -> None:
    contents = json.loads(printed("read", catalog_url, "notes://today", "--json"))["contents"]
    assert contents == [
        {"uri": "notes://today", "mimeType": "text/markdown", "text": "# Notes\n\nBuy **tea**."}
    ]


def test_cleans_text_and_renders_only_markdown_as_markdown(
    catalog_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = "red [31mtext[0m **end**\n"
    assert printed("read", catalog_url, "hostile://text") == clean
    target = Target.parse(catalog_url, headers=(), token=None, timeout=PATIENCE)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    read_resource(target, "hostile://text", ElicitationHandler(PreparedAnswers()), as_json=False)
    assert capsys.readouterr().out == clean
    read_resource(target, "notes://today", ElicitationHandler(PreparedAnswers()), as_json=False)
    assert "**" not in capsys.readouterr().out


def test_binary_contents_are_a_line_and_a_hint(catalog_url: str) -> None:
    code, output, messages = run("read", catalog_url, "pictures://logo")
    assert (code, output) == (0, "[pictures://logo, image/png, 100 bytes]\n")
    assert messages == "To save images, audio and files: --save FOLDER.\n"


def test_a_resource_that_does_not_exist_is_an_error(catalog_url: str) -> None:
    code, message = failure("read", catalog_url, "nothing://x")
    assert code == 3
    assert "Resource not found: nothing://x" in message


def test_prompts_for_the_answer_to_a_question_of_a_resource(catalog_url: str) -> None:
    with in_terminal("read", catalog_url, "secrets://safe") as terminal:
        assert "library asks: Which code?" in terminal.expect("value (a whole number): ")
        terminal.type_line("42")
        assert terminal.wait() == (0, "opened with 42\n")


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
def test_a_question_is_answered_by_an_option_or_refused(catalog_url: str, protocol: str) -> None:
    words = ("read", catalog_url, "secrets://safe", "--protocol", protocol)
    assert printed(*words, "--answer", "value=7") == "opened with 7\n"
    code, message = failure(*words, "--no-input")
    assert code == 2
    assert "library asks: Which code?" in message


def test_the_number_of_words_decides_which_one_is_the_target() -> None:
    command = "\0server"
    assert split_read_words(["http://x/mcp", "a://b"], None) == ("http://x/mcp", "a://b")
    assert split_read_words(["https://example.com/doc"], "http://x/mcp") == (
        "http://x/mcp",
        "https://example.com/doc",
    )
    assert split_read_words([command, "https://example.com/doc"], None) == (
        command,
        "https://example.com/doc",
    )
    with pytest.raises(CommandError, match="Missing resource: antiphon read http://x/mcp RESOURCE"):
        split_read_words(["http://x/mcp"], None)
    with pytest.raises(CommandError, match="Unexpected argument: 'c://d'"):
        split_read_words(["http://x/mcp", "a://b", "c://d"], None)


def test_a_template_is_not_taken_for_a_target() -> None:
    words = ["https://example.com/{id}", "id"]
    assert split_call_words(words, "http://x/mcp") == ("http://x/mcp", words[0], ["id"])


# antiphon prompts, antiphon prompt


def test_lists_prompts_as_functions(catalog_url: str) -> None:
    assert printed("prompts", catalog_url).splitlines()[:2] == [
        "translate(text, [language])",
        "    Translate a text.",
    ]
    assert json.loads(printed("prompts", catalog_url, "--json"))[0]["arguments"][0]["name"] == "text"


def test_fills_in_a_prompt(catalog_url: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Good morning")
    words = ("prompt", catalog_url, "translate", "language=Latin")
    said = "Translate into Latin: Good morning"
    assert printed(*words, f"text=@{tmp_path / 'text.txt'}") == f"{said}\n"
    message = {"role": "user", "content": {"type": "text", "text": said}}
    result = json.loads(printed(*words, "text=Good morning", "--json"))
    assert result == {"description": "Translate a text.", "messages": [message]}
    # The argument is a text, although it looks like JSON.
    assert printed("prompt", catalog_url, "translate", "text=42") == "Translate into German: 42\n"


def test_prints_the_roles_of_several_messages(catalog_url: str) -> None:
    said = "user:\nI am Ada.\n\nassistant:\nHello.\n"
    assert printed("prompt", catalog_url, "interview", "--answer", "value=Ada") == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["translat"], "The server has no prompt 'translat'. Did you mean 'translate'?"),
        (["translate"], "Missing argument: text=…. The prompt is translate(text, [language])."),
        (["translate", "text=a", "to=b"], "The prompt 'translate' has no argument 'to'. Its arguments: text"),
        (["translate", "text:=1"], "The arguments of prompts are texts: write text=value."),
        ([], "Missing prompt: antiphon prompt"),
    ],
)
def test_a_mistake_in_a_prompt_is_explained(catalog_url: str, words: list[str], said: str) -> None:
    code, message = failure("prompt", catalog_url, *words)
    assert code == 2
    assert message.startswith(f"Error: {said}")


# antiphon complete


def test_prints_suggested_values(catalog_url: str) -> None:
    template = "notes://{day}/{hour}"
    assert printed("complete", catalog_url, "translate", "language", "G") == "German\nGreek\n"
    assert len(printed("complete", catalog_url, "translate", "language").splitlines()) == 4
    assert printed("complete", catalog_url, template, "hour", "0", "day=Monday") == "08\n09\n"
    assert printed("complete", catalog_url, template, "hour", "", "day=Sunday") == ""
    found = json.loads(printed("complete", catalog_url, "translate", "language", "G", "--json"))
    assert found == {"values": ["German", "Greek"], "total": 2, "hasMore": False}


def test_a_mistake_in_a_completion_is_explained(catalog_url: str) -> None:
    assert failure("complete", catalog_url, "translate")[0] == 2
    code, message = failure("complete", catalog_url, "translate", "language", "G", "day")
    assert (code, message) == (
        2,
        "Error: 'day' is not the value of another argument. Write key=value.\n",
    )


# Processes, and a server of another library


def test_every_command_is_a_process_that_ends(catalog_url: str) -> None:
    for words, line in (
        (["resources", catalog_url], "URI "),
        (["read", catalog_url, "notes://today"], "# Notes"),
        (["prompts", catalog_url], "translate(text, [language])"),
        (["prompt", catalog_url, "translate", "text=hi"], "Translate into German: hi"),
        (["complete", catalog_url, "translate", "language", "L"], "Latin"),
    ):
        done = antiphon(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(line)


def test_reads_a_server_of_the_official_sdk(start_peer: Callable[[str], str], tmp_path: Path) -> None:
    url = start_peer("mcp_catalog")
    assert "memo://welcome" in printed("resources", url)
    assert "weather://{city}" in printed("resources", url, "--protocol", "2025-06-18")
    assert printed("read", url, "weather://Bern") == "It rains in Bern.\n"
    assert printed("prompts", url).splitlines()[0] == "travel(city, [means])"
    assert printed("prompt", url, "travel", "city=Bern") == "Plan a journey to Bern by train.\n"
    assert printed("complete", url, "travel", "city", "Ber") == "Bergen\nBerlin\nBern\n"
    for words in (["call", url, "draw"], ["read", url, "pictures://dot"]):
        assert run(*words, "--save", f"{tmp_path}/")[:2] == (0, "")
    saved = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert saved == dict.fromkeys(("image.png", "dot.png"), b"\x89PNG\r\n\x1a\ndot")
