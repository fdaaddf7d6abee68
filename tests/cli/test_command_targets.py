"""Commands as targets: `antiphon tools -- command`. The processes are real, and none is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from antiphon.cli.command_words import join_command
from antiphon.cli.exit_codes import INTERRUPTED, SIGNALLED, UNREACHABLE, USAGE, CommandError
from antiphon.cli.targets import Target
from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment
from tests.cli.conftest import QUESTIONS_SERVER, TOOLS_SERVER
from tests.support.polling import wait_until
from tests.support.process import ROOT, environment

STDIO = (sys.executable, "-m", "antiphon", "run", "--stdio")
PATH = ("--env", f"PYTHONPATH={environment()['PYTHONPATH']}")


def python(script: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", script)


def served(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a server that is a command itself."""
    return antiphon(*words, *PATH, "--", *STDIO, file)


def test_the_tools_of_a_command_are_listed() -> None:
    done = served(TOOLS_SERVER, "tools")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("greet(name: string, times: integer = 1)\n    Greet someone.\n")
    assert done.stderr == "", "what the command prints to standard error is not shown"


def test_a_tool_of_a_command_is_called() -> None:
    done = served(TOOLS_SERVER, "call", "greet", "name=Ada", "times=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, Ada! Hello, Ada!\n", "")
    done = served(QUESTIONS_SERVER, "call", "nosuch")
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert "The server has no tool 'nosuch'." in done.stderr


def test_the_standard_error_of_a_command_is_shown_on_request() -> None:
    done = served(TOOLS_SERVER, "call", "greet", "name=Ada", "--stderr")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada!\n")
    assert "printed while the file is loaded" in done.stderr


def test_the_tasks_and_the_inbox_of_a_command() -> None:
    done = served(TOOLS_SERVER, "tasks", "show", "nosuch")
    assert done.returncode in (USAGE, UNREACHABLE)
    assert "Traceback" not in done.stderr
    done = served(TOOLS_SERVER, "tasks", "ls", "--protocol", "2025-11-25")
    assert done.returncode == USAGE
    assert "This server has no tasks in protocol version 2025-11-25." in done.stderr
    done = served(TOOLS_SERVER, "inbox", "--json")
    assert done.returncode == USAGE
    assert "This server has no inbox in protocol version 2026-07-28" in done.stderr


def test_doctor_checks_a_command_and_names_the_checks_that_do_not_apply() -> None:
    done = served(TOOLS_SERVER, "doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"], report["server"]["name"]) == (0, True, "served")
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert states["versions"] == states["tools"] == states["output"] == states["shutdown"] == "ok"
    assert states["origins"] == states["login"] == "skipped"


BAD_CITIZEN = """
import json, signal, sys
print("Welcome!", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
signal.pause()
"""


def test_doctor_warns_of_stray_output_and_of_a_process_that_does_not_end() -> None:
    done = antiphon("doctor", *python(BAD_CITIZEN))
    assert done.returncode == 0, done.stderr
    assert "warn   output     text on standard output that is not a message: 'Welcome!'" in done.stdout
    assert "warn   shutdown   does not end when its input is closed, but after SIGTERM" in done.stdout
    assert "skip   origins    web pages cannot reach a server over stdio" in done.stdout


NO_SERVERS = {
    "absent": (
        ("--", "no-such-program"),
        "Cannot start no-such-program: there is no program 'no-such-program'. Check its name,",
    ),
    "exits": (
        python("import sys; sys.exit(4)"),
        "has exited with code 4. It printed nothing to standard error.",
    ),
    "prints": (
        python("print('usage: me')"),
        "has exited with code 0. It printed 'usage: me', which is not MCP",
    ),
    "prints-without-end": (
        python("while True: print('la la')"),
        "does not speak MCP. The body is not JSON",
    ),
    "hangs": (
        ("--timeout", "1.5", *python("import signal; signal.pause()")),
        "has not answered within 1.5 s: connecting. It has printed nothing to its standard output: check "
        "that it serves MCP over stdio. To wait longer, use --timeout.",
    ),
}
CLIENTS = [("call", "tool"), ("tasks", "show", "id"), ("inbox",)]
"""Commands that connect as `tools` does."""


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(((command,), name) for command in ("tools", "doctor") for name in NO_SERVERS),
        *((command, "absent") for command in CLIENTS),
    ],
)
def test_a_command_that_is_no_server_is_an_error(command: Sequence[str], name: str) -> None:
    target, says = NO_SERVERS[name]
    done = antiphon(*command, *target)
    assert (done.returncode, done.stdout) == (UNREACHABLE, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_the_last_lines_of_a_command_that_fails_are_shown_and_cleaned() -> None:
    lines = "'line\\n' * 5000 + '\\x1b[31mred\\x1b[0m \\u202e' + 'x' * 900"
    done = antiphon("tools", *python(f"import sys; sys.stderr.write({lines}); sys.exit(3)"))
    first, *shown, last = done.stderr.splitlines()
    assert first == "The last lines that the command printed to standard error:"
    assert shown == ["  line"] * 19 + [f"  [31mred[0m {'x' * 385}…"]
    assert last.startswith("Error: ")
    assert "If it needs variables of your environment, pass them with --env NAME." in last
    done = antiphon("tools", "--stderr", *python("import sys; sys.exit('the reason')"))
    assert done.stderr.startswith("the reason\nError: ")


def test_a_command_gets_only_the_variables_that_are_passed() -> None:
    script = "import os, sys; sys.exit(' '.join(sorted(os.environ)))"
    env = {"MINE": "1", "ANTIPHON_SECRETS": "s3cret", "MY_API_KEY": "s3cret"}
    done = antiphon("tools", "--env", "MINE", *python(script), env=env)
    names = set(done.stderr.splitlines()[1].split())
    assert "MINE" in names
    assert not names & {"ANTIPHON_SECRETS", "MY_API_KEY", "PYTHONPATH"}


def test_a_password_in_an_argument_is_not_printed() -> None:
    done = antiphon("tools", *python("pass"), "--store", "postgresql://ada:s3cret@host/db")
    assert "postgresql://***@host/db" in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tools", "--"), "The command after -- is missing."),
        (("call", "--", "server"), "Missing tool: antiphon call TOOL -- server."),
        (
            ("call", "http://x/mcp", "tool", "--", "server"),
            "There are two targets: http://x/mcp",
        ),
        (("tools", "http://x/mcp", "--", "server"), "unexpected extra argument"),
        (
            ("login", "--", "server"),
            "To pass a secret to a command, use --env",
        ),
        (("tools", "--header", "A: b", "--", "server"), "stdio, which has no headers: remove --header."),
        (("tools", "http://x/mcp", "--stderr"), "A URL starts no process: remove --stderr."),
        (("tasks", "ls", "sqlite:///tasks.db", "--stderr"), "A store starts no process"),
        (("tools", "npx"), "write it at the end after two dashes: -- COMMAND."),
    ],
)
def test_wrong_usage_says_what_to_do(words: Sequence[str], says: str) -> None:
    done = antiphon(*words)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert says in " ".join(done.stderr.split())


def test_a_command_wins_over_the_url_in_the_environment() -> None:
    env = {"ANTIPHON_URL": "http://127.0.0.1:9/mcp"}
    for words in (("tools",), ("call", "tool"), ("doctor",)):
        assert "no program 'no-such-program'" in antiphon(*words, "--", "no-such-program", env=env).stderr


# Python ends at the end of its input, SIGTERM ends it too: this process does neither, and has a child.
STUBBORN = """
import json, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
with open(%r, "w") as file:
    file.write(f"{os.getpid()} {other.pid}\\n")
signal.pause()
"""


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGINT], INTERRUPTED),
        ([signal.SIGINT, signal.SIGINT], INTERRUPTED),
        ([signal.SIGTERM], SIGNALLED + signal.SIGTERM),
        ([signal.SIGHUP], SIGNALLED + signal.SIGHUP),
    ],
    ids=["interrupt", "two-interrupts", "terminate", "hang-up"],
)
def test_no_process_is_left_behind_after_a_signal(tmp_path: Path, numbers: list[int], code: int) -> None:
    pids = tmp_path / "pids"
    process = subprocess.Popen(
        [*COMMAND, "tools", *python(STUBBORN % str(pids))],
        cwd=ROOT,
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Under nohup, the tests ignore the signal, and the command would too.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    try:
        wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"), PATIENCE)
        left = [int(pid) for pid in pids.read_text().split()]
        for number in numbers:
            process.send_signal(number)
        assert process.wait(PATIENCE) == code
    finally:
        process.kill()
        _, errors = process.communicate()
    wait_until(lambda: not any(map(alive, left)), PATIENCE)
    assert b"Traceback" not in errors


def test_no_process_is_left_behind_after_an_error(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    done = antiphon("tools", "--timeout", "2", *python(STUBBORN % str(pids)))
    assert done.returncode == UNREACHABLE
    assert not any(alive(int(pid)) for pid in pids.read_text().split())


def test_a_target_that_is_a_command_is_parsed_as_it_was_written() -> None:
    words = ["my server", "--flag", "a'b", "", "http://ada:s3cret@x/?key=1", "x.py:name"]
    parsed = Target.parse(join_command(words), headers=(), token="ignored", timeout=None)
    assert parsed.endpoint == words
    assert "s3cret" not in parsed.name
    assert not parsed.is_remote
    with pytest.raises(CommandError, match="remove --header"):
        Target.parse(join_command(words), headers=("A: b",), token=None, timeout=None)
