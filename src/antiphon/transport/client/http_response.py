"""Reads one HTTP response in bounded memory: a JSON body, a stream of events, or an error.

Opens no connection and never retries; `http` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2
from msgspec import UNSET

from antiphon.backoff import Backoff
from antiphon.errors import (
    BadAnswer,
    ClientError,
    Forbidden,
    RequestError,
    SessionLost,
    Unauthorized,
    Unreachable,
)
from antiphon.printable import printable, redacted_url
from antiphon.transport.client import decoding
from antiphon.wire import jsonrpc
from antiphon.wire.client import results
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.sse import Decoder

__all__ = ["EventCursor", "body", "decode", "frames", "media_type", "refusal", "silent"]

_MAX_REFUSAL_BYTES = 64 * 1024
_SHORTEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 1.0, 600.0
_MAX_EVENT_ID_CHARACTERS = 1024
"""How long an event id may be, with which a client resumes a stream."""


class EventCursor:
    """The last event of a stream that was read, and the delays before the stream is opened again."""

    __slots__ = ("_longest", "_retry", "backoff", "last_id")

    def __init__(self, longest: float = _LONGEST_RETRY_SECONDS) -> None:
        self.last_id: str | None = None
        self.backoff = Backoff(_FIRST_RETRY_SECONDS, longest)
        self._longest = longest
        self._retry = _FIRST_RETRY_SECONDS

    def retry_after(self, seconds: float) -> None:
        """Use the delay that the server asks for, within bounds and longer with each failure."""
        if seconds != self._retry:
            self._retry = seconds
            first = min(max(seconds, _SHORTEST_RETRY_SECONDS), _LONGEST_RETRY_SECONDS)
            self.backoff = Backoff(first, max(first, self._longest))


def _can_resume(event_id: str) -> bool:
    """Return whether an event id can be sent back in a header: it is short, and of printable ASCII."""
    is_short = 0 < len(event_id) <= _MAX_EVENT_ID_CHARACTERS
    return is_short and event_id.isascii() and event_id.isprintable() and event_id == event_id.strip()


def media_type(response: httpx2.Response) -> str:
    """Return the content type without its parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def decode(text: str | bytes | bytearray, url: str) -> Frame:
    """Return one message of the server; raises `BadAnswer`."""
    try:
        return decoding.decode(text)
    except RequestError as error:
        raise BadAnswer(f"{url} sent a message that is not JSON-RPC. {error.message}") from None


async def body(response: httpx2.Response, limit: int) -> bytearray:
    """Return the whole body; raises `BadAnswer` if it has more than `limit` bytes."""
    _check_encoding(response)
    read = bytearray()
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            read += chunk
            if len(read) > limit:
                raise BadAnswer(f"{_url(response)} sent a response of more than {limit} bytes.")
    return read


async def frames(
    response: httpx2.Response, limit: int, cursor: EventCursor, max_silence: float | None = None
) -> AsyncGenerator[Frame, None]:
    """Yield the messages of a stream; raises `BadAnswer`. Close it when you stop reading.

    Raises `Unreachable` if nothing comes for `max_silence` seconds, not even a comment.
    """
    _check_encoding(response)
    decoder = Decoder(limit)
    url = _url(response)
    received = response.aiter_raw() if max_silence is None else _watched(response, max_silence)
    async with aclosing(received) as chunks:
        async for chunk in chunks:
            for event in decoder.feed(chunk):
                if event.id is not None:
                    cursor.last_id = event.id if _can_resume(event.id) else None
                if event.retry is not None:
                    cursor.retry_after(event.retry / 1000)
                if event.data and event.name == "message":
                    yield decode(event.data, url)


async def _watched(response: httpx2.Response, max_silence: float) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a response; raises `Unreachable` if none come for so many seconds.

    A connection whose other side has vanished looks like one on which nothing happens.
    """
    async with aclosing(response.aiter_raw()) as chunks:
        while True:
            try:
                async with asyncio.timeout(max_silence):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise silent(_url(response), max_silence) from None
            if chunk is None:
                return
            yield chunk


def silent(url: str, seconds: float) -> Unreachable:
    """Return the error for a stream on which nothing came, not even a keep-alive."""
    return Unreachable(f"{url} has sent nothing for {seconds:g} s: the connection seems to be lost.")


async def refusal(response: httpx2.Response, *, in_session: bool) -> ClientError | RequestError:
    """Return the error for a response with an error status."""
    status, url = response.status_code, _url(response)
    stated = await _json_rpc_error(response)
    if status == 401:
        challenge = printable(response.headers.get("www-authenticate", "Bearer"))
        return Unauthorized(
            stated.message if stated else f"{url} requires authentication: pass auth= or headers=.",
            challenge=challenge,
        )
    if status == 403:
        return Forbidden(stated.message if stated else f"{url} does not allow this caller.")
    if status == 404 and in_session:
        return SessionLost(f"{url} does not know this session any more.")
    if stated is not None:
        return stated
    said = f"{url} answered with HTTP status {status}"
    if 300 <= status < 400:
        return BadAnswer(
            f"{said} and redirects to {redacted_url(response.headers.get('location', 'no address'))}: "
            "use that address."
        )
    if status >= 500:
        return Unreachable(f"{said}: the server, or a proxy in front of it, has failed.")
    return BadAnswer(
        f"{said}: there seems to be no MCP server at this address. Most are at a path such as /mcp."
    )


async def _json_rpc_error(response: httpx2.Response) -> RequestError | None:
    """Return the JSON-RPC error in the body; `None` if the body has none."""
    try:
        frame = jsonrpc.decode(await body(response, _MAX_REFUSAL_BYTES))
        return None if frame.error is UNSET else results.error(frame.error)
    except (RequestError, BadAnswer, httpx2.TransportError):
        return None


def _check_encoding(response: httpx2.Response) -> None:
    # A few compressed bytes can expand to gigabytes, so compressed responses are not accepted.
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise BadAnswer(
            f"{_url(response)} sent a response with the encoding {encoding!r}, which was not accepted."
        )


def _url(response: httpx2.Response) -> str:
    """Return the URL of a response without its secrets."""
    return redacted_url(str(response.url))
