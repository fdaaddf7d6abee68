"""How a task goes, step by step: told by the server where it does that, looked up where it does not.

Owns the stream of one follower. A stream that is refused, or does not stay open, is done without.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from antiphon.client.tasks.requests import Inbox, TaskRequests
from antiphon.errors import AntiphonError
from antiphon.model.request import Listen, RequestMeta, SubscriptionFilter
from antiphon.model.task_status import TaskStatus

__all__ = ["follow", "pause"]

_SHORTEST, _USUAL, _LONGEST = 0.02, 1.0, 60.0
_GLANCE = 15.0
"""How long to trust a silent stream before looking without having been told."""
_BREAKS = 5
_STAYS = 5.0
"""Seconds after which a stream counts as one that stays open."""


def pause(status: TaskStatus) -> float:
    """How long to wait before looking again: as the server wishes, within reason."""
    wish = _USUAL if status.poll_interval is None else status.poll_interval
    return min(max(wish, _SHORTEST), _LONGEST)


async def follow(
    tasks: TaskRequests, id: str, known: TaskStatus | None, inbox: Inbox
) -> AsyncGenerator[TaskStatus, None]:
    """A task as it stands, and then each time it has changed, until it has ended. Close it when you stop.

    Raises `TaskLost`, and what the inbox was told to fail with.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    stream = _Stream(tasks, id, inbox)
    with tasks.delivering(id, inbox):
        try:
            # What came with the promise lacks the details of every status but this one.
            fresh = known is not None and known.status == "working"
            status = known if fresh and known is not None else await tasks.get(id)
            shown = None
            while True:
                if status.visible_state != shown:
                    shown = status.visible_state
                    yield status
                if status.has_ended:
                    return
                stream.keep_open()
                told = await inbox.next(_wait(status, loop.time() - began, trusted=stream.is_trusted))
                if told is not None and _is_old(told, status):
                    continue
                status = told if told is not None and _is_whole(told, tasks) else await tasks.get(id)
                stream.caught_up()
        finally:
            await stream.close()


def _wait(status: TaskStatus, followed: float, *, trusted: bool) -> float:
    """How long to wait for news; a stream need not tell of a task whose time is over."""
    wait = pause(status)
    if not trusted:
        return wait
    left = float("inf") if status.ttl is None else status.ttl - followed
    return max(wait, min(_GLANCE, left))


def _is_old(told: TaskStatus, seen: TaskStatus) -> bool:
    """Whether what was told is how the task stood before it was looked at."""
    if told.has_ended or told.updated_at is None or seen.updated_at is None:
        return False
    return told.updated_at < seen.updated_at


def _is_whole(status: TaskStatus, tasks: TaskRequests) -> bool:
    """Whether what was told has all that the version tells; some servers only tell that there is news."""
    if not tasks.take_answers:
        return True
    lacks = {"completed": status.result is None, "input_required": not status.questions}
    return not lacks.get(status.status, False)


class _Stream:
    """Brings news of one task, on versions where a caller can ask for that."""

    def __init__(self, tasks: TaskRequests, id: str, inbox: Inbox) -> None:
        self._tasks = tasks
        self._id = id
        self._inbox = inbox
        self._reading: asyncio.Task[None] | None = None
        self._wanted = tasks.connection.dialect.listens_with_filter and tasks.streams is not None
        self._accepted = False
        self._caught_up = False
        self._breaks = 0

    @property
    def is_trusted(self) -> bool:
        """Whether nothing can have happened that it has not told."""
        return self._accepted and self._caught_up

    def keep_open(self) -> None:
        """Open it, again if it broke."""
        streams = self._tasks.streams
        if not self._wanted or streams is None or streams.locked():
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())

    def caught_up(self) -> None:
        """What happened before now is known."""
        self._caught_up = self._accepted

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def _read(self) -> None:
        assert self._tasks.streams is not None
        loop = asyncio.get_running_loop()
        async with self._tasks.streams:
            opened = loop.time()
            try:
                await self._read_once()
            finally:
                stayed = self._accepted and loop.time() - opened > _STAYS
                self._breaks = 0 if stayed else self._breaks + 1
                self._wanted = self._accepted and self._breaks < _BREAKS
                self._accepted = self._caught_up = False
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

    def _acknowledged(self, interests: SubscriptionFilter) -> None:
        self._accepted = self._id in interests.task_ids
        if not self._accepted and self._reading is not None:
            self._wanted = False
            self._reading.cancel()
