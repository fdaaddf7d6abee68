"""The bytes the load generator sends: one tool call, rendered for a protocol version, once.

It owns how a request looks on the wire, what a right answer contains, and nothing of how they are sent or
timed. Every number sent is of one fixed width, so that all requests of a kind are of equal length.
"""

import json
from typing import Any, NamedTuple

__all__ = [
    "MODERN",
    "SESSIONS",
    "Asked",
    "ask",
    "ask_again",
    "call",
    "close_session",
    "expected",
    "expected_at_last",
    "expected_question",
    "initialize",
    "initialized",
    "promise_request",
    "read_question",
]

MODERN = "2026-07-28"
"""The stateless version: everything a call needs travels with it."""

SESSIONS = "2025-11-25"
"""The version with a handshake: calls are made within a session."""

_CLIENT = {"name": "bench", "version": "1.0"}
_COPIES = 4000
"""What is answered to the question of a tool that asks."""


class Asked(NamedTuple):
    """What a server that asks has sent: the keys of its questions, and its state where it has any."""

    keys: tuple[str, ...]
    state: str | None


def _post(port: int, message: dict[str, Any], headers: dict[str, str]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    lines = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def _session_headers(session: str | None) -> dict[str, str]:
    headers = {"MCP-Protocol-Version": SESSIONS}
    if session:
        headers["Mcp-Session-Id"] = session
    return headers


def _meta(capabilities: dict[str, Any]) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": _CLIENT,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


def _modern_headers(tool: str) -> dict[str, str]:
    return {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}


def call(port: int, version: str, number: int, session: str | None = None, token: str = "") -> bytes:
    """The `tools/call` of `add` that connection `number` repeats, with a bearer token if there is one."""
    params: dict[str, Any] = {"name": "add", "arguments": {"a": 100 + number, "b": 4000}}
    if version == MODERN:
        params["_meta"] = _meta({})
        headers = _modern_headers("add")
    else:
        headers = _session_headers(session)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    message = {"jsonrpc": "2.0", "id": 1000 + number, "method": "tools/call", "params": params}
    return _post(port, message, headers)


def expected(number: int) -> bytes:
    """What a right answer to `call(number)` contains: the sum, as a JSON string."""
    return b'"%d"' % (4100 + number)


def ask(port: int, tool: str, number: int) -> bytes:
    """The first `tools/call` of a tool that asks a question, from a client that can answer."""
    return _round(port, tool, number, {})


def read_question(body: bytes) -> Asked:
    """What is in the answer to `ask`; raises RuntimeError where it is no question."""
    result = json.loads(body).get("result", {})
    if result.get("resultType") != "input_required" or not result.get("inputRequests"):
        raise RuntimeError(f"this is no question: {body[:500]!r}")
    return Asked(tuple(result["inputRequests"]), result.get("requestState"))


def ask_again(port: int, tool: str, number: int, asked: Asked) -> bytes:
    """The same call once more, with the answers, and exactly the state that came with the questions."""
    accepted = {"action": "accept", "content": {"copies": _COPIES}}
    more: dict[str, Any] = {"inputResponses": dict.fromkeys(asked.keys, accepted)}
    if asked.state is not None:
        more["requestState"] = asked.state
    return _round(port, tool, number, more)


def _round(port: int, tool: str, number: int, more: dict[str, Any]) -> bytes:
    params = {"name": tool, "arguments": {"number": 100 + number}, **more}
    params["_meta"] = _meta({"elicitation": {"form": {}}})
    message = {"jsonrpc": "2.0", "id": 1000 + number, "method": "tools/call", "params": params}
    return _post(port, message, _modern_headers(tool))


def expected_question(number: int) -> bytes:
    """What a right answer to `ask(number)` contains: the question, with the number in it."""
    return b"How many copies of %d?" % (100 + number)


def expected_at_last(number: int) -> bytes:
    """What a right answer to `ask_again(number)` contains: number and answer, added up."""
    return b'"%d"' % (100 + number + _COPIES)


def initialize(port: int) -> bytes:
    """The request that opens a session."""
    params = {"protocolVersion": SESSIONS, "capabilities": {}, "clientInfo": _CLIENT}
    return _post(port, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, {})


def initialized(port: int, session: str | None) -> bytes:
    """The notification that ends the handshake."""
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return _post(port, message, _session_headers(session))


def close_session(port: int, session: str) -> bytes:
    """The request that ends a session, so that rounds leave nothing behind on the server."""
    head = "".join(f"{name}: {value}\r\n" for name, value in _session_headers(session).items())
    return f"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{head}\r\n".encode()


def promise_request(port: int, number: int, method: str, params: dict[str, Any], name: str) -> bytes:
    """A request of a client that takes promises, and can answer what a task asks."""
    extensions = {"io.modelcontextprotocol/tasks": {}}
    meta = _meta({"elicitation": {"form": {}}, "extensions": extensions})
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": name}
    return _post(port, message, headers)
