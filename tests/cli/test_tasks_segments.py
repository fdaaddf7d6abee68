"""`antiphon tasks` on tasks whose results are in their logs as segments: what is shown is the whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.command import antiphon, running
from tests.support.process import SERVERS

EMITTING = SERVERS / "emitting.py"
NUMBERS = [str(number) for number in range(1, 601)]


class Served(NamedTuple):
    url: str
    store: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of tools that emit, and its store."""
    directory: Path = tmp_path_factory.mktemp("emitting")
    store = f"sqlite:///{directory / 'tasks.db'}"
    with running(EMITTING, directory=directory, env={"ANTIPHON_STORE": store}) as server:
        yield Served(server.url, store)


def task(served: Served, tool: str, n: int) -> str:
    """The id of a task that has ended."""
    done = antiphon("call", served.url, tool, f"n={n}", "--task")
    return done.stderr.split()[1]


@pytest.mark.parametrize("place", ["store", "url"])
def test_a_task_that_has_emitted_is_shown_whole(served: Served, place: str) -> None:
    id = task(served, "count", 600)
    where = getattr(served, place)
    done = antiphon("tasks", "show", where, id, "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [block["text"] for block in shown["result"]["content"]] == NUMBERS
    page = antiphon("tasks", "show", where, id).stdout
    assert "\n".join(NUMBERS[1:]) in "\n".join(line.strip() for line in page.splitlines())


def test_the_log_has_the_segments(served: Served) -> None:
    id = task(served, "count", 600)
    shown = json.loads(antiphon("tasks", "show", served.store, id, "--json").stdout)
    emitted = [entry["data"] for entry in shown["log"] if entry["kind"] == "emitted"]
    assert emitted
    segments = [block["text"] for data in emitted for block in data["blocks"]]
    assert segments == NUMBERS[: len(segments)]


@pytest.mark.parametrize("place", ["store", "url"])
def test_one_that_failed_is_shown_with_what_there_was(served: Served, place: str) -> None:
    id = task(served, "fail", 300)
    done = antiphon("tasks", "show", getattr(served, place), id, "--json")
    result = json.loads(done.stdout)["result"]
    assert result["isError"] is True
    assert [block["text"] for block in result["content"]] == [*NUMBERS[:300], "It cannot be done."]


@pytest.mark.parametrize("place", ["store", "url"])
def test_what_is_watched_to_its_end_is_whole(served: Served, place: str) -> None:
    id = task(served, "count", 600)
    done = antiphon("tasks", "watch", getattr(served, place), id, "--json")
    assert done.returncode == 0
    last = json.loads(done.stdout.splitlines()[-1])
    assert len(last["result"]["content"]) == 600
