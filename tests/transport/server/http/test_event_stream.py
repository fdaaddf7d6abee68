"""The event stream of one response."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from antiphon.transport.server.http.event_stream import EventStream
from tests.support.loop_time import LoopTime


async def test_writing_to_a_client_that_disconnected_lets_other_tasks_run() -> None:
    async def send(message: MutableMapping[str, Any]) -> None:
        """Return at once, as uvicorn does after the client has disconnected."""

    outlet = EventStream(send)
    served = asyncio.Event()
    other = asyncio.create_task(_set(served))
    await outlet.write(b"{}")
    LoopTime.here().advance(1)  # longer than it writes before it lets others run
    await outlet.write(b"{}")
    assert served.is_set()
    await other


async def _set(served: asyncio.Event) -> None:
    served.set()
