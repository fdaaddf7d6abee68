"""`antiphon call --stream`: prints segments as they arrive."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, PATIENCE, antiphon, plain_environment, running
from tests.support.process import ROOT

FILE = Path(__file__).parent.parent / "client" / "telling.py"


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server whose tools stream their results."""
    with running(FILE, directory=tmp_path_factory.mktemp("telling")) as server:
        yield server.url


def test_prints_the_same_text_as_a_plain_call(telling: str) -> None:
    for tool in ("answer", "required"):
        streamed = antiphon("call", "--stream", telling, tool, "to=3")
        assert (streamed.returncode, streamed.stdout, streamed.stderr) == (0, "text 1\ntext 2\ntext 3\n", "")
        assert antiphon("call", telling, tool, "to=3").stdout == streamed.stdout


def test_prints_each_segment_as_it_arrives(telling: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "call", "--stream", telling, "answer", "to=2", "waits=true"],
        cwd=ROOT,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "text 1\n"
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def test_json_prints_a_line_for_each_segment_and_one_for_the_result(telling: str) -> None:
    done = antiphon("call", "--stream", "--json", telling, "required", "to=2")
    *segments, result = map(json.loads, done.stdout.splitlines())
    assert segments == [
        {"seqNr": 1, "type": "text", "text": "text 1"},
        {"seqNr": 2, "type": "text", "text": "text 2"},
    ]
    assert (result["_meta"]["dev.antiphon/test"], result["isError"]) == (True, False)
    assert [block["text"] for block in result["content"]] == ["text 1", "text 2"]


def test_a_failure_goes_to_standard_error_after_the_segments(telling: str) -> None:
    done = antiphon("call", "--stream", telling, "fail")
    assert (done.returncode, done.stdout, done.stderr) == (1, "text 1\n", "It broke.\n")


def test_summarises_images_and_answers_questions(telling: str) -> None:
    assert antiphon("call", "--stream", telling, "paint").stdout == "text 1\n[image/png, 4 bytes]\n"
    done = antiphon("call", "--stream", telling, "ask_later", "--answer", "value=Ada")
    assert (done.returncode, done.stdout) == (0, "text 1\ntext 2\nHello, Ada!\n")
    done = antiphon("call", "--stream", telling, "ask", "--no-input")
    assert (done.returncode, done.stdout) == (2, "text 1\n")


def test_a_task_prints_its_id_and_then_its_segments(telling: str) -> None:
    done = antiphon("call", "--task", "--stream", telling, "required", "to=2")
    assert (done.returncode, done.stdout) == (0, antiphon("call", telling, "required", "to=2").stdout)
    assert re.fullmatch(r"Task: required_\S+\n", done.stderr)
    done = antiphon("call", "--task", "--stream", "--json", telling, "required", "to=2")
    assert [json.loads(line).get("seqNr") for line in done.stdout.splitlines()] == [1, 2, None]
