"""One request under way: what is asked, by whom, on which terms, and where to say things meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from antiphon.model.ask import Ask
from antiphon.model.notification import Change, ListChanged, Notification
from antiphon.model.party import LogLevel, Principal
from antiphon.model.request import RequestId, Terms
from antiphon.runtime.journal import Journal
from antiphon.runtime.warden import Watched

__all__ = ["Call", "Peer"]

R = TypeVar("R")


class Peer:
    """What a client with a session, or on a connection of its own, has told us to keep in mind."""

    __slots__ = ("log_level", "subscriptions")

    SUBSCRIPTIONS = 1000

    def __init__(self) -> None:
        self.log_level: LogLevel | None = None
        self.subscriptions: set[str] = set()

    def wants(self, change: Change) -> bool:
        """Every change of a list, and those of the resources it subscribed to."""
        return isinstance(change, ListChanged) or change.uri in self.subscriptions


class Call(Generic[R]):
    """A request on its way through a server."""

    __slots__ = (
        "ask",
        "carrier",
        "journal",
        "turn",
        "close_stream",
        "id",
        "notify",
        "peer",
        "principal",
        "request",
        "rounds",
        "terms",
        "watched",
    )

    def __init__(
        self,
        request: R,
        *,
        id: RequestId,
        terms: Terms,
        principal: Principal,
        watched: Watched,
        notify: Callable[[Notification], Awaitable[None]],
        peer: Peer | None = None,
        close_stream: Callable[[], Awaitable[None]] | None = None,
        rounds: bool = False,
        ask: Callable[[str, Ask], Awaitable[Any]] | None = None,
    ) -> None:
        self.request = request
        self.id = id
        self.terms = terms
        self.principal = principal
        self.watched = watched
        self.notify = notify
        self.peer = peer
        self.close_stream = close_stream
        self.rounds = rounds
        """Whether the caller can carry the journal, and come back with answers."""
        self.ask = ask
        """Puts a question to the caller while the call waits, where the connection can carry it."""
        self.carrier: Any = None
        """Who carries the journal from now on, if that has changed since the call began."""
        self.journal: Journal | None = None
        """The journal of the run, once there is one."""
        self.turn: Callable[[], Awaitable[None]] | None = None
        """Makes a promise of the call, if its caller takes one."""

    @property
    def log_level(self) -> LogLevel | None:
        """The least grave level that the caller wants to hear of; `None` if it wants none."""
        if self.peer is not None and self.peer.log_level is not None:
            return self.peer.log_level
        return self.terms.log_level


AnyCall = Call[Any]
