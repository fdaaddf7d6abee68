"""Helpers for tasks that wait: a clock that runs and that a test moves forward, and people who answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from antiphon import Client, Principal, Server
from antiphon.client.tasks.handle import TaskHandle
from antiphon.runtime.tasks.inbox import Inbox


class Clock:
    """The time of day, which a test moves forward."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead

    def forward(self, **length: float) -> None:
        self._ahead += timedelta(**length).total_seconds()


def inbox(server: Server) -> Inbox:
    """Return the inbox of a running server."""
    return server.engine.tasks.inbox


async def status_of(handle: TaskHandle, *expected: str) -> str:
    """Wait until a task has a status message that contains one of the texts; return the message."""
    async with asyncio.timeout(20):
        while True:
            status = await handle.status()
            message = status.message or ""
            if any(text in message for text in expected):
                return message
            assert status.status in ("working", "input_required"), status
            await asyncio.sleep(0.01)


async def asked(server: Server, principal: Principal, count: int = 1) -> list[Any]:
    """Wait until a principal has so many questions to answer; return them."""
    found: list[Any] = []

    async def all_asked() -> bool:
        found[:] = (await inbox(server).list(principal)).items
        return len(found) == count

    await eventually(all_asked)
    return found


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(20):
        for _ in iter(int, 1):
            if await holds():
                return
            await asyncio.sleep(0.01)


def accept(**content: Any) -> dict[str, Any]:
    """Return the response of somebody who fills in a form."""
    return {"action": "accept", "content": content}


@asynccontextmanager
async def client_of(server: Server, principal: str = "ada", **options: Any) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    async with Client(server, principal=Principal(principal), **options) as client:
        yield client
