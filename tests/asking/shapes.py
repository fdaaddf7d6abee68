"""Clients of the drafts whose questions have no keys: they send raw messages over HTTP, and over stdio."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tests.support import http
from tests.support.servers.shapes import create_server
from tests.support.serving import serving
from tests.support.speakers import JSON, KEY
from tests.support.stdio import Streams, serving_pipes, stdio_server

MESSAGES_000, INFO_000 = "DRAFT-000-messages", "DRAFT-000-additional-info"
MESSAGES_001, CONTENT_001 = "DRAFT-001-messages", "DRAFT-001-content"
MESSAGES = (MESSAGES_000, MESSAGES_001)
SHAPES = (MESSAGES_000, INFO_000, MESSAGES_001, CONTENT_001)
STATE, QUESTION, RELATED = "dev.antiphon/request-state", "dev.antiphon/question", KEY + "related-task"

Frame = dict[str, Any]


class Raw(Protocol):
    """Sends messages of one version as they are."""

    version: str

    async def frames(self, method: str, params: Mapping[str, Any], **beside: Any) -> list[Frame]:
        """Send a request with fields beside its params; return all messages that answer it."""
        ...

    async def post(self, result: Mapping[str, Any], **beside: Any) -> Frame | None:
        """Send a response to no request of the server; return the error that refuses it."""
        ...


class RawHttp:
    """Over HTTP, with the version in the header, and in a session if `open` was called."""

    def __init__(self, port: int, version: str) -> None:
        self.version = version
        self._port = port
        self._headers = {**JSON, "mcp-protocol-version": version}

    async def open(self) -> None:
        """Open a session, to which all later messages belong."""
        frame = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _initialize(self.version)}
        answer = await http.request(self._port, "POST", self._headers, json.dumps(frame).encode())
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]

    async def frames(self, method: str, params: Mapping[str, Any], **beside: Any) -> list[Frame]:
        frame = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **beside}
        answer = await http.request(self._port, "POST", self._headers, json.dumps(frame).encode())
        assert answer.status == 200, answer
        return answer.frames

    async def post(self, result: Mapping[str, Any], **beside: Any) -> Frame | None:
        frame = {"jsonrpc": "2.0", "id": 1, "result": result, **beside}
        answer = await http.request(self._port, "POST", self._headers, json.dumps(frame).encode())
        return None if answer.status == 202 else answer.frame


class RawStdio:
    """Over standard streams, with the version in `initialize`."""

    def __init__(self, server: Streams, version: str) -> None:
        self.version = version
        self._server = server
        self._ids = itertools.count(100)

    async def frames(self, method: str, params: Mapping[str, Any], **beside: Any) -> list[Frame]:
        id = next(self._ids)
        await self._server.send({"id": id, "method": method, "params": params, **beside})
        answers: list[Frame] = []
        while not answers or _is_partial(answers[-1]):
            frame = await self._server.read()
            assert frame is not None
            if frame.get("id") == id:
                answers.append(frame)
        for answer in answers:
            answer["id"] = 7
        return answers

    async def post(self, result: Mapping[str, Any], **beside: Any) -> Frame | None:
        await self._server.send({"id": 1, "result": result, **beside})
        await self._server.send({"id": "after", "method": "ping"})
        refusal = None
        while (frame := await self._server.read()) is not None and frame.get("id") != "after":
            refusal = frame
        return refusal


def _initialize(version: str) -> Frame:
    modes = {"responses": {"modes": ["immediate", "streaming", "task"]}}
    capabilities = {"elicitation": {}, "sampling": {}, "roots": {}, "tasks": modes}
    client = {"name": "tests", "version": "1"}
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": client}


def _is_partial(frame: Frame) -> bool:
    return bool(frame.get("result", {}).get("isComplete") is False)


@asynccontextmanager
async def raw(channel: str, version: str) -> AsyncIterator[Raw]:
    """A client of a version, over `http`, in a `session` of HTTP, over `stdio`, or to a `process`."""
    if channel in ("http", "session"):
        async with serving(create_server(store="memory:")) as address:
            client = RawHttp(address.port, version)
            if channel == "session":
                await client.open()
            yield client
        return
    over = serving_pipes(create_server(store="memory:")) if channel == "stdio" else stdio_server("shapes.py")
    async with over as server:
        opened = await server.ask("initialize", _initialize(version))
        assert opened["result"]["protocolVersion"] == version
        yield RawStdio(server, version)


async def last(client: Raw, tool: str, answers: Mapping[str, Any] | None = None, **params: Any) -> Frame:
    """Call a tool, with `answers` where the version has them; return the last message."""
    meta = params.pop("meta", None)
    params = {"name": tool, "arguments": params.pop("arguments", {}), **params}
    if meta is not None:
        params["_meta"] = meta
    return (await client.frames("tools/call", params, **(answers or {})))[-1]
