"""An MCP server that does what an example says: over HTTP in each kind of version, and over standard streams.

It writes its bytes itself, so that it can send anything. The gateway's command for standard streams only
copies them to this process, so that the server lives in the event loop of the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["COPIES", "KINDS", "Act", "Upstream"]

Act = tuple[Any, ...]
"""What the server does once: a name, and what goes with it."""
KINDS = ("tools", "resources", "templates", "prompts")
COPIES = "exec 3<>/dev/tcp/127.0.0.1/$0; cat <&3 & exec >&-; cat >&3; kill $! 2>&-; wait"
"""A script for bash that copies its standard streams from and to a port."""
_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "templates",
    "prompts/list": "prompts",
}
_KEY = "io.modelcontextprotocol/"
_FORM = {"type": "object", "properties": {"value": {"type": "string"}}}

Send = Callable[[bytes], None]


class Upstream:
    """The server. It is honest unless `acts` has something for the method of a request."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.is_stateless = version >= "2026"
        self.names: dict[str, list[str]] = {kind: [] for kind in KINDS}
        """The names or URIs of what it offers."""
        self.acts: dict[str, deque[Sequence[Act]]] = defaultdict(deque)
        """What it does at the next requests of a method."""
        self.port = 0
        self._released = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listening: dict[asyncio.StreamWriter, Send] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve on a port of loopback."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 22)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.calm(())
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def calm(self, tools: Sequence[str]) -> None:
        """Be honest from now on, with these tools alone, and forget all connections."""
        self.acts.clear()
        self.names = {**{kind: [] for kind in KINDS}, "tools": list(tools)}
        self._released.set()
        self.drop()

    def drop(self) -> None:
        """Break all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def announce(self, kind: str) -> None:
        """Say that a list has changed, to everybody who listens."""
        kind = "resources" if kind == "templates" else kind
        self.broadcast({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})

    def broadcast(self, frame: Any) -> None:
        """Send a frame to everybody who listens."""
        for send in tuple(self._listening.values()):
            send(_json(frame))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            first = await reader.readexactly(1)
            await (self._lines if first == b"{" else self._http)(first, reader, writer)
        except* (OSError, EOFError, ValueError):  # the gateway closed, in the middle of a line perhaps
            pass
        finally:
            self._writers.discard(writer)
            self._listening.pop(writer, None)
            self._tasks.discard(task)
            writer.close()

    # Transports

    async def _lines(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def send(data: bytes) -> None:
            if not writer.is_closing():
                writer.write(data.replace(b"\n", b" ") + b"\n")

        self._listening[writer] = send
        async with asyncio.TaskGroup() as group:
            while line := first + await reader.readline():
                first = b""
                group.create_task(self._handle(json.loads(line), send, writer, None))

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head.splitlines()
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method = start.partition(" ")[0]
        if method == "DELETE":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return

        def send(data: bytes) -> None:
            if not writer.is_closing():
                writer.write(b"data: " + data.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n")

        frame = json.loads(body) if body else {}
        if method == "POST" and ("id" not in frame or "method" not in frame):
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return

        def begin(status: int = 200, kind: str = "text/event-stream") -> None:
            self._count += 1
            session = "" if self.is_stateless else f"mcp-session-id: s{self._count}\r\n"
            if frame.get("method") != "initialize":
                session = ""
            writer.write(
                f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{session}connection: close\r\n\r\n".encode()
            )

        if method == "GET":
            begin()
            self._listening[writer] = send
            await reader.read()  # until the other side closes
            return
        gone = asyncio.create_task(reader.read())
        handling = asyncio.create_task(self._handle(frame, send, writer, begin))
        try:
            await asyncio.wait({gone, handling}, return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                handling.result()
                await writer.drain()
        finally:
            gone.cancel()
            handling.cancel()
            await asyncio.gather(gone, handling, return_exceptions=True)

    # Requests

    async def _handle(
        self, frame: Any, send: Send, writer: asyncio.StreamWriter, begin: Callable[..., None] | None
    ) -> None:
        """Answer a request, as the next acts for its method say."""
        method, id = frame.get("method"), frame.get("id")
        if method is None or id is None:
            return
        waiting = self.acts[method]
        acts = [("honest",), *(waiting.popleft() if waiting else ())]
        acts = [*acts[1:], acts[0]]
        if begin is not None and acts[0][0] != "status":
            begin()
        params = frame.get("params") or {}
        caller = (params.get("arguments") or {}).get("who", "anybody")
        label = f"bad for {caller if begin is not None else 'anybody'}"
        for name, *given in acts:
            if writer.is_closing():
                return
            match name:
                case "honest" if method == "subscriptions/listen":
                    interests = params.get("notifications", {})
                    self._listening[writer] = send
                    notice = "notifications/subscriptions/acknowledged"
                    meta = {f"{_KEY}subscriptionId": id}
                    send(_json(_notification(notice, notifications=interests, _meta=meta)))
                    await self._released.wait()
                    return
                case "honest":
                    send(_json(self._honest(method, id, params)))
                case "result":
                    send(_json({"jsonrpc": "2.0", "id": id, "result": given[0]}))
                    return
                case "error":
                    error = {"code": given[0], "message": given[1]}
                    send(_json({"jsonrpc": "2.0", "id": id, "error": error}))
                    return
                case "ask":
                    self._count += 1
                    send(_json({"jsonrpc": "2.0", "id": f"q{self._count}", **_question(given[0], label)}))
                case "return":
                    asked = {"inputRequests": {"k": _question(given[0], label)}, "requestState": "s"}
                    send(
                        _json(
                            {"jsonrpc": "2.0", "id": id, "result": {"resultType": "input_required", **asked}}
                        )
                    )
                    return
                case "tell":
                    token = (params.get("_meta") or {}).get("progressToken", given[1])
                    told = {"progressToken": token, "progress": given[0], "message": label}
                    send(_json(_notification("notifications/progress", **told)))
                    send(_json(_notification("notifications/message", level="emergency", data=label)))
                case "frame":
                    send(_json(given[0]))
                case "garbage":
                    send(given[0]) if begin is None else writer.write(given[0])
                case "huge":
                    send(b'{"x": "' + b"x" * given[0])
                case "other id":
                    send(_json(self._honest(method, given[0], params)))
                case "status":
                    if begin is not None:
                        begin(*given)
                case "announce":
                    for _ in range(given[1]):
                        self.announce(given[0])
                case "offer":
                    self.names[given[0]] = list(given[1])
                case "hang":
                    await self._released.wait()
                case "drop":
                    writer.transport.abort()
                    return
            with contextlib.suppress(OSError):
                await writer.drain()

    def _honest(self, method: str, id: Any, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "initialize" and self.is_stateless:
            data = {"supported": [self.version], "requested": params.get("protocolVersion")}
            error = {"code": -32022, "message": "no sessions", "data": data}
            return {"jsonrpc": "2.0", "id": id, "error": error}
        capabilities: dict[str, Any] = {kind: {"listChanged": True} for kind in ("tools", "prompts")}
        capabilities |= {
            "resources": {"listChanged": True, "subscribe": True},
            "logging": {},
            "completions": {},
        }
        info = {"name": "bad", "version": "1"}
        match method:
            case "initialize":
                value: dict[str, Any] = {"protocolVersion": self.version, "capabilities": capabilities}
                value["serverInfo"] = info
            case "server/discover" if self.is_stateless:
                value = {"supportedVersions": [self.version], "capabilities": capabilities}
                value |= {"ttlMs": 0, "cacheScope": "public", "_meta": {f"{_KEY}serverInfo": info}}
            case "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list":
                kind = _LISTS[method]
                key = "resourceTemplates" if kind == "templates" else kind
                value = {key: [_item(kind, name) for name in self.names[kind]]}
            case "tools/call":
                value = {"content": [{"type": "text", "text": f"bad {params.get('name')}"}]}
            case "resources/read":
                value = {"contents": [{"uri": params.get("uri"), "text": "bad"}]}
            case "prompts/get":
                value = {"messages": [{"role": "user", "content": {"type": "text", "text": "bad"}}]}
            case "completion/complete":
                value = {"completion": {"values": ["bad"]}}
            case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe":
                value = {}
            case _:
                return {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no method"}}
        if self.is_stateless:
            value = {"resultType": "complete", **value}
        return {"jsonrpc": "2.0", "id": id, "result": value}


def _item(kind: str, name: str) -> dict[str, Any]:
    of = {"description": "of bad"}
    if kind == "tools":
        return {"name": name, "inputSchema": {"type": "object"}, **of}
    if kind == "prompts":
        return {"name": name, **of}
    return {"uri" if kind == "resources" else "uriTemplate": name, "name": name, **of}


def _question(kind: str, message: str) -> dict[str, Any]:
    if kind == "elicitation/create":
        return {"method": kind, "params": {"message": message, "requestedSchema": _FORM}}
    if kind == "sampling/createMessage":
        content = {"type": "text", "text": message}
        return {
            "method": kind,
            "params": {"messages": [{"role": "user", "content": content}], "maxTokens": 9},
        }
    return {"method": kind, "params": {}}


def _notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _json(frame: Any) -> bytes:
    return json.dumps(frame).encode()
