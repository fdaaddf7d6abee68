"""Seeds 000, 001 and 002, promises: what the server does if the answers are others than the seeds print.

The id of the task is replaced, in what is sent and in what is expected; times are compared by form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.command import PATIENCE, running
from tests.seeds.blocks import blocks_of, printed
from tests.seeds.test_ephemeral import SEEDS
from tests.support.polling import wait_until

ANSWERED, RESPONSE = printed("000:240").json, printed("001:123").text
SEED_002 = [block.text for block in blocks_of("002") if 930 <= block.line <= 1138]
"""The twelve steps."""
UNFITTING = [printed("002:1273").text, printed("002:1298").text]
THEIRS = re.compile(r'"taskId":\s*"([^"]+)"')
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
TIMES = ("createdAt", "lastUpdatedAt")


@pytest.fixture(scope="module", params=["memory:", "sqlite:///{}/tasks.db"], ids=["memory", "sqlite"])
def seeds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `antiphon run examples/seeds.py`, with a store."""
    directory: Path = tmp_path_factory.mktemp("seeds")
    with running(SEEDS, "--store", request.param.format(directory), directory=directory) as server:
        yield server.url


def post(url: str, body: str) -> httpx2.Response:
    """A bare POST, without TLS, whose certificates would take time to load."""
    headers = {"content-type": "application/json"}
    return httpx2.post(url, content=body.encode(), headers=headers, timeout=PATIENCE, verify=False)


class Poster:
    """Posts what is printed, for one task."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.task = ""

    def post(self, printed: str) -> httpx2.Response:
        """A bare POST of a block, about our task in place of theirs."""
        body = THEIRS.sub(f'"taskId": "{self.task}"', printed)
        return post(self._url, body)

    def ask(self, printed: str) -> dict[str, Any]:
        """The frame that answers a block, its times checked and taken out."""
        answer = self.post(printed)
        assert answer.status_code == 200
        frame = dict(answer.json())
        task = frame["result"].get("task", frame["result"])
        self.task = self.task or task["taskId"]
        for name in TIMES:
            if name in task:
                assert MOMENT.fullmatch(task.pop(name))
        return frame

    def expected(self, printed: str) -> dict[str, Any]:
        """A printed answer, as it is for our task."""
        frame = dict(json.loads(THEIRS.sub(f'"taskId": "{self.task}"', printed)))
        result = frame["result"]
        result.setdefault("resultType", "complete")
        if "_meta" in frame or "inputRequests" in result:
            frame.pop("_meta", None)
            result["_meta"] = {"io.modelcontextprotocol/related-task": {"taskId": self.task}}
        task = result.get("task", result)
        for name in TIMES:
            task.pop(name, None)
        return frame

    def poll(self, printed: str, answer: str) -> None:
        """Ask until the status is the one that is printed, and compare."""
        wanted = json.loads(answer)["result"]["status"]

        def reached() -> dict[str, Any] | None:
            frame = self.ask(printed)
            return frame if frame["result"]["status"] == wanted else None

        assert wait_until(reached) == self.expected(answer)

    def compare(self, printed: str, answer: str) -> None:
        """Ask, and compare."""
        frame = self.ask(printed)
        assert frame == self.expected(answer)


def test_an_answer_that_does_not_fit_leaves_the_question_open(seeds: str) -> None:
    poster, steps = Poster(seeds), SEED_002
    poster.compare(steps[0], steps[1])
    poster.poll(steps[2], steps[3])
    poster.compare(*UNFITTING)
    poster.compare(steps[2], steps[3])
    asked = "Please provide the input string to echo back"
    assert steps[5].count(asked) == 1
    # The same question under the same key. The seed does not print it again; ours says what was wrong.
    why = "The last answer does not fit: input: this is required"
    poster.compare(steps[4], steps[5].replace(asked, rf"{asked}\n\n{why}"))
    poster.compare(steps[6], steps[7])
    poster.poll(steps[8], steps[9])


def test_a_response_with_its_metadata_beside_the_result_is_taken_too(seeds: str) -> None:
    poster, steps = Poster(seeds), SEED_002
    poster.ask(steps[0])
    poster.poll(steps[2], steps[3])
    assert poster.post(ANSWERED).status_code == 202  # it answers another question than this task's
    poster.compare(steps[2], steps[3])
    fitting = ANSWERED.replace('"propertyName": "value"', '"input": "Hello World!"')
    assert poster.post(fitting).status_code == 202
    poster.poll(steps[8], steps[9])
    poster.compare(steps[10], steps[11])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda body: re.sub(r'(echo_)[^"]*', r"\g<1>nobody", body), "Task not found"),
        (
            lambda body: body.replace('"action": "accept"', '"action": "shrug"'),
            "does not answer the question",
        ),
    ],
    ids=["unknown task", "no answer at all"],
)
def test_a_response_that_answers_nothing_is_refused_as_a_whole(
    seeds: str, spoil: Callable[[str], str], message: str
) -> None:
    poster, steps = Poster(seeds), SEED_002
    poster.ask(steps[0])
    poster.poll(steps[2], steps[3])
    body = spoil(THEIRS.sub(f'"taskId": "{poster.task}"', RESPONSE))
    refused = post(seeds, body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == -32602
    assert message in refused.json()["error"]["message"]
    assert "id" not in refused.json()
    poster.compare(steps[2], steps[3])


def test_a_response_that_comes_too_late_is_refused(seeds: str) -> None:
    poster, steps = Poster(seeds), SEED_002
    poster.ask(steps[0])
    poster.poll(steps[2], steps[3])
    assert poster.post(RESPONSE).status_code == 202
    assert poster.post(RESPONSE.replace("Hello World!", "Hello again!")).status_code == 400
    assert poster.post(RESPONSE).status_code == 202  # repeated, as after a lost connection


def test_with_an_input_nothing_is_asked(seeds: str) -> None:
    poster = Poster(seeds)
    given = json.loads(SEED_002[0])
    given["params"]["arguments"] = {"input": "Hi"}
    poster.ask(json.dumps(given))
    assert poster.ask(SEED_002[10])["result"]["content"][0]["text"] == "Echo: Hi"
    del given["params"]["task"]
    assert poster.ask(json.dumps(given))["result"]["content"][0]["text"] == "Echo: Hi"
