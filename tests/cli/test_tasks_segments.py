"""`antiphon tasks` on tasks whose results were streamed: all segments are shown."""

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
    """A server whose tools stream their results, and its store."""
    directory: Path = tmp_path_factory.mktemp("emitting")
    store = f"sqlite:///{directory / 'tasks.db'}"
    with running(EMITTING, directory=directory, env={"ANTIPHON_STORE": store}) as server:
        yield Served(server.url, store)


def task(served: Served, tool: str, n: int) -> str:
    """Run a task to its end. Return its ID."""
    done = antiphon("call", served.url, tool, f"n={n}", "--task")
    return done.stderr.split()[1]


@pytest.mark.parametrize("place", ["store", "url"])
def test_shows_all_segments_of_a_result(served: Served, place: str) -> None:
    id = task(served, "count", 600)
    where = getattr(served, place)
    done = antiphon("tasks", "show", where, id, "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [block["text"] for block in shown["result"]["content"]] == NUMBERS
    page = antiphon("tasks", "show", where, id).stdout
    assert "\n".join(NUMBERS[1:]) in "\n".join(line.strip() for line in page.splitlines())


def test_the_log_contains_the_segments(served: Served) -> None:
    id = task(served, "count", 600)
    shown = json.loads(antiphon("tasks", "show", served.store, id, "--json").stdout)
    emitted = [entry["data"] for entry in shown["log"] if entry["kind"] == "emitted"]
    assert emitted
    blocks = [block for data in emitted for block in data["blocks"]]
    # The last ones are written with the result.
    (ended,) = [entry["data"] for entry in shown["log"] if entry["kind"] == "ended"]
    assert [block["text"] for block in (*blocks, *ended["result"]["content"])] == NUMBERS


@pytest.mark.parametrize("place", ["store", "url"])
def test_shows_the_segments_of_a_failed_task(served: Served, place: str) -> None:
    id = task(served, "fail", 300)
    done = antiphon("tasks", "show", getattr(served, place), id, "--json")
    result = json.loads(done.stdout)["result"]
    assert result["isError"] is True
    assert [block["text"] for block in result["content"]] == [*NUMBERS[:300], "It cannot be done."]


@pytest.mark.parametrize("place", ["store", "url"])
def test_the_last_change_contains_all_segments(served: Served, place: str) -> None:
    id = task(served, "count", 600)
    done = antiphon("tasks", "watch", getattr(served, place), id, "--json")
    assert done.returncode == 0
    last = json.loads(done.stdout.splitlines()[-1])
    assert len(last["result"]["content"]) == 600
