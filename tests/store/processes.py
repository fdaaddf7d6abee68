"""Starts and ends the processes of `child.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("child.py")
CHILD_TIMEOUT_SECONDS = 600.0
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
        await process.communicate()


async def next_report(process: asyncio.subprocess.Process) -> list[Any]:
    """Return the next line that a child prints."""
    values: list[Any] = json.loads(await _line(process))
    return values


async def first_report(
    processes: Sequence[asyncio.subprocess.Process],
) -> tuple[list[Any], asyncio.subprocess.Process]:
    """Wait until one of several children prints; return the lines that were read, and that child.

    A child may end without a line, because others have left it nothing to do.
    """
    reading = {asyncio.create_task(_line(process)): process for process in processes}
    waiting = set(reading)
    while True:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        printed = [task for task in done if task.result()]
        if printed:
            break
        assert waiting, "all children have ended, and none has printed anything"
    for task in waiting:
        task.cancel()  # what it has not read yet is still there to be read
    await asyncio.wait(reading)
    lines = [task.result() for task in reading if not task.cancelled() and task.result()]
    return [json.loads(line) for line in lines], reading[printed[0]]


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await asyncio.wait_for(process.stdout.readline(), CHILD_TIMEOUT_SECONDS)


async def all_reports(process: asyncio.subprocess.Process) -> list[Any]:
    """Return all lines that a child prints until it ends, without an incomplete last line."""
    assert process.stdout is not None
    text = await asyncio.wait_for(process.stdout.read(), CHILD_TIMEOUT_SECONDS)
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def send(process: asyncio.subprocess.Process, value: object) -> None:
    """Send a line to a child."""
    assert process.stdin is not None
    process.stdin.write(f"{value}\n".encode())
