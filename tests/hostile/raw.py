"""Bytes on a socket, and the responses that come back until the server closes the connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.support.http import TIMEOUT_SECONDS
from tests.support.polling import turns

MARKER = b"GET /marker HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
"""A request that is answered with 404, after which the server closes the connection."""
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@dataclass
class Answers:
    """The responses on one connection, in order."""

    statuses: list[int] = field(default_factory=list)
    raw: bytes = b""


def post(body: bytes = PING, *lines: str, length: int | None = None) -> bytes:
    """Return a request with a JSON body, and further header lines."""
    size = len(body) if length is None else length
    head = ["POST /mcp HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *lines]
    if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines):
        head.append(f"Content-Length: {size}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


async def send_raw(
    port: int, *parts: bytes, half_close: bool = False, within: float = TIMEOUT_SECONDS
) -> Answers:
    """Send bytes, and return the responses that come until the server closes the connection."""
    raw = await read_raw(port, *parts, half_close=half_close, within=within)
    return Answers(read_statuses(raw), raw)


async def read_raw(
    port: int, *parts: bytes, half_close: bool = False, within: float = TIMEOUT_SECONDS
) -> bytes:
    """Send bytes, and return the bytes that come until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = bytearray()
    try:
        async with asyncio.timeout(within):
            sending = asyncio.create_task(_send(writer, parts, half_close=half_close))
            try:
                while piece := await reader.read(65536):
                    raw += piece
            except ConnectionError:
                pass
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    finally:
        writer.transport.abort()
    return bytes(raw)


async def _send(writer: asyncio.StreamWriter, parts: tuple[bytes, ...], *, half_close: bool) -> None:
    for part in parts:
        writer.write(part)
        await writer.drain()
        await turns()
    if half_close:
        writer.write_eof()


def read_statuses(raw: bytes) -> list[int]:
    """Return the statuses of consecutive responses; a response that is cut off counts too."""
    statuses = []
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        version, status, *_ = head.split(b" ", 2)
        assert version == b"HTTP/1.1", f"not a response: {head[:80]!r}"
        statuses.append(int(status))
        fields = head.lower()
        if b"\r\ncontent-length:" in fields:
            raw = raw[int(fields.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0]) :]
        elif b"transfer-encoding: chunked" in fields:
            raw = raw.partition(b"0\r\n\r\n")[2]
    return statuses
