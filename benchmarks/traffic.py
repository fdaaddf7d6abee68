"""The bytes the load generator sends: one tool call, rendered for a protocol version, once.

It owns how a request looks on the wire and nothing of how it is sent or timed. Every number sent is
of one fixed width, so that all requests of a kind are of equal length.
"""

import json
from typing import Any

__all__ = ["MODERN", "SESSIONS", "call", "close_session", "expected", "initialize", "initialized"]

MODERN = "2026-07-28"
"""The stateless version: everything a call needs travels with it."""

SESSIONS = "2025-11-25"
"""The version with a handshake: calls are made within a session."""

_CLIENT = {"name": "bench", "version": "1.0"}


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


def call(port: int, version: str, number: int, session: str | None = None) -> bytes:
    """The `tools/call` of `add` that connection `number` repeats."""
    params: dict[str, Any] = {"name": "add", "arguments": {"a": 100 + number, "b": 4000}}
    if version == MODERN:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": _CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "add"}
    else:
        headers = _session_headers(session)
    message = {"jsonrpc": "2.0", "id": 1000 + number, "method": "tools/call", "params": params}
    return _post(port, message, headers)


def expected(number: int) -> bytes:
    """What a right answer to `call(number)` contains: the sum, as a JSON string."""
    return b'"%d"' % (4100 + number)


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
