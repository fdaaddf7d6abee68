"""Seed 002, the ephemeral workflow: what the server does if the answers are others than the seed prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.cli.command import PATIENCE, running
from tests.seeds.blocks import printed
from tests.support.process import ROOT

SEEDS = ROOT / "examples" / "seeds.py"


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `antiphon run examples/seeds.py`."""
    with running(SEEDS, directory=tmp_path_factory.mktemp("seeds")) as server:
        yield server.url


def post(url: str, body: str) -> dict[str, Any]:
    """The frame that answers a bare POST."""
    answer = httpx2.post(
        url, content=body.encode(), headers={"content-type": "application/json"}, timeout=PATIENCE
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            {"action": "accept", "content": {"resolution": "Fixed"}},
            "Bug #4522 resolved as Fixed. State set to Resolved.",
        ),
        ({"action": "decline"}, "This was declined: Resolving Bug #4522 requires a resolution."),
        ({"action": "cancel"}, "This was dismissed without an answer: Resolving Bug #4522"),
    ],
)
def test_other_answers_end_the_call_too(seeds: str, answer: dict[str, Any], text: str) -> None:
    request = printed("002:636").message
    request["params"]["inputResponses"] = {"resolution": answer}
    result = post(seeds, json.dumps(request))["result"]
    assert result["content"][0]["text"].startswith(text)
    assert result["isError"] == (answer["action"] != "accept")


def test_a_state_that_requires_nothing_is_set_at_once(seeds: str) -> None:
    request = printed("002:583").text.replace("Resolved", "Active")
    assert post(seeds, request)["result"]["content"][0]["text"] == "Bug #4522 updated: System.State."


def test_an_answer_that_does_not_fit_is_asked_for_again(seeds: str) -> None:
    result = post(
        seeds, printed("002:636").text.replace('"resolution": "Duplicate"', '"resolution": "Postponed"')
    )["result"]
    assert list(result["inputRequests"]) == ["resolution"]


def test_a_weather_station_that_is_not_there_is_a_failure_before_anything_is_asked(seeds: str) -> None:
    result = post(seeds, printed("002:464").text.replace("New York", "Atlantis"))["result"]
    assert result["content"][0]["text"] == "Error: Unable to retrieve weather data for Atlantis."
    assert result["isError"] is True
