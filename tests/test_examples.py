"""The examples run, and the seeds are answered as they are written down."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.command import PATIENCE, antiphon, plain_environment, running
from tests.support.process import ROOT

SEEDS = ROOT / "examples" / "seeds.py"

# Seed 000, as it is printed there, with the brace that it lacks.
REQUEST = """
{
  "jsonrpc": "2.0",
  "id": 1,
  "method": "tools/call",
  "params": {
    "name": "get_weather",
    "arguments": {
      "city": "New York"
    }
  }
}
"""
RESULT = """
{
    "content": [
      {
        "type": "text",
        "text": "Current weather in New York:\\nTemperature: 72° F\\nConditions: Partly cloudy"
      }
    ],
    "isError": false
}
"""
FAILURE = """
{
    "content": [
      {
        "type": "text",
        "text": "Error: Unable to retrieve weather data for New York."
      }
    ],
    "isError": true
}
"""


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `antiphon run examples/seeds.py`."""
    with running(SEEDS, directory=tmp_path_factory.mktemp("seeds")) as server:
        yield server.url


def _post(url: str, body: str) -> dict[str, Any]:
    answer = httpx2.post(url, content=body, headers={"content-type": "application/json"}, timeout=PATIENCE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    frame: dict[str, Any] = answer.json()
    assert (frame["jsonrpc"], frame["id"]) == ("2.0", 1)
    return frame["result"]  # type: ignore[no-any-return]


def test_the_request_of_the_seed_gets_its_complete_answer(seeds: str) -> None:
    # The draft adds to every result of which type it is; all else is as printed.
    assert _post(seeds, REQUEST) == {**json.loads(RESULT), "resultType": "complete"}


def test_an_unknown_city_gets_the_failure_of_the_seed(seeds: str) -> None:
    result = _post(seeds, REQUEST.replace("New York", "Atlantis"))
    assert result == {**json.loads(FAILURE.replace("New York", "Atlantis")), "resultType": "complete"}


def test_the_command_line_gets_the_same(seeds: str) -> None:
    done = antiphon("call", seeds, "get_weather", "city=New York")
    assert done.stdout.rstrip("\n") == json.loads(RESULT)["content"][0]["text"]
    done = antiphon("call", seeds, "get_weather", "city=Atlantis")
    assert (done.returncode, done.stderr) == (1, "Error: Unable to retrieve weather data for Atlantis.\n")


def test_a_few_more_places_are_known(seeds: str) -> None:
    for city in ("London", "Oslo", "San Francisco", "Singapore"):
        text = _post(seeds, REQUEST.replace("New York", city))["content"][0]["text"]
        assert re.fullmatch(rf"Current weather in {city}:\nTemperature: \d+° F\nConditions: .+", text)


def test_the_demo_goes_as_expected(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    assert "72° F" in done.stdout
    assert "resolved as Duplicate" in done.stdout
    assert "Echo: Hello World!" in done.stdout


def test_the_quickstart_example_is_a_server() -> None:
    done = antiphon(
        "call", ROOT / "examples" / "quickstart.py", "divide", "dividend=7", "divisor=2", "--json"
    )
    assert json.loads(done.stdout)["structuredContent"] == {"quotient": 3, "remainder": 1}
