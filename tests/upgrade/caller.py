"""Requests by hand, so that they are the same whichever version of the library sends them."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.support.polling import wait_until

KEY = "io.modelcontextprotocol/"
ABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Caller:
    """A client of a server in another process."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"

    def post(self, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx2.Response:
        """Post one frame."""
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        return httpx2.post(self.url, json=body, headers={**accept, **(headers or {})}, timeout=60)

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

        def look() -> dict[str, Any]:
            task = self.modern("tasks/get", {"taskId": id}, tasks=True)
            return task if task.get("status") in statuses else {}

        return wait_until(look)


def accept(value: Any) -> dict[str, Any]:
    """The response of a person who filled in a form with one field."""
    return {"action": "accept", "content": {"value": value}}
