"""The official TypeScript client answers what our server asks, on both versions and transports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import asking
from tests.interop.asking import ANSWERS, ENDINGS, EVERYTHING, LOGIN, Ending
from tests.support.node import Node
from tests.support.process import ROOT, ServerProcess, environment, started

CLIENT = Path(__file__).with_name("asking.mjs")
SERVER = Path(asking.__file__)
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
OWN: dict[str, Ending] = {**ENDINGS, "in_a_thread": ENDINGS["one_round"], "everything": EVERYTHING}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server, over HTTP."""
    with started(SERVER, tmp_path_factory.mktemp("asking")) as server:
        yield server
        assert "Traceback" not in server.log


@pytest.fixture(scope="module", params=["http", "stdio"])
def way(request: pytest.FixtureRequest) -> str:
    """How the client reaches the server."""
    return str(request.param)


@pytest.fixture(scope="module", params=["legacy", "auto"], ids=["2025-11-25", "2026-07-28"])
def mode(request: pytest.FixtureRequest) -> str:
    """Which kind of version it speaks."""
    return str(request.param)


def run(
    node: Node, served: ServerProcess, way: str, mode: str, capabilities: dict[str, Any]
) -> dict[str, Any]:
    """Run the client over all tools: what it printed."""
    options: dict[str, Any] = {
        "modules": str(ROOT / ".node"),
        "mode": mode,
        "capabilities": capabilities,
        "tools": list(OWN),
        "answers": ANSWERS,
        "login": LOGIN,
        "root": asking.ROOT,
    }
    if way == "http":
        options["url"] = served.url
    else:
        options["process"] = {
            "command": sys.executable,
            "args": [str(SERVER), "--stdio"],
            "env": environment(),
        }
    ran = node.run(CLIENT, json.dumps(options))
    assert ran.code == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


@pytest.fixture(scope="module")
def told(node: Node, served: ServerProcess, way: str, mode: str) -> dict[str, Any]:
    """What a client that can answer everything was given, in one run over all tools."""
    return run(node, served, way, mode, CAPABILITIES)


def test_the_version(told: dict[str, Any], mode: str) -> None:
    assert told["version"] == ("2025-11-25" if mode == "legacy" else "2026-07-28")


def test_a_call_ends_as_it_should(told: dict[str, Any], subtests: pytest.Subtests) -> None:
    for tool, ending in OWN.items():
        with subtests.test(tool):
            given, asked = told["calls"][tool]["given"], told["calls"][tool]["asked"]
            assert "content" in given, given
            assert sorted(asked) == sorted(ending.asked)
            assert given.get("isError", False) == ending.is_error
            assert ending.text in given["content"][0]["text"]
            if ending.is_error:
                assert "Please?" in given["content"][0]["text"]


def test_prompts_and_resources_ask_too(told: dict[str, Any]) -> None:
    assert told["prompt"]["given"]["messages"][0]["content"]["text"] == "Tell of Ada."
    assert told["read"]["given"]["contents"][0]["text"] == "Ada in London"
    assert told["prompt"]["asked"] == told["read"]["asked"] == ["Name?"]


def test_many_calls_that_ask_at_the_same_time_are_kept_apart(told: dict[str, Any]) -> None:
    tools = ["one_round", "two_rounds", "at_once", "form", "one_round"]
    assert told["many"] == [ENDINGS[tool].text for tool in tools]


def test_a_client_that_cannot_answer_is_not_asked(node: Node, served: ServerProcess, mode: str) -> None:
    told = run(node, served, "http", mode, {})
    assert all(call["asked"] == [] for call in told["calls"].values())
    given = told["calls"]["one_round"]["given"]
    if mode == "legacy":
        assert given["isError"] is True
        assert "elicitation" in given["content"][0]["text"]
    else:
        assert given["code"] == -32021
