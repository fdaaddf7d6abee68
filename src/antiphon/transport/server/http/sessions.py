"""Sessions of the versions that have them. A session id is a sealed token that carries what was
negotiated, so that every process with the same secret can serve it.

What cannot be in the token (log level, subscriptions, streams, calls under way) is kept in this
process, for the sessions used last.
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
    id: str
    negotiated: Negotiated


class Session:
    """One session, as far as this process knows it."""

    def __init__(self, name: str, negotiated: Negotiated, principal: Principal, limits: Limits) -> None:
        self.name = name
        """By which processes speak of it: nobody can use the session who knows it."""
        self.negotiated = negotiated
        self.principal = principal
        self.state = SessionState()
        self.questions = PendingQuestions()
        self.calls = ActiveCalls()
        self.listening: Supervised | None = None
        self._limits = limits
        self._streams: OrderedDict[str, EventBuffer] = OrderedDict()

    def stream(self) -> EventBuffer:
        """A new stream; the oldest one is forgotten when there are too many."""
        replay = EventBuffer(self._limits)
        self._streams[replay.id] = replay
        while len(self._streams) > self._limits.max_replay_streams:
            oldest = next(
                (key for key, kept in self._streams.items() if kept.ended), next(iter(self._streams))
            )
            del self._streams[oldest]
        return replay

    def find_stream(self, event_id: str) -> tuple[EventBuffer, int] | None:
        """The stream that an event was on, and the event's number; `None` if it is no longer there."""
        name, _, number = event_id.rpartition(".")
        replay = self._streams.get(name)
        if replay is None or not (number.isascii() and number.isdigit() and len(number) < 12):
            return None
        after = int(number)
        return (replay, after) if replay.has(after) else None


class Sessions:
    """All sessions that this process has in mind."""

    def __init__(self, seal: Seal, server: str, limits: Limits) -> None:
        self._seal = seal
        self._bound_to = b"session\0" + server.encode() + b"\0"
        self._limits = limits
        self._kept: OrderedDict[str, Session] = OrderedDict()
        self._names: dict[str, str] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def create(self, negotiated: Negotiated, principal: Principal) -> str:
        """The id of a new session."""
        data = msgspec.msgpack.encode(_Token(secrets.token_urlsafe(12), negotiated))
        token = self._seal.seal(data, bound_to=self._bind(principal), lifetime=self._limits.session_lifetime)
        self._keep(token, Session(_name(token), negotiated, principal, self._limits))
        return token

    def open(self, token: str, principal: Principal) -> Session:
        """The session with that id; raises `SessionLost` if it has ended, or is not the caller's."""
        session = self._kept.get(token)
        if session is not None:
            if session.principal.id != principal.id:
                raise _lost()
            self._kept.move_to_end(token)
            return session
        name = _name(token)
        if name in self._ended:
            raise _lost()
        try:
            data = self._seal.open(token, bound_to=self._bind(principal))
            negotiated = msgspec.msgpack.decode(data, type=_Token).negotiated
        except (SealError, msgspec.DecodeError):
            raise _lost() from None
        session = Session(name, negotiated, principal, self._limits)
        self._keep(token, session)
        return session

    def named(self, name: str) -> Session | None:
        """The session of that name, if this process has it in mind."""
        token = self._names.get(name)
        return None if token is None else self._kept.get(token)

    def end(self, token: str, principal: Principal) -> Session:
        """End a session: its calls are stopped, and its id is good for nothing here from now on."""
        session = self.open(token, principal)
        self.forget(session.name)
        return session

    def forget(self, name: str) -> None:
        """End a session, by its name."""
        self._ended[name] = None
        while len(self._ended) > self._limits.max_sessions:
            self._ended.popitem(last=False)
        session = self._kept.pop(self._names.pop(name, ""), None)
        if session is None:
            return
        for watched in (*session.calls.values(), session.listening):
            if watched is not None:
                watched.stop("cancelled")

    def _keep(self, token: str, session: Session) -> None:
        self._kept[token] = session
        self._names[session.name] = token
        while len(self._kept) > self._limits.max_sessions:
            _, oldest = self._kept.popitem(last=False)
            del self._names[oldest.name]

    def _bind(self, principal: Principal) -> bytes:
        return self._bound_to + principal.id.encode()


def _name(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def _lost() -> SessionLost:
    return SessionLost(
        "This session has ended, or is not known here: initialize again, without a session id."
    )
