"""Stores and states from before versions had numbers open in this one, in processes of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import antiphon, running
from tests.upgrade.caller import Caller, accept

HERE = Path(__file__).parent
FOLDERS = {"schema 2": HERE / "schema_2", "schema 3": HERE / "schema_3"}
"""The stores that earlier versions have left, by their schema."""


class Upgraded(Caller):
    """A server of this version, on a copy of the store that an earlier one left."""

    def __init__(self, port: int, folder: Path, kept: dict[str, Any]) -> None:
        super().__init__(port)
        self.kept = kept
        self.tasks: dict[str, str] = kept["tasks"]
        self.store = folder / "store.sqlite"
        self.gate = folder / "gate"
        self._effects = folder / "effects"

    @property
    def effects(self) -> list[str]:
        """What steps have done since the upgrade."""
        return self._effects.read_text().splitlines() if self._effects.exists() else []

    def answer(self, id: str, **values: Any) -> None:
        """Answer questions of a task."""
        responses = {key: accept(value) for key, value in values.items()}
        self.modern("tasks/update", {"taskId": id, "inputResponses": responses}, tasks=True)


@pytest.fixture(params=FOLDERS)
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upgraded]:
    store, folder = tmp_path / "store.sqlite", FOLDERS[request.param]
    shutil.copy(folder / "store.sqlite", store)
    kept = json.loads((folder / "states.json").read_text())
    environment = {"EFFECTS": str(tmp_path / "effects"), "GATE": str(tmp_path / "gate")}
    with running(
        HERE / "server.py", "--store", f"sqlite:///{store}", directory=tmp_path, env=environment
    ) as server:
        yield Upgraded(int(server.url.rpartition(":")[2].partition("/")[0]), tmp_path, kept)


def test_a_task_that_waited_goes_on_and_repeats_no_step(upgraded: Upgraded) -> None:
    upgraded.answer(upgraded.tasks["waiting"], approve=True)
    asked = upgraded.until(upgraded.tasks["waiting"], "input_required")
    while "who" not in asked["inputRequests"]:
        asked = upgraded.until(upgraded.tasks["waiting"], "input_required")
    upgraded.answer(upgraded.tasks["waiting"], who="Ada")
    done = upgraded.until(upgraded.tasks["waiting"], "completed")
    text = done["result"]["content"][0]["text"]
    assert text.startswith("did reserve 7, did charge 7, approved=True by Ada at ")
    assert [line for line in upgraded.effects if line.endswith(" 7")] == ["charge 7"]


def test_a_task_that_was_half_answered_keeps_its_answer(upgraded: Upgraded) -> None:
    asked = upgraded.modern("tasks/get", {"taskId": upgraded.tasks["half"]}, tasks=True)
    assert list(asked["inputRequests"]) == ["who"]
    upgraded.answer(upgraded.tasks["half"], who="Grace")
    done = upgraded.until(upgraded.tasks["half"], "completed")
    assert "approved=True by Grace" in done["result"]["content"][0]["text"]


def test_a_task_of_the_draft_goes_on_in_the_draft(upgraded: Upgraded) -> None:
    asked = upgraded.bare("tasks/result", {"taskId": upgraded.tasks["drafted"]})
    assert asked["resultType"] == "input_required"
    assert list(asked["inputRequests"]) == ["approve"]
    for key, value in (("approve", False), ("who", "Bob")):
        upgraded.bare(
            "tasks/input_response",
            {"taskId": upgraded.tasks["drafted"], "inputResponses": {key: accept(value)}},
        )
        result = upgraded.bare("tasks/result", {"taskId": upgraded.tasks["drafted"]})
    assert "approved=False by Bob" in result["content"][0]["text"]


def test_a_task_whose_process_was_killed_is_taken_up_after_its_step_and_segments(upgraded: Upgraded) -> None:
    upgraded.gate.touch()
    done = upgraded.until(upgraded.tasks["running"], "completed")
    assert [block["text"] for block in done["result"]["content"]] == ["did begin", "waiting", "did end"]
    assert [line for line in upgraded.effects if line in ("begin", "end")] == ["end"]


def test_tasks_that_had_ended_say_how(upgraded: Upgraded) -> None:
    def look(name: str) -> dict[str, Any]:
        return upgraded.modern("tasks/get", {"taskId": upgraded.tasks[name]}, tasks=True)

    assert [block["text"] for block in look("ended")["result"]["content"]] == [
        f"segment {n}" for n in (1, 2, 3)
    ]
    assert look("failed")["result"]["isError"] is True
    assert look("faulted")["error"] == {"code": -32602, "message": "That cannot be asked."}
    assert look("cancelled")["status"] == "cancelled"
    portion = upgraded.bare("tasks/result", {"taskId": upgraded.tasks["ended"], "lastSeqNr": 1})
    assert [part["seqNr"] for part in portion["partial-content"]] == [2, 3]
    printed = antiphon("tasks", "ls", f"sqlite:///{upgraded.store}", "--json", "--limit", "100").stdout
    listed = {task["taskId"] for task in json.loads(printed)}
    assert set(upgraded.tasks.values()) <= listed


CALLS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "order": (
        "tools/call",
        {"name": "order", "arguments": {"item": "shirt"}},
        {"colour": accept("blue")},
        "large shirt in blue",
    ),
    "explicit": (
        "tools/call",
        {"name": "explicit"},
        {"name": {"action": "accept", "content": {"name": "Ada"}}},
        "Ada in round 1",
    ),
    "letter": ("prompts/get", {"name": "letter"}, {"to": accept("Ada")}, "Dear Ada,"),
    "note": ("resources/read", {"uri": "note://today"}, {"for": accept("Ada")}, "A note for Ada."),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_sealed_state_opens_and_its_call_goes_on(upgraded: Upgraded, name: str) -> None:
    method, params, responses, expected = CALLS[name]
    state = upgraded.kept["states"][name]
    result = upgraded.modern(method, {**params, "requestState": state, "inputResponses": responses})
    assert result.get("resultType") == "complete", result
    assert expected in json.dumps(result)
    assert upgraded.effects == []


@pytest.mark.parametrize("dialect", ["pay", "bare"])
def test_a_sealed_state_goes_on_into_its_second_question(upgraded: Upgraded, dialect: str) -> None:
    call, amount = (upgraded.modern, 3) if dialect == "pay" else (upgraded.bare, 4)
    params = {"name": "pay", "arguments": {"amount": amount}}
    state = upgraded.kept["states"][dialect]
    asked = call("tools/call", {**params, "requestState": state, "inputResponses": {"approve": accept(True)}})
    assert list(asked["inputRequests"]) == ["who"], asked
    state = asked["requestState"]
    done = call("tools/call", {**params, "requestState": state, "inputResponses": {"who": accept("Ada")}})
    assert f"did reserve {amount}, did charge {amount}, approved=True by Ada" in done["content"][0]["text"]
    assert upgraded.effects == [f"charge {amount}"]


def test_a_session_is_still_known(upgraded: Upgraded) -> None:
    headers = {"mcp-session-id": upgraded.kept["session"], "mcp-protocol-version": "2025-11-25"}
    listed = upgraded.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers).json()
    assert {tool["name"] for tool in listed["result"]["tools"]} >= {"pay", "order"}


def test_an_artifact_is_still_there(upgraded: Upgraded) -> None:
    read = upgraded.modern("resources/read", {"uri": f"artifact://upgraded/{upgraded.kept['artifact']}"})
    assert json.loads(read["contents"][0]["text"])["title"] == "Sales"
