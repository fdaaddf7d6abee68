"""`antiphon tasks ls` with conditions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import antiphon
from tests.cli.stored_tasks import make_store, sqlite_url


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = sqlite_url(tmp_path_factory.mktemp("filters"))
    make_store(url)
    return url


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "running0 queued0 done0 failed0 waiting0 faulted0 cancelled0"),
        ("--phase ready", "running0 queued0"),
        ("--phase waiting", "waiting0"),
        ("--phase ended", "done0 failed0 faulted0 cancelled0"),
        ("--tool ask", "waiting0"),
        ("--principal ann", "failed0 waiting0"),
        ("--outcome done", "done0"),
        ("--outcome failed", "failed0 faulted0"),
        ("--failed", "failed0 faulted0"),
        ("--outcome cancelled", "cancelled0"),
        ("--older 7d", "waiting0 faulted0 cancelled0"),
        ("--newer 2h", "running0 queued0"),
        ("--newer 4w --older 49h", "failed0 waiting0 faulted0"),
        ("--outcome failed --principal ann --tool pay --newer 4w", "failed0"),
        ("--outcome failed --tool ask", ""),
        ("--phase ready --limit 1", "running0"),
    ],
)
def test_only_tasks_that_match_are_listed(store: str, options: str, expected: str) -> None:
    done = antiphon("tasks", "ls", store, *options.split(), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [task["taskId"] for task in json.loads(done.stdout)] == expected.split()


def test_a_list_without_tasks_says_so(store: str, tmp_path: Path) -> None:
    assert antiphon("tasks", "ls", store, "--tool", "x").stdout == "No task matches these options.\n"
    make_store(sqlite_url(tmp_path), count=0)
    assert antiphon("tasks", "ls", sqlite_url(tmp_path)).stdout == "There are no tasks.\n"
    assert antiphon("tasks", "ls", sqlite_url(tmp_path), "--failed").stdout == "There are no failed tasks.\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--older soon", "Invalid age 'soon' for --older: use a number and a unit, such as 90s"),
        ("--newer -2h", "Invalid age '-2h' for --newer"),
        ("--newer 2", "Invalid age '2' for --newer"),
        ("--failed --outcome done", "--failed and --outcome done exclude each other"),
        ("--phase waiting --outcome done", "Only ended tasks have an outcome: leave out --phase waiting."),
        ("--phase gone", "'gone' is not one of 'ready', 'waiting', 'ended'"),
    ],
)
def test_invalid_conditions_are_refused(store: str, options: str, message: str) -> None:
    done = antiphon("tasks", "ls", store, *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("option", ["--phase=ended", "--tool=x", "--principal=x"])
def test_a_server_does_not_say_some_things_about_tasks(option: str) -> None:
    done = antiphon("tasks", "ls", Path(__file__).parent / "tools_server.py", option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option.partition('=')[0]} applies to a store" in done.stderr
