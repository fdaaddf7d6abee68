"""The official TypeScript client on our server, on both kinds of versions, over HTTP and standard streams."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.node import Node
from tests.support.process import ROOT, SERVERS, ServerProcess, environment

SCRIPT = Path(__file__).with_name("client.mjs")
MODES = ["legacy", "auto"]


@pytest.fixture(
    scope="module", params=[(way, mode) for way in ("http", "stdio") for mode in MODES], ids="-".join
)
def told(
    request: pytest.FixtureRequest,
    node: Node,
    everything: ServerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, dict[str, Any]]:
    """What the client was given, in one run over everything."""
    way, mode = request.param
    options: dict[str, Any] = {"modules": str(ROOT / ".node"), "mode": mode}
    options["heard"] = str(tmp_path_factory.mktemp("heard") / "all")
    if way == "http":
        options["url"] = everything.url
    else:
        script = str(SERVERS / "everything.py")
        options["process"] = {"command": sys.executable, "args": [script, "--stdio"], "env": environment()}
    ran = node.run(SCRIPT, json.dumps(options))
    assert ran.code == 0, ran.stderr
    return mode, json.loads(ran.stdout)


def test_the_version(told: tuple[str, dict[str, Any]]) -> None:
    mode, given = told
    assert given["version"] == ("2026-07-28" if mode == "auto" else "2025-11-25")
    assert given["server"]["name"] == "everything"


def test_tools_of_all_pages_are_listed(told: tuple[str, dict[str, Any]]) -> None:
    tools = {tool["name"]: tool for tool in told[1]["tools"]}
    assert len(tools) == 14
    assert tools["add"]["title"] == "Add two numbers"
    assert tools["add"]["annotations"] == {"readOnlyHint": True}
    assert tools["add"]["inputSchema"]["required"] == ["a"]
    assert tools["weather"]["outputSchema"]["required"] == ["city", "celsius"]


def test_tools_are_called(told: tuple[str, dict[str, Any]]) -> None:
    mode, given = told
    assert given["add"]["content"] == [{"type": "text", "text": "5"}]
    assert given["weather"]["structuredContent"] == {"city": "Oslo", "celsius": 59.9, "words": ["mild"]}
    primes = [2, 3, 5, 7]
    assert given["primes"]["structuredContent"] == (primes if mode == "auto" else {"result": primes})
    assert [block["type"] for block in given["picture"]["content"]] == ["text", "image"]
    assert given["region"]["content"][0]["text"] == "in Malmö"
    assert given["fail"]["isError"] is True
    assert given["fail"]["content"][0]["text"] == "this was to be expected"


def test_progress_is_heard(told: tuple[str, dict[str, Any]]) -> None:
    given = told[1]
    assert [(each["progress"], each["total"]) for each in given["progress"]] == [(1, 3), (2, 3), (3, 3)]
    assert given["count"]["content"][0]["text"] == "counted to 3"


def test_resources_are_listed_and_read(told: tuple[str, dict[str, Any]]) -> None:
    given = told[1]
    assert [each["uri"] for each in given["resources"]] == ["note://first", "note://raw"]
    assert [each["uriTemplate"] for each in given["templates"]] == ["note://{name}/{page}", "blob://{name}"]
    assert given["first"]["contents"] == [
        {"uri": "note://first", "mimeType": "text/markdown", "text": "# First"}
    ]
    assert given["raw"]["contents"][0]["blob"] == "AAE="
    assert json.loads(given["page"]["contents"][0]["text"]) == {"name": "diary", "page": 7}
    assert given["missing"]["code"] in (-32002, -32602)


def test_prompts_are_listed_filled_in_and_completed(told: tuple[str, dict[str, Any]]) -> None:
    given = told[1]
    (prompt,) = given["prompts"]
    assert [argument["name"] for argument in prompt["arguments"]] == ["name", "tone"]
    assert [message["role"] for message in given["greet"]["messages"]] == ["user", "assistant"]
    assert given["greet"]["messages"][0]["content"]["text"] == "Greet Ada, wry."
    assert given["names"]["completion"]["values"] == ["Ada", "Alan"]
