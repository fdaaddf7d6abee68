"""The stream of one response, written to by a tool that says much."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from antiphon.transport.server.http.event_stream import EventStream


async def test_a_tool_that_says_much_to_a_caller_that_is_gone_lets_others_be_served() -> None:
    async def send(message: MutableMapping[str, Any]) -> None:
        """As uvicorn does it once the caller is gone: nothing, at once."""

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
