"""`antiphon tools`, and results on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment, running
from tests.cli.conftest import TOOLS_SERVER

COLOUR = re.compile(r"\x1b\[(\d+;)*[39][0-7][;m]")


def test_lists_tools_as_functions(url: str) -> None:
    done = antiphon("tools", url)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:2] == ["greet(name: string, times: integer = 1)", "    Greet someone."]
    assert (
        "types(text: string, whole: integer = 0, number: number = 0.0, flag: boolean = false, "
        "point: object | null = null, tags: array | null = null, maybe: string | null = null, "
        'unit: string = "m", anything: any = null)'
    ) in lines


def test_lists_tools_as_json(url: str) -> None:
    tools = json.loads(antiphon("tools", url, "--json").stdout)
    assert [tool["name"] for tool in tools][:2] == ["greet", "types"]
    assert tools[0]["inputSchema"]["required"] == ["name"]


def test_lists_the_tools_of_a_file() -> None:
    done = antiphon("tools", TOOLS_SERVER)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "greet(name: string, times: integer = 1)")


def test_prints_that_a_server_has_no_tools(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text('from antiphon import Server\nserver = Server("empty")\n')
    with running(tmp_path / "empty.py", directory=tmp_path) as server:
        assert "Tools: none." in server.log
        done = antiphon("tools", server.url)
    assert (done.returncode, done.stdout) == (0, "This server has no tools.\n")


def test_a_missing_target_is_a_usage_error() -> None:
    done = antiphon("tools")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Missing target" in done.stderr


def test_a_terminal_shows_colours_and_markdown(url: str) -> None:
    shown = on_a_terminal("call", url, "work", "steps=1")
    assert "\x1b[" in shown
    assert "**steps**" not in shown
    assert "steps" in shown


def test_no_color_is_respected(url: str) -> None:
    for command in (("call", url, "types", "text=x"), ("tools", url)):
        assert COLOUR.search(on_a_terminal(*command))
        assert not COLOUR.search(on_a_terminal(*command, env={"NO_COLOR": "1"}))


def test_a_terminal_keeps_line_breaks_of_plain_text(url: str) -> None:
    assert on_a_terminal("call", url, "types", "text=x").count('"text"') == 1
    shown = on_a_terminal("call", url, "greet", "--args", '{"name": "a\\nb"}')
    assert shown.splitlines() == ["Hello, a", "b!"]


def test_removes_control_characters_on_a_terminal(url: str) -> None:
    shown = on_a_terminal("call", url, "greet", "--args", '{"name": "\\u001b]0;gotcha\\u0007"}')
    assert shown == "Hello, ]0;gotcha!\n"
    assert "\x1b" not in on_a_terminal("call", url, "fail", "--args", '{"why": "\\u001b[31mred"}')


def on_a_terminal(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command on a terminal. Return its output."""
    ours, theirs = pty.openpty()
    environment = {**plain_environment({"TERM": "xterm-256color", "COLUMNS": "80"}), **(env or {})}
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
        process.wait(PATIENCE)
    return shown.decode().replace("\r\n", "\n")
