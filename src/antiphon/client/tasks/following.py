"""Follows the status of a task: by notifications if the server sends them, and by polling.

Owns the stream of notifications for one task. If the server refuses the stream, or the stream keeps breaking,
the client polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from antiphon.client.tasks.requests import Inbox, TaskRequests
from antiphon.errors import AntiphonError
from antiphon.model.request import Listen, RequestMeta, SubscriptionFilter
from antiphon.model.task_status import TaskStatus

__all__ = ["STABLE_STREAM_SECONDS", "follow", "poll_delay"]

_SHORTEST_POLL_SECONDS, _DEFAULT_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.02, 1.0, 60.0
_EAGER_POLLS = 10
"""After how many polls that bring nothing new the client doubles a short interval."""
_TRUSTED_POLL_SECONDS = 15.0
"""How often the client polls a task whose stream is open, in case a notification was lost."""
_MAX_BREAKS = 5
"""How often in a row a stream may break early before the client polls instead."""
STABLE_STREAM_SECONDS = 5.0
"""How long a stream has to stay open to count as stable."""


def poll_delay(status: TaskStatus, polls: int = 0) -> float:
    """Return the seconds until the next poll: the server's interval, within bounds.

    A short interval grows with the number of `polls` that brought nothing new.
    """
    interval = _DEFAULT_POLL_SECONDS if status.poll_interval is None else status.poll_interval
    patient = min(_SHORTEST_POLL_SECONDS * 2.0 ** (min(polls, 100) // _EAGER_POLLS), _DEFAULT_POLL_SECONDS)
    return min(max(interval, patient), _LONGEST_POLL_SECONDS)


async def follow(
    tasks: TaskRequests, id: str, known: TaskStatus | None, inbox: Inbox
) -> AsyncGenerator[TaskStatus, None]:
    """Yield the status of a task now and after each change, until the task has ended. Close it when you stop.

    Raises `TaskLost`, and the error that the inbox was failed with.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    stream = _StatusStream(tasks, id, inbox)
    with tasks.delivering(id, inbox):
        try:
            # A status that came with the call has details only if the task is working.
            is_fresh = known is not None and known.status == "working"
            status = known if is_fresh and known is not None else await tasks.get(id)
            shown = None
            polls = 0
            while True:
                polls += 1
                if status.visible_state != shown:
                    shown = status.visible_state
                    polls = 0
                    yield status
                if status.has_ended:
                    return
                stream.keep_open()
                news = await inbox.next(
                    _wait(status, polls, loop.time() - began, is_trusted=stream.is_trusted)
                )
                if news is not None and _is_outdated(news, status):
                    continue
                status = news if news is not None and _is_complete(news, tasks) else await tasks.get(id)
                stream.caught_up()
        finally:
            await stream.close()


def _wait(status: TaskStatus, polls: int, followed: float, *, is_trusted: bool) -> float:
    """Return the seconds to wait for a notification. A server need not announce that a task has expired."""
    delay = poll_delay(status, polls)
    if not is_trusted:
        return delay
    left = float("inf") if status.ttl is None else status.ttl - followed
    return max(delay, min(_TRUSTED_POLL_SECONDS, left))


def _is_outdated(news: TaskStatus, seen: TaskStatus) -> bool:
    """Return whether a notification is older than the status that the client has."""
    if news.has_ended or news.updated_at is None or seen.updated_at is None:
        return False
    return news.updated_at < seen.updated_at


def _is_complete(status: TaskStatus, tasks: TaskRequests) -> bool:
    """Return whether a notification has all details; some servers only announce that there is a change."""
    if status.status == "completed":
        return status.result is not None or not tasks.status_has_result
    if status.status == "input_required":
        return bool(status.questions) or not tasks.answers_by_key
    return True


class _StatusStream:
    """The stream of notifications for one task, in versions where a client can subscribe to tasks."""

    def __init__(self, tasks: TaskRequests, id: str, inbox: Inbox) -> None:
        self._tasks = tasks
        self._id = id
        self._inbox = inbox
        self._reading: asyncio.Task[None] | None = None
        self._is_wanted = tasks.connection.dialect.listens_with_filter and tasks.status_streams is not None
        self._is_accepted = False
        self._has_caught_up = False
        self._breaks = 0

    @property
    def is_trusted(self) -> bool:
        """Whether the stream has brought every change since the last poll."""
        return self._is_accepted and self._has_caught_up

    def keep_open(self) -> None:
        """Open the stream, again if it broke."""
        streams = self._tasks.status_streams
        if not self._is_wanted or streams is None or streams.locked():
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())

    def caught_up(self) -> None:
        """Record that the client knows all changes up to now."""
        self._has_caught_up = self._is_accepted

    async def close(self) -> None:
        """Close the stream."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read(self) -> None:
        assert self._tasks.status_streams is not None
        loop = asyncio.get_running_loop()
        async with self._tasks.status_streams:
            opened = loop.time()
            try:
                await self._read_once()
            finally:
                is_stable = self._is_accepted and loop.time() - opened > STABLE_STREAM_SECONDS
                self._breaks = 0 if is_stable else self._breaks + 1
                self._is_wanted = self._is_accepted and self._breaks < _MAX_BREAKS
                self._is_accepted = self._has_caught_up = False
        self._inbox.wake()

    async def _read_once(self) -> None:
        connection = self._tasks.connection
        dialect = connection.dialect
        message = connection.write(Listen(SubscriptionFilter(task_ids=(self._id,))), RequestMeta())
        assert message.id is not None
        self._tasks.acknowledging[message.id] = self._acknowledged
        try:
            await connection.channel.request(message)
        except asyncio.CancelledError:
            connection.abandon(dialect, message)
            raise
        except AntiphonError:
            return
        finally:
            del self._tasks.acknowledging[message.id]

    def _acknowledged(self, accepted: SubscriptionFilter) -> None:
        self._is_accepted = self._id in accepted.task_ids
        if not self._is_accepted and self._reading is not None:
            self._is_wanted = False
            self._reading.cancel()
