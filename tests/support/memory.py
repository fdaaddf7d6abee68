"""A server without a transport: frames in, frames out, in the event loop of the test."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from antiphon import Server
from antiphon.transport.server.stream_connection import StreamConnection
from tests.support.polling import DEADLINE
from tests.support.speakers import CLIENT, KEY, LEGACY, MODERN


class InMemory:
    """A client on a connection of its own."""

    def __init__(self, server: Server) -> None:
        self.connection = StreamConnection(server.engine, self.write)
        self.notifications: list[dict[str, Any]] = []
        self._ids = itertools.count(1)
        self.pending: dict[Any, asyncio.Future[dict[str, Any]]] = {}

    async def write(self, data: bytes) -> None:
        """Take a message of the server."""
        frame = json.loads(data)
        if "method" in frame:
            self.notifications.append(frame)
        else:
            self.pending.pop(frame.get("id")).set_result(frame)

    async def ask(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request, and return the response; in 2026-07-28 if `meta` is given."""
        request_id = next(self._ids)
        self.pending[request_id] = answer = asyncio.get_running_loop().create_future()
        given = dict(params or {})
        if meta is not None:
            version = {KEY + "protocolVersion": MODERN, KEY + "clientCapabilities": {}}
            given["_meta"] = {**version, **meta}
        frame = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": given}
        self.connection.receive(json.dumps(frame))
        async with asyncio.timeout(DEADLINE):
            return await answer

    async def result(
        self, method: str, params: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request, and return its result."""
        frame = await self.ask(method, params, **more)
        assert "result" in frame, frame
        return dict(frame["result"])

    async def error(
        self, method: str, params: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request, and return its error."""
        frame = await self.ask(method, params, **more)
        assert "error" in frame, frame
        return dict(frame["error"])

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return its result."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments})

    async def text(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool that succeeds, and return its text."""
        result = await self.call(tool, **arguments)
        assert result["isError"] is False, result
        return "\n".join(block["text"] for block in result["content"])

    async def initialize(self, version: str = LEGACY) -> dict[str, Any]:
        """Begin a session."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        return await self.result("initialize", params)

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        self.connection.receive(json.dumps({"jsonrpc": "2.0", "method": method, "params": dict(params)}))


@asynccontextmanager
async def in_memory(server: Server) -> AsyncIterator[InMemory]:
    """Connect to a server."""
    async with server.running():
        client = InMemory(server)
        try:
            yield client
        finally:
            await client.connection.close(within=1)
