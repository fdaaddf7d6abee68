"""Forwards session events to the process that holds the call, the question or the stream.

A load balancer may send the answer to a question, a cancellation or a subscription to another process than
the one that asked, runs the call or has the stream. Owns the messages about sessions between processes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.errors import InvalidRequest, RequestError, StoreUnavailable
from antiphon.model.request import RequestId, SetLogLevel, Subscribe, Unsubscribe
from antiphon.runtime.relay import Relay
from antiphon.transport.server.http.question_ids import Asker
from antiphon.transport.server.http.sessions import Session, Sessions
from antiphon.wire.jsonrpc import Frame

__all__ = ["SessionRelay"]

logger = logging.getLogger("antiphon")

_TOPIC = "sessions"
_MAX_REQUEST_ID_CHARACTERS = 256
"""The longest id of a call whose cancellation is forwarded. The store holds it for a while."""


class SessionEvent(msgspec.Struct, omit_defaults=True):
    """An event of one session.

    During a rollout, processes of different versions exchange these: the encoded names never change.
    """

    session: str
    answer: dict[str, Any] | None = None
    cancel: RequestId | None = None
    subscribe: Collection[str] = ()
    unsubscribe: Collection[str] = ()
    level: Any = None
    asks_for_state: bool = msgspec.field(default=False, name="who")
    """Whether processes that know the subscriptions and the log level of the session should send them."""
    ended: bool = False
    expires: int = 0
    """Until when the id of a session that has ended is valid, in milliseconds since 1970."""
    share: str = ""
    """The key of the share of the caller who has ended it."""


class SessionRelay:
    """Sends the session events of this process to the others, and applies theirs."""

    def __init__(self, relay: Relay, sessions: Sessions) -> None:
        self._relay = relay
        self._sessions = sessions
        relay.subscribe(_TOPIC, self._receive)

    @property
    def is_open(self) -> bool:
        """Whether there may be other processes to forward events to."""
        return self._relay.is_open

    async def take_answer(self, session: Session, frame: Frame) -> None:
        """Deliver the response to a question, here or to the process that asked. The first one counts.

        Raises `AlreadyAnswered` for another one, and `InvalidRequest` if nobody takes it. This process may
        have withdrawn the question: its call was cancelled, or has ended. The client has heard of that, and
        its response was on its way. Some clients end the session if it is refused, so it is not.
        """
        question_id = frame.request_id
        is_open = session.questions.is_open(question_id)
        asker = "this process" if is_open else session.asker_of(question_id)
        if asker is None:
            raise InvalidRequest("No question of this session has this id, or the time to answer it is over.")
        assert isinstance(question_id, str)
        body = {"result": frame.result} if frame.error is UNSET else {"error": frame.error}
        if not await self._is_first(session, asker, question_id, body):
            return
        if asker == "this process":
            session.questions.answer(frame)
        else:
            answer = {"jsonrpc": "2.0", "id": question_id, **body}
            await self._send(SessionEvent(session.name, answer=answer))

    async def _is_first(
        self, session: Session, asker: Asker, question_id: str, body: Mapping[str, Any]
    ) -> bool:
        """Return whether an answer is the first one; raises `AlreadyAnswered` for another one."""
        answer = sha256(msgspec.json.encode(body, order="sorted")).digest()
        if self._relay.is_open:
            try:
                return await self._sessions.is_first_answer(question_id, answer)
            except StoreUnavailable:
                if asker == "another process":
                    raise
        elif asker == "another process":
            raise InvalidRequest("Another process asked this question, and shares no store with this one.")
        return session.is_first_answer(question_id, answer)

    async def forward_cancellation(self, session: Session, request_id: RequestId) -> None:
        """Forward the cancellation of a call that another process runs."""
        if isinstance(request_id, str) and len(request_id) > _MAX_REQUEST_ID_CHARACTERS:
            return
        await self._send(SessionEvent(session.name, cancel=request_id))

    async def forward_change(self, session: Session, request: Subscribe | Unsubscribe | SetLogLevel) -> None:
        """Forward a change of the subscriptions or the log level of a session."""
        if isinstance(request, Subscribe):
            await self._send(SessionEvent(session.name, subscribe=(request.uri,)))
        elif isinstance(request, Unsubscribe):
            await self._send(SessionEvent(session.name, unsubscribe=(request.uri,)))
        else:
            await self._send(SessionEvent(session.name, level=request.level))

    async def request_state(self, session: Session) -> None:
        """Request the subscriptions and the log level of a session, which begins to listen here."""
        await self._send(SessionEvent(session.name, asks_for_state=True))

    async def forward_end(self, session: Session) -> None:
        """Forward the end of a session."""
        await self._send(
            SessionEvent(session.name, ended=True, expires=session.expires, share=session.principal.share)
        )

    async def _send(self, event: SessionEvent) -> None:
        if self._relay.is_open:
            await self._relay.publish(_TOPIC, msgspec.to_builtins(event))

    def _receive(self, data: Any) -> None:
        event = msgspec.convert(data, SessionEvent)
        if event.ended:
            self._sessions.end_by_name(event.session, event.expires, event.share)
            return
        session = self._sessions.find_by_name(event.session)
        if session is None:
            return
        if event.answer is not None:
            session.questions.answer(msgspec.convert(event.answer, Frame))
        if event.cancel is not None:
            session.calls.cancel(event.cancel)
        for uri in event.unsubscribe:
            session.state.unsubscribe(uri)
        try:
            for uri in event.subscribe:
                session.state.subscribe(uri)
        except RequestError as error:
            logger.debug("Cannot keep a subscription that another process accepted: %s", error)
        if event.level is not None:
            session.state.log_level = event.level
        if event.asks_for_state and (session.state.subscriptions or session.state.log_level):
            state = SessionEvent(
                session.name, subscribe=sorted(session.state.subscriptions), level=session.state.log_level
            )
            self._relay.publish_soon(_TOPIC, msgspec.to_builtins(state))
