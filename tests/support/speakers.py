"""A minimal client for each dialect, so that a test can send the same request in all three."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support import http
from tests.support.http import Connection, Response

MODERN, LEGACY, DRAFT = "2026-07-28", "2025-11-25", "DRAFT-2026-v1"
KEY = "io.modelcontextprotocol/"
CLIENT = {"name": "tests", "version": "1.0.0"}
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Speaker:
    """A client of one dialect, at the address `source`. `headers` are sent with every request."""

    def __init__(
        self,
        port: int,
        *,
        path: str = "/mcp",
        headers: Mapping[str, str] | None = None,
        source: str = http.LOOPBACK,
    ) -> None:
        self.port = port
        self.source = source
        self.path = path
        self.headers = {**JSON, **(headers or {})}

    def build(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the headers and the frame of a request."""
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            frame["params"] = dict(params)
        return dict(self.headers), frame

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request, and read the whole response."""
        async with self.asking(method, params, id=id, headers=headers) as connection:
            return await connection.receive()

    @asynccontextmanager
    async def asking(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Connection]:
        """Send a request, and yield the connection to read the response from."""
        lines, frame = self.build(method, params, id=id)
        async with http.connect(self.port, self.source) as connection:
            body = json.dumps(frame).encode()
            await connection.send("POST", self.path, {**lines, **(headers or {})}, body)
            yield connection

    async def call(self, tool: str, meta: Mapping[str, Any] | None = None, /, **arguments: Any) -> Response:
        """Call a tool."""
        return await self.ask("tools/call", self.tool_call(tool, meta, **arguments))

    def tool_call(
        self, tool: str, meta: Mapping[str, Any] | None = None, /, **arguments: Any
    ) -> dict[str, Any]:
        """Return the parameters of a tool call."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        return params if meta is None else {**params, "_meta": dict(meta)}

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> Response:
        """Send a notification."""
        lines, frame = self.build(method, params)
        del frame["id"]
        return await http.request(
            self.port, "POST", lines, json.dumps(frame).encode(), self.path, source=self.source
        )


class Modern(Speaker):
    """2026-07-28."""

    capabilities: Mapping[str, Any] = {}

    def build(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1
    ) -> tuple[dict[str, str], dict[str, Any]]:
        given = dict(params or {})
        meta = {
            KEY + "protocolVersion": MODERN,
            KEY + "clientInfo": CLIENT,
            KEY + "clientCapabilities": dict(self.capabilities),
            **given.get("_meta", {}),
        }
        headers, frame = super().build(method, {**given, "_meta": meta}, id=id)
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": method}
        if method in NAMED and isinstance(given.get(NAMED[method]), str):
            headers["mcp-name"] = given[NAMED[method]]
        return headers, frame


class Bare(Speaker):
    """The draft: no version, no session."""


class Session(Speaker):
    """2025-11-25, or another version with sessions. Call `open` first."""

    session_id: str

    async def open(self, version: str = LEGACY, capabilities: Mapping[str, Any] | None = None) -> Response:
        """Initialize."""
        params = {"protocolVersion": version, "capabilities": dict(capabilities or {}), "clientInfo": CLIENT}
        response = await self.ask("initialize", params, id="init")
        self.session_id = response.headers["mcp-session-id"]
        negotiated = response.result["protocolVersion"]
        self.headers |= {"mcp-session-id": self.session_id, "mcp-protocol-version": negotiated}
        if negotiated == DRAFT:
            del self.headers["mcp-protocol-version"]
        told = await self.tell("notifications/initialized")
        assert told.status == 202
        return response

    @asynccontextmanager
    async def listening(self, last_event: str | None = None) -> AsyncIterator[Connection]:
        """Open the GET stream of the session."""
        headers = {**self.headers, "accept": "text/event-stream"}
        del headers["content-type"]
        if last_event is not None:
            headers["last-event-id"] = last_event
        async with http.connect(self.port, self.source) as connection:
            await connection.send("GET", self.path, headers)
            yield connection

    async def end(self) -> Response:
        """DELETE."""
        return await http.request(self.port, "DELETE", self.headers, path=self.path, source=self.source)


async def speaker(dialect: str, port: int, **options: Any) -> Speaker:
    """Return a client of the dialect `modern`, `session` or `bare`, ready for requests."""
    if dialect == "modern":
        return Modern(port, **options)
    if dialect == "bare":
        return Bare(port, **options)
    session = Session(port, **options)
    await session.open()
    return session


DIALECTS = ("modern", "session", "bare")
