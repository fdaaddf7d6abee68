"""Sends what a handler of the console returned: JSON, a response, or a stream of events.

Owns the deadlines of streams: a page that reads nothing is disconnected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.console.routes import EventStream, Problem
from antiphon.errors import AntiphonError, RequestError, StoreUnavailable
from antiphon.transport.server.http.asgi import Receive, Send
from antiphon.transport.server.http.router import HttpResponse
from antiphon.transport.server.http.unread import abort
from antiphon.wire.sse import COMMENT, event

__all__ = ["problem_of", "response_of", "send_events", "start_events"]

logger = logging.getLogger("antiphon")

_KEEP_ALIVE_SECONDS = 15.0
"""How often a stream without events sends a comment."""
_FAILED = "The console failed to do this. The log of its process has the details."


def response_of(value: Any) -> HttpResponse:
    """Return the response for what a handler returned. API responses are never cached."""
    if isinstance(value, HttpResponse):
        return value
    # A string is JSON here too: HttpResponse would send it as text.
    return HttpResponse(
        msgspec.json.encode(value), media_type="application/json", headers={"cache-control": "no-store"}
    )


def problem_of(error: Exception) -> Problem:
    """Return the problem that a person is told about, for an error of a handler."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestError):
        return Problem(error.status, error.message)
    if isinstance(error, StoreUnavailable):
        return Problem(503, f"The store does not respond: {error}")
    if isinstance(error, AntiphonError):
        return Problem(502, str(error))
    logger.error("A request to the console failed.", exc_info=error)
    return Problem(500, _FAILED)


async def start_events(headers: Mapping[str, str], send: Send) -> None:
    """Send the head of a stream of events."""
    lines = {
        "content-type": "text/event-stream",
        "cache-control": "no-store",
        "x-accel-buffering": "no",  # a reverse proxy would keep the events back
        **headers,
    }
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})


async def send_events(stream: EventStream, send: Send, receive: Receive, *, timeout: float) -> None:
    """Send the events of a stream until it ends, or until the page is closed.

    A page that reads nothing for `timeout` seconds is disconnected. An error of the stream becomes its last
    event, `problem`.
    """

    async def write(data: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(timeout):
            await send({"type": "http.response.body", "body": data, "more_body": more})

    leaving = asyncio.create_task(_disconnected(receive))
    try:
        async with contextlib.aclosing(_chunks(stream)) as chunks:
            next_chunk = asyncio.ensure_future(anext(chunks, None))
            try:
                while True:
                    await asyncio.wait(
                        {next_chunk, leaving},
                        timeout=_KEEP_ALIVE_SECONDS,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if leaving.done():
                        return
                    if not next_chunk.done():
                        await write(COMMENT)
                    elif (chunk := next_chunk.result()) is None:
                        await write(b"", more=False)
                        return
                    else:
                        await write(chunk)
                        next_chunk = asyncio.ensure_future(anext(chunks, None))
            finally:
                next_chunk.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await next_chunk
    except TimeoutError:
        await abort(receive)
    finally:
        leaving.cancel()


async def _chunks(stream: EventStream) -> Any:
    """Yield the events as bytes."""
    try:
        async for name, data in stream.events:
            yield event(msgspec.json.encode(data), name=name)
    except Exception as error:
        problem = problem_of(error)
        said = {"status": problem.status, "message": problem.message}
        yield event(msgspec.json.encode(said), name="problem")
    finally:
        close = getattr(stream.events, "aclose", None)
        if close is not None:
            await close()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
