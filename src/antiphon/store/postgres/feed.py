"""Notices what other processes have committed: by notices, and by looking once a second behind them.

Owns a connection that listens. A notice that was lost, or a connection, costs a second: whatever is
watched is looked at that often, and all of it counts as changed after the connection was replaced.
Messages are in a table, and a notice only says which: those that it did not mention are found as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import asyncpg
import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres.link import LOST, Database, Link
from antiphon.store.postgres.statements import keep, kept, mark_of, sql
from antiphon.store.watchers import Watchers

__all__ = ["Feed"]

logger = logging.getLogger("antiphon")

_ORIGIN = 16
"""Letters of a notice that say who wrote."""
_SPARE = 1000


class Feed:
    """Tells the watchers of this process what others did. Looks every `interval` seconds."""

    def __init__(self, database: Database, origin: str, hub: Watchers, interval: float) -> None:
        self._database = database
        self._origin = origin
        self._hub = hub
        self._interval = interval
        self._link = Link(database)
        self._listening: asyncpg.Connection | None = None
        self._ids: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._floor = 0
        self._seen: set[int] = set()
        self._mentioned: list[int] = []
        self._mention = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def statements(self) -> int:
        """How many statements were sent."""
        return self._link.statements

    async def start(self) -> None:
        """Begin to listen; raises `StoreUnavailable`."""
        try:
            await self._listen()
        except BaseException as error:
            await self._link.close()
            if isinstance(error, asyncpg.PostgresError):
                raise self._database.explain(error, "reached") from error
            raise
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop, after it was started."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._link.close()

    def know(self, id: str) -> None:
        """Somebody is going to watch a task."""
        if len(self._ids) > 2 * len(self._hub.watched) + _SPARE:
            self._ids = {mark_of(keep(watched)): watched for watched in self._hub.watched}
        self._ids[mark_of(keep(id))] = id

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._interval
        while True:
            try:
                async with asyncio.timeout_at(due):
                    await self._mention.wait()
            except TimeoutError:
                due = loop.time() + self._interval
            self._mention.clear()
            try:
                if await self._listen():
                    self._hub.wake_all()
                if self._mentioned:
                    await self._fetch()
                else:
                    await self._look()
            except StoreUnavailable as error:
                logger.debug("Changes are noticed later: %s", error)
            except asyncpg.PostgresError as error:
                logger.warning("Changes are noticed later: %s", error)

    async def _listen(self) -> bool:
        """Listen, if that is not so already; true if there is a new connection."""
        connection = await self._link.connection()
        if connection is self._listening:
            return False
        try:
            await connection.add_listener(self._database.schema, self._heard)
        except LOST as error:
            raise self._database.explain(error, "reached") from error
        if self._listening is None:
            rows = await self._link.fetch(sql("newest"), again=True)
            self._floor = rows[0][0]
        self._listening = connection
        self._places = {}
        return True

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        text = str(payload)
        if text.startswith(self._origin):
            return
        flag, names = text[_ORIGIN : _ORIGIN + 1], text[_ORIGIN + 1 :].split(",")
        if flag == "m":
            self._mentioned += map(int, names)
            self._mention.set()
            return
        ids = [id for mark in names if (id := self._ids.get(mark)) is not None]
        self._hub.wake(ids, flag == "1")

    async def _fetch(self) -> None:
        """Get the messages that were mentioned."""
        numbers, self._mentioned = [nr for nr in self._mentioned if nr not in self._seen], []
        topics = [keep(topic) for topic in self._hub.topics]
        rows = await self._link.fetch(sql("messages"), numbers, topics, again=True)
        self._tell(rows)
        self._seen.update(numbers)

    async def _look(self) -> None:
        """See for ourselves what has become of the tasks that are watched, and what was said."""
        topics = [keep(topic) for topic in self._hub.topics]
        rows = await self._link.fetch(sql("missed"), self._floor, self._origin, topics, again=True)
        self._tell(row for row in rows if row["number"] not in self._seen)
        # A smaller number may be committed later than a larger one, but not much later.
        self._floor = max([self._floor, *(row["number"] for row in rows if row["settled"])])
        self._seen = {row["number"] for row in rows if row["number"] > self._floor}
        if not self._hub.is_watched:
            return
        watched = [keep(id) for id in self._hub.watched]
        row = (await self._link.fetch(sql("glance"), watched, again=True))[0]
        places: dict[str, str] = {}
        for place in row["places"]:
            id, version, updated = place.rsplit(" ", 2)
            places[id] = f"{version} {updated}"
        before, self._places = self._places, {id: places.get(id, "") for id in watched}
        changed = [kept(id) for id in watched if id in before and before[id] != places.get(id, "")]
        self._hub.wake(changed, row["ready"])

    def _tell(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if row["data"] is not None:
                self._hub.tell(kept(row["topic"]), msgspec.json.decode(row["data"]))
