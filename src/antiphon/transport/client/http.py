"""Streamable HTTP, the client's side: every message is a POST, every answer is JSON or a stream of events.

The channel owns the session id and the connections. It knows no protocol version: a message says whether
it opens a session, and whether its stream can be taken up again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import httpx2
from msgspec import UNSET

from antiphon.errors import AntiphonError, BadAnswer, RequestError, Unreachable
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.http_response import EventCursor, body, decode, frames, media_type, refusal
from antiphon.wire.client.dialect import Message
from antiphon.wire.client.segments import is_partial
from antiphon.wire.jsonrpc import Frame

__all__ = ["HttpChannel"]

logger = logging.getLogger("antiphon.client")

_BOTH = "application/json, text/event-stream"
_EVENTS = "text/event-stream"
_SETTLE = 2.0
"""Seconds to wait for the stream outside of requests; some servers send its headers with its first event."""


class HttpChannel:
    """A way to the server at one URL. An `http` client that it is given is not closed."""

    has_streams = True
    has_headers = True

    def __init__(
        self,
        url: httpx2.URL | str,
        *,
        http: httpx2.AsyncClient | None = None,
        auth: httpx2.Auth | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 30.0,
        max_message: int = 64 * 1024 * 1024,
        max_requests: int = 100,
        resumes: int = 5,
    ) -> None:
        self.peer = str(url)
        self._url = url
        self._http = http
        self._owned = http is None
        self._auth = httpx2.USE_CLIENT_DEFAULT if auth is None else auth
        self._headers = {**(headers or {}), "accept-encoding": "identity"}
        self._timeout = httpx2.Timeout(None, connect=connect_timeout)
        # Requests are counted here and not in the pool, where an answer to the server would wait behind them.
        self._slots = asyncio.Semaphore(max_requests)
        self._limits = httpx2.Limits(max_connections=None, max_keepalive_connections=max_requests)
        self._max_message = max_message
        self._resumes = resumes
        self._session: str | None = None
        self._receive: Receiver | None = None
        self._listening: asyncio.Task[None] | None = None
        self._mute = False

    async def open(self, receive: Receiver) -> None:
        """Get ready; the first connection is made with the first message."""
        self._receive = receive
        if self._http is None:
            self._http = httpx2.AsyncClient(timeout=self._timeout, limits=self._limits)

    async def request(self, message: Message) -> Frame:
        """Send a request and wait for its response; only so many are under way at once."""
        async with self._slots:
            return await self._request(message)

    async def _request(self, message: Message) -> Frame:
        if message.opens_session:
            await self._stop_listening()
            self._mute = False
        cursor = EventCursor()
        headers = {**message.headers, "accept": _BOTH, "content-type": "application/json"}
        async with self._answer("POST", headers, message) as response:
            if response.status_code == 202:
                raise BadAnswer(f"{self.peer} accepted {message.method} and did not answer it.")
            if message.opens_session:
                self._session = response.headers.get("mcp-session-id")
            kind = media_type(response)
            if kind == "application/json":
                frame = decode(await body(response, self._max_message), self.peer)
                return self._own(frame, message, alone=True)
            if kind != _EVENTS:
                raise BadAnswer(
                    f"{self.peer} answered {message.method} with {kind or 'no content type'}, not JSON."
                )
            found = await self._follow(response, message, cursor)
        return found if found is not None else await self._resume(message, cursor)

    async def send(self, message: Message) -> None:
        """Send a notification or a response."""
        headers = {**message.headers, "accept": _BOTH, "content-type": "application/json"}
        async with self._answer("POST", headers, message) as response:
            if media_type(response) != _EVENTS:
                await body(response, self._max_message)

    async def listen(self, headers: Mapping[str, str]) -> None:
        """Open the stream outside of requests; a server that has none is left in peace."""
        if self._mute or (self._listening is not None and not self._listening.done()):
            return
        opened = asyncio.Event()
        self._listening = asyncio.create_task(self._hear(headers, opened))
        waiting = asyncio.create_task(opened.wait())
        await asyncio.wait({waiting, self._listening}, timeout=_SETTLE, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def end(self, headers: Mapping[str, str]) -> None:
        """Delete the session."""
        await self._stop_listening()
        if self._session is None:
            return
        with contextlib.suppress(AntiphonError):
            async with self._answer("DELETE", headers, None):
                pass
        self._session = None

    async def close(self) -> None:
        """Close the connections, where they are its own."""
        await self._stop_listening()
        if self._owned and self._http is not None:
            http, self._http = self._http, None
            await http.aclose()

    @asynccontextmanager
    async def _answer(
        self, method: str, headers: Mapping[str, str], message: Message | None
    ) -> AsyncIterator[httpx2.Response]:
        """A successful answer, open; raises what a refusal or a lost connection is."""
        if self._http is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        every = {**self._headers, **headers}
        session = None if message is not None and message.opens_session else self._session
        if session is not None:
            every["mcp-session-id"] = session
        try:
            async with self._http.stream(
                method,
                self._url,
                content=None if message is None else message.body,
                headers=every,
                auth=self._auth,
                timeout=self._timeout,
            ) as response:
                if not response.is_success:
                    raise await refusal(response, in_session=session is not None)
                yield response
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise _lost(self.peer, error) from error

    async def _follow(self, response: httpx2.Response, message: Message, cursor: EventCursor) -> Frame | None:
        """Read a stream up to the response; `None` where it breaks before and can be taken up again."""
        assert self._receive is not None
        try:
            async with aclosing(frames(response, self._max_message, cursor)) as stream:
                async for frame in stream:
                    if frame.method is UNSET:
                        self._own(frame, message, alone=False)
                        if not (message.streams and is_partial(frame)):
                            return frame
                    await self._receive(frame)
        except httpx2.TransportError as error:
            if not (message.resumable and cursor.last_id is not None):
                raise _lost(self.peer, error) from error
        if message.resumable and cursor.last_id is not None:
            return None
        raise Unreachable(f"{self.peer} closed the stream before it answered {message.method}.")

    async def _resume(self, message: Message, cursor: EventCursor) -> Frame:
        """Take a broken stream up again, as often as it brings something new and a few times more."""
        failures = 0
        while failures < self._resumes:
            failures += 1
            await asyncio.sleep(cursor.backoff.next_delay())
            seen = cursor.last_id
            headers = {**message.headers, "accept": _EVENTS, "last-event-id": seen or ""}
            try:
                async with self._answer("GET", headers, None) as response:
                    if media_type(response) != _EVENTS:
                        break
                    found = await self._follow(response, message, cursor)
                if found is not None:
                    return found
            except Unreachable:
                pass
            except RequestError as error:  # a lost session too: the request itself must not be sent twice
                raise Unreachable(f"{self.peer} lost the stream of {message.method}: {error}") from error
            if cursor.last_id != seen:
                failures = 0
                cursor.backoff.reset()
        raise Unreachable(f"{self.peer} lost the stream of {message.method} and cannot take it up again.")

    async def _hear(self, headers: Mapping[str, str], opened: asyncio.Event) -> None:
        """Read the stream outside of requests, and open it again when it breaks."""
        cursor = EventCursor()
        failures = 0
        while failures <= self._resumes:
            try:
                failures += 1
                if await self._hear_once(headers, cursor, opened):
                    failures = 0
                    cursor.backoff.reset()
            except Unreachable:
                pass
            except AntiphonError as error:
                # 405 is how a server says that it has no such stream; others say 404 or 400.
                level = logging.WARNING if opened.is_set() else logging.DEBUG
                logger.log(level, "No stream outside of requests from %s: %s", self.peer, error)
                self._mute = True
                return
            await asyncio.sleep(cursor.backoff.next_delay())
        logger.warning("The stream outside of requests from %s does not stay open.", self.peer)

    async def _hear_once(
        self, headers: Mapping[str, str], cursor: EventCursor, opened: asyncio.Event
    ) -> bool:
        """Read the stream until it breaks; whether it brought anything."""
        assert self._receive is not None
        resumption = {} if cursor.last_id is None else {"last-event-id": cursor.last_id}
        brought = False
        async with self._answer("GET", {**headers, **resumption, "accept": _EVENTS}, None) as response:
            if media_type(response) != _EVENTS:
                raise BadAnswer(f"it is {media_type(response) or 'of no type'}.")
            opened.set()
            async with aclosing(frames(response, self._max_message, cursor)) as stream:
                async for frame in stream:
                    brought = True
                    if frame.method is not UNSET:
                        await self._receive(frame)
        return brought

    async def _stop_listening(self) -> None:
        task, self._listening = self._listening, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _own(self, frame: Frame, message: Message, *, alone: bool) -> Frame:
        """The frame, if it is the response to the message; raises `BadAnswer`."""
        if frame.method is UNSET and (frame.id == message.id or (alone and frame.request_id is None)):
            return frame
        raise BadAnswer(f"{self.peer} answered request {message.id} with a message for {frame.request_id!r}.")


def _lost(peer: str, error: Exception) -> Unreachable:
    reason = str(error) or type(error).__name__
    if "SSL" in reason and peer.startswith("https:"):
        return Unreachable(
            f"No secure connection to {peer}: {reason}. If the server has no certificate, its address begins "
            "with http://; if it has one of its own, pass http=httpx2.AsyncClient(verify=…)."
        )
    return Unreachable(f"No connection to {peer}: {reason}. Is the server running, and is the address right?")
