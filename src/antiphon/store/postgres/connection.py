"""A connection to PostgreSQL that is made when first needed and replaced when lost. Knows no table.

No transaction of ours spans two statements, so a process that stands still holds no lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncpg

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres.database import CONNECTION_LOST, Database

__all__ = ["ReconnectingConnection", "WriteContext"]

_RECONNECT_PAUSE_SECONDS = 0.25
"""How long after a failed connection attempt further ones fail at once, so that a queue of operations does
not try one after another."""
_CLOSE_TIMEOUT_SECONDS = 1.0


class ReconnectingConnection:
    """One connection, which runs one statement at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()
        self._failed_at = float("-inf")
        self._failure = ""
        self.statements = 0
        """The number of statements that were sent."""

    async def fetch(self, statement: str, *values: Any, retry: bool = False) -> list[Any]:
        """Run a statement and return its rows; raises `StoreUnavailable`.

        With `retry`, a statement whose connection is lost runs once more on a new connection. Pass it only
        for statements that may safely run twice. A statement that was not sent always runs once more.
        """
        async with self._lock:
            is_first = True
            while True:
                connection = await self.connect()
                try:
                    self.statements += 1
                    return list(await connection.fetch(statement, *values))
                except CONNECTION_LOST as error:
                    self._drop(connection)
                    if not is_first or not (retry or _was_not_sent(error)):
                        raise self._database.explain(error, "reached") from error
                    is_first = False
                except asyncio.CancelledError:
                    self._drop(connection)
                    raise

    async def connect(self) -> asyncpg.Connection:
        """Return the connection, made anew if there is none; raises `StoreUnavailable`."""
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        if time.monotonic() < self._failed_at + _RECONNECT_PAUSE_SECONDS:
            raise StoreUnavailable(self._failure)
        try:
            self._connection = await self._database.connect()
        except StoreUnavailable as error:
            self._failed_at, self._failure = time.monotonic(), str(error)
            raise
        return self._connection

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=_CLOSE_TIMEOUT_SECONDS)
            except (asyncpg.PostgresError, *CONNECTION_LOST):
                connection.terminate()

    def _drop(self, connection: asyncpg.Connection) -> None:
        self._connection = None
        connection.terminate()


def _was_not_sent(error: BaseException) -> bool:
    """Return whether asyncpg refused a statement because it is still reading the end of the connection."""
    return isinstance(error, asyncpg.InternalClientError) and "cannot switch to state" in str(error)


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The connection that writes, and the values that its statements have in common."""

    connection: ReconnectingConnection
    clock: Callable[[], int | None]
    """Returns the time of the tests' clock, or `None` for the clock of the database."""
    schema: str
    """The schema of the tables, which is also the channel of the notifications."""
    origin: str
    """The name of this writer in notifications."""
    slot: Callable[[], int]
    """Returns the slot for the next change of the counts."""
