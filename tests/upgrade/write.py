"""Writes a store and sealed states with the version that is installed: `python -m tests.upgrade.write`.

Run it with the version *before* a change to what is stored or sealed, and keep what it writes.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2

from tests.support.process import free_port

HERE = Path(__file__).parent
STORE, STATES = HERE / "store.sqlite", HERE / "states.json"
KEY = "io.modelcontextprotocol/"
ABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Caller:
    """Requests by hand, so that they are the same whichever version of the library sends them."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"

    def post(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx2.Response:
        """Post one frame."""
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        return httpx2.post(self.url, json=body, headers={**accept, **(headers or {})}, timeout=30)

    def modern(self, method: str, params: dict[str, Any], *, tasks: bool = False) -> dict[str, Any]:
        """The result of a request of 2026-07-28."""
        extensions = {"extensions": {KEY + "tasks": {}}} if tasks else {}
        meta = {
            KEY + "protocolVersion": "2026-07-28",
            KEY + "clientInfo": {"name": "writer", "version": "1"},
            KEY + "clientCapabilities": {**ABILITIES, **extensions},
        }
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        name = params.get("name") or params.get("uri") or params.get("taskId")
        if name:
            headers["mcp-name"] = name
        frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        answer = self.post(frame, headers).json()
        return dict(answer["result"]) if "result" in answer else {"error": answer["error"]}

    def bare(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a bare request, which the draft answers."""
        answer = self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).json()
        return dict(answer["result"]) if "result" in answer else {"error": answer["error"]}

    def until(self, id: str, *statuses: str) -> dict[str, Any]:
        """A task, once it has one of these statuses."""
        deadline = time.monotonic() + 30
        while (task := self.modern("tasks/get", {"taskId": id}, tasks=True)).get("status") not in statuses:
            assert time.monotonic() < deadline, task
            time.sleep(0.02)
        return task


def accept(value: Any) -> dict[str, Any]:
    """The response of a person who filled in a form with one field."""
    return {"action": "accept", "content": {"value": value}}


def main() -> None:
    """Write both files."""
    STORE.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "EFFECTS": f"{folder}/effects", "GATE": f"{folder}/gate"}
        port = free_port()
        command = [sys.executable, "-m", "antiphon", "run", str(HERE / "server.py"), "--port", str(port)]
        process = subprocess.Popen([*command, "--store", f"sqlite:///{STORE}"], env=environment)
        try:
            caller = Caller(port)
            _wait_for(caller)
            states = _fill(caller)
        finally:
            process.send_signal(signal.SIGKILL)  # so that tasks are left as a crash leaves them
            process.wait()
    with sqlite3.connect(STORE) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
    STATES.write_text(json.dumps(states, indent=1) + "\n")


def _fill(caller: Caller) -> dict[str, Any]:
    def task(name: str, **arguments: Any) -> str:
        made = caller.modern("tools/call", {"name": name, "arguments": arguments}, tasks=True)
        return str(made["taskId"])

    waiting, half, running, ended = task("pay", amount=7), task("pay", amount=8), task("long"), task("count")
    failed, faulted, cancelled = task("fail", how="tool"), task("fail", how="request"), task("pay", amount=9)
    for id in (waiting, half, cancelled):
        caller.until(id, "input_required")
    answers = {"approve": accept(True)}
    caller.modern("tasks/update", {"taskId": half, "inputResponses": answers}, tasks=True)
    deadline = time.monotonic() + 30
    while "who" not in caller.until(half, "input_required").get("inputRequests", {}):
        assert time.monotonic() < deadline
    for id in (ended, failed):
        caller.until(id, "completed")
    caller.until(faulted, "failed")
    caller.modern("tasks/cancel", {"taskId": cancelled}, tasks=True)
    drafted = caller.bare("tools/call", {"name": "pay", "arguments": {"amount": 5}, "task": {}})["task"][
        "taskId"
    ]
    caller.until(drafted, "input_required")
    _until_segments(caller, running, 2)

    order = {"name": "order", "arguments": {"item": "shirt"}}
    second = caller.modern("tools/call", {**order, "inputResponses": {"size": accept("large")}})
    paying = caller.modern("tools/call", {"name": "pay", "arguments": {"amount": 3}})
    explicit = caller.modern("tools/call", {"name": "explicit"})
    bare = caller.bare("tools/call", {"name": "pay", "arguments": {"amount": 4}})
    states = {
        "order": second["requestState"],
        "pay": paying["requestState"],
        "explicit": explicit["requestState"],
        "bare": bare["requestState"],
        "letter": caller.modern("prompts/get", {"name": "letter"})["requestState"],
        "note": caller.modern("resources/read", {"uri": "note://today"})["requestState"],
    }
    report = caller.modern("tools/call", {"name": "report", "arguments": {"title": "Sales"}})
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": ABILITIES,
        "clientInfo": {"name": "w", "version": "1"},
    }
    opened = caller.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    return {
        "tasks": {
            "waiting": waiting,
            "half": half,
            "running": running,
            "ended": ended,
            "failed": failed,
            "faulted": faulted,
            "cancelled": cancelled,
            "drafted": drafted,
        },
        "states": states,
        "artifact": report["structuredContent"]["artifact_id"],
        "session": opened.headers["mcp-session-id"],
    }


def _wait_for(caller: Caller) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            caller.bare("ping", {})
            return
        except httpx2.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _until_segments(caller: Caller, id: str, count: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        portion = caller.bare("tasks/result", {"taskId": id, "lastSeqNr": 1})
        if len(portion.get("partial-content", ())) >= count - 1:
            return
        assert time.monotonic() < deadline, portion
        time.sleep(0.02)


if __name__ == "__main__":
    main()
