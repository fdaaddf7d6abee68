"""Explains why an address is not an MCP server, and finds one nearby.

Tries other common paths of the same host, and the transport of protocol version 2024-11-05. Sends no
requests other than those that open a connection.
"""

from __future__ import annotations

import asyncio
import dataclasses
from urllib.parse import urlsplit, urlunsplit

from antiphon.errors import AntiphonError, BadAnswer, Forbidden, RequestError, Unauthorized, Unreachable
from antiphon.printable import redacted_url
from antiphon.server_target import ServerTarget

__all__ = ["explain_failure"]

COMMON_PATHS = ("/mcp", "/mcp/", "/", "/sse")
PROBE_TIMEOUT_SECONDS = 3.0
_MAX_FIRST_LINE_BYTES = 1024
_EVENT_HEADERS = {"accept": "text/event-stream", "accept-encoding": "identity"}


async def explain_failure(target: ServerTarget, error: AntiphonError) -> str | None:
    """Return a message that says more than the error, or `None` if there is nothing to add."""
    url, endpoint = target.name, str(target.endpoint)
    if isinstance(error, Unauthorized):
        challenge = dict(error.headers).get("www-authenticate", "Bearer")
        return (
            f"{url} requires authentication ({challenge}). "
            "Send a token with --token, or another header with --header."
        )
    if isinstance(error, Forbidden):
        return f"{url} refuses the connection: {error.message}"
    if isinstance(error, Unreachable) or not isinstance(error, BadAnswer | RequestError):
        return None
    if await _speaks_http_sse(endpoint):
        return (
            f"{url} uses HTTP+SSE, the transport of 2024-11-05, which is not supported. "
            "Ask for the server's Streamable HTTP address, often /mcp."
        )
    others = [other for path in COMMON_PATHS if (other := _with_path(endpoint, path)) != endpoint]
    found = await asyncio.gather(*(_is_server(target, other) for other in others))
    for other, is_server in zip(others, found, strict=True):
        if is_server:
            return f"There is no MCP server at {url}, but there is one at {redacted_url(other)}"
    tried = ", ".join(urlsplit(other).path for other in others)
    return f"{str(error).removesuffix('.')}. Other paths were tried and are not MCP servers: {tried}."


async def _is_server(target: ServerTarget, url: str) -> bool:
    timeout = min(PROBE_TIMEOUT_SECONDS, target.timeout)
    other = dataclasses.replace(target, name=redacted_url(url), endpoint=url, timeout=timeout)
    try:
        async with other.client(connect_timeout=timeout):
            return True
    except Unauthorized:
        return True
    except AntiphonError:
        return False


async def _speaks_http_sse(url: str) -> bool:
    """Return whether a GET opens a stream whose first event names an endpoint, as in 2024-11-05."""
    from antiphon.transport.client.http_client import HttpFailure, http_client

    http = http_client(connect_timeout=PROBE_TIMEOUT_SECONDS)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
            response = await http.request("GET", url, _EVENT_HEADERS)
            try:
                if not (response.header("content-type") or "").startswith("text/event-stream"):
                    return False
                begun = b""
                while b"\n" not in begun and len(begun) < _MAX_FIRST_LINE_BYTES:
                    piece = await response.read()
                    if not piece:
                        break
                    begun += piece[:_MAX_FIRST_LINE_BYTES]
            finally:
                await response.close()
            return begun.partition(b"\n")[0].strip().replace(b" ", b"") == b"event:endpoint"
    except (HttpFailure, TimeoutError):
        return False
    finally:
        await http.close()


def _with_path(url: str, path: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
