"""The requests of a client about tasks, and the notifications that it gets about them.

Owns the inboxes of the tasks that are followed. All requests here are safe to repeat, so the client retries
them for a while if the connection is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec

from antiphon.backoff import Backoff
from antiphon.client.connection import Connection, Sink
from antiphon.client.input_rounds import InputRounds
from antiphon.client.mailbox import Mailbox
from antiphon.client.streaming.segment_tracker import whole_outcome
from antiphon.errors import (
    AntiphonError,
    BadAnswer,
    InternalError,
    InvalidParams,
    RequestError,
    TaskLost,
    TimedOut,
    Unreachable,
)
from antiphon.model.outcome import InputRequired, Result
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

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 5.0
_ABANDON_TIMEOUT_SECONDS = 2.0
"""How long the client tries to cancel a task that nobody waits for."""
_QUESTIONS_SECONDS = 2.0
"""How long the client waits for the questions of a task that a separate request returns."""
_MAX_UNREAD_STATUSES = 100

Inbox: TypeAlias = Mailbox[TaskStatus]
"""The unread statuses of one task."""


def new_inbox() -> Inbox:
    """Return an empty inbox. It drops the oldest statuses first, because the newest one is complete."""
    return Mailbox(_MAX_UNREAD_STATUSES)


def reconnecting(timeout: float | None = None) -> Backoff:
    """Return the delays before a lost connection is tried again."""
    return Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, timeout=timeout)


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
        self.status_streams = asyncio.BoundedSemaphore(max_streams) if max_streams > 0 else None
        """Bounds the streams that bring statuses; the client polls the tasks that get no stream."""
        self.acknowledging: dict[RequestId, Callable[[SubscriptionFilter], None]] = {}
        self._reconnect_timeout = reconnect_timeout
        self._max_pages = max_pages
        self._expects_questions = False
        self._inboxes: dict[str, set[Inbox]] = {}
        # Streams of segments leave room for other requests.
        self._segment_streams = asyncio.Semaphore(max_requests // 2)

    @property
    def asks_in_result(self) -> bool:
        """Whether the request for the result of a task that waits for input returns its questions at once."""
        return self._expects_questions or self.connection.dialect.asks_in_task_result

    @property
    def answers_by_key(self) -> bool:
        """Whether a status has the questions of the task, and the client answers them by key."""
        return self._expects_questions or self.connection.dialect.answers_tasks_by_key

    def expect_questions(self) -> None:
        """Record that the server answers a request for a result at once, with the questions of the task."""
        self._expects_questions = True

    @property
    def status_has_result(self) -> bool:
        """Whether the status of a task that has ended has the result."""
        return self.connection.dialect.status_has_details

    # Notifications

    @contextmanager
    def delivering(self, id: str, inbox: Inbox) -> Iterator[None]:
        """Put the statuses of a task into an inbox while the context lasts."""
        inboxes = self._inboxes.setdefault(id, set())
        inboxes.add(inbox)
        try:
            yield
        finally:
            inboxes.discard(inbox)
            if not inboxes:
                self._inboxes.pop(id, None)

    def notice(self, status: TaskStatus) -> None:
        """Put a status that the server sent into the inboxes of its task."""
        for inbox in self._inboxes.get(status.id, ()):
            inbox.put((status,))

    def acknowledge(self, subscription: RequestId | None, accepted: SubscriptionFilter) -> None:
        """Record which tasks the server will report for a subscription."""
        waiting = self.acknowledging.get(subscription) if subscription is not None else None
        if waiting is not None:
            waiting(accepted)

    # Requests

    async def get(self, id: str, *, timeout: float | None = None) -> TaskStatus:
        """Return the status of a task; raises `TaskLost`."""
        try:
            status: TaskStatus = await self.ask(GetTask(id), timeout=timeout)
        except InvalidParams as error:
            raise TaskLost(
                f"The server does not know the task {id}: it has expired, belongs to another caller, never "
                "existed, or was in the memory of a server that has been restarted. The server says: "
                f"{error.message}"
            ) from error
        if status.id != id:
            raise BadAnswer(f"The client asked for the task {id}, and the server sent the task {status.id}.")
        if status.status == "input_required" and self.asks_in_result:
            return await self._with_questions(status)
        return status

    async def _with_questions(self, status: TaskStatus) -> TaskStatus:
        """Return the status with the questions of the task, from a server that sends them with the result."""
        with contextlib.suppress(TimeoutError, RequestError):
            # If the task was answered meanwhile, this request waits for the result.
            async with asyncio.timeout(_QUESTIONS_SECONDS):
                asked = await self.result_or_questions(status.id)
                if isinstance(asked, InputRequired):
                    return msgspec.structs.replace(status, questions=asked.questions)
        return status

    async def list(self) -> AsyncIterator[TaskStatus]:
        """Yield all tasks of this caller; raises `MethodNotFound` in versions that do not list tasks."""
        async for page in self.pages(ListTasks, "list of tasks"):
            for status in page.tasks:
                yield status

    async def pages(self, request: Callable[[str | None], Request], name: str) -> AsyncIterator[Any]:
        """Yield all pages of a list; raises `BadAnswer` if the list does not end."""
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._max_pages):
            page = await self.ask(request(cursor))
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                break
            seen.add(cursor)
        raise BadAnswer(f"The server's {name} does not end.")

    async def cancel(self, id: str) -> None:
        """Cancel a task; a task that has ended stays as it is. Raises `TaskLost`."""
        try:
            await self.ask(CancelTask(id))
        except InvalidParams:
            if not (await self.get(id)).has_ended:
                raise

    async def answer(self, id: str, responses: Mapping[str, dict[str, Any]]) -> None:
        """Answer questions of a task by key; raises `TaskLost`."""
        dialect = self.connection.dialect
        try:
            if not dialect.answers_one_by_one:
                await self.ask(AnswerTask(id, dict(responses)))
                return
            for key, response in responses.items():
                answer = AnswerTask(id, {key: response})
                # Sent again, a response that names no question could answer the next one.
                await (self.ask(answer) if dialect.names_question(key) else self.connection.ask(answer))
        except InvalidParams:
            await self.get(id)
            raise

    async def redeem(self, id: str, *, timeout: float | None = None) -> Result:
        """Return the result of a task, in versions with a request for it; raises the error of the task."""
        result = await self.result_or_questions(id, timeout=timeout)
        if not isinstance(result, Result):
            raise BadAnswer(
                f"The client asked for the result of the finished task {id}, and the server asks for input."
            )
        return result

    async def result_or_questions(self, id: str, *, timeout: float | None = None) -> Result | InputRequired:
        """Return the result of a task or, from a server that sends them in its place, its open questions."""
        outcome = await self.ask(RedeemTask(id), timeout=timeout, retried=(Unreachable,))
        result = whole_outcome(outcome, self.max_message) if isinstance(outcome, StreamPart) else outcome
        if isinstance(result, InputRequired):
            self.expect_questions()
        elif not isinstance(result, Result):
            raise BadAnswer(
                f"The client asked for the result of the task {id}, and the server sent a status."
            )
        return result

    async def segments(self, id: str, after: int, sink: Sink) -> TaskStatus | StreamPart | Result:
        """Put the task's segments above the number `after` into a sink; returns the last response.

        Raises the error of the request: the caller decides whether to ask again.
        """
        request = self.connection.dialect.stream_task(id, after)
        async with self._segment_streams:
            last: TaskStatus | StreamPart | Result = await self.connection.ask(
                request, RequestMeta(wants_stream=True), timeout=float("inf"), sink=sink
            )
            return last

    def abandon(self, id: str) -> None:
        """Cancel a task that nobody waits for, in the background."""
        self.connection.spawn(self._abandon(id))

    async def _abandon(self, id: str) -> None:
        with contextlib.suppress(AntiphonError, TimeoutError):
            async with asyncio.timeout(_ABANDON_TIMEOUT_SECONDS):
                await self.connection.ask(CancelTask(id))

    async def ask(
        self,
        request: Request,
        *,
        timeout: float | None = None,
        retried: tuple[type[AntiphonError], ...] = (Unreachable, TimedOut, InternalError),
    ) -> Any:
        """Send a request, and retry it for a while if the connection is lost or the server is overloaded."""
        backoff = reconnecting(self._reconnect_timeout)
        while True:
            try:
                return await self.connection.ask(request, timeout=timeout)
            except retried as error:
                # A pipe that is closed stays closed.
                if isinstance(error, Unreachable) and not self.connection.channel.has_streams:
                    raise
                # It may ask the same again, so a person answers first what it asked on the lost stream.
                if isinstance(request, RedeemTask) and await self.connection.finish_answers():
                    backoff.reset()
                await backoff.wait(error)
