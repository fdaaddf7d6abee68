"""The channel over Streamable HTTP: each message is a POST, each response is JSON or a stream of events.

The channel owns the session id and the connections. It knows no protocol version: a message says whether it
opens a session, and whether its stream can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, cast
from urllib.parse import urlsplit

from msgspec import UNSET

from antiphon.errors import (
    AntiphonError,
    BadAnswer,
    ClientError,
    InternalError,
    RequestError,
    SessionLost,
    Unreachable,
)
from antiphon.instrumentation.facts import MessageFacts, hashed_session_id
from antiphon.printable import redacted_url
from antiphon.transport.client.authorization import (
    Authorization,
    AuthorizationNeeded,
    Connect,
    Refused,
    authorize_in_background,
)
from antiphon.transport.client.channel import Receiver
from antiphon.transport.client.http_client import (
    ConnectionClosed,
    HttpClient,
    HttpFailure,
    HttpResponse,
    InvalidUrl,
    check_options,
    gets_tokens,
    http_client,
)
from antiphon.transport.client.http_response import (
    EventCursor,
    body,
    decode,
    frames,
    media_type,
    refusal,
    silent,
)
from antiphon.wire.client.dialect import Message
from antiphon.wire.client.results import refuse_message
from antiphon.wire.client.segments import is_partial, is_task_alone
from antiphon.wire.jsonrpc import Frame

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpChannel"]

logger = logging.getLogger("antiphon.client")

_JSON_OR_EVENTS = "application/json, text/event-stream"
_EVENTS = "text/event-stream"
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,8192}")
_LISTEN_SECONDS = 2.0
"""How long `listen` waits for its stream. Some servers send the headers with the first event."""
LONGEST_LISTEN_RETRY_SECONDS = 60.0
_STABLE_STREAM_SECONDS = 5.0
"""How long the stream of `listen` has to stay open to count as stable."""
_FAILURES_BEFORE_WARNING = 5
"""How often in a row the stream of `listen` may break before a warning is logged."""


class HttpChannel:
    """A channel to the server at one URL. It does not close an `http` client that was passed in.

    `http` and `auth` are what `Client` takes; raises `TypeError` or `ValueError` for others.
    """

    has_streams = True
    has_headers = True
    remark = ""

    def __init__(
        self,
        url: str,
        *,
        http: object = None,
        auth: object = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | Literal[False] | None = None,
        connect_timeout: float = 30.0,
        max_message: int = 64 * 1024 * 1024,
        max_requests: int = 100,
        keep_alive_timeout: float = 60.0,
        resumes: int = 5,
    ) -> None:
        check_options(http, auth, tls, proxy)
        own = {name.lower(): value for name, value in (headers or {}).items()}
        if "authorization" in own and gets_tokens(auth):
            raise ValueError(
                "headers= has an Authorization header, and OAuth sets it: pass only one of them."
            )
        self.peer = redacted_url(url)
        self._url = url
        self._http: HttpClient | None = None
        connect = partial(http_client, http=http, tls=tls, proxy=proxy, connect_timeout=connect_timeout)
        self._authorization: Authorization | None = None
        if gets_tokens(auth):
            self._authorization = cast(Connect, auth).authorization(url, partial(connect, is_bare=True))
            auth = None
        self._connect = partial(connect, auth=None if isinstance(auth, str) else auth)
        if isinstance(auth, str):
            own["authorization"] = f"Bearer {auth}"
        self._headers = {**own, "accept-encoding": "identity"}
        self._post_headers = {
            **self._headers,
            "accept": _JSON_OR_EVENTS,
            "content-type": "application/json",
        }
        # Requests are bounded here and not in the pool, where a response to the server would wait for them.
        self._slots = asyncio.Semaphore(max_requests)
        self._max_message = max_message
        self._max_silence = None if keep_alive_timeout == float("inf") else keep_alive_timeout
        self._resumes = resumes
        self._session: str | None = None
        self._receive: Receiver | None = None
        self._listening: asyncio.Task[None] | None = None
        self._is_listen_refused = False

    def facts(self, method: str) -> MessageFacts:
        """Return the address of the server, and an id of the session that gives no access to it."""
        facts = MessageFacts(method, transport="tcp", is_http=True)
        if self._session is not None:
            facts = facts._replace(session=hashed_session_id(self._session))
        with contextlib.suppress(ValueError):  # the request says what is wrong with the URL
            url = urlsplit(self._url)
            port = url.port or (443 if url.scheme == "https" else 80)
            facts = facts._replace(address=url.hostname, port=port)
        return facts

    async def open(self, receive: Receiver) -> None:
        """Open the channel; it connects with the first message."""
        self._receive = receive
        if self._http is None:
            self._http = self._connect()

    async def request(self, message: Message) -> Frame:
        """Send a request and return its response; at most `max_requests` are sent at once."""
        async with self._slots:
            return await self._request(message)

    async def _request(self, message: Message) -> Frame:
        if message.opens_session:
            await self._stop_listening()
            self._is_listen_refused = False
        async with self._response("POST", message.headers, message) as response:
            if response.status == 202:
                raise BadAnswer(f"{self.peer} accepted {message.method} and sent no response.")
            if message.opens_session:
                self._session = self._read_session(response)
            kind = media_type(response)
            if kind == "application/json":
                frame = decode(await body(response, self._max_message, self.peer), self.peer)
                return self._checked(frame, message, alone=True)
            if kind != _EVENTS:
                raise BadAnswer(
                    f"{self.peer} answered {message.method} with {kind or 'no content type'}, not JSON."
                )
            cursor = EventCursor()
            found = await self._follow(response, message, cursor)
        return found if found is not None else await self._resume(message, cursor)

    async def send(self, message: Message) -> None:
        """Send a notification or a response."""
        async with self._response("POST", message.headers, message) as response:
            if media_type(response) != _EVENTS:
                await body(response, self._max_message, self.peer)

    async def listen(
        self,
        headers: Mapping[str, str],
        *,
        on_reopened: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        """Open the stream for messages that belong to no request, unless the server has refused it."""
        if self._is_listen_refused or (self._listening is not None and not self._listening.done()):
            return
        opened = asyncio.Event()
        self._listening = asyncio.create_task(
            self._keep_listening(headers, opened, on_reopened, on_session_lost)
        )
        waiting = asyncio.create_task(opened.wait())
        await asyncio.wait(
            {waiting, self._listening}, timeout=_LISTEN_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        waiting.cancel()

    async def end(self, headers: Mapping[str, str]) -> None:
        """Delete the session at the server."""
        await self._stop_listening()
        if self._session is None:
            return
        with contextlib.suppress(AntiphonError):
            async with self._response("DELETE", headers, None):
                pass
        self._session = None

    async def close(self) -> None:
        """Close the connections, unless the `http` client was passed in."""
        await self._stop_listening()
        if self._authorization is not None:
            await self._authorization.close()
        if self._http is not None:
            http, self._http = self._http, None
            await http.close()

    @asynccontextmanager
    async def _response(
        self, method: str, headers: Mapping[str, str], message: Message | None
    ) -> AsyncIterator[HttpResponse]:
        """Yield a successful response, still open; raises the error of any other response or connection."""
        if self._http is None:
            raise Unreachable(f"The connection to {self.peer} is closed.")
        every = {**(self._headers if message is None else self._post_headers), **headers}
        session = None if message is not None and message.opens_session else self._session
        if session is not None:
            every["mcp-session-id"] = session
        content = None if message is None else message.body
        authorization = self._authorization
        attempt = 0
        try:
            while True:
                if authorization is not None:
                    every.update(await authorization.headers(method))
                response = await self._http.request(method, self._url, every, content)
                try:
                    if 200 <= response.status < 300:
                        if authorization is not None:
                            authorization.received(response.header("dpop-nonce"))
                        yield response
                        return
                    error = await refusal(response, self.peer, in_session=session is not None)
                finally:
                    await response.close()
                if authorization is None or not await _is_replaced(
                    authorization, every.get("authorization"), response, error, attempt
                ):
                    raise error
                attempt += 1
        except InvalidUrl:
            raise Unreachable(f"{self.peer} is not a valid URL.") from None
        except HttpFailure as error:
            raise _unreachable(self.peer, error) from error

    async def _follow(self, response: HttpResponse, message: Message, cursor: EventCursor) -> Frame | None:
        """Read a stream up to the response; returns `None` if it breaks before and can be resumed."""
        assert self._receive is not None
        begun: Frame | None = None
        try:
            silence = self._max_silence if message.listens else None
            async with aclosing(frames(response, self._max_message, cursor, self.peer, silence)) as stream:
                async for frame in stream:
                    if frame.method is UNSET or _answers(frame, message):
                        self._checked(frame, message, alone=False)
                        if message.streams and is_task_alone(frame):
                            begun = frame
                        elif not (message.streams and is_partial(frame)):
                            return frame
                    await self._receive(frame)
        except HttpFailure as error:
            if not (message.resumable and cursor.last_id is not None):
                raise _unreachable(self.peer, error) from error
        if begun is not None:
            return begun
        if message.resumable and cursor.last_id is not None:
            return None
        raise Unreachable(f"{self.peer} closed the stream before it answered {message.method}.")

    async def _resume(self, message: Message, cursor: EventCursor) -> Frame:
        """Resume a broken stream until the response comes, with a few attempts for each new event."""
        failures = 0
        while failures < self._resumes:
            failures += 1
            await asyncio.sleep(cursor.backoff.next_delay())
            seen = cursor.last_id
            headers = {**message.headers, "accept": _EVENTS, "last-event-id": seen or ""}
            try:
                async with self._response("GET", headers, None) as response:
                    if media_type(response) != _EVENTS:
                        break
                    found = await self._follow(response, message, cursor)
                if found is not None:
                    return found
            except Unreachable:
                pass
            except RequestError as error:  # even a lost session: the request must not be sent twice
                raise Unreachable(f"{self.peer} lost the stream of {message.method}: {error}") from error
            if cursor.last_id != seen:
                failures = 0
                cursor.backoff.reset()
        raise Unreachable(f"{self.peer} lost the stream of {message.method}, and it could not be resumed.")

    async def _keep_listening(
        self,
        headers: Mapping[str, str],
        opened: asyncio.Event,
        on_reopened: Callable[[], None],
        on_session_lost: Callable[[], None],
    ) -> None:
        """Read the stream for messages that belong to no request, and open it again whenever it breaks."""
        cursor = EventCursor(LONGEST_LISTEN_RETRY_SECONDS)
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            failures += 1
            begun = loop.time()
            try:
                has_brought = await self._listen_once(headers, cursor, opened, on_reopened)
                if has_brought or loop.time() - begun > _STABLE_STREAM_SECONDS:
                    failures = 0
                    cursor.backoff.reset()
            except AuthorizationNeeded as needed:
                if await authorize_in_background(needed, self.peer) is None:
                    continue
            except AntiphonError as error:
                if cursor.last_id is not None and not isinstance(error, Unreachable):
                    cursor.last_id = None  # the server does not keep the stream: open another
                    continue
                if isinstance(error, SessionLost) and opened.is_set():
                    on_session_lost()
                    return
                if not opened.is_set() and not isinstance(error, Unreachable | InternalError):
                    # A server without such a stream answers with 405; some answer with 404 or 400.
                    logger.debug("%s sends no messages outside of requests: %s", self.peer, error)
                    self._is_listen_refused = True
                    return
                if failures == _FAILURES_BEFORE_WARNING:
                    logger.warning(
                        "The stream of messages outside of requests from %s keeps breaking: %s "
                        "The client tries to open it again.",
                        self.peer,
                        error,
                    )
            await asyncio.sleep(cursor.backoff.next_delay())

    async def _listen_once(
        self,
        headers: Mapping[str, str],
        cursor: EventCursor,
        opened: asyncio.Event,
        on_reopened: Callable[[], None],
    ) -> bool:
        """Read the stream until it breaks; returns whether it brought a message."""
        assert self._receive is not None
        resumption = {} if cursor.last_id is None else {"last-event-id": cursor.last_id}
        has_brought = False
        try:
            async with (
                asyncio.timeout(self._max_silence) as limit,
                self._response("GET", {**headers, **resumption, "accept": _EVENTS}, None) as response,
            ):
                limit.reschedule(None)
                if media_type(response) != _EVENTS:
                    raise BadAnswer(
                        f"its content type is {media_type(response) or 'missing'}, not {_EVENTS}."
                    )
                if opened.is_set():
                    on_reopened()
                opened.set()
                received = frames(response, self._max_message, cursor, self.peer, self._max_silence)
                async with aclosing(received) as stream:
                    async for frame in stream:
                        has_brought = True
                        if frame.method is not UNSET:
                            await self._receive(frame)
        except TimeoutError:
            if self._max_silence is None or not limit.expired():
                raise
            raise silent(self.peer, self._max_silence) from None
        return has_brought

    async def _stop_listening(self) -> None:
        task, self._listening = self._listening, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _read_session(self, response: HttpResponse) -> str | None:
        """Return the session id in a response; raises `BadAnswer` if no header can carry it."""
        session = response.header("mcp-session-id")
        if session is not None and not _SESSION_ID.fullmatch(session):
            # https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
            raise BadAnswer(f"{self.peer} sent a session id that is not of visible ASCII characters.")
        return session

    def _checked(self, frame: Frame, message: Message, *, alone: bool) -> Frame:
        """Return the frame if it is the response to the message; raises `BadAnswer`."""
        if _answers(frame, message):
            return frame
        if frame.method is UNSET and (frame.id == message.id or (alone and frame.request_id is None)):
            return frame
        refuse_message(frame)
        raise BadAnswer(f"{self.peer} answered request {message.id} with a message for {frame.request_id!r}.")


def _answers(frame: Frame, message: Message) -> bool:
    """Return whether a message with a method takes the place of the response to a request."""
    return frame.method in message.answered_by and frame.id == message.id


async def _is_replaced(
    authorization: Authorization,
    header: str | None,
    response: HttpResponse,
    error: ClientError | RequestError,
    attempt: int,
) -> bool:
    """Return whether the header of a request that was refused has been replaced by another one."""
    if response.status not in (401, 403) or not isinstance(error, RequestError):
        return False
    challenge, nonce = response.header("www-authenticate") or "", response.header("dpop-nonce")
    return await authorization.refused(Refused(header, response.status, challenge, nonce, error, attempt))


def _unreachable(peer: str, error: Exception) -> Unreachable:
    reason = str(error) or type(error).__name__
    if "SSL" in reason and peer.startswith("https:"):
        return Unreachable(
            f"No secure connection to {peer}: {reason}. If the server has no certificate, its address begins "
            "with http://; if it has one of its own, pass tls=ssl.create_default_context(cafile=…)."
        )
    failure = Unreachable(
        f"No connection to {peer}: {reason}. Is the server running, and is the address right?"
    )
    failure.was_closed = isinstance(error, ConnectionClosed)
    return failure
