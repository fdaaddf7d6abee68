"""One request under way: what is asked, by whom, on which terms, and where to say things meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from antiphon.model.identity import ANONYMOUS, LogLevel, Principal
from antiphon.model.notification import Change, ListChanged
from antiphon.model.question import Question
from antiphon.model.request import RequestId, RequestMeta
from antiphon.model.segment import CallerMessage, Segments
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.supervisor import Supervised

if TYPE_CHECKING:
    from antiphon.runtime.execution.invoke import Carrier
    from antiphon.runtime.execution.output_stream import OutputStream
    from antiphon.runtime.limits import Limits

__all__ = ["Call", "SessionState"]

R = TypeVar("R")


class SessionState:
    """What a client with a session, or on a connection of its own, has told us to keep in mind."""

    __slots__ = ("log_level", "subscriptions")

    SUBSCRIPTIONS = 1000

    def __init__(self) -> None:
        self.log_level: LogLevel | None = None
        self.subscriptions: set[str] = set()

    def wants(self, change: Change) -> bool:
        """Every change of a list, and those of the resources it subscribed to."""
        return isinstance(change, ListChanged) or change.uri in self.subscriptions


class Call(Supervised, Generic[R]):
    """A request on its way through a server. A transport has its own kind, which can say things."""

    request: R
    id: RequestId = 0
    request_meta: RequestMeta = RequestMeta()
    principal: Principal = ANONYMOUS
    peer: SessionState | None = None
    rounds: bool = False
    """Whether the caller can carry the journal, and come back with answers."""
    takes_streams: bool = True
    """Whether several things can be said in answer to it."""
    can_ask: bool = False
    """Whether a question can be put to the caller while the call waits."""
    carrier: Carrier | None = None
    """Who carries the journal from now on, if that has changed since the call began."""
    journal: Journal | None = None
    """The journal of the run, once there is one."""
    turn: Callable[[], Awaitable[None]] | None = None
    """Makes a promise of the call, if its caller takes one."""
    emissions: OutputStream | None = None
    """What the function has emitted, once it has."""
    task_id: str | None = None
    """The task that it is, if its caller has a promise."""

    @property
    def streams(self) -> bool:
        """Whether the caller wants what is emitted as it comes, and can get it so."""
        return self.request_meta.wants_stream

    def begin_to_emit(self, journal: Journal, limits: Limits) -> OutputStream:
        """Somewhere for segments to go: to the caller, or into the answer."""
        from antiphon.runtime.execution.output_stream import OutputStream, StreamedOutput

        if not self.streams:
            return OutputStream(limits.max_answer_bytes)
        return StreamedOutput(limits.max_answer_bytes, self._emit, sent=journal.segments)

    async def _emit(self, first: int, blocks: Sequence[Any]) -> None:
        await self.notify(Segments(first, blocks))

    async def notify(self, notification: CallerMessage) -> None:
        """Say something to the caller meanwhile."""

    async def ask(self, key: str, ask: Question, task_id: str | None = None) -> Any:
        """Put a question to the caller, and wait for the response; only where `can_ask` is true."""
        raise NotImplementedError

    async def close_stream(self) -> None:
        """Let go of the caller's connection, where it can come back for the rest."""

    @property
    def log_level(self) -> LogLevel | None:
        """The least grave level that the caller wants to hear of; `None` if it wants none."""
        if self.peer is not None and self.peer.log_level is not None:
            return self.peer.log_level
        return self.request_meta.log_level
