"""What concerns a session whose calls and streams are at other processes, told to those through the relay.

A load balancer sends each request to some process. An answer, a cancellation or a subscription may so
come to one that has neither the question, nor the call, nor the stream. Owns what is said about that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.model.request import RequestId, SetLogLevel, Subscribe, Unsubscribe
from antiphon.runtime.relay import Relay
from antiphon.transport.server.http.sessions import Session, Sessions
from antiphon.wire.jsonrpc import Frame

__all__ = ["SessionRelay"]

_TOPIC = "sessions"


class _Said(msgspec.Struct, omit_defaults=True):
    """One thing about one session."""

    session: str
    answer: dict[str, Any] | None = None
    cancel: RequestId | None = None
    subscribe: Collection[str] = ()
    unsubscribe: Collection[str] = ()
    level: Any = None
    who: bool = False
    """Whether whoever knows what the session wants is to say so."""
    ended: bool = False


class SessionRelay:
    """The sessions of one server, as far as other processes have to do with them."""

    def __init__(self, relay: Relay, sessions: Sessions) -> None:
        self._relay = relay
        self._sessions = sessions
        relay.subscribe(_TOPIC, self._heard)

    @property
    def exists(self) -> bool:
        """Whether there may be other processes."""
        return self._relay.is_open

    async def answer(self, session: Session, frame: Frame) -> None:
        """A response has come to a question that was not asked here."""
        body = {"result": frame.result} if frame.error is UNSET else {"error": frame.error}
        await self._say(_Said(session.name, answer={"jsonrpc": "2.0", "id": frame.request_id, **body}))

    async def cancel(self, session: Session, request_id: RequestId) -> None:
        """A call is to be cancelled that is not under way here."""
        await self._say(_Said(session.name, cancel=request_id))

    async def changed(self, session: Session, request: Subscribe | Unsubscribe | SetLogLevel) -> None:
        """A session has said what it wants to hear of; its stream may be anywhere."""
        if isinstance(request, Subscribe):
            await self._say(_Said(session.name, subscribe=(request.uri,)))
        elif isinstance(request, Unsubscribe):
            await self._say(_Said(session.name, unsubscribe=(request.uri,)))
        else:
            await self._say(_Said(session.name, level=request.level))

    async def ask(self, session: Session) -> None:
        """A session begins to listen here: what has it told others that it wants to hear of?"""
        await self._say(_Said(session.name, who=True))

    async def ended(self, session: Session) -> None:
        """A session is over."""
        await self._say(_Said(session.name, ended=True))

    async def _say(self, said: _Said) -> None:
        if self._relay.is_open:
            await self._relay.publish(_TOPIC, msgspec.to_builtins(said))

    def _heard(self, data: Any) -> None:
        said = msgspec.convert(data, _Said)
        if said.ended:
            self._sessions.forget(said.session)
            return
        session = self._sessions.named(said.session)
        if session is None:
            return
        if said.answer is not None:
            session.questions.answer(msgspec.convert(said.answer, Frame))
        if said.cancel is not None:
            session.calls.cancel(said.cancel)
        session.state.subscriptions.update(said.subscribe)
        session.state.subscriptions.difference_update(said.unsubscribe)
        if said.level is not None:
            session.state.log_level = said.level
        if said.who and (session.state.subscriptions or session.state.log_level):
            known = _Said(
                session.name, subscribe=sorted(session.state.subscriptions), level=session.state.log_level
            )
            self._relay.publish_soon(_TOPIC, msgspec.to_builtins(known))
