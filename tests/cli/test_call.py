"""`antiphon call`: arguments, results and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment
from tests.cli.conftest import TOOLS_SERVER
from tests.support.process import free_port


def test_prints_the_text_of_a_result(url: str) -> None:
    done = antiphon("call", url, "greet", "name=Ada", "times=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, Ada! Hello, Ada!\n", "")


def test_prints_the_whole_result_as_json(url: str) -> None:
    done = antiphon("call", url, "work", "steps=2", "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert result["content"] == [{"type": "text", "text": "# Done\n\nAll **steps**."}]
    assert result["structuredContent"] == {"steps": 2}
    assert result["isError"] is False
    assert result["_meta"]["took"] == "no time"


def test_progress_and_log_messages_go_to_standard_error(url: str) -> None:
    done = antiphon("call", url, "work", "steps=2")
    assert done.stderr.splitlines() == ["[1/2] step 1", "[2/2] step 2", "info: all steps done"]
    assert done.stdout == "# Done\n\nAll **steps**.\n"


def test_summarises_content_that_is_not_text(url: str) -> None:
    assert antiphon("call", url, "picture").stdout == "Look:\n[image/png, 100 bytes]\n"


def test_parses_arguments_by_the_schema_of_the_tool(url: str) -> None:
    done = antiphon(
        *(
            "call",
            url,
            "types",
            "text=42",
            "whole=42",
            "flag=true",
            'point={"x": 1}',
            "maybe:=null",
            "--json",
        ),
    )
    data = json.loads(done.stdout)["structuredContent"]
    assert (data["text"], data["whole"], data["flag"], data["maybe"]) == ("42", 42, True, None)
    assert data["point"] == {"x": 1, "y": 0}


def test_an_invalid_argument_is_a_usage_error(url: str) -> None:
    done = antiphon("call", url, "types", "whole=x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: Invalid value for whole: 'x' is not of type integer.\n"


def test_a_failure_goes_to_standard_error_and_exits_with_code_1(url: str) -> None:
    done = antiphon("call", url, "fail", "why=Out of tea.")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Out of tea.\n")


def test_prints_a_failure_as_json(url: str) -> None:
    done = antiphon("call", url, "fail", "why=Out of tea.", "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["isError"]) == (1, True)
    assert result["structuredContent"] == {"why": "Out of tea."}


def test_the_server_reports_a_missing_argument(url: str) -> None:
    done = antiphon("call", url, "greet")
    assert done.returncode == 1
    assert "name: This argument is required" in done.stderr


def test_an_unknown_tool_is_a_usage_error_with_a_suggestion(url: str) -> None:
    done = antiphon("call", url, "gret", "name=Ada")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: The server has no tool 'gret'. Did you mean 'greet'?\n"


def test_an_unreachable_server_exits_with_code_3() -> None:
    done = antiphon("call", f"http://127.0.0.1:{free_port()}/mcp", "greet", "name=Ada")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) <= 2
    assert "No connection to" in done.stderr


def test_a_url_without_an_mcp_endpoint_exits_with_code_3(url: str) -> None:
    done = antiphon("call", url + "/elsewhere", "greet", "name=Ada")
    assert done.returncode == 3
    assert "There is no MCP endpoint" in done.stderr


def test_a_timeout_exits_with_code_3(url: str) -> None:
    done = antiphon("call", url, "slow", "gate=/no/such/file", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.strip().endswith("To wait longer, use --timeout.")


def test_a_target_that_is_neither_url_nor_file_is_a_usage_error() -> None:
    done = antiphon("call", "localhost:8000", "greet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: 'localhost:8000' is neither a URL (http://…) nor a Python file (….py). "
        "To start a command, write it at the end after two dashes: -- COMMAND.\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [(("http://127.0.0.1:1/mcp",), "Missing tool"), (("greet",), "Missing target")],
)
def test_missing_words_are_a_usage_error(words: tuple[str, ...], message: str) -> None:
    done = antiphon("call", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_the_target_can_come_from_the_environment(url: str) -> None:
    done = antiphon("call", "greet", "name=Ada", env={"ANTIPHON_URL": url})
    assert done.stdout == "Hello, Ada!\n"
    assert antiphon("tools", env={"ANTIPHON_URL": url}).stdout.startswith("greet(")


def test_starts_a_file_for_the_call() -> None:
    done = antiphon("call", TOOLS_SERVER, "greet", "name=Ada")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")
    assert done.stderr == "printed while the file is loaded\n"


def test_a_file_that_raises_exits_with_code_1_and_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    done = antiphon("call", "broken.py", "greet", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "ZeroDivisionError" in done.stderr


def test_ctrl_c_interrupts_a_call_without_a_traceback(url: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "call", url, "work", "steps=2000000", "--timeout", "30"],
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == "[1/2000000] step 1\n"
        process.send_signal(signal.SIGINT)
        printed, complained = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, printed) == (130, "")
    assert "Traceback" not in complained


def test_sends_tokens_and_headers(guarded_url: str) -> None:
    assert antiphon("call", guarded_url, "caller", "--token", "ada").stdout == "ada\n"
    assert antiphon("call", guarded_url, "caller", env={"ANTIPHON_TOKEN": "bob"}).stdout == "bob\n"
    assert antiphon("call", guarded_url, "caller", "--header", "X-Name: eve").stdout == "eve\n"


def test_a_caller_without_a_token_exits_with_code_3(guarded_url: str) -> None:
    done = antiphon("call", guarded_url, "caller")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Authentication is required." in done.stderr
    assert antiphon("call", guarded_url, "caller", "--header", "nonsense").returncode == 2
