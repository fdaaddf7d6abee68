"""The connections to one upstream server, which are opened again when they are lost.

Owns the first connection, on which lists and changes come, and the pool of further ones. Decides how the
server is spoken to. It must not know what the server offers to whom.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from antiphon.backoff import Backoff
from antiphon.client.connection import Callback
from antiphon.errors import AntiphonError, DefinitionError, Failure, InternalError, UnsupportedVersion
from antiphon.gateway.children import SupervisedChannel, Watchdog
from antiphon.gateway.options import Mounted
from antiphon.gateway.questions import UpstreamQuestions, current_context, may_be_asked
from antiphon.gateway.sessions import Session, Sessions
from antiphon.gateway.upstream_client import UpstreamClient
from antiphon.model.capabilities import ANSWERS_EVERYTHING, FOR_STRANGER
from antiphon.model.notification import Log
from antiphon.model.request import ReadResource, Request
from antiphon.model.ui import declare_ui
from antiphon.printable import printable
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context, call_of

__all__ = ["Upstream"]

logger = logging.getLogger("antiphon.gateway")

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 60.0
_STABLE_SECONDS = 30.0
"""How long a connection has to last before the next loss is retried at once."""
_IDLE_SECONDS = 300.0
"""How long a further connection may be unused before it is closed."""
_SWEEP_SECONDS = 30.0
LIST_SECONDS = 20.0
"""How long a whole list may take, and every other request but calls."""
MAX_PROCESSES, MAX_SESSIONS = 16, 100
"""How many processes of a command, or sessions at a URL, are open at once, unless the mount says how many."""
MAX_PAGES = 200
"""How many pages a list may have."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_MAX_ERROR_LINES, _MAX_ERROR_LINE_CHARACTERS = 10, 200
"""How much of the standard error of a process is logged when the process is lost."""
_INVALID_RESULT = "Handler returned an invalid result"
MAX_RETURNING = 1000
"""How many items that return their questions are remembered. URIs of resources come from callers."""

_WATCHDOG = Watchdog()


class Upstream:
    """One upstream server. `on_connected` registers what it offers, and `on_change` gets its changes.

    One principal has at most the `share` of the connections for itself.
    """

    def __init__(
        self,
        mounted: Mounted,
        on_connected: Callable[[UpstreamClient], Any],
        on_change: Callback,
        *,
        share: float,
    ) -> None:
        self._share = share
        self.name = mounted.name
        self._mounted = mounted
        self._on_connected = on_connected
        self._on_change = on_change
        self.sessions = self._new_pool()
        self._first: Session | None = None
        self._problem: str | None = "it has not been connected yet"
        self._channel: SupervisedChannel | None = None
        self._returning: set[tuple[type[Any], str]] = set()
        """The items that return their questions, although the server has sessions."""
        self.returns_questions = False
        """Whether the server returns its questions, so that nothing waits for the answers."""
        self.is_protected = False
        """Whether the command protects what it offers from everybody but who runs it."""

    @property
    def client(self) -> UpstreamClient:
        """The first connection; raises `Failure` while there is none."""
        if self._first is None or self._first.is_lost:
            raise Failure(
                f"The server {self.name!r} is not available: {self._problem}. "
                "The gateway keeps trying to connect to it: call again later."
            )
        return self._first.client

    def connection_for(
        self, request: Request, context: Context
    ) -> AbstractAsyncContextManager[UpstreamClient]:
        """Return the connection for a call; raises `Failure` while the server is not available."""
        client = self.client
        if not client.has_sessions and _item(request) in self._returning:
            return _as_it_is(client)
        if may_be_asked(call_of(context)):
            return self.sessions.exclusive(context)
        return self.sessions.shared() if client.has_sessions else _as_it_is(client)

    def check(self, call: Call[Any]) -> None:
        """Raise `Failure` if the server cannot check callers, and this one does not run the gateway."""
        if self.is_protected and call.principal.share:
            raise Failure(f"The server {self.name!r} is not offered to callers whom it cannot check.")

    def mark_of(self, call: Call[Any]) -> Mapping[str, Any]:
        """Return what tells a command that a request comes from a caller whom it would have to check.

        It may protect itself by now, and then it refuses the request.
        """
        mounted = self._mounted
        is_checked = not mounted.is_command or mounted.allow_anonymous
        return {} if is_checked or not call.principal.share else {FOR_STRANGER: True}

    def must_return_questions(self, request: Request, error: InternalError) -> bool:
        """Return whether an error in a session says that the item returns its questions, and remember it.

        The official SDK speaks both kinds of versions, and answers so if a function returns questions in a
        session. Such an item is used in the newest version from then on.
        """
        if self._first is None or self._first.client.has_sessions or error.message != _INVALID_RESULT:
            return False
        item = _item(request)
        if item in self._returning:
            return False
        if len(self._returning) >= MAX_RETURNING:
            self._returning.clear()
        self._returning.add(item)
        return True

    # Connecting

    async def run(self, tried: Callable[[], None]) -> None:
        """Keep the server connected until cancelled. `tried` is called after each attempt.

        Raises `DefinitionError` if the server cannot be mounted with these options.
        """
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, jitter=0.2)
        loop = asyncio.get_running_loop()
        self.sessions = self._new_pool()
        try:
            while True:
                lost = asyncio.Event()
                try:
                    self._first = await self._connect(lost)
                    await self._on_connected(self._first.client)
                    self._problem, connected_at = None, loop.time()
                    logger.info("Connected to the server %r.", self.name)
                    tried()
                    await self._stay_connected(lost)
                    self._problem = "its process has ended, or it did not respond"
                    if loop.time() - connected_at > _STABLE_SECONDS:
                        backoff.reset()
                except DefinitionError:
                    raise
                except AntiphonError as error:
                    self._problem = str(error).rstrip(".?")
                    tried()
                except Exception:
                    logger.exception("Unexpected error in the connection to the server %r.", self.name)
                    self._problem = "the gateway failed to use it, and its log says why"
                    tried()
                finally:
                    await self._disconnect()
                delay = backoff.next_delay()
                logger.warning(
                    "The server %r is not available: %s. Trying again in %.1f s.%s",
                    self.name,
                    self._problem,
                    delay,
                    self._last_errors(),
                )
                await asyncio.sleep(delay)
        finally:
            await self.sessions.close()

    def _last_errors(self) -> str:
        """Return the last lines that the process printed to its standard error, for the log."""
        channel, self._channel = self._channel, None
        lines = [] if channel is None else channel.last_errors.splitlines()
        shown = [line for line in lines if line.strip()][-_MAX_ERROR_LINES:]
        return "".join(f"\n  {printable(line, _MAX_ERROR_LINE_CHARACTERS)}" for line in shown)

    async def _connect(self, lost: asyncio.Event) -> Session:
        """Open the first connection, and find out how the server asks."""
        first = await self._open(on_change=self._on_change)
        self.is_protected = self._protects(first)
        first.is_first = True
        first.on_lost.append(lost.set)
        if first.is_lost:
            lost.set()
        if first.client.has_sessions:
            self.returns_questions = False
            await self.sessions.add(first)
            return first
        # This library's own servers return questions in the newest version; other servers may be able to ask
        # only in a session.
        self.returns_questions = first.client.offers.streams or not await self._opens_sessions()
        return first

    async def _opens_sessions(self) -> bool:
        """Try to open a session at a server that also speaks a version without sessions."""
        if self._mounted.protocol is not None or self._mounted.is_command:
            return False
        try:
            session = await self._open_session()
        except AntiphonError as error:
            logger.debug("The server %r has no sessions: %s", self.name, error)
            return False
        await self.sessions.add(session)
        return True

    async def _stay_connected(self, lost: asyncio.Event) -> None:
        while not lost.is_set():
            try:
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await lost.wait()
            except TimeoutError:
                await self.sessions.close_idle(keep=self._first)

    async def _disconnect(self) -> None:
        """Give up the first connection. Calls on other connections go on; new calls get new connections."""
        first, self._first = self._first, None
        await self.sessions.retire()
        if first is not None and not first.client.has_sessions:  # otherwise it is in the pool
            await first.close()

    def _new_pool(self) -> Sessions:
        most = self._mounted.max_connections
        if most is None:
            most = MAX_PROCESSES if self._mounted.is_command else MAX_SESSIONS
        return Sessions(self._open_session, most=most, share=self._share, idle_seconds=_IDLE_SECONDS)

    async def _open_session(self) -> Session:
        session = await self._open(on_change=None, in_session=True)
        if not session.client.has_sessions:
            await session.close()
            raise UnsupportedVersion(f"The server {self.name!r} has no sessions.")
        if self._protects(session) and not self.is_protected:
            # The program has changed since the first connection: what it offers has to be looked at again.
            await session.close()
            if self._first is not None:
                self._first.lose()
            raise Failure(f"The server {self.name!r} has changed, and is connected again: call again later.")
        return session

    def _protects(self, session: Session) -> bool:
        """Return whether a server does not check callers on a connection, and would do so over HTTP."""
        mounted = self._mounted
        return mounted.is_command and not mounted.allow_anonymous and session.client.offers.protected

    async def _open(self, *, on_change: Callback | None, in_session: bool = False) -> Session:
        """Open a connection; raises `AntiphonError`."""
        try:
            return await self._try_open(on_change, in_session=in_session or self._mounted.is_command)
        except UnsupportedVersion:
            if in_session or not self._mounted.is_command:
                raise
            # A command that has no sessions: start it again for the newest version.
            return await self._try_open(on_change, in_session=False)

    async def _try_open(self, on_change: Callback | None, *, in_session: bool) -> Session:
        questions = UpstreamQuestions()
        session: Session | None = None
        is_lost = False

        def lose() -> None:
            nonlocal is_lost
            is_lost = True
            if session is not None:
                session.lose()

        async def log(message: Log) -> None:
            if (context := questions.holder or current_context.get()) is not None:
                await context.log(message.level, message.data, logger=message.logger)

        try:
            client = self._client(questions, lose, on_change=on_change, on_log=log)
        except (ValueError, TypeError) as error:
            raise DefinitionError(f"Cannot mount {self.name!r}: {error}") from None
        if in_session:
            client.prefer_sessions()
        # Messages that come on the connection belong to no call, also not to the call that needs it first.
        token = current_context.set(None)
        try:
            await client.__aenter__()
        finally:
            current_context.reset(token)
        session = Session(client, questions)
        if is_lost:
            session.lose()
        return session

    def _client(
        self,
        questions: UpstreamQuestions,
        on_lost: Callable[[], None],
        *,
        on_change: Callback | None,
        on_log: Callback,
    ) -> UpstreamClient:
        mounted = self._mounted
        target: Any = mounted.target
        options: dict[str, Any] = {"headers": mounted.headers, "auth": mounted.auth}
        if mounted.is_command:
            options = {}
            target = SupervisedChannel(
                mounted.target,
                env=mounted.env,
                cwd=mounted.cwd,
                max_message=MAX_MESSAGE_BYTES,
                keep_errors=True,
            )
            target.watch(_WATCHDOG, on_lost)
            if on_change is not None:
                self._channel = target
        client = UpstreamClient(
            target,
            name="antiphon-gateway",
            protocol=mounted.protocol,
            timeout=LIST_SECONDS,
            max_pages=MAX_PAGES,
            max_message=MAX_MESSAGE_BYTES,
            handlers=questions.handlers,
            capabilities=declare_ui(ANSWERS_EVERYTHING),
            on_change=on_change,
            on_log=on_log,
            **options,
        )
        client.rename_peer(f"the server {self.name!r}")
        return client


@asynccontextmanager
async def _as_it_is(client: UpstreamClient) -> AsyncIterator[UpstreamClient]:
    """Yield a connection that any number of calls use."""
    yield client


def _item(request: Request) -> tuple[type[Any], str]:
    """Return which tool, prompt or resource a request is about."""
    name = request.uri if isinstance(request, ReadResource) else getattr(request, "name", "")
    return type(request), name
