"""Reads event streams of calls, raw: what came, and when.

It owns one connection at a time and knows how segments, progress and the end of a call look on the wire.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Stream", "call", "draft_stream", "task_stream"]

_VERSION = "2026-07-28"
_TASKS, _STREAMING = "io.modelcontextprotocol/tasks", "dev.antiphon/streaming"
_LIMIT = 600.0
"""Seconds that one call may take."""


@dataclass(slots=True)
class Stream:
    """What one call brought."""

    items: int = 0
    whole: bool = True
    """Whether the numbers of segments rose by one, from one."""
    seconds: float = 0.0
    delays_ms: list[float] = field(default_factory=list)
    """For items that say when they were sent, how long they took."""
    end: dict[str, Any] = field(default_factory=dict)


async def call(port: int, tool: str, arguments: dict[str, Any], *, stamped: bool = False) -> Stream:
    """Call a tool and read what it says until it ends."""
    params = {"name": tool, "arguments": arguments, "_meta": {**_meta(), "progressToken": "p"}}
    return await _read(port, "tools/call", tool, params, stamped)


async def task_stream(port: int, tool: str, arguments: dict[str, Any]) -> Stream:
    """Call a tool that makes a task, and read the task's stream until it ends."""
    began = time.perf_counter()
    made = await call(port, tool, arguments)
    id = made.end["result"]["taskId"]
    stream = await _read(port, "tasks/stream", id, {"taskId": id, "_meta": _meta()}, stamped=False)
    stream.seconds = time.perf_counter() - began
    return stream


async def draft_stream(port: int, tool: str, arguments: dict[str, Any]) -> int:
    """Call a tool in streaming mode, as a bare request: how many segments of its task came."""
    params = {"name": tool, "arguments": arguments, "task": {"responseModes": ["streaming"]}}
    items = 0
    async with asyncio.timeout(_LIMIT):
        async for frame in _frames(port, "tools/call", None, params):
            items += len(frame["result"]["partial-content"])
            if frame["result"]["isComplete"]:
                break
    return items


async def _read(port: int, method: str, name: str, params: dict[str, Any], stamped: bool) -> Stream:
    stream, began = Stream(), time.perf_counter()
    async with asyncio.timeout(_LIMIT):
        async for frame in _frames(port, method, name, params):
            now = time.monotonic_ns()
            kind = frame.get("method")
            if kind == "notifications/tools/partial_result":
                content = frame["params"]["content"]
                stream.whole &= frame["params"]["seqNr"] == stream.items + 1
                stream.items += len(content)
                if stamped:
                    stream.delays_ms += [(now - int(block["text"])) / 1e6 for block in content]
            elif kind == "notifications/progress":
                stream.items += 1
            elif kind is None:
                stream.end = frame
                # The last segments may come with the end alone, which is complete by itself.
                content = frame.get("result", {}).get("content", [])
                stream.items = max(stream.items, len(content))
                break
    stream.seconds = time.perf_counter() - began
    return stream


async def _frames(
    port: int, method: str, name: str | None, params: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        body = json.dumps(message, separators=(",", ":")).encode()
        writer.write(
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
            f"{_named(method, name)}"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"The server answered: {(head + await reader.read(2000)).decode()}")
        if b"application/json" in head.lower():
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            yield json.loads(await reader.readexactly(length))
            return
        buffer = b""
        async for chunk in _chunks(reader):
            *events, buffer = (buffer + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                data = b"".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
                if data:
                    yield json.loads(data)
    finally:
        writer.close()


def _named(method: str, name: str | None) -> str:
    """The headers of the current version; a bare request has none."""
    if name is None:
        return ""
    return f"MCP-Protocol-Version: {_VERSION}\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n"


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The body of a chunked answer, as it comes."""
    while size := int((await reader.readline()).strip() or b"0", 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


def _meta() -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": _VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {_TASKS: {}, _STREAMING: {}}},
    }
