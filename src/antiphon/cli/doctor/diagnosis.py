"""What stands at an address that does not answer as an MCP server does, and where one might be instead.

Only looks: at neighbouring paths of the same address, and for the transport of 2024-11-05.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit, urlunsplit

from antiphon.cli.targets import Target
from antiphon.errors import AntiphonError, BadAnswer, Forbidden, RequestError, Unauthorized, Unreachable

__all__ = ["explained"]

_PATHS = ("/mcp", "/mcp/", "/", "/sse")
_WAIT = 3.0


async def explained(target: Target, error: AntiphonError) -> str | None:
    """A message that says more than the error does; none where there is nothing to add."""
    assert isinstance(target.place, str)
    if isinstance(error, Unauthorized):
        challenge = dict(error.headers).get("www-authenticate", "Bearer")
        return (
            f"{target.place} wants to know who is calling ({challenge}). "
            "Send a token with --token, or another header with --header."
        )
    if isinstance(error, Forbidden):
        return f"{target.place} lets nobody in who comes like this: {error.message}"
    if isinstance(error, Unreachable) or not isinstance(error, BadAnswer | RequestError):
        return None
    if await _is_old(target.place):
        return (
            f"{target.place} speaks HTTP+SSE, the transport of 2024-11-05, which was replaced in 2025 and is "
            "not spoken here. Ask for its Streamable HTTP address, often /mcp."
        )
    places = [place for path in _PATHS if (place := _beside(target.place, path)) != target.place]
    found = await asyncio.gather(*(_answers(target, place) for place in places))
    for place, there in zip(places, found, strict=True):
        if there:
            return f"There is no MCP server at {target.place}, but there is one at {place}"
    return f"{_what(error)} Tried beside it, and found none: {', '.join(map(_path, places))}."


def _what(error: AntiphonError) -> str:
    said = str(error)
    return said if said.endswith(".") else f"{said}."


async def _answers(target: Target, place: str) -> bool:
    beside = Target(place, target.headers, min(_WAIT, target.timeout))
    try:
        async with beside.client(connect_timeout=beside.timeout):
            return True
    except Unauthorized:
        return True
    except AntiphonError:
        return False


async def _is_old(place: str) -> bool:
    """Whether a GET opens a stream whose first event names an endpoint."""
    import httpx2

    try:
        async with (
            httpx2.AsyncClient(timeout=_WAIT) as http,
            asyncio.timeout(_WAIT),
            http.stream("GET", place, headers={"accept": "text/event-stream"}) as response,
        ):
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                return False
            async for line in response.aiter_lines():
                return line.replace(" ", "") == "event:endpoint"
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError):
        pass
    return False


def _beside(place: str, path: str) -> str:
    parts = urlsplit(place)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _path(place: str) -> str:
    return urlsplit(place).path
