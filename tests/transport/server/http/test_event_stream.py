"""The event stream of one response."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from antiphon.transport.server.http.event_stream import EventStream


async def test_writing_to_a_client_that_disconnected_lets_other_tasks_run() -> None:
    async def send(message: MutableMapping[str, Any]) -> None:
        """Return at once, as uvicorn does after the client has disconnected."""

    outlet = EventStream(send)
    served = asyncio.Event()
    other = asyncio.create_task(_set(served))
    deadline = asyncio.get_running_loop().time() + 5
    while not served.is_set() and asyncio.get_running_loop().time() < deadline:
        await outlet.write(b"{}")
    assert served.is_set()
    await other


async def _set(served: asyncio.Event) -> None:
    served.set()
