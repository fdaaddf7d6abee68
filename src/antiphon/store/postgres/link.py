"""Connections to one PostgreSQL database, and what its errors mean in words. Knows no table.

A link is one connection, made when it is first needed and made anew when it is lost. No transaction of
ours spans two messages, so a process that stands still holds no lock.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import asyncpg

from antiphon.errors import StoreUnavailable

__all__ = ["LOST", "Database", "Link"]

_SCHEMA = "antiphon"
_PAUSE = 0.25
"""Seconds after a failed attempt to connect in which the next one fails at once."""
_GRACE = 2.0
"""Seconds more that we wait for an answer than PostgreSQL may take for it."""
_OLDEST = 14
"""What `write.sql` needs is there since then."""

_SETTINGS = {
    "application_name": "antiphon",
    # Plans are made for the tables as they are, not for what they were when a statement was first used,
    # and never read a table from one end to the other: an operation must not get dearer with the tasks.
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "off",
    "jit": "off",
    # A machine that is gone without a goodbye is noticed.
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
)
"""What is raised when a connection is lost, or there is none to be had."""

_ADVICE = (
    (asyncpg.InvalidPasswordError, "Check the user and the password in the URL."),
    (asyncpg.InvalidAuthorizationSpecificationError, "Check the user and the password in the URL."),
    (asyncpg.InvalidCatalogNameError, "Make the database first: createdb."),
    (asyncpg.InsufficientPrivilegeError, "Let this user create and use the schema."),
    (asyncpg.TooManyConnectionsError, "Allow PostgreSQL more connections: four for each process of ours."),
    (asyncpg.DiskFullError, "Free some space on PostgreSQL's disk; then try again."),
    (asyncpg.ReadOnlySQLTransactionError, "This PostgreSQL takes no writes: name the primary in the URL."),
)


@dataclass(frozen=True, slots=True)
class Database:
    """One database, and how to connect to it."""

    dsn: str
    schema: str
    place: str
    """The URL without its password, to be shown."""
    patience: float
    """Seconds that a connection or a statement may take."""

    @classmethod
    def of(cls, url: str, patience: float) -> Database:
        """What a URL names; raises `ValueError` for one that is none."""
        base, _, query = url.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        schema = dict(pairs).get("schema", _SCHEMA)
        if not (schema.isascii() and schema.replace("_", "a").isalnum() and schema == schema.lower()):
            raise ValueError(f"{schema!r} is no name for a schema: use letters, digits and underscores.")
        rest = urlencode([pair for pair in pairs if pair[0] != "schema"], safe="/")
        shown = re.sub(r"(?<=//)([^/@]*?):[^/@]*@", r"\1@", base)
        return cls(f"{base}?{rest}" if rest else base, schema, shown, patience)

    async def connect(self) -> asyncpg.Connection:
        """A new connection; raises `StoreUnavailable`."""
        try:
            connection = await asyncpg.connect(
                self.dsn,
                timeout=self.patience,
                # PostgreSQL gives up before we do: what we gave up it might still do, much later.
                command_timeout=self.patience + _GRACE,
                server_settings={
                    **_SETTINGS,
                    "search_path": self.schema,
                    "statement_timeout": str(int(self.patience * 1000)),
                },
            )
        except ValueError as error:  # asyncpg does not understand the URL
            raise StoreUnavailable(f"The store {self.place} cannot be reached: {error}.") from error
        except (asyncpg.PostgresError, *LOST) as error:
            raise self.explain(error, "reached") from error
        if connection.get_server_version().major < _OLDEST:
            await connection.close()
            raise StoreUnavailable(f"PostgreSQL is too old: {_OLDEST} or later is needed.")
        return connection

    def explain(self, error: BaseException, doing: str) -> StoreUnavailable:
        """The same in words, with what to do about it."""
        advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
        if not advice:
            away = isinstance(error, LOST)
            advice = "It may be starting or away: try again." if away else "Then try again."
        said = str(error).rstrip(".") or type(error).__name__
        return StoreUnavailable(
            f"The store {self.place} cannot be {doing}: {said}. {advice} "
            "Nothing that was acknowledged is lost."
        )


class Link:
    """One connection, for one statement at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()
        self._failed = float("-inf")
        self._why = ""
        self.statements = 0
        """How many statements were sent."""

    async def fetch(self, statement: str, *values: Any, again: bool = False) -> list[Any]:
        """The rows of a statement; raises `StoreUnavailable`.

        With `again`, what may safely be done twice, it is tried again on a new connection if the old one
        turns out to be lost.
        """
        async with self._lock:
            while True:
                connection = await self.connection()
                try:
                    self.statements += 1
                    return list(await connection.fetch(statement, *values))
                except LOST as error:
                    self._drop(connection)
                    if not again:
                        raise self._database.explain(error, "reached") from error
                    again = False
                except asyncio.CancelledError:
                    self._drop(connection)
                    raise

    async def connection(self) -> asyncpg.Connection:
        """The connection, made if there is none; fails at once where that has just failed."""
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        if time.monotonic() < self._failed + _PAUSE:
            raise StoreUnavailable(self._why)
        try:
            self._connection = await self._database.connect()
        except StoreUnavailable as error:
            self._failed, self._why = time.monotonic(), str(error)
            raise
        return self._connection

    async def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=1.0)
            except (asyncpg.PostgresError, *LOST):
                connection.terminate()

    def _drop(self, connection: asyncpg.Connection) -> None:
        self._connection = None
        connection.terminate()
