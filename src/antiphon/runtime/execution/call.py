"""One request under way: the request, the caller who made it, and the carrier of its journal.

A `Call` is built once, by the transport, the worker or a test. A `Caller` is the way back to the client
while the call is under way; each transport has its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from antiphon.errors import BodyTooLarge, InvalidParams, RequestError
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.identity import ANONYMOUS, LogLevel, Principal
from antiphon.model.notification import Change, ListChanged
from antiphon.model.question import Question
from antiphon.model.request import RequestId, RequestMeta
from antiphon.model.segment import CallerMessage, Segments
from antiphon.runtime.budget import Account
from antiphon.runtime.carriers.base import Carrier
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import OutputStream, StreamedOutput
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.limits import Limits

__all__ = ["Call", "Caller", "SessionState", "check_uri", "subscription_size"]

R = TypeVar("R")
_NO_META = RequestMeta()
_DEFAULT_LIMITS = Limits()
_SUBSCRIPTION_BYTES = 256
"""The memory of a subscription beside its URI, about, with a pending change."""


def check_uri(uri: str, limits: Limits) -> None:
    """Raise `BodyTooLarge` if a URI is too long to subscribe to it."""
    if len(uri) > limits.max_uri_bytes:
        raise BodyTooLarge(
            f"The URI has {len(uri)} characters, and a subscription at most {limits.max_uri_bytes}: "
            "use a shorter one.",
            code=InvalidParams.code,
        )


def subscription_size(uri: str) -> int:
    """Return the memory of the subscription to a resource, about."""
    return sys.getsizeof(uri) + _SUBSCRIPTION_BYTES


class PassedOn(Protocol):
    """The subscriptions of a session that providers were told of."""

    async def add(self, uri: str) -> None:
        """Tell the providers of a subscription; raises their errors."""

    def remove(self, uris: Collection[str]) -> asyncio.Task[None] | None:
        """Start to tell the providers that subscriptions have ended, if they know them."""


class SessionState:
    """The settings of a session or connection: the log level, and subscriptions to resources."""

    __slots__ = ("_account", "_limits", "foreign", "log_level", "passed_on", "subscriptions")

    def __init__(self, limits: Limits = _DEFAULT_LIMITS, account: Account | None = None) -> None:
        self._limits = limits
        self._account = account
        self.foreign: Any = None
        """The session of an adopted server, if the server has one; it lives as long as this session."""
        self.log_level: LogLevel | None = None
        self.subscriptions: set[str] = set()
        self.passed_on: PassedOn | None = None
        """The subscriptions as providers know them; `None` if they were told of none."""

    def close(self) -> asyncio.Task[None] | None:
        """End the session; return the task that takes its subscriptions back, if there is one."""
        passed_on, self.passed_on = self.passed_on, None
        return None if passed_on is None else passed_on.remove(self.subscriptions)

    def subscribe(self, uri: str) -> bool:
        """Subscribe to a resource; return whether the session was not subscribed to it.

        Raises `BodyTooLarge`, `InvalidParams` or `Busy` if the URI is too long, if there are too many
        subscriptions, or if there is no memory for another one.
        """
        check_uri(uri, self._limits)
        if uri in self.subscriptions:
            return False
        most = self._limits.max_subscriptions
        if len(self.subscriptions) >= most:
            raise InvalidParams(f"A session can subscribe to at most {most} resources: unsubscribe first.")
        if self._account is not None:
            self._account.reserve(subscription_size(uri), "the subscription")
        self.subscriptions.add(uri)
        return True

    def unsubscribe(self, uri: str) -> asyncio.Task[None] | None:
        """Remove a subscription; return the task that takes it back where it was passed on, if it was."""
        if uri not in self.subscriptions:
            return None
        self.subscriptions.remove(uri)
        if self._account is not None:
            self._account.release(subscription_size(uri))
        return None if self.passed_on is None else self.passed_on.remove((uri,))

    def is_subscribed_to(self, change: Change) -> bool:
        """Return whether to send a change: list changes always, resource changes to subscribers."""
        return isinstance(change, ListChanged) or change.uri in self.subscriptions


class Caller:
    """The way back to a caller while its call is running. This base class drops all messages."""

    takes_streams: bool = True
    """Whether several messages can be sent in answer to the request."""
    can_ask: bool = False
    """Whether the caller can be asked on the connection while the call waits."""
    task_id: str | None = None
    """The id of the task, if the call runs as a task."""
    answered_in: Sequence[str] = ()
    """The spans of the requests that answered the questions of a task, if they were traced."""
    goes_on: bool = False
    """Whether another process runs the function again, after this one had to stop it."""
    headers: Mapping[bytes, bytes] = MappingProxyType({})
    """The headers of the HTTP request, by names in lower case; empty if no HTTP request brought the call."""

    def facts(self, request: Any) -> MessageFacts | None:
        """Return the facts about the caller's request for its span; `None` if no connection brought it."""
        return None

    def code_of(self, error: RequestError) -> int:
        """Return the code of an error in the caller's protocol version."""
        return error.code

    async def notify(self, message: CallerMessage) -> None:
        """Send a message to the caller."""

    async def ask(self, key: str, question: Question, task_id: str | None = None) -> Any:
        """Ask the caller and return the response; call it only if `can_ask` is true."""
        raise NotImplementedError

    async def close_stream(self) -> None:
        """Release the caller's connection, if the caller can come back for the rest."""

    def open_output(self, call: Call[Any], journal: Journal, limits: Limits) -> OutputStream:
        """Return where the call's segments go: to the caller as they come, or into the result."""
        if not call.wants_stream:
            return OutputStream(limits.max_answer_bytes)

        async def send(first: int, blocks: Sequence[Any]) -> None:
            await self.notify(Segments(first, blocks))

        return StreamedOutput(limits.max_answer_bytes, send, sent=journal.segments)


class Call(Generic[R]):
    """A request on its way through a server."""

    __slots__ = (
        "caller",
        "carrier",
        "convert",
        "id",
        "output",
        "principal",
        "request",
        "request_meta",
        "session_state",
        "work",
    )

    def __init__(
        self,
        request: R,
        carrier: Carrier,
        caller: Caller,
        work: Supervised,
        id: RequestId = 0,
        request_meta: RequestMeta = _NO_META,
        principal: Principal = ANONYMOUS,
        session_state: SessionState | None = None,
        *,
        convert: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.request = request
        self.id = id
        self.request_meta = request_meta
        self.principal = principal
        self.session_state = session_state
        self.carrier = carrier
        self.caller = caller
        self.work = work
        """The asyncio task that serves the call, with its deadline."""
        self.convert = convert
        """Turns the call into a task, if the caller accepts tasks; `None` if that is not possible.

        Raises `StoreUnavailable`. The call is no task either if the server has no room for one.
        """
        self.output: OutputStream | None = None
        """The segments that the function has emitted; `None` before the first one."""

    @property
    def task_id(self) -> str | None:
        """The id of the task, if the call runs as a task."""
        return self.caller.task_id

    @property
    def wants_stream(self) -> bool:
        """Whether the caller wants segments as they come, and can receive them."""
        return self.request_meta.wants_stream and self.caller.takes_streams

    @property
    def log_level(self) -> LogLevel | None:
        """The lowest level of log messages that the caller wants; `None` for no messages."""
        if self.session_state is not None and self.session_state.log_level is not None:
            return self.session_state.log_level
        return self.request_meta.log_level

    def derive(
        self,
        *,
        request: Any = None,
        carrier: Carrier | None = None,
        caller: Caller | None = None,
        work: Supervised | None = None,
    ) -> Call[Any]:
        """Return a call of the same client and principal, with the parts that you pass in place of its own.

        It cannot be converted into a task.
        """
        return Call(
            self.request if request is None else request,
            carrier or self.carrier,
            caller or self.caller,
            work or self.work,
            self.id,
            self.request_meta,
            self.principal,
            self.session_state,
        )

    def follow(self, request: Call[R]) -> None:
        """Go on as the call of another request, which the same caller has made to continue this one."""
        self.id = request.id
        self.request_meta = request.request_meta
        self.principal = request.principal
        self.session_state = request.session_state

    def open_output(self, journal: Journal, limits: Limits) -> OutputStream:
        """Start emitting segments, and return where they go."""
        self.output = self.caller.open_output(self, journal, limits)
        return self.output

    def redirect_output(self, output: OutputStream) -> None:
        """Send further segments to another output."""
        self.output = output
