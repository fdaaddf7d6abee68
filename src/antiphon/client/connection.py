"""One connection to one server: request ids, deadlines, the session, and incoming messages.

Owns the channel and the negotiated version. If the server loses the session, the connection opens a new one
and sends the request again. Knows nothing of tools, tasks or subscriptions.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from antiphon.backoff import Backoff
from antiphon.client.callbacks import Callbacks
from antiphon.client.negotiation import Negotiation, Settled
from antiphon.client.tracing import ConnectionTracing, with_trace_context
from antiphon.errors import (
    AntiphonError,
    AuthorizationFailed,
    BadAnswer,
    RequestError,
    SessionLost,
    TimedOut,
    Unreachable,
)
from antiphon.instrumentation import find_instruments
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import Implementation
from antiphon.model.inbox import InboxNews
from antiphon.model.notification import Notification, Progress
from antiphon.model.outcome import DONE
from antiphon.model.request import Cancel, Request, RequestId, RequestMeta
from antiphon.model.segment import StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.transport.client.authorization import AuthorizationNeeded, Authorizing
from antiphon.transport.client.channel import Channel
from antiphon.wire.client.dialect import ClientDialect, Message
from antiphon.wire.client.results import Welcome
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored
from antiphon.wire.questions import ELICITATION
from antiphon.wire.versions import VERSIONS, VersionTable

__all__ = ["Callback", "Connection", "Sink", "deliver"]

logger = logging.getLogger("antiphon.client")

Callback = Callable[[Any], Awaitable[None] | None]
"""A function that a user passes in, plain or async."""

GOODBYE_SECONDS = 2.0
"""How long the client tries to tell the server that a request or the session is over."""
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading raises for a value that no rule of the protocol foresees."""
_FOREVER = float("inf")
FIRST_RECOVERY_SECONDS, LONGEST_RECOVERY_SECONDS = 1.0, 60.0


async def deliver(callback: Callback, value: Any) -> None:
    """Call a callback with a value; an exception that the callback raises is logged."""
    try:
        waiting = callback(value)
        if inspect.isawaitable(waiting):
            await waiting
    except Exception:
        logger.exception("The callback for %s failed.", type(value).__name__)


class Sink(Protocol):
    """Receives the parts of a stream that come before the last response to a request. It never waits."""

    def stops_with(self, request: Request) -> bool:
        """Return whether the server should stop its work if the client gives up this request."""

    def take(self, part: StreamPart | InboxNews) -> None:
        """Receive a part. Raises nothing."""

    def fail(self, error: AntiphonError) -> None:
        """Receive the error for a part that could not be read."""


class Connection:
    """A connection to a server, which `open` opens."""

    def __init__(
        self,
        channel: Channel,
        client: Implementation,
        capabilities: Mapping[str, Any],
        *,
        callbacks: Callbacks,
        on_notification: Callable[[Notification | TaskStatus, RequestId | None], Awaitable[None]],
        on_new_session: Callable[[], Awaitable[None]],
        protocol: str | None,
        timeout: float,
        connect_timeout: float,
        probe_timeout: float,
        versions: VersionTable = VERSIONS,
    ) -> None:
        self.channel = channel
        self.timeout = timeout
        # Until a version is negotiated, the client speaks the newest one.
        self.dialect = versions.client_dialect(versions.newest(stateless=True), client, capabilities)
        self.welcome = Welcome(())
        self.offers = ServerCapabilities()
        """What the server offers in the negotiated version."""
        self._connect_timeout = connect_timeout
        # An older version is tried while there is time left for it.
        self._probe_timeout = None if channel.has_streams else min(probe_timeout, connect_timeout / 2)
        self._negotiation = Negotiation(self, client, capabilities, protocol, versions)
        self._callbacks = callbacks
        self._on_notification = on_notification
        self._on_new_session = on_new_session
        self._ids = itertools.count(1)
        self._progress: dict[RequestId, Callback] = {}
        self._sinks: dict[RequestId, Sink] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._renewing = asyncio.Lock()
        self._session = 0
        self._recovering: asyncio.Task[None] | None = None
        self._open = False
        self._is_restoring = False
        self._has_warned = False
        self._tracing: ConnectionTracing | None = None

    def prefer_sessions(self) -> None:
        """Open a session, although the server may speak a newer version without sessions."""
        self._negotiation.prefers_sessions = True

    @property
    def is_open(self) -> bool:
        """Whether the client is connected."""
        return self._open

    async def open(self) -> None:
        """Connect and negotiate a version; raises `Unreachable`, `TimedOut` or `UnsupportedVersion`."""
        if (instruments := find_instruments("client")) is not None:
            self._tracing = ConnectionTracing(self, instruments)
        try:
            try:
                await self._connect()
            except AuthorizationNeeded as needed:
                await self._repeat(needed, self._connect)
            self._open = True
        except BaseException:
            await self.close()
            raise

    async def _connect(self) -> None:
        async with self._connect_deadline("connecting"):
            await self.channel.open(self._receive)
            self._agree(await self._negotiation.settle(self._probe_timeout))

    async def close(self) -> None:
        """End the session and close the channel."""
        try:
            if self._recovering is not None:
                self._recovering.cancel()
                await asyncio.wait({self._recovering})
            await self._callbacks.close()
            if self._background:
                await asyncio.wait(self._background, timeout=GOODBYE_SECONDS)
            if self._open:
                self._open = False
                if self._tracing is not None:
                    self._tracing.end()
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.channel.end(self.dialect.headers)
        except TimeoutError:
            logger.debug("%s did not confirm the end of the session.", self.channel.peer)
        finally:
            await self.channel.close()

    async def ask(
        self,
        request: Request,
        request_meta: RequestMeta = RequestMeta(),  # noqa: B008 - it is frozen
        *,
        timeout: float | None = None,
        on_progress: Callback | None = None,
        mirrored: Mirrored | None = None,
        sink: Sink | None = None,
    ) -> Any:
        """Send a request and return its result; raises the error that the server answers with.

        A request that has no response, as some answers of earlier drafts are, returns `DONE`. Parts of a
        stream that come before the result go into the sink.
        """
        session = self._session
        try:
            return await self._send(request, request_meta, timeout, on_progress, mirrored, sink)
        except (AuthorizationNeeded, SessionLost) as error:
            again = partial(self._send, request, request_meta, timeout, on_progress, mirrored, sink)
            return await self._repeat(error, again, session)

    def _send(self, request: Request, request_meta: RequestMeta, *options: Any) -> Awaitable[Any]:
        if self._tracing is None:
            return self._ask(next(self._ids), request, request_meta, *options)
        return self._tracing.traced(self._ask, next(self._ids), request, request_meta, *options)

    async def _repeat(
        self,
        error: AuthorizationNeeded | SessionLost,
        work: Callable[[], Awaitable[Any]],
        session: int | None = None,
        *,
        in_background: bool = False,
    ) -> Any:
        """Repeat work that failed, after a person has logged in, or in a new session in place of `session`.

        The login has a deadline of its own. A person is asked at most once to log in, and once for scopes;
        after that, the refusal of the server is raised. For work in the background they are asked less often.
        """
        in_background = in_background or asyncio.current_task() is self._recovering
        asked: set[Authorizing] = set()
        is_lost = False
        while True:
            if isinstance(error, AuthorizationNeeded):
                if error.kind in asked:
                    raise error.refusal
                asked.add(error.kind)
                await error.authorize(in_background=in_background)
            elif session is None or is_lost or self._is_restoring:
                raise error  # the server has lost the session that was just opened
            else:
                is_lost = True
            try:
                if is_lost:
                    await self._renew(session)
                return await work()
            except (AuthorizationNeeded, SessionLost) as again:
                error = again

    async def finish_answers(self) -> bool:
        """Wait until the server has the answers that are being given; returns whether there are any."""
        return await self._callbacks.finish()

    def write(self, request: Request, request_meta: RequestMeta) -> Message:
        """Write a request with a new id, for a caller that sends it by itself."""
        return self.dialect.request(next(self._ids), request, request_meta)

    async def exchange(self, dialect: ClientDialect, request: Request) -> Any:
        """Send a request in a dialect, and return its result. The caller sets the deadline."""
        self.dialect = dialect
        if self._tracing is None:
            return await self._exchange(next(self._ids), request, RequestMeta())
        return await self._tracing.traced(self._exchange, next(self._ids), request, RequestMeta())

    async def reconnect(self) -> None:
        """Open the channel again after the server closed it, unless each request has its own connection."""
        if not self.channel.has_streams:
            await self.channel.close()
            await self.channel.open(self._receive)

    async def _exchange(self, request_id: RequestId, request: Request, request_meta: RequestMeta) -> Any:
        dialect = self.dialect
        message = dialect.request(request_id, request, with_trace_context(request_meta))
        try:
            return self._read(dialect, request, await self.channel.request(message))
        except asyncio.CancelledError:
            self.abandon(dialect, message)
            raise

    async def send(self, message: Message) -> None:
        """Send a notification."""
        await self.channel.send(message)

    async def listen(self) -> None:
        """Receive messages that belong to no request. A lost session is replaced by a new one."""
        if self.dialect.is_bare:
            return
        session = self._session
        await self.channel.listen(
            self.dialect.headers,
            # A server that was restarted may know the session, and not what the client told it since.
            on_reopened=lambda: self._start_recovery(None),
            on_session_lost=lambda: self._start_recovery(session),
        )

    def _start_recovery(self, lost: int | None) -> None:
        if self._recovering is not None:
            self._recovering.cancel()
        self._recovering = asyncio.create_task(self._recover(lost))

    async def _recover(self, lost: int | None) -> None:
        """Replace a session if it is lost, and repeat what the server has to know, until that succeeds."""
        backoff = Backoff(FIRST_RECOVERY_SECONDS, LONGEST_RECOVERY_SECONDS)

        async def restore() -> None:
            await (self._renew(lost) if self._session == lost else self._on_new_session())

        while True:
            try:
                try:
                    await restore()
                except AuthorizationNeeded as needed:
                    await self._repeat(needed, restore)
                return
            except AuthorizationFailed as error:
                # A person is not asked again and again: the next request of the program asks.
                logger.warning("Cannot recover the session with %s: %s", self.channel.peer, error)
                return
            except AntiphonError as error:
                logger.debug("Could not recover the session with %s: %s", self.channel.peer, error)
            await asyncio.sleep(backoff.next_delay())

    def abandon(
        self, dialect: ClientDialect, message: Message, reason: str = "The caller went away."
    ) -> None:
        """Cancel a request at the server, unless closing its stream has done so."""
        if self.channel.has_streams and dialect.closing_cancels:
            return
        notice = dialect.cancel(message, reason)
        if notice is not None:
            self.spawn(self._send_quietly(notice))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; `close` waits for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _ask(
        self,
        request_id: RequestId,
        request: Request,
        request_meta: RequestMeta,
        timeout: float | None,
        on_progress: Callback | None,
        mirrored: Mirrored | None,
        sink: Sink | None,
    ) -> Any:
        if not self._open:
            raise Unreachable("The client is not connected: use it inside `async with`.")
        dialect, request_meta = self.dialect, with_trace_context(request_meta)
        if on_progress is not None:
            request_meta = msgspec.structs.replace(request_meta, progress_token=request_id)
            self._progress[request_id] = on_progress
        if sink is not None:
            self._sinks[request_id] = sink
        try:
            message = dialect.request(request_id, request, request_meta, mirrored)
            limit = self.timeout if timeout is None else timeout
            try:
                async with self._deadline(limit, message.method):
                    if message.id is None:
                        await self.channel.send(message)
                        return DONE
                    frame = await self.channel.request(message)
            except (asyncio.CancelledError, TimedOut) as error:
                if sink is None or sink.stops_with(request):
                    self.abandon(dialect, message, str(error) or "The caller went away.")
                raise
        finally:
            self._progress.pop(request_id, None)
            self._sinks.pop(request_id, None)
        return self._read(dialect, request, frame)

    def _read(self, dialect: ClientDialect, request: Request, frame: Frame) -> Any:
        """Return the value in a response; raises the error in it, or `BadAnswer`."""
        try:
            return dialect.read(request, frame)
        except _UNREADABLE as error:
            name = dialect.methods[type(request)]
            raise BadAnswer(
                f"{self.channel.peer} answered {name} with a result that cannot be read: {error}."
            ) from error

    async def _renew(self, lost: int | None) -> None:
        """Open a new session in place of the lost one, unless another request has done so."""
        async with self._renewing:
            if self._session != lost:
                return
            async with self._connect_deadline("opening a new session"):
                self._agree(await self._negotiation.reopen(self.dialect.version))
            self._session += 1
        self._is_restoring = True
        try:
            await self._on_new_session()
        finally:
            self._is_restoring = False

    def _agree(self, settled: Settled) -> None:
        self.dialect, self.welcome = settled
        try:
            self.offers = self.dialect.read_capabilities(self.welcome.capabilities)
        except _UNREADABLE as error:
            raise BadAnswer(f"{self.channel.peer} sent capabilities that cannot be read: {error}.") from error

    def deadline(self, what: str) -> AbstractAsyncContextManager[None]:
        """Return a context that raises `TimedOut` if several requests together take longer than `timeout`."""
        return self._deadline(self.timeout, what)

    def _deadline(self, seconds: float, what: str) -> _Deadline:
        return _Deadline(seconds, self.channel, what)

    def _connect_deadline(self, what: str) -> _Deadline:
        return _Deadline(self._connect_timeout, self.channel, what, "connect_timeout")

    async def _receive(self, frame: Frame) -> None:
        """Handle a message that is not the last response to a request; raises nothing."""
        try:
            await self._handle(frame)
        except (AntiphonError, *_UNREADABLE) as error:
            logger.debug("%s sent a message that cannot be read: %s", self.channel.peer, error)

    async def _handle(self, frame: Frame) -> None:
        if (self._sinks and self._take_part(frame)) or frame.method is UNSET:
            return
        if frame.request_id is not None:
            if self.dialect.has_sessions:
                # A person who has filled in a form may log in to send it. No other reply is worth a login.
                reply = partial(self._reply, frame, may_log_in=frame.method == ELICITATION)
                facts = None if self._tracing is None else self._tracing.facts
                self._callbacks.accept(frame, reply, self._refuse, facts)
            elif not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "%s sent a request, which protocol version %s forbids. Such requests are ignored.",
                    self.channel.peer,
                    self.dialect.version,
                )
            return
        notification = self.dialect.notification(frame)
        if isinstance(notification, Cancel):
            self._callbacks.cancel(notification.request_id)
        elif isinstance(notification, Progress) and notification.token in self._progress:
            await deliver(self._progress[notification.token], notification)
        elif notification is not None:
            await self._on_notification(notification, self.dialect.subscription(frame))

    def _take_part(self, frame: Frame) -> bool:
        """Hand a part of a stream to its sink; returns whether the frame is one."""
        if frame.method is not UNSET and frame.request_id is not None:
            return False
        try:
            found = self.dialect.part(frame)
            if found is None:
                return False
            request_id, part = found
            sink = self._sinks.get(request_id) if request_id is not None else None
            if sink is not None:
                sink.take(part)
        except (BadAnswer, RequestError) as error:
            self._fail_sink(frame, error)
        return True

    def _fail_sink(self, frame: Frame, error: AntiphonError) -> None:
        """Hand the error for an unreadable part to the sink of its request."""
        request_id = self.dialect.part_request_id(frame)
        sink = self._sinks.get(request_id) if request_id is not None else None
        if sink is not None:
            sink.fail(error)
        else:
            logger.debug("%s sent a part for an unknown request: %s", self.channel.peer, error)

    async def _reply(self, asked: Frame, result: Mapping[str, Any], *, may_log_in: bool) -> None:
        await self._send_quietly(self.dialect.reply(asked, result), self.timeout, may_log_in=may_log_in)

    async def _refuse(self, request_id: RequestId, error: RequestError) -> None:
        await self._send_quietly(self.dialect.refuse(request_id, error.code, error.message), self.timeout)

    async def _send_quietly(
        self, message: Message, timeout: float = GOODBYE_SECONDS, *, may_log_in: bool = False
    ) -> None:
        """Send a message that nobody waits for; an error is logged."""

        async def send() -> None:
            async with asyncio.timeout(timeout):
                await self.channel.send(message)

        try:
            try:
                await send()
            except AuthorizationNeeded as needed:
                if not may_log_in:
                    raise
                await self._repeat(needed, send, in_background=True)
        except (AntiphonError, TimeoutError) as error:
            logger.debug(
                "Could not send %s to %s: %s", message.method or "a response", self.channel.peer, error
            )


class _Deadline:
    """A time limit that raises `TimedOut` with a message that says what to do."""

    __slots__ = ("_channel", "_limit", "_option", "_seconds", "_what")

    def __init__(self, seconds: float, channel: Channel, what: str, option: str = "timeout") -> None:
        self._limit = asyncio.timeout(None if seconds == _FOREVER else seconds)
        self._seconds, self._channel, self._what, self._option = seconds, channel, what, option

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._limit.__aexit__(*raised)
        except TimeoutError:
            remark = f"{self._channel.remark} " if self._channel.remark else ""
            raise TimedOut(
                f"{self._channel.peer} has not answered within {self._seconds:g} s: {self._what}. {remark}"
                f"Give it more time with {self._option}=."
            ) from None
