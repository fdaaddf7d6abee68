"""Sends what the seeds print to a server, in any dialect that can carry it.

The dialects are the rows of the table of versions. The draft takes the requests as they are printed. A
version without sessions is named in each request, and one with sessions gets an `initialize` first.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from antiphon.wire.server.draft import KeylessDraft
from antiphon.wire.server.draft_000_messages import Draft000Messages
from antiphon.wire.server.tasks import EXTENSION
from antiphon.wire.versions import VERSIONS, Version
from tests.cli.command import PATIENCE
from tests.seeds.blocks import Frame, printed
from tests.seeds.differences import differences_at
from tests.seeds.scenarios import Scenario, Step
from tests.seeds.wires import HttpWire, Wire

__all__ = ["Replay", "carries", "comparable", "expected"]

KEY = "io.modelcontextprotocol/"
MODES = ["task", "immediate", "streaming"]
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}, "tasks": {"responses": {"modes": MODES}}}
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
TASK = re.compile(r'("taskId": ?)"[^"]+"')
STATE = re.compile(r'("requestState": ?)"[^"]+"')
INFO = re.compile(r'("io.modelcontextprotocol/serverInfo": ?)\{[^}]+\}')


def carries(row: Version, scenario: Scenario) -> bool:
    """Return whether the messages of a scenario are messages of a dialect too."""
    methods = row.server.methods
    if not scenario.methods <= methods.keys():
        return False
    if issubclass(row.server, KeylessDraft) and scenario.answers_by_key:
        return False
    if issubclass(row.server, Draft000Messages) and scenario.asks_at_once:
        return False
    if getattr(row.server, "has_tasks", True):
        return "tasks/result" in methods or not scenario.chooses_how
    return not (scenario.asks or scenario.wants_tasks or scenario.chooses_how)


def expected(step: Step, dialect: str) -> list[Frame]:
    """The printed answers of a step, with the differences of a dialect."""
    request = printed(step.ask).message
    frames = [printed(name).message for name in step.answers]
    if frames and "inputRequests" in frames[0]:  # it is printed without what is around it
        frames = [{"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required", **frames[0]}}]
    for difference in differences_at(step.name, dialect):
        before = [comparable(frame) for frame in frames]
        frames = difference.change(frames, request)
        after = [comparable(frame) for frame in frames]
        assert before != after, f"{step.name} does not differ any more: {difference.name}"
    return frames


class Replay:
    """A conversation with a server, in one dialect."""

    def __init__(self, wire: Wire, dialect: str, scenario: Scenario) -> None:
        row = VERSIONS.find(dialect)
        assert row is not None
        self.dialect = dialect
        self._wire = wire
        self._row = row
        self._scenario = scenario
        self._task = ""
        self._state = ""
        self._asked: list[Any] = []
        self._headers: dict[str, str] = {}
        self._call: Frame = {}

    async def open(self) -> None:
        """Agree on the version, where that is done first."""
        if self._row.for_bare_requests or self._row.stateless:
            return
        over_http = isinstance(self._wire, HttpWire)
        if over_http and not self._row.advertised:
            self._headers = {"mcp-protocol-version": self._row.name}
            return
        await self._send(
            {
                "jsonrpc": "2.0",
                "id": "open",
                "method": "initialize",
                "params": {
                    "protocolVersion": self._row.name,
                    "capabilities": CAPABILITIES,
                    "clientInfo": {"name": "tests", "version": "1"},
                },
            }
        )
        opened = await self._wire.read()
        assert opened["result"]["protocolVersion"] == self._row.name
        if isinstance(self._wire, HttpWire):
            assert self._wire.session_id is not None
            self._headers = {"mcp-session-id": self._wire.session_id, "mcp-protocol-version": self._row.name}
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def ask(self, step: Step, expected: Sequence[Frame]) -> list[Frame]:
        """Send the request of a step, and return as many messages as are expected."""
        given = self._request(step)
        if "method" not in given:
            await self._send(given)
            self._asked = []
            return []
        if self._asked:
            for question, answer in zip(self._asked, _answers(given), strict=True):
                await self._send({"jsonrpc": "2.0", "id": question, "result": answer})
            self._asked = []
        else:
            self._call = given
            await self._send(given)
        if step.answers and "partial-content" in _result(printed(step.answers[-1]).message):
            return await self._stream(step)
        status = _result(expected[0]).get("status")
        async with asyncio.timeout(PATIENCE):
            while True:
                frames = [await self._read() for _ in expected]
                if given.get("method") != "tasks/get" or _result(frames[0]).get("status") == status:
                    return frames
                await self._send(given)

    def _request(self, step: Step) -> Frame:
        """The printed request, about our task and with our state."""
        message = printed(step.ask).message
        if "jsonrpc" not in message:
            message = {**self._call, "params": {**self._call["params"], **message}}
        text = json.dumps(message)
        text = TASK.sub(rf'\1"{self._task}"', text)
        return dict(json.loads(STATE.sub(rf'\1"{self._state}"', text)))

    async def _send(self, frame: Frame) -> None:
        headers = dict(self._headers)
        if self._row.stateless and "method" in frame:
            wants: dict[str, Any] = {EXTENSION: {}} if self._scenario.wants_tasks else {}
            meta = {
                KEY + "protocolVersion": self._row.name,
                KEY + "clientCapabilities": {"elicitation": {}, "sampling": {}, "extensions": wants},
            }
            params = frame.get("params", {})
            frame = {**frame, "params": {**params, "_meta": {**params.get("_meta", {}), **meta}}}
            headers |= {"mcp-protocol-version": self._row.name, "mcp-method": frame["method"]}
            if "name" in params:
                headers["mcp-name"] = params["name"]
        await self._wire.send(json.dumps(frame), headers)

    async def _read(self) -> Frame:
        """The next response to the last request, or a request of the server."""
        while True:
            frame = await self._wire.read()
            if frame.get("id") == self._call.get("id") or ("id" not in frame and "error" in frame):
                self._learn(frame)
                return frame
            if "method" in frame and "id" in frame:
                self._asked.append(frame["id"])
                return {**frame, "id": "<question>"}

    def _learn(self, frame: Frame) -> None:
        text = json.dumps(frame)
        if not self._task and (found := re.search(r'"taskId": ?"([^"]+)"', text)):
            self._task = found[1]
        self._state = _result(frame).get("requestState", self._state)

    async def _stream(self, step: Step) -> list[Frame]:
        """Read segments as far as they are printed, and divide them as they are printed."""
        groups = [printed(name).message for name in step.answers]
        frames: list[Frame] = []
        segments: dict[int, Frame] = {}
        told = not step.before
        for number, group in enumerate(groups):
            if number and not told:
                await self._tell(step.before)
                told = True
            last = _numbers(group)[-1]
            while last not in segments or (
                group["result"]["isComplete"] and not segments[last]["result"]["isComplete"]
            ):
                for part in _divide(await self._read()):
                    seq = _numbers(part)
                    if seq:
                        segments[seq[0]] = part
                    elif segments:
                        segments[max(segments)]["result"]["isComplete"] = part["result"]["isComplete"]
                    else:
                        frames.append(part)
            parts = [segments[each] for each in _numbers(group)]
            frames.append(_join(parts))
        if not _numbers(frames[0]):  # the task came by itself
            task, first, *rest = frames
            first["result"] = {"task": task["result"]["task"], **first["result"]}
            frames = [first, *rest]
        return frames

    async def _tell(self, tool: str) -> None:
        frame: Frame = {
            "jsonrpc": "2.0",
            "id": "tell",
            "method": "tools/call",
            "params": {"name": tool, "arguments": {}},
        }
        await self._send(frame)


def _result(frame: Frame) -> dict[str, Any]:
    found = frame.get("result", {})
    return found if isinstance(found, dict) else {}


def _numbers(frame: Frame) -> list[int]:
    return [segment["seqNr"] for segment in _result(frame).get("partial-content", [])]


def _divide(frame: Frame) -> Iterator[Frame]:
    """A response with segments, as one with each of them."""
    segments = frame["result"].get("partial-content", [])
    if len(segments) < 2:
        yield frame
        return
    for number, segment in enumerate(segments, 1):
        part = copy.deepcopy(frame)
        part["result"]["partial-content"] = [segment]
        if number > 1:
            part["result"].pop("task", None)
        if number < len(segments):
            part["result"]["isComplete"] = False
        yield part


def _join(parts: Sequence[Frame]) -> Frame:
    """Responses with a segment each, as one."""
    joined = copy.deepcopy(parts[0])
    for part in parts[1:]:
        segments = joined["result"]["partial-content"] + part["result"]["partial-content"]
        joined["result"] = {**joined["result"], **part["result"], "partial-content": segments}
    return joined


def _answers(request: Frame) -> list[Any]:
    """The answers in a printed request, in the order of the questions."""
    params = request["params"]
    if "inputResponses" in params:
        return list(params["inputResponses"].values())
    given = request["elicitation"]
    entries = given if isinstance(given, list) else [given]
    answered = [{"action": "accept", "content": {entry["name"]: entry["value"]}} for entry in entries]
    return [*answered, *request.get("sampling", [])]


def comparable(frame: Frame) -> Frame:
    """A message without what is never the same: ids of tasks, times, states, and the server's name."""
    text = TASK.sub(r'\1"<task>"', STATE.sub(r'\1"<state>"', json.dumps(frame)))
    text = INFO.sub(r'\1"<server>"', text)
    return dict(json.loads(MOMENT.sub("<time>", text)))
