"""What a client asks about tasks, and what it is told of them without asking.

Owns the inboxes of those who follow a task. Everything asked here may be asked twice, so a connection
that is lost is tried again for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from antiphon.backoff import Backoff
from antiphon.client.connection import Connection, Sink
from antiphon.client.input_rounds import InputRounds
from antiphon.client.mailbox import Mailbox
from antiphon.client.streaming.segment_tracker import settled
from antiphon.errors import (
    AntiphonError,
    BadAnswer,
    InternalError,
    InvalidParams,
    TaskLost,
    TimedOut,
    Unreachable,
)
from antiphon.model.outcome import Result
from antiphon.model.request import (
    AnswerTask,
    CancelTask,
    GetTask,
    ListTasks,
    RedeemTask,
    Request,
    RequestId,
    RequestMeta,
    SubscriptionFilter,
)
from antiphon.model.segment import StreamPart
from antiphon.model.task_status import TaskStatus

__all__ = ["Inbox", "TaskRequests", "new_inbox", "reconnecting"]

_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.1, 5.0
_ABANDON_TIMEOUT_SECONDS = 2.0
"""How long the client tries to cancel a task that nobody waits for."""
_MAX_UNREAD_STATUSES = 100

Inbox: TypeAlias = Mailbox[TaskStatus]
"""The statuses of one task that were not read yet."""


def new_inbox() -> Inbox:
    """Return an empty inbox. It drops old statuses first: the newest says all."""
    return Mailbox(_MAX_UNREAD_STATUSES)


def reconnecting(timeout: float | None = None) -> Backoff:
    """Return the delays with which a lost connection is tried again."""
    return Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS, timeout=timeout)


class TaskRequests:
    """The tasks of one client."""

    def __init__(
        self,
        connection: Connection,
        rounds: InputRounds,
        *,
        reconnect_timeout: float,
        max_pages: int,
        max_streams: int,
        max_requests: int,
        max_message: int,
    ) -> None:
        self.connection = connection
        self.rounds = rounds
        self.max_message = max_message
        self.streams = asyncio.BoundedSemaphore(max_streams) if max_streams > 0 else None
        """One for each stream that brings news; where none is left, tasks are looked at instead."""
        self.acknowledging: dict[RequestId, Callable[[SubscriptionFilter], None]] = {}
        self._reconnect_timeout = reconnect_timeout
        self._max_pages = max_pages
        self._inboxes: dict[str, set[Inbox]] = {}
        # Streams of segments leave room for what has to be asked meanwhile.
        self._segments = asyncio.Semaphore(max_requests // 2)

    @property
    def take_answers(self) -> bool:
        """Whether questions are told with the status, and answered by key."""
        return self.connection.dialect.answers_tasks_by_key

    # Told

    @contextmanager
    def delivering(self, id: str, inbox: Inbox) -> Iterator[None]:
        """Put what is told of a task into an inbox, as long as the context lasts."""
        inboxes = self._inboxes.setdefault(id, set())
        inboxes.add(inbox)
        try:
            yield
        finally:
            inboxes.discard(inbox)
            if not inboxes:
                self._inboxes.pop(id, None)

    def notice(self, status: TaskStatus) -> None:
        """The server tells how a task stands."""
        for inbox in self._inboxes.get(status.id, ()):
            inbox.put((status,))

    def acknowledge(self, subscription: RequestId | None, interests: SubscriptionFilter) -> None:
        """The server has said which tasks it will tell of."""
        waiting = self.acknowledging.get(subscription) if subscription is not None else None
        if waiting is not None:
            waiting(interests)

    # Asked

    async def get(self, id: str, *, timeout: float | None = None) -> TaskStatus:
        """How a task stands; raises `TaskLost`."""
        try:
            status: TaskStatus = await self._ask(GetTask(id), timeout=timeout)
        except InvalidParams as error:
            raise TaskLost(
                f"The server does not know the task {id}: it has expired, is somebody else's, or never was. "
                f"It says: {error.message}"
            ) from error
        if status.id != id:
            raise BadAnswer(f"The server was asked about the task {id}, and told of {status.id}.")
        return status

    async def list(self) -> AsyncIterator[TaskStatus]:
        """All tasks of this caller; raises `MethodNotFound` on versions that do not tell them."""
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._max_pages):
            page = await self._ask(ListTasks(cursor))
            for status in page.tasks:
                yield status
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                break
            seen.add(cursor)
        raise BadAnswer("The server's list of tasks does not end.")

    async def cancel(self, id: str) -> None:
        """Stop a task; one that has ended stays as it is. Raises `TaskLost`."""
        try:
            await self._ask(CancelTask(id))
        except InvalidParams:
            if not (await self.get(id)).has_ended:
                raise

    async def answer(self, id: str, responses: Mapping[str, dict[str, Any]]) -> None:
        """Answer questions of a task; raises `TaskLost`."""
        try:
            await self._ask(AnswerTask(id, dict(responses)))
        except InvalidParams:
            await self.get(id)
            raise

    async def redeem(self, id: str, *, timeout: float | None = None) -> Result:
        """What a task gave, on versions where that is asked for; raises the error that it ended with."""
        outcome = await self._ask(RedeemTask(id), timeout=timeout, passing=(Unreachable,))
        result = settled(outcome, self.max_message) if isinstance(outcome, StreamPart) else outcome
        if not isinstance(result, Result):
            raise BadAnswer(f"The server was asked for the result of the task {id}, and only told of it.")
        return result

    async def segments(self, id: str, after: int, sink: Sink) -> TaskStatus | StreamPart | Result:
        """Put the segments of a task after a number into a sink, as they come; what the last response says.

        Raises what a request does: it is for the caller to ask again.
        """
        request = self.connection.dialect.stream_task(id, after)
        async with self._segments:
            last: TaskStatus | StreamPart | Result = await self.connection.ask(
                request, RequestMeta(wants_stream=True), timeout=float("inf"), sink=sink
            )
            return last

    def let_go(self, id: str) -> None:
        """Stop a task that nobody knows of any more, without waiting for it."""
        self.connection.spawn(self._let_go(id))

    async def _let_go(self, id: str) -> None:
        with contextlib.suppress(AntiphonError, TimeoutError):
            async with asyncio.timeout(_ABANDON_TIMEOUT_SECONDS):
                await self.connection.ask(CancelTask(id))

    async def _ask(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        passing: tuple[type[AntiphonError], ...] = (Unreachable, TimedOut, InternalError),
    ) -> Any:
        """Ask, and ask again for a while where the connection is lost or the server is at its limit."""
        backoff = reconnecting(self._reconnect_timeout)
        while True:
            try:
                return await self.connection.ask(request, timeout=timeout)
            except passing as error:
                # A pipe that is closed stays closed.
                if isinstance(error, Unreachable) and not self.connection.channel.has_streams:
                    raise
                await backoff.wait(error)
