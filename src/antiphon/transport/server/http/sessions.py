"""Sessions over HTTP, for the protocol versions that have them.

A session id is an encrypted token that contains the negotiated version and capabilities, so every process
with the same secret can serve the session. The rest (log level, subscriptions, streams, running calls) is in
the memory of this process, for the sessions used most recently.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

import msgspec

from antiphon.errors import SealError, SessionLost
from antiphon.model.identity import Principal
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.execution.call import SessionState
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.limits import Limits
from antiphon.transport.server.active_calls import ActiveCalls
from antiphon.transport.server.http.event_buffer import EventBuffer
from antiphon.transport.server.pending_questions import PendingQuestions
from antiphon.wire.server.dialect import Negotiated

__all__ = ["Session", "Sessions"]


class _Token(msgspec.Struct, array_like=True):
    """The content of a session id. Clients hold session ids: the order of the fields never changes."""

    id: str
    negotiated: Negotiated


class Session:
    """The state of one session in this process."""

    def __init__(self, name: str, negotiated: Negotiated, principal: Principal, limits: Limits) -> None:
        self.name = name
        """The name of the session in messages between processes. It does not give access to the session."""
        self.negotiated = negotiated
        self.principal = principal
        self.state = SessionState()
        self.questions = PendingQuestions()
        self.calls = ActiveCalls()
        self.listening: Supervised | None = None
        self._limits = limits
        self._streams: OrderedDict[str, EventBuffer] = OrderedDict()

    def create_stream(self) -> EventBuffer:
        """Create the buffer of a new stream; evict the oldest one if there are too many."""
        buffer = EventBuffer(self._limits)
        self._streams[buffer.id] = buffer
        while len(self._streams) > self._limits.max_replay_streams:
            oldest = next(
                (key for key, stream in self._streams.items() if stream.ended), next(iter(self._streams))
            )
            del self._streams[oldest]
        return buffer

    def find_stream(self, event_id: str) -> tuple[EventBuffer, int] | None:
        """Return the stream of an event and the event's number, or `None` if the stream was evicted."""
        name, _, number = event_id.rpartition(".")
        buffer = self._streams.get(name)
        if buffer is None or not (number.isascii() and number.isdigit() and len(number) < 12):
            return None
        after = int(number)
        return (buffer, after) if buffer.can_resume(after) else None


class Sessions:
    """The sessions that this process caches."""

    def __init__(self, seal: Seal, server: str, limits: Limits) -> None:
        self._seal = seal
        self._bound_to = b"session\0" + server.encode() + b"\0"
        self._limits = limits
        self._cached: OrderedDict[str, Session] = OrderedDict()
        self._names: dict[str, str] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def create(self, negotiated: Negotiated, principal: Principal) -> str:
        """Create a session, and return its id."""
        data = msgspec.msgpack.encode(_Token(secrets.token_urlsafe(12), negotiated))
        token = self._seal.seal(
            data, use="session", bound_to=self._bind(principal), lifetime=self._limits.session_lifetime
        )
        self._cache(token, Session(_name(token), negotiated, principal, self._limits))
        return token

    def open(self, token: str, principal: Principal) -> Session:
        """Return the session with an id; raises `SessionLost` if it has ended or is another caller's."""
        session = self._cached.get(token)
        if session is not None:
            if session.principal.id != principal.id:
                raise _lost()
            self._cached.move_to_end(token)
            return session
        name = _name(token)
        if name in self._ended:
            raise _lost()
        try:
            data = self._seal.open(token, use="session", bound_to=self._bind(principal))
            negotiated = msgspec.msgpack.decode(data, type=_Token).negotiated
        except (SealError, msgspec.DecodeError):
            raise _lost() from None
        session = Session(name, negotiated, principal, self._limits)
        self._cache(token, session)
        return session

    def find_by_name(self, name: str) -> Session | None:
        """Return the session with a name, or `None` if this process does not cache it."""
        token = self._names.get(name)
        return None if token is None else self._cached.get(token)

    def end(self, token: str, principal: Principal) -> Session:
        """End a session: stop its calls, and refuse its id from now on. Raises `SessionLost`."""
        session = self.open(token, principal)
        self.end_by_name(session.name)
        return session

    def end_by_name(self, name: str) -> None:
        """End a session by its name."""
        self._ended[name] = None
        while len(self._ended) > self._limits.max_sessions:
            self._ended.popitem(last=False)
        session = self._cached.pop(self._names.pop(name, ""), None)
        if session is None:
            return
        for request in (*session.calls.values(), session.listening):
            if request is not None:
                request.stop("cancelled")

    def _cache(self, token: str, session: Session) -> None:
        self._cached[token] = session
        self._names[session.name] = token
        while len(self._cached) > self._limits.max_sessions:
            _, oldest = self._cached.popitem(last=False)
            del self._names[oldest.name]

    def _bind(self, principal: Principal) -> bytes:
        return self._bound_to + principal.id.encode()


def _name(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def _lost() -> SessionLost:
    return SessionLost(
        "The server does not know this session, or it has ended: initialize again, without a session id."
    )
