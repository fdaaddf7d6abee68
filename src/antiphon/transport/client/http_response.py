"""Reads one HTTP response in bounded memory: a JSON body, a stream of events, or an error.

Opens no connection and never retries; `http` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from msgspec import UNSET

from antiphon.backoff import Backoff
from antiphon.errors import (
    BadAnswer,
    ClientError,
    Forbidden,
    InsufficientScope,
    RequestError,
    SessionLost,
    Unauthorized,
    Unreachable,
)
from antiphon.printable import printable, redacted_url
from antiphon.transport.client import decoding
from antiphon.transport.client.challenges import bearer_parameters, split_scopes
from antiphon.transport.client.http_client import HttpFailure, HttpResponse
from antiphon.turn import Turn
from antiphon.wire import jsonrpc
from antiphon.wire.client import results
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.sse import Decoder

__all__ = ["EventCursor", "body", "decode", "frames", "media_type", "refusal", "silent"]

_MAX_REFUSAL_BYTES = 64 * 1024
_FEED_BYTES = 8 * 1024
"""How much of a stream is split into events at once: a piece that has come can be all lines."""
SHORTEST_RETRY_SECONDS, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 1.0, 600.0
_MAX_EVENT_ID_CHARACTERS = 1024
"""How long an event id may be, with which a client resumes a stream."""


class EventCursor:
    """The last event of a stream that was read, and the delays before the stream is opened again."""

    __slots__ = ("_longest", "_retry", "backoff", "last_id")

    def __init__(self, longest: float = LONGEST_RETRY_SECONDS) -> None:
        self.last_id: str | None = None
        self.backoff = Backoff(FIRST_RETRY_SECONDS, longest)
        self._longest = longest
        self._retry = FIRST_RETRY_SECONDS

    def retry_after(self, seconds: float) -> None:
        """Use the delay that the server asks for, within bounds and longer with each failure."""
        if seconds != self._retry:
            self._retry = seconds
            first = min(max(seconds, SHORTEST_RETRY_SECONDS), LONGEST_RETRY_SECONDS)
            self.backoff = Backoff(first, max(first, self._longest))


def _can_resume(event_id: str) -> bool:
    """Return whether an event id can be sent back in a header: it is short, and of printable ASCII."""
    is_short = 0 < len(event_id) <= _MAX_EVENT_ID_CHARACTERS
    return is_short and event_id.isascii() and event_id.isprintable() and event_id == event_id.strip()


def media_type(response: HttpResponse) -> str:
    """Return the content type without its parameters."""
    return (response.header("content-type") or "").partition(";")[0].strip().lower()


def decode(text: str | bytes | bytearray, url: str) -> Frame:
    """Return one message of the server; raises `BadAnswer`."""
    try:
        return decoding.decode(text)
    except RequestError as error:
        raise BadAnswer(f"{url} sent a message that is not JSON-RPC. {error.message}") from None


async def body(response: HttpResponse, limit: int, url: str) -> bytes | bytearray:
    """Return the whole body; raises `BadAnswer` if it has more than `limit` bytes, and `HttpFailure`."""
    _check_encoding(response, url)
    first = piece = await response.read()
    read: bytes | bytearray = first  # most bodies come in one piece, which is not copied
    while piece:
        if len(read) > limit:
            raise BadAnswer(f"{url} sent a response of more than {limit} bytes.")
        piece = await response.read()
        if piece:
            read = bytearray(first) if read is first else read
            read += piece
    return read


async def frames(
    response: HttpResponse, limit: int, cursor: EventCursor, url: str, max_silence: float | None = None
) -> AsyncGenerator[Frame, None]:
    """Yield the messages of a stream; raises `BadAnswer` and `HttpFailure`. Close it when you stop reading.

    Raises `Unreachable` if nothing comes for `max_silence` seconds, not even a comment.
    """
    _check_encoding(response, url)
    decoder, turn = Decoder(limit), Turn()
    while chunk := await _piece(response, url, max_silence):
        for start in range(0, len(chunk), _FEED_BYTES):
            fed = chunk[start : start + _FEED_BYTES]
            await turn.step(len(fed))
            for event in decoder.feed(fed):
                if event.id is not None:
                    cursor.last_id = event.id if _can_resume(event.id) else None
                if event.retry is not None:
                    cursor.retry_after(event.retry / 1000)
                if event.data and event.name == "message":
                    yield decode(event.data, url)
                await turn.step()


async def _piece(response: HttpResponse, url: str, max_silence: float | None) -> bytes:
    """Return the next bytes of a response; raises `Unreachable` if none come for so many seconds.

    A connection whose other side has vanished looks like one on which nothing happens.
    """
    if max_silence is None:
        return await response.read()
    try:
        async with asyncio.timeout(max_silence):
            return await response.read()
    except TimeoutError:
        raise silent(url, max_silence) from None


def silent(url: str, seconds: float) -> Unreachable:
    """Return the error for a stream on which nothing came, not even a keep-alive."""
    return Unreachable(f"{url} has sent nothing for {seconds:g} s: the connection seems to be lost.")


async def refusal(response: HttpResponse, url: str, *, in_session: bool) -> ClientError | RequestError:
    """Return the error for a response with an error status."""
    status = response.status
    stated = await _json_rpc_error(response, url)
    if status == 401:
        challenge = printable(response.header("www-authenticate") or "Bearer")
        return Unauthorized(
            stated.message if stated else f"{url} requires authentication: pass auth= or headers=.",
            challenge=challenge,
        )
    if status == 403:
        challenge = printable(response.header("www-authenticate") or "")
        parameters = bearer_parameters(challenge) if challenge else {}
        if parameters.get("error") == "insufficient_scope":
            scopes = split_scopes(parameters.get("scope"))
            reason = f"{url} requires the scopes {' '.join(scopes)!r}, which the token does not have."
            return InsufficientScope(stated.message if stated else reason, scopes=scopes, challenge=challenge)
        return Forbidden(stated.message if stated else f"{url} does not allow this caller.")
    if status == 404 and in_session:
        return SessionLost(f"{url} does not know this session any more.")
    if stated is not None:
        return stated
    said = f"{url} answered with HTTP status {status}"
    if 300 <= status < 400:
        return BadAnswer(
            f"{said} and redirects to {redacted_url(response.header('location') or 'no address')}: "
            "use that address."
        )
    if status >= 500:
        return Unreachable(f"{said}: the server, or a proxy in front of it, has failed.")
    return BadAnswer(
        f"{said}: there seems to be no MCP server at this address. Most are at a path such as /mcp.",
        status=status,
    )


async def _json_rpc_error(response: HttpResponse, url: str) -> RequestError | None:
    """Return the JSON-RPC error in the body; `None` if the body has none."""
    try:
        frame = jsonrpc.decode(await body(response, _MAX_REFUSAL_BYTES, url))
        return None if frame.error is UNSET else results.error(frame.error)
    except (RequestError, BadAnswer, HttpFailure):
        return None


def _check_encoding(response: HttpResponse, url: str) -> None:
    # A few compressed bytes can expand to gigabytes, so compressed responses are not accepted.
    encoding = response.header("content-encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise BadAnswer(f"{url} sent a response with the encoding {encoding!r}, which was not accepted.")
