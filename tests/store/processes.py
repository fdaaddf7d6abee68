"""Starts and ends the processes of `child.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("child.py")
CHILD_TIMEOUT_SECONDS = 120.0
"""How long a child process may take."""


@asynccontextmanager
async def child(command: str, path: Path | str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a child process; it is killed at the end if it still runs."""
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


async def next_report(process: asyncio.subprocess.Process) -> list[Any]:
    """Return the next line that a child prints."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), CHILD_TIMEOUT_SECONDS)
    values: list[Any] = json.loads(line)
    return values


async def all_reports(process: asyncio.subprocess.Process) -> list[Any]:
    """Return all lines that a child prints until it ends, without an incomplete last line."""
    assert process.stdout is not None
    text = await asyncio.wait_for(process.stdout.read(), CHILD_TIMEOUT_SECONDS)
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def send(process: asyncio.subprocess.Process, value: object) -> None:
    """Send a line to a child."""
    assert process.stdin is not None
    process.stdin.write(f"{value}\n".encode())
