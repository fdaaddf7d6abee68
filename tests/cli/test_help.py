"""Help texts, shell completion, colours and progress."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from antiphon.cli.commands import app
from antiphon.cli.examples import epilog
from antiphon.cli.exit_codes import print_error
from antiphon.cli.options import TargetCommand
from tests.cli.command import COMMAND, PATIENCE, plain_environment
from tests.cli.pseudo_terminal import in_terminal


def commands(group: Any, before: str = "") -> Iterator[str]:
    """The words of each command of a group, and of the groups in it."""
    for name, command in group.commands.items():
        yield before + name
        yield from commands(command, f"{before}{name} ") if hasattr(command, "commands") else ()


COMMANDS = ["antiphon", *commands(get_command(app))]


def words(command: str) -> list[str]:
    return [word for word in command.split() if word != "antiphon"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_examples_and_exit_codes(command: str) -> None:
    done = CliRunner().invoke(app, [*words(command), "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0
    assert re.search(r"Examples:\s+\$ antiphon ", done.output)
    assert "Exit codes: 0 success" in done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_uses_known_options(command: str) -> None:
    for line in epilog(command).splitlines():
        if not line.startswith("  $ antiphon "):
            continue
        for typed in re.split(r"; |&& ", line[4:]):
            first, *rest = shlex.split(typed)
            if first != "antiphon" or rest[:1] == ["--install-completion"]:
                continue
            found = get_command(app)
            for word in rest:
                found = getattr(found, "commands", {}).get(word, found)
            if "--" in rest:  # the rest is a command, which has options of its own
                assert isinstance(found, TargetCommand), typed
                rest = rest[: rest.index("--")]
            known = {option for parameter in found.params for option in parameter.opts}
            assert {word for word in rest if word.startswith("--")} <= known, typed


def test_every_command_has_examples() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    groups = [f"{group} {name}" for group in ("tasks", "store") for name in commands[group].commands]
    assert sorted(["antiphon", *commands, *groups]) == sorted(COMMANDS)


def test_completes_commands_and_options_in_a_shell() -> None:
    for typed, wanted in (("antiphon do", "doctor"), ("antiphon call --str", "--stream")):
        done = subprocess.run(
            COMMAND,
            env=plain_environment(
                {
                    "_ANTIPHON_COMPLETE": "complete_bash",
                    "COMP_WORDS": typed,
                    "COMP_CWORD": str(len(typed.split()) - 1),
                }
            ),
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        assert done.stdout.split() == [wanted], done.stderr


def test_shows_a_progress_bar_on_a_terminal_and_removes_it(url: str) -> None:
    with in_terminal("call", url, "work", "steps=3", env={"COLUMNS": "100"}) as terminal:
        code, printed = terminal.wait()
    assert code == 0
    assert "━" in terminal.screen
    assert re.search(r"3/3 0:00:0\d step 3", terminal.screen)
    assert "info: all steps done" in terminal.screen
    assert "[1/3]" not in terminal.screen
    assert printed.startswith("# Done")


def test_a_dumb_terminal_shows_progress_as_lines(url: str) -> None:
    with in_terminal("call", url, "work", "steps=2", env={"TERM": "dumb"}) as terminal:
        terminal.wait()
    assert "[2/2] step 2" in terminal.screen


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_errors_are_red_on_a_terminal_with_colours(
    variables: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    print_error("no")
    assert capsys.readouterr().err == ("\x1b[31mError:\x1b[0m no\n" if coloured else "Error: no\n")
