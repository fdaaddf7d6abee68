"""One connection to one server: request ids, deadlines, the session, and what comes in between.

It owns the channel and the version that was agreed on. A session that the server lost is opened again,
and what was asked in it is asked once more.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from antiphon.client.callbacks import Callbacks
from antiphon.client.negotiation import Negotiation, Settled
from antiphon.client.tracing import traced
from antiphon.errors import AntiphonError, BadAnswer, RequestError, SessionLost, TimedOut, Unreachable
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import Implementation
from antiphon.model.notification import Notification, Progress
from antiphon.model.request import Cancel, Request, RequestId, RequestMeta
from antiphon.model.segment import StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.transport.client.channel import Channel
from antiphon.wire.client.dialect import ClientDialect, Message
from antiphon.wire.client.results import Welcome
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored
from antiphon.wire.versions import VERSIONS, VersionTable

__all__ = ["Callback", "Connection", "Sink", "deliver"]

logger = logging.getLogger("antiphon.client")

Callback = Callable[[Any], Awaitable[None] | None]
"""What a user wants to be called with; a plain function or an async one."""

_FAREWELL = 2.0
"""Seconds that telling the server goodbye, or that an answer is not wanted, may take."""


async def deliver(callback: Callback, value: Any) -> None:
    """Call back; a callback that fails is logged and harms nobody else."""
    try:
        waiting = callback(value)
        if inspect.isawaitable(waiting):
            await waiting
    except Exception:
        logger.exception("The callback for %s failed.", type(value).__name__)


class Sink(Protocol):
    """Takes what comes of a stream before the last response to its request. It must not wait."""

    def ends_with(self, request: Request) -> bool:
        """Whether giving up a request is to stop what it started, which the server is then told."""

    def take(self, part: StreamPart) -> None:
        """Take what came. It raises nothing."""

    def fail(self, error: AntiphonError) -> None:
        """Something came that cannot be read."""


class Connection:
    """A conversation with a server, once it is open."""

    def __init__(
        self,
        channel: Channel,
        client: Implementation,
        capabilities: Mapping[str, Any],
        *,
        handlers: Callbacks,
        noticed: Callable[[Notification | TaskStatus, RequestId | None], Awaitable[None]],
        renewed: Callable[[], Awaitable[None]],
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
        self._probe_timeout = None if channel.has_streams else probe_timeout
        self._negotiation = Negotiation(self, client, capabilities, protocol, versions)
        self._handlers = handlers
        self._noticed = noticed
        self._renewed = renewed
        self._ids = itertools.count(1)
        self._progress: dict[RequestId, Callback] = {}
        self._sinks: dict[RequestId, Sink] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._renewing = asyncio.Lock()
        self._session = 0
        self._open = False

    async def open(self) -> None:
        """Connect and agree on a version; raises `Unreachable`, `TimedOut` or `UnsupportedVersion`."""
        try:
            async with self._deadline(self._connect_timeout, "connecting"):
                await self.channel.open(self._receive)
                self._agree(await self._negotiation.settle(self._probe_timeout))
            self._open = True
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Say goodbye and let go."""
        try:
            await self._handlers.close()
            if self._background:
                await asyncio.wait(self._background, timeout=_FAREWELL)
            if self._open:
                self._open = False
                async with asyncio.timeout(_FAREWELL):
                    await self.channel.end(self.dialect.headers)
        except TimeoutError:
            logger.debug("%s did not take notice of the end of the session.", self.channel.peer)
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
        """Send a request and read its result; raises the error that it got instead.

        What comes of a stream before that goes into the sink.
        """
        session = self._session
        try:
            return await self._ask(request, request_meta, timeout, on_progress, mirrored, sink)
        except SessionLost:
            await self._renew(session)
            return await self._ask(request, request_meta, timeout, on_progress, mirrored, sink)

    def write(self, request: Request, request_meta: RequestMeta) -> Message:
        """A request with an id of its own, for a caller that follows it itself."""
        return self.dialect.request(next(self._ids), request, request_meta)

    async def exchange(self, dialect: ClientDialect, request: Request) -> Any:
        """Send a request in this version, and read its result. The caller has the deadline."""
        self.dialect = dialect
        message = dialect.request(next(self._ids), request, RequestMeta())
        try:
            return dialect.read(request, await self.channel.request(message))
        except asyncio.CancelledError:
            self.abandon(dialect, message)
            raise

    async def send(self, message: Message) -> None:
        """Send a notification."""
        await self.channel.send(message)

    def abandon(
        self, dialect: ClientDialect, message: Message, reason: str = "The caller went away."
    ) -> None:
        """Tell the server that a request's answer is not wanted, where closing its stream has not said so."""
        if self.channel.has_streams and dialect.closing_cancels:
            return
        notice = dialect.cancel(message, reason)
        if notice is not None:
            self.spawn(self._tell(notice))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something on the side, and finish it before the connection closes."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _ask(
        self,
        request: Request,
        request_meta: RequestMeta,
        timeout: float | None,
        on_progress: Callback | None,
        mirrored: Mirrored | None,
        sink: Sink | None,
    ) -> Any:
        if not self._open:
            raise Unreachable("The client is not connected: use it inside `async with`.")
        request_id = next(self._ids)
        dialect, request_meta = self.dialect, traced(request_meta)
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
                    frame = await self.channel.request(message)
            except (asyncio.CancelledError, TimedOut) as error:
                if sink is None or sink.ends_with(request):
                    self.abandon(dialect, message, str(error) or "The caller went away.")
                raise
        finally:
            self._progress.pop(request_id, None)
            self._sinks.pop(request_id, None)
        return dialect.read(request, frame)

    async def _renew(self, lost: int) -> None:
        """Open a new session in place of the lost one, unless somebody else just did."""
        async with self._renewing:
            if self._session != lost:
                return
            async with self._deadline(self._connect_timeout, "initialize"):
                self._agree(await self._negotiation.reopen(self.dialect.version))
            self._session += 1
        await self._renewed()

    def _agree(self, settled: Settled) -> None:
        self.dialect, self.welcome = settled
        self.offers = self.dialect.read_capabilities(self.welcome.capabilities)

    def _deadline(self, seconds: float, what: str) -> _Deadline:
        return _Deadline(seconds, f"{self.channel.peer} has not answered within {seconds:g} s: {what}.")

    async def _receive(self, frame: Frame) -> None:
        """Take what is not a last response."""
        if (self._sinks and self._stream(frame)) or frame.method is UNSET:
            return
        if frame.request_id is not None:
            if self.dialect.has_sessions:
                self._handlers.accept(frame, self._reply, self._refuse)
            else:
                logger.warning("%s sent a request, which its version forbids.", self.channel.peer)
            return
        notice = self.dialect.notification(frame)
        if isinstance(notice, Cancel):
            self._handlers.cancel(notice.request_id)
        elif isinstance(notice, Progress) and notice.token in self._progress:
            await deliver(self._progress[notice.token], notice)
        elif notice is not None:
            await self._noticed(notice, self.dialect.subscription(frame))

    def _stream(self, frame: Frame) -> bool:
        """Take what belongs to a stream; whether it does."""
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
            self._misread(frame, error)
        return True

    def _misread(self, frame: Frame, error: AntiphonError) -> None:
        """Tell whoever waits for it that a part of a stream cannot be read."""
        request_id = self.dialect.part_request_id(frame)
        sink = self._sinks.get(request_id) if request_id is not None else None
        if sink is not None:
            sink.fail(error)
        else:
            logger.debug("%s sent segments for nobody: %s", self.channel.peer, error)

    async def _reply(self, request_id: RequestId, result: Any) -> None:
        await self._tell(self.dialect.reply(request_id, result), self.timeout)

    async def _refuse(self, request_id: RequestId, error: RequestError) -> None:
        await self._tell(self.dialect.refuse(request_id, error.code, error.message), self.timeout)

    async def _tell(self, message: Message, limit: float = _FAREWELL) -> None:
        """Send something that nobody waits for."""
        try:
            async with asyncio.timeout(limit):
                await self.channel.send(message)
        except (AntiphonError, TimeoutError) as error:
            logger.debug("%s was not told %s: %s", self.channel.peer, message.method or "an answer", error)


class _Deadline:
    """A time limit that raises `TimedOut` with a message that says what to do."""

    def __init__(self, seconds: float, message: str) -> None:
        self._limit = asyncio.timeout(None if seconds == float("inf") else seconds)
        self._message = message

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._limit.__aexit__(*raised)
        except TimeoutError:
            raise TimedOut(f"{self._message} Give it more time with timeout=.") from None
