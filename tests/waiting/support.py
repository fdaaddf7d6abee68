"""Helpers for tasks that wait: a clock that runs and that a test moves forward, and people who answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from antiphon import Client, Principal, Server, wall_clock
from antiphon.client.tasks.handle import TaskHandle
from antiphon.runtime.tasks.inbox import Inbox
from antiphon.store.contract import Store
from tests.support.polling import until


class Clock:
    """The time of day, which a test moves forward for its servers and its stores: see the fixture `clock`."""

    def __call__(self) -> float:
        return wall_clock.now()

    def forward(self, **length: float) -> None:
        wall_clock.ahead += timedelta(**length).total_seconds()


def inbox(server: Server) -> Inbox:
    """Return the inbox of a running server."""
    return server.engine.tasks.inbox


async def status_of(handle: TaskHandle, *expected: str) -> str:
    """Wait until a task has a status message that contains one of the texts; return the message."""

    async def said() -> str:
        status = await handle.status()
        message = status.message or ""
        if any(text in message for text in expected):
            return message
        assert status.status in ("working", "input_required"), status
        return ""

    return await until(said)


async def is_parked(store: Store, handle: TaskHandle) -> bool:
    """Whether a task waits, and no worker has it."""
    record = await store.get(str(handle.id))
    return record is not None and record.phase == "waiting"


async def look_for_due(server: Server) -> None:
    """Let the worker look now for tasks whose time has come: afterwards, none of them waits any longer."""
    await server.engine.tasks.check_times()


async def asked(server: Server, principal: Principal, count: int = 1) -> list[Any]:
    """Wait until a principal has so many questions to answer; return them."""
    found: list[Any] = []

    async def all_asked() -> bool:
        found[:] = (await inbox(server).list(principal)).items
        return len(found) == count

    await until(all_asked)
    return found


def accept(**content: Any) -> dict[str, Any]:
    """Return the response of somebody who fills in a form."""
    return {"action": "accept", "content": content}


@asynccontextmanager
async def client_of(server: Server, principal: str = "ada", **options: Any) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    async with Client(server, principal=Principal(principal), **options) as client:
        yield client
