"""`--protocol`: the commands speak the version that the user names, the draft too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import antiphon, running

TASKS_SERVER = Path(__file__).parent.parent / "promises" / "patient.py"
STREAMING_SERVER = Path(__file__).parent.parent / "client" / "telling.py"
EARLIER_DRAFTS = (
    "DRAFT-000-messages",
    "DRAFT-000-additional-info",
    "DRAFT-001-messages",
    "DRAFT-001-content",
)
VERSIONS = ("2026-07-28", "2025-11-25", "DRAFT-2026-v1", *EARLIER_DRAFTS)
DRAFT = ("--protocol", "DRAFT-2026-v1")
NAMES = ("--answer", "name=Ada", "--answer", "name=Byron")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose tools ask, and run as tasks."""
    directory = tmp_path_factory.mktemp("patient")
    store = {"ANTIPHON_STORE": f"sqlite:///{directory / 'tasks.db'}"}
    with running(TASKS_SERVER, "--access-log", directory=directory, env=store) as server:
        yield server.url


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_that_asks_is_answered_in_every_version(url: str, version: str) -> None:
    done = antiphon("call", url, "greet", *NAMES, "--protocol", version)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, Ada Byron!\n", "")
    done = antiphon("call", url, "greet", "--task", *NAMES, "--protocol", version)
    assert (done.returncode, done.stdout) == (0, "Hello, Ada Byron!\n")
    assert re.fullmatch(r"Task: greet_\S+\n", done.stderr)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_is_read_in_every_version(version: str) -> None:
    done = antiphon(
        "call", STREAMING_SERVER, "ask_later", "--stream", "--answer", "value=Ada", "--protocol", version
    )
    assert (done.returncode, done.stdout) == (0, "text 1\ntext 2\nHello, Ada!\n")


@pytest.mark.parametrize("version", ["DRAFT-2026-v1", "DRAFT-000-additional-info", "DRAFT-001-content"])
def test_a_task_of_a_draft_with_all_questions_is_shown_and_answered_by_key(url: str, version: str) -> None:
    draft = ("--protocol", version)
    started = antiphon("call", url, "both", "--task", "--no-input", *draft)
    found = re.match(r"Task: (\S+)\n", started.stderr)
    assert found, started.stderr
    id = found[1]
    for key, name in (("last", "Byron"), ("first", "Ada")):
        done = antiphon("tasks", "answer", url, id, f"name={name}", "--key", key, *draft)
        assert (done.returncode, done.stdout) == (0, f"Answered the questions of {id}: {key}.\n")
    assert antiphon("tasks", "watch", url, id, *draft).returncode == 0
    shown = antiphon("tasks", "show", url, id, *draft)
    assert shown.returncode == 0
    assert "Ada Byron" in shown.stdout
    listed = antiphon("tasks", "ls", url, *draft)
    assert listed.returncode != 0  # a server without authentication lists nobody's tasks
    assert f"antiphon tasks show {url} ID" in listed.stderr


def test_tools_are_listed_in_the_version(url: str) -> None:
    done = antiphon("tools", url, *DRAFT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "greet" in done.stdout


@pytest.mark.parametrize("command", [("tools",), ("call", "greet")])
def test_an_unknown_version_is_a_usage_error(url: str, command: tuple[str, ...]) -> None:
    done = antiphon(command[0], url, *command[1:], "--protocol", "1999-01-01")
    assert (done.returncode, done.stdout) == (2, "")
    assert "protocol='1999-01-01' is not one of 2026-07-28" in done.stderr
