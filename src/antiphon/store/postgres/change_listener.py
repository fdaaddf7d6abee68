"""Notices the commits of other processes: through notifications, and by polling in case one is lost.

Owns a connection that listens. A lost notification or connection delays a change by one poll: the poll
looks at every watched task, and every task counts as changed after the connection was replaced. Messages
are rows of a table, and a notification carries their numbers; the poll also finds messages that no
notification named.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import asyncpg
import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.database import CONNECTION_LOST, Database
from antiphon.store.postgres.statements import escape_text, sql, task_digest, unescape_text
from antiphon.store.watchers import Watchers

__all__ = ["ChangeListener"]

logger = logging.getLogger("antiphon")

_ORIGIN_CHARACTERS = 16
"""The length of the writer's name at the start of a notification."""
_SPARE_DIGESTS = 1000
"""Digests of tasks that are no longer watched, kept so that the table is not rebuilt for every watch."""


class ChangeListener:
    """Notifies the watchers of this process. Polls every `interval` seconds."""

    def __init__(self, database: Database, origin: str, watchers: Watchers, interval: float) -> None:
        self._database = database
        self._origin = origin
        self._watchers = watchers
        self._interval = interval
        self.connection = ReconnectingConnection(database)
        self._listening: asyncpg.Connection | None = None
        self.id_by_digest: dict[str, str] = {}
        self._task_states: dict[str, str] = {}
        self._settled_message = 0
        self._settled_transaction = 0
        self._latest_transaction = 0
        self._delivered: set[int] = set()
        self._announced: list[int] = []
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def statements(self) -> int:
        """The number of statements that were sent."""
        return self.connection.statements

    async def start(self) -> None:
        """Start to listen; raises `StoreUnavailable`."""
        try:
            await self._listen()
        except BaseException as error:
            await self.connection.close()
            if isinstance(error, asyncpg.PostgresError):
                raise self._database.explain(error, "reached") from error
            raise
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop listening. Call this only after `start`."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        await self.connection.close()

    def add_task(self, id: str) -> None:
        """Recognize the notifications of a task that a caller is about to watch."""
        if len(self.id_by_digest) > 2 * len(self._watchers.watched_tasks) + _SPARE_DIGESTS:
            watched = self._watchers.watched_tasks
            self.id_by_digest = {task_digest(escape_text(task)): task for task in watched}
        self.id_by_digest[task_digest(escape_text(id))] = id

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_poll = loop.time() + self._interval
        while True:
            try:
                async with asyncio.timeout_at(next_poll):
                    await self._wakeup.wait()
            except TimeoutError:
                next_poll = loop.time() + self._interval
            self._wakeup.clear()
            try:
                if await self._listen():
                    self._watchers.notify_all()
                if self._announced:
                    await self._fetch_announced()
                else:
                    await self.poll()
            except StoreUnavailable as error:
                logger.debug("Cannot look for changes of other processes; retrying: %s", error)
            except asyncpg.PostgresError as error:
                logger.warning("Cannot look for changes of other processes; retrying: %s", error)

    async def _listen(self) -> bool:
        """Listen on the current connection; return true if the connection is new."""
        connection = await self.connection.connect()
        if connection is self._listening:
            return False
        try:
            await connection.add_listener(self._database.schema, self._on_notification)
        except CONNECTION_LOST as error:
            raise self._database.explain(error, "reached") from error
        if self._listening is None:
            rows = await self.connection.fetch(sql("last_message"), retry=True)
            self._settled_message = rows[0][0]
        self._listening = connection
        self._task_states = {}
        self._settled_transaction = 0
        return True

    def _on_notification(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        """Read a notification: the writer's origin, a flag, and the numbers or digests it names.

        The flag is `m` for messages, `1` if a task became claimable, and `0` otherwise.
        """
        text = str(payload)
        if text.startswith(self._origin):
            return
        flag = text[_ORIGIN_CHARACTERS : _ORIGIN_CHARACTERS + 1]
        names = text[_ORIGIN_CHARACTERS + 1 :].split(",")
        if flag == "m":
            self._announced += map(int, names)
            self._wakeup.set()
            return
        ids = [id for digest in names if (id := self.id_by_digest.get(digest)) is not None]
        self._watchers.notify(ids, flag == "1")
        if names != [""]:
            self._watchers.notify_of_any()

    async def _fetch_announced(self) -> None:
        """Fetch and deliver the messages that notifications named."""
        numbers = [number for number in self._announced if number not in self._delivered]
        self._announced = []
        topics = [escape_text(topic) for topic in self._watchers.subscribed_topics]
        rows = await self.connection.fetch(sql("get_messages"), numbers, topics, retry=True)
        self._deliver(rows)
        self._delivered.update(numbers)

    async def poll(self) -> None:
        """Look for messages and for changes of the watched tasks that no notification named."""
        topics = [escape_text(topic) for topic in self._watchers.subscribed_topics]
        rows = await self.connection.fetch(
            sql("poll_messages"), self._settled_message, self._origin, topics, retry=True
        )
        self._deliver(row for row in rows if row["number"] not in self._delivered)
        # A message with a smaller number may be committed after one with a larger number, but not much later.
        settled = [row["number"] for row in rows if row["settled"]]
        self._settled_message = max([self._settled_message, *settled])
        self._delivered = {row["number"] for row in rows if row["number"] > self._settled_message}
        if self._watchers.is_in_use:
            await self._poll_tasks()

    async def _poll_tasks(self) -> None:
        watched = [escape_text(id) for id in self._watchers.watched_tasks]
        values = watched, self._settled_transaction
        row = (await self.connection.fetch(sql("poll_tasks"), *values, retry=True))[0]
        self._settled_transaction = row["settled"]
        if row["latest"] != self._latest_transaction:
            self._latest_transaction = row["latest"]
            self._watchers.notify_of_any()
        states: dict[str, str] = {}
        for state in row["places"]:
            id, version, updated = state.rsplit(" ", 2)
            states[id] = f"{version} {updated}"
        before, self._task_states = self._task_states, {id: states.get(id, "") for id in watched}
        changed = [unescape_text(id) for id in watched if id in before and before[id] != states.get(id, "")]
        self._watchers.notify(changed, row["ready"])

    def _deliver(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if row["data"] is not None:
                self._watchers.deliver(unescape_text(row["topic"]), msgspec.json.decode(row["data"]))
