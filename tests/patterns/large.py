"""Creates a large artifact and reads it back; prints how much the memory of the process grew."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from antiphon import Artifact, Client, Server
from antiphon.model.content import TextContents
from tests.support.polling import turns

LINE = "0123456789abcdef" * 64 + "\n"
SIZE = 50 * 1024 * 1024


def make(url: str) -> Server:
    """Return a server with a tool that returns a large text."""
    server = Server("large", artifacts=url)

    @server.tool
    async def much(size: int = SIZE) -> Artifact[Any]:
        return Artifact(lines(size), type="log", mime_type="text/plain")

    return server


async def lines(size: int) -> AsyncIterator[str]:
    """Yield lines with this many bytes in total."""
    block = LINE * 64
    for _ in range(0, size, len(block)):
        yield block[: min(size, len(block))]
        size -= len(block)
        await turns()


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_peak() -> None:
    """Let the peak of the memory of this process begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the most memory that this process had, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def main(url: str) -> None:
    async with Client(make(url), timeout=60) as client:
        await _whole(client, await client.call("much", size=3_000_000))  # what is loaded once does not count
        before = resident()
        forget_peak()
        result = await client.call("much")
        size, digest, pages = await _whole(client, result)
        grown = peak() - before
    expected = hashlib.sha256()
    async for piece in lines(SIZE):
        expected.update(piece.encode())
    print(
        json.dumps(
            {
                "grown": grown,
                "size": size,
                "pages": pages,
                "same": digest == expected.hexdigest(),
                "kept": result.data["size"],
                "text": len(result.text),
            }
        )
    )


async def _whole(client: Client, result: Any) -> tuple[int, str, int]:
    """Read a whole artifact, page by page."""
    uri, size, pages, digest = result.content[-1].uri, 0, 0, hashlib.sha256()
    while uri is not None:
        (contents,) = (await client.read(uri)).contents
        assert isinstance(contents, TextContents)
        raw = contents.text.encode()
        size, pages = size + len(raw), pages + 1
        digest.update(raw)
        uri = (contents.meta or {}).get("next")
    return size, digest.hexdigest(), pages


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
