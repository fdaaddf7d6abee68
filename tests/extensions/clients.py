"""Requests for the tests of the extensions."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession


class Params(types.RequestParams, extra="allow"):
    """The parameters of any request."""


class Answer(types.Result, extra="allow"):
    """Any result."""


async def request(session: ClientSession, method: str, **params: Any) -> dict[str, Any]:
    """Send a request of the tasks extension, and return its result."""
    sent: Any = types.Request[Params, str](method=method, params=Params(**params))
    result: Answer = await session.send_request(sent, Answer)
    return result.model_dump(by_alias=True, exclude_none=True)


async def ended(session: ClientSession, id: str) -> dict[str, Any]:
    """Wait until a task has ended, and return it."""
    async with asyncio.timeout(60):
        while True:
            status = await request(session, "tasks/get", taskId=id)
            if status["status"] not in ("working", "input_required"):
                return status
            await asyncio.sleep(0.01)
