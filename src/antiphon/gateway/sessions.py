"""The pool of connections to one upstream server that asks on the connection.

On such a connection a question does not say which call it belongs to. So a call whose caller can be asked has
a connection for itself; calls of other callers share one. Owns who uses which connection. It must not know
how a connection is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

from antiphon.errors import ClientError, Failure
from antiphon.gateway.questions import UpstreamQuestions
from antiphon.gateway.upstream_client import UpstreamClient
from antiphon.runtime.execution.context import Context

__all__ = ["Session", "Sessions"]

_CLOSING = "The connections to the server are being closed: call again."
_EVICTED = (
    "This call was ended while it waited for the answer, because other calls need its connection to the "
    "server. Make the call again."
)
EVICT_SECONDS = 10.0
"""How long a call waits for a connection before it takes the one whose question has been open longest."""


class Session:
    """One open connection, and who uses it."""

    def __init__(self, client: UpstreamClient, questions: UpstreamQuestions) -> None:
        self.client = client
        self.questions = questions
        self.shared_by = 0
        """How many calls of callers that cannot be asked use it."""
        self.is_settling = False
        """Whether the gateway finds out whether a call that was given up has ended."""
        self.is_tainted = False
        """Whether such a call may still run, and ask: then no other call has the connection for itself."""
        self.is_first = False
        """Whether lists and changes come on it too."""
        self.is_lost = False
        """Whether the process has ended, or did not respond: it gets no more calls."""
        self.on_lost: list[Callable[[], None]] = []
        """The functions to call when the connection is lost."""
        self._holding: asyncio.Task[Any] | None = None
        self._is_evicted = False
        self._is_closed = False
        self.idle_since = asyncio.get_running_loop().time()

    @contextlib.contextmanager
    def held_by_this_task(self) -> Iterator[None]:
        """Let `evict` end the block; raises `Failure` then."""
        self._holding, self._is_evicted = asyncio.current_task(), False
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_evicted or self._holding is None or self._holding.uncancel():
                raise
            raise Failure(_EVICTED) from None
        finally:
            self._holding = None

    def evict(self) -> None:
        """End the call that has the connection for itself."""
        if self._holding is not None and not self._is_evicted:
            self._is_evicted = True
            self._holding.cancel()

    def lose(self) -> None:
        """Note that the connection cannot be used for more calls. Calls that use it may still end."""
        if not self.is_lost:
            self.is_lost = True
            for notify in self.on_lost:
                notify()

    async def close(self) -> None:
        """Close the connection, unless that was done before. It gets no more calls."""
        self.lose()
        if not self._is_closed:
            self._is_closed = True
            await self.client.__aexit__(None, None, None)

    @property
    def is_idle(self) -> bool:
        """Whether no call uses it."""
        return self.takes_shared_calls and not self.shared_by and not self.is_settling

    @property
    def takes_shared_calls(self) -> bool:
        """Whether no call has it for itself. Questions that come on it then are refused."""
        return self.questions.holder is None

    @property
    def can_be_held(self) -> bool:
        """Whether a call can have it for itself: no other call uses it, or may still run on it."""
        return self.is_idle and not self.is_tainted


class Sessions:
    """The open connections. At most `most` are open; a call that finds none waits for one.

    One caller, a principal or an address, has at most the `share` of them for itself.
    """

    def __init__(
        self, open: Callable[[], Awaitable[Session]], *, most: int, share: float, idle_seconds: float
    ) -> None:
        self._open = open
        self._most = most
        self._share = share
        self._idle_seconds = idle_seconds
        self._sessions: list[Session] = []
        self._opening: list[Context | None] = []
        """The calls for which a connection is being opened; `None` for a call that shares it."""
        self._changed = asyncio.Condition()
        self._is_closed = False
        self._working: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def add(self, session: Session) -> None:
        """Add a connection that is open."""
        self._add(session)
        await self._notify()

    def _add(self, session: Session) -> None:
        self._sessions.append(session)
        session.on_lost.append(lambda: self._start(self._release(session)))
        if session.is_lost:
            self._start(self._release(session))

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """Return the connections that are open now."""
        return iter(tuple(self._sessions))

    @asynccontextmanager
    async def exclusive(self, context: Context) -> AsyncIterator[UpstreamClient]:
        """Use a connection that no other call uses. Questions on it go to this call."""
        session = await self._take(lambda each: each.can_be_held, hold=context)
        try:
            with session.held_by_this_task():
                yield session.client
        except (asyncio.CancelledError, ClientError, Failure):
            self._settle(session)
            raise
        finally:
            session.questions.release()
            await self._release(session)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[UpstreamClient]:
        """Use a connection together with other calls whose callers cannot be asked."""
        session = await self._take(lambda each: each.takes_shared_calls, hold=None)
        try:
            yield session.client
        except (asyncio.CancelledError, ClientError):
            self._settle(session)
            raise
        finally:
            session.shared_by -= 1
            await self._release(session)

    async def _take(self, fits: Callable[[Session], bool], hold: Context | None) -> Session:
        """Return a connection, which is opened if there is none that fits and room for another.

        The connection that was opened first is preferred, so that calls that come one after the other find
        the state that the process of the server keeps.
        """
        loop = asyncio.get_running_loop()
        evict_at = loop.time() + EVICT_SECONDS
        async with self._changed:
            while True:
                if self._is_closed:
                    raise ClientError(_CLOSING)
                if self._may_hold(hold):
                    free = (each for each in self._sessions if not each.is_lost and fits(each))
                    if (session := next(free, None)) is not None:
                        _use(session, hold)
                        return session
                    if len(self._sessions) + len(self._opening) < self._most:
                        break
                try:
                    async with asyncio.timeout_at(evict_at):
                        await self._changed.wait()
                except TimeoutError:
                    self._evict_longest(hold)
                    evict_at = loop.time() + EVICT_SECONDS
            self._opening.append(hold)
        try:
            session = await self._open()
            _use(session, hold)
            self._add(session)
        finally:
            self._opening.remove(hold)
            await self._notify()
        if self._is_closed:
            await self.discard(session)
            raise ClientError(_CLOSING)
        return session

    def _may_hold(self, context: Context | None) -> bool:
        """Return whether a caller may have one more connection for itself: not more than its share."""
        if context is None or not context.principal.share:
            return True
        holders = [*self._opening, *(each.questions.holder for each in self._sessions)]
        held = sum(_is_of(holder, context) for holder in holders)
        return held < max(1, int(self._most * self._share))

    def _evict_longest(self, context: Context | None) -> None:
        """End the call whose question has been open longest, so that a call that waits gets its connection.

        A caller that has its share of connections takes one of its own.
        """
        candidates = [
            (since, number)
            for number, each in enumerate(self._sessions)
            if (since := each.questions.waiting_since) is not None
            and (self._may_hold(context) or _is_of(each.questions.holder, context))
        ]
        if candidates:
            _, number = min(candidates)
            self._sessions[number].evict()

    def _settle(self, session: Session) -> None:
        """Find out in the background whether a call that was given up has ended.

        The server may still ask for such a call. If it does not say that the call has ended, no other call
        has the connection for itself. If it does not respond at all, the connection is lost.
        """
        if not session.is_settling:
            session.is_settling = True
            self._start(self._wait_until_settled(session))

    async def _wait_until_settled(self, session: Session) -> None:
        settled = await session.client.settle()
        session.is_settling = False
        session.is_tainted = session.is_tainted or settled != "ended"
        is_kept = session.is_first and self._most > 1  # for lists, changes and shared calls
        if settled == "silent" or (session.is_tainted and not is_kept):
            session.lose()
        await self._release(session)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _release(self, session: Session) -> None:
        session.idle_since = asyncio.get_running_loop().time()
        if session.is_lost and session.is_idle:
            await self.discard(session)
        await self._notify()

    async def discard(self, session: Session) -> None:
        """Close a connection that is lost. Calls that use it fail by themselves."""
        if session in self._sessions:
            self._sessions.remove(session)
        closing = asyncio.create_task(session.close())  # goes on if whoever closes it is cancelled
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.wait({closing})
        await self._notify()

    async def retire(self) -> None:
        """Give no connection any more calls. Each is closed as soon as no call uses it."""
        for session in tuple(self._sessions):
            session.lose()
            await self._release(session)

    async def close_idle(self, keep: Session | None) -> None:
        """Close the connections that no call has used for a while."""
        since = asyncio.get_running_loop().time() - self._idle_seconds
        for session in [each for each in self._sessions if each.is_idle and each is not keep]:
            if session.idle_since < since:
                await self.discard(session)

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        await self._notify()
        for task in tuple(self._working):
            task.cancel()
        while self._sessions:
            await self.discard(self._sessions[0])
        if self._closing:
            await asyncio.wait(tuple(self._closing))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _is_of(holder: Context | None, context: Context | None) -> bool:
    """Return whether two calls are of the same caller."""
    return holder is not None and context is not None and holder.principal.share == context.principal.share


def _use(session: Session, hold: Context | None) -> None:
    """Note that a call uses a connection: for itself, or together with others."""
    if hold is None:
        session.shared_by += 1
    else:
        session.questions.holder = hold
