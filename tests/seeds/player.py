"""A server that knows nothing but the printed messages, and plays the answers of a scenario to a client.

Each answer is as it is printed, except for its id, which is the one of the request. The server opens a
session of the wanted version first, and lists the tool. As a program it plays over stdio, and writes what it
hears to a log.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.seeds.blocks import printed
from tests.seeds.scenarios import SCENARIOS, Scenario, Step

__all__ = ["Player"]

MODES = printed("004:46").message["capabilities"]
TASK_ID = re.compile(r'"taskId": *"[^"]+"')
TASKS = {"tasks": {**MODES["tasks"], "requests": {"tools": {"call": {}}}}}


class Player:
    """The server's side of a scenario."""

    def __init__(self, scenario: Scenario, version: str) -> None:
        self.heard: list[dict[str, Any]] = []
        """The messages that the scenario is about, as the client sent them."""
        self._version = version
        self._steps: dict[str, list[Step]] = {}
        for step in scenario.steps:
            message = printed(step.ask).message
            method = "tools/call" if "inputResponses" in message else str(message.get("method", ""))
            self._steps.setdefault(method, []).append(step)
        first = scenario.steps[0]
        self._tool = printed(first.ask).message["params"]["name"]
        self._task = TASK_ID.search(printed(first.answers[0]).json)
        self._is_answered = False
        answers = [printed(name).text for step in scenario.steps for name in step.answers]
        self._is_streamed = any("partial-content" in text for text in answers)

    def answer(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The messages that answer one of the client's."""
        id, method = message.get("id"), str(message.get("method", ""))
        if method.startswith("notifications/"):
            return []
        if method in ("server/discover", "initialize", "tools/list", "ping"):
            return [{"jsonrpc": "2.0", "id": id, **self._usual(method)}]
        steps = self._steps.get(method)
        if method == "tasks/result" and "stream" not in message["params"] and self._is_streamed:
            steps = None
        if steps is None and method == "tasks/get":  # it is not printed, and how the task ended is asked
            return [{**self._printed("002:1106"), "id": id}]
        if steps is None and method == "tasks/result":  # all segments, as one result
            return [{**self._printed("004:140"), "id": id}]
        self.heard.append(dict(message))
        if steps is None:
            return [{"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "It is not printed."}}]
        if method == "tools/call":
            step = steps.pop(0) if len(steps) > 1 else steps[0]
        else:
            step = steps[-1] if self._is_answered else steps[0]
        self._is_answered = self._is_answered or method in ("", "tasks/input_response")
        return [{**self._printed(name), "id": id} for name in step.answers]

    def _printed(self, name: str) -> dict[str, Any]:
        """A printed message, about the task of the scenario."""
        answer = printed(name).message
        if "jsonrpc" not in answer:  # what is around it is not printed
            return {"jsonrpc": "2.0", "result": {"resultType": "input_required", **answer}}
        if self._task is None:
            return answer
        return dict(json.loads(TASK_ID.sub(self._task[0], json.dumps(answer))))

    def _usual(self, method: str) -> dict[str, Any]:
        about = {"capabilities": {"tools": {}, **TASKS}, "serverInfo": {"name": "printed", "version": "1"}}
        if method == "server/discover":
            if self._version != "2026-07-28":
                return {"error": {"code": -32601, "message": "It is not printed."}}
            return {"result": {**about, "resultType": "complete", "supportedVersions": [self._version]}}
        if method == "initialize":
            return {"result": {**about, "protocolVersion": self._version}}
        tool = {
            "name": self._tool,
            "inputSchema": {"type": "object"},
            "execution": {"taskSupport": "optional"},
        }
        return {"result": {"tools": [tool], "resultType": "complete"} if method == "tools/list" else {}}


def main(name: str, version: str, log: str) -> None:
    """Play a scenario over stdio."""
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    player = Player(scenario, version)
    for line in sys.stdin:
        answers = player.answer(json.loads(line))
        Path(log).write_text(json.dumps(player.heard), encoding="utf-8")
        for answer in answers:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
