"""The commands of the page about the seeds do what the comments beside them say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import antiphon, running
from tests.support.process import ROOT

PAGE = (ROOT / "docs" / "reference" / "seeds.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^antiphon call http://127\.0\.0\.1:8000/mcp (.*?) +# (.+)$", PAGE, re.MULTILINE)
DRAFT = re.findall(r"^export DRAFT=(\S+)", PAGE, re.MULTILINE)
DONE, FAILED, ASKS = 0, 1, 2

ENDS = {
    "an answer, complete": (DONE, ""),
    "an answer, failure": (FAILED, ""),
    "additional information": (ASKS, "question"),
    "a promise": (DONE, "Task: "),
    "streaming": (DONE, ""),
    "a task that asks": (ASKS, "Task: "),
    "load shedding": (DONE, ""),
    "segments of a slow tool": (DONE, ""),
    "an artifact": (DONE, ""),
    "a command that fails": (FAILED, ""),
    "two questions in one round": (ASKS, ""),
    "002": (ASKS, ""),
}
"""How a command ends, and what it says on standard error, by what its comment has. The first one counts."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("page")
    store = f"sqlite:///{directory / 'tasks.db'}"
    with running(ROOT / "examples" / "seeds.py", "--store", store, directory=directory) as server:
        yield server.url


def test_the_page_has_a_command_for_each_document_and_each_end() -> None:
    said = " ".join(comment for _, comment in COMMANDS)
    assert [end for end in ENDS if end not in said] == []
    assert all(f"00{number}" in said for number in range(5))


@pytest.mark.parametrize(("command", "comment"), COMMANDS, ids=[comment for _, comment in COMMANDS])
def test_a_command_of_the_page_ends_as_its_comment_says(
    url: str, command: str, comment: str, tmp_path: Path
) -> None:
    words = shlex.split(command.replace("$DRAFT", *DRAFT))
    done = antiphon("call", url, *words, "--no-input", cwd=tmp_path)
    code, said = next(ENDS[end] for end in ENDS if end in comment)
    assert done.returncode == code, done
    assert said in done.stderr
    assert ("Task: " in done.stderr) == ("--task" in words), done.stderr
