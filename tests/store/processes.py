"""Starts the processes that `child.py` describes, and ends them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("child.py")
LONGEST = 120.0
"""Seconds that any process of these tests may take."""


@asynccontextmanager
async def child(command: str, path: Path | str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process, killed if it is still there in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CHILD),
        command,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


async def heard(process: asyncio.subprocess.Process) -> list[Any]:
    """The next line that a process says."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), LONGEST)
    said: list[Any] = json.loads(line)
    return said


async def all_heard(process: asyncio.subprocess.Process) -> list[Any]:
    """All that a process says until it ends; a last line that is cut off was not said."""
    assert process.stdout is not None
    text = await asyncio.wait_for(process.stdout.read(), LONGEST)
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def tell(process: asyncio.subprocess.Process, word: object) -> None:
    """Say a line to a process."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n".encode())
