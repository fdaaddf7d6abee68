"""Requests for the tests of the extensions."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession

from tests.support.polling import until


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

    async def look() -> dict[str, Any] | None:
        status = await request(session, "tasks/get", taskId=id)
        return None if status["status"] in ("working", "input_required") else status

    ended = await until(look)
    assert ended is not None
    return ended
