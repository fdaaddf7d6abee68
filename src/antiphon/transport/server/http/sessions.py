"""Sessions over HTTP, for the protocol versions that have them.

A session id is an encrypted token that contains the negotiated version and capabilities, so every process
with the same secret can serve the session. The rest (log level, subscriptions, streams, running calls) is in
the memory of this process, for the sessions used most recently. Its size is reserved from the budget of the
process. If there is no room for another session, an idle one of the same caller makes room, or one of the
caller that has most, whichever of them was used least recently. A session that is in use is never evicted.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from hashlib import sha256

import msgspec

from antiphon import wall_clock
from antiphon.errors import AlreadyAnswered, Busy, InvalidRequest, SealError, SessionLost
from antiphon.instrumentation.facts import MessageFacts, hashed_session_id
from antiphon.model.identity import Principal
from antiphon.model.request import RequestId, RequestMeta
from antiphon.runtime.budget import Account, MemoryBudget, decoded_size, share_of
from antiphon.runtime.carriers.connection import ANSWER_TIMEOUT_SECONDS
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.execution.call import SessionState
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.limits import Limits
from antiphon.transport.server.active_calls import ActiveCalls
from antiphon.transport.server.http.ended_sessions import EndedSessions
from antiphon.transport.server.http.event_buffer import EventBuffer
from antiphon.transport.server.http.question_ids import Asker, QuestionIds
from antiphon.transport.server.pending_questions import PendingQuestions
from antiphon.wire.server.dialect import Negotiated

__all__ = ["Session", "Sessions"]

_SESSION_BYTES = 4096
"""The memory of a session without its capabilities and subscriptions, about."""
_MAX_ANSWERS = 1000
"""How many answers a session remembers."""
_RETRY_AFTER_SECONDS = 30
"""When a client should try again after all sessions were in use."""
_ANSWER_BYTES = 256
"""The memory of one of them, about."""
ENDED_PER_SESSION = 10
"""How many ended sessions are recorded for each session that a process may hold."""
_ENDED_KEY = "session-ended:"
"""The start of the keys by which a store records ended sessions. Stores hold them: it never changes."""
_ANSWERED_KEY = "session-answered:"
"""The start of the keys by which a store records answers in sessions. Stores hold them: it never changes."""

UseOnce = Callable[..., Awaitable[bool]]


class _Token(msgspec.Struct, array_like=True):
    """The content of a session id. Clients hold session ids: the order of the fields never changes."""

    id: str
    negotiated: Negotiated
    expires: int = 0
    """Until when the id is valid, in milliseconds since 1970; 0 in ids of earlier versions."""


class Session:
    """The state of one session in this process."""

    def __init__(
        self,
        name: str,
        negotiated: Negotiated,
        principal: Principal,
        limits: Limits,
        account: Account,
        expires: int,
        question_ids: QuestionIds,
    ) -> None:
        self.name = name
        """The name of the session in messages between processes. It does not give access to the session."""
        self.negotiated = negotiated
        self.principal = principal
        self.account = account
        """The memory of the session."""
        self.expires = expires
        """Until when the session id is valid, in milliseconds since 1970."""
        self.state = SessionState(limits, account)
        self.questions = PendingQuestions(lambda: question_ids.create(name))
        self._question_ids = question_ids
        self._answers: dict[str, bytes] = {}
        """The hashes of answers, by the ids of their questions."""
        self.has_forgotten = False
        """Whether an answer may have been given that is not among them."""
        self.calls = ActiveCalls()
        self.request_meta: RequestMeta | None = None
        """The metadata of its usual calls, once there was one."""
        self.listening: Supervised | None = None
        self.resumed = 0
        """How many connections get a stream of the session that they have resumed."""
        self._limits = limits
        self._streams: OrderedDict[str, EventBuffer] = OrderedDict()

    @property
    def age(self) -> float:
        """How many seconds ago the session was opened, in whichever process."""
        return max(0.0, wall_clock.now() + self._limits.session_lifetime - self.expires / 1000)

    @property
    def facts(self) -> MessageFacts:
        """The facts about the session for metrics."""
        return MessageFacts("", self.negotiated.version, "tcp", is_http=True)

    @property
    def is_idle(self) -> bool:
        """Whether no request of the session is being served here, and no question is open."""
        return not (self.calls or self.listening or self.resumed or self.questions.are_open)

    def asker_of(self, question_id: RequestId | None) -> Asker | None:
        """Return which process asked a question in the session; `None` if no question has this id."""
        return self._question_ids.asker_of(self.name, question_id)

    def is_first_answer(self, question_id: str, answer: bytes) -> bool:
        """Remember an answer by its hash; return whether it is the first one, and not the same again.

        Raises `AlreadyAnswered` if it is another one, `InvalidRequest` if the question was closed and its
        answer may have been forgotten, and `Busy` if there is no memory to remember it.
        """
        given = self._answers.get(question_id)
        if given is not None:
            _check_same_answer(given == answer)
            return False
        if self.has_forgotten and not self.questions.is_open(question_id):
            raise InvalidRequest("This question is no longer open, and its answer is not remembered.")
        self.account.reserve(_ANSWER_BYTES, "the answer")
        self._answers[question_id] = answer
        if len(self._answers) > _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
            self.account.release(_ANSWER_BYTES)
            self.has_forgotten = True
        return True

    def create_stream(self) -> EventBuffer:
        """Create the buffer of a new stream; evict the oldest one if there are too many."""
        buffer = EventBuffer(self._limits, self.account)
        self._streams[buffer.id] = buffer
        while len(self._streams) > self._limits.max_replay_streams:
            oldest = next(
                (key for key, stream in self._streams.items() if stream.ended), next(iter(self._streams))
            )
            self._streams.pop(oldest).evict()
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
    """The sessions that this process caches.

    `use_once` records a key in the store that processes share, and returns false if it was recorded before.
    """

    def __init__(
        self, seal: Seal, server: str, limits: Limits, budget: MemoryBudget, use_once: UseOnce
    ) -> None:
        self._seal = seal
        self._bound_to = b"session\0" + server.encode() + b"\0"
        self._limits = limits
        self._budget = budget
        self._use_once = use_once
        self._most = max(1, limits.max_sessions)
        self._most_of_share = share_of(self._most, limits.principal_share)
        self.cached: dict[str, Session] = {}
        """The sessions by their ids."""
        self._by_share: dict[str, OrderedDict[str, Session]] = {}
        """The sessions of the callers with each share, the one used least recently first."""
        self._names: dict[str, str] = {}
        self._question_ids = QuestionIds(seal, server)
        self.ended = EndedSessions(ENDED_PER_SESSION * self._most, limits.principal_share)
        budget.reclaim = self._reclaim

    def __len__(self) -> int:
        return len(self.cached)

    def create(self, negotiated: Negotiated, principal: Principal) -> str:
        """Create a session, and return its id; raises `Busy` if there is no room for it."""
        lifetime = self._limits.session_lifetime
        expires = int((wall_clock.now() + lifetime) * 1000)
        data = msgspec.msgpack.encode(_Token(secrets.token_urlsafe(12), negotiated, expires))
        token = self._seal.seal(data, use="session", bound_to=self._bind(principal), lifetime=lifetime)
        self._cache(token, negotiated, principal, expires)
        return token

    def find(self, token: str, principal: Principal) -> Session | None:
        """Return the session with an id, or `None` if this process does not cache it.

        Raises `SessionLost` if it has expired or is another caller's.
        """
        session = self.cached.get(token)
        if session is None:
            return None
        if session.principal.id != principal.id:
            raise _lost()
        if session.expires <= wall_clock.now() * 1000:
            self._stop(session)
            raise _lost()
        self._by_share[session.principal.share].move_to_end(token)
        return session

    async def open(self, token: str, principal: Principal) -> Session:
        """Return the session with an id; raises `SessionLost` if it has ended or is another caller's.

        Looks into the store if this process does not cache the session: another process may have ended it
        before this one started. Raises `Busy` if there is no room for it.
        """
        session = self.find(token, principal)
        if session is not None:
            return session
        try:
            data = self._seal.open(token, use="session", bound_to=self._bind(principal))
            content = msgspec.msgpack.decode(data, type=_Token)
        except (SealError, msgspec.DecodeError):
            raise _lost() from None
        name = hashed_session_id(token)
        expires = content.expires or int((wall_clock.now() + self._limits.session_lifetime) * 1000)
        has_ended = partial(self.ended.contains, name, expires, principal.share)
        # A key that expires at once is not recorded, so this only asks whether it was.
        if has_ended() or not await self._use_once(_ENDED_KEY + name, until=0):
            raise _lost()
        if has_ended():  # meanwhile
            raise _lost()
        session = self.find(token, principal)
        if session is None:
            session = self._cache(token, content.negotiated, principal, expires)
            session.has_forgotten = True
        return session

    async def is_first_answer(self, question_id: str, answer: bytes) -> bool:
        """Record an answer for all processes; return whether it is the first one, and not the same again.

        Raises `AlreadyAnswered` if it is another one, and `StoreUnavailable`.
        """
        until = int((wall_clock.now() + ANSWER_TIMEOUT_SECONDS) * 1000)
        question = _ANSWERED_KEY + sha256(question_id.encode()).hexdigest()
        given = f"{question}:{answer.hex()}"
        if await self._use_once(question, until=until):
            await self._use_once(given, until=until)
            return True
        # A key that expires at once is not recorded, so this only asks whether it was.
        _check_same_answer(not await self._use_once(given, until=0))
        return False

    def find_by_name(self, name: str) -> Session | None:
        """Return the session with a name, or `None` if this process does not cache it."""
        token = self._names.get(name)
        return None if token is None else self.cached.get(token)

    async def end(self, token: str, principal: Principal) -> Session:
        """End a session: stop its calls, and refuse its id from now on, in later processes too.

        Raises `SessionLost`, and `StoreUnavailable` if only this process knows that the session has ended.
        """
        session = await self.open(token, principal)
        self.end_by_name(session.name, session.expires, session.principal.share)
        await self._use_once(_ENDED_KEY + session.name, until=session.expires)
        return session

    def end_by_name(self, name: str, expires: int = 0, share: str = "") -> None:
        """End a session by its name. `expires` is until when its id is valid, or 0 if that is unknown.

        The record of its end counts for the share of the caller who has ended it.
        """
        expires = expires or int((wall_clock.now() + self._limits.session_lifetime) * 1000)
        self.ended.add(name, expires, share)
        session = self.find_by_name(name)
        if session is not None:
            self._stop(session)

    def _stop(self, session: Session) -> None:
        """Evict a session, and stop its calls."""
        self._evict(session)
        for request in (*session.calls.values(), session.listening):
            if request is not None:
                request.stop("cancelled")

    def _cache(self, token: str, negotiated: Negotiated, principal: Principal, expires: int) -> Session:
        self._make_room(principal.share)
        account = Account(self._budget, principal.share, reclaimable=True)
        size = _SESSION_BYTES + len(token) + decoded_size(msgspec.json.encode(negotiated))
        account.reserve(size, "the session")
        session = Session(
            hashed_session_id(token),
            negotiated,
            principal,
            self._limits,
            account,
            expires,
            self._question_ids,
        )
        self.cached[token] = session
        self._by_share.setdefault(principal.share, OrderedDict())[token] = session
        self._names[session.name] = token
        return session

    def _make_room(self, share: str) -> None:
        """Evict an idle session if there are too many; raises `Busy` if all that may go are in use."""
        own = self._by_share.get(share)
        if share and own is not None and len(own) >= self._most_of_share and not self._evict_idle([own]):
            raise Busy(
                f"You have {len(own)} of at most {self._most_of_share} sessions, and each is in use: "
                "end one, or try again later.",
                retry_after=_RETRY_AFTER_SECONDS,
            )
        if len(self.cached) < self._most:
            return
        groups = self._by_share.values()
        if not self._evict_idle([max(groups, key=len)]) and not self._evict_idle(
            sorted(groups, key=len, reverse=True)
        ):
            raise Busy(
                f"The server has {len(self.cached)} of at most {self._most} sessions, and each is in use: "
                "try again later.",
                retry_after=_RETRY_AFTER_SECONDS,
            )

    def _evict_idle(self, groups: Iterable[OrderedDict[str, Session]]) -> bool:
        """Evict the first session that is idle; return whether there was one."""
        for group in groups:
            for session in group.values():
                if session.is_idle:
                    self._evict(session)
                    return True
        return False

    def _evict(self, session: Session) -> None:
        token = self._names.pop(session.name, "")
        if self.cached.pop(token, None) is not None:
            group = self._by_share[session.principal.share]
            del group[token]
            if not group:
                del self._by_share[session.principal.share]
        session.account.close()
        session.state.close()

    def _reclaim(self, share: str | None, wanted: int) -> None:
        """Evict idle sessions until so many bytes are free: of one share, or of those that use most."""
        if share is None:
            groups = sorted(self._by_share.values(), key=_size, reverse=True)
        else:
            groups = [self._by_share.get(share, OrderedDict())]
        for session in [each for group in groups for each in group.values() if each.is_idle]:
            if wanted <= 0:
                return
            wanted -= session.account.size
            self._evict(session)

    def _bind(self, principal: Principal) -> bytes:
        return self._bound_to + principal.id.encode()


def _size(group: OrderedDict[str, Session]) -> int:
    """Return how many bytes the sessions of a group have reserved."""
    return sum(session.account.size for session in group.values())


def _check_same_answer(is_same: bool) -> None:
    """Check that an answer is the one that its question has; raises `AlreadyAnswered`."""
    if not is_same:
        raise AlreadyAnswered(
            "This question is answered. There is another answer already, and the first one counts."
        )


def _lost() -> SessionLost:
    return SessionLost(
        "The server does not know this session, or it has ended: initialize again, without a session id."
    )
