"""Connects to one PostgreSQL database and explains its errors. Knows no table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import asyncpg

from antiphon.errors import StoreUnavailable
from antiphon.store.urls import hide_password

__all__ = ["CONNECTION_LOST", "Database"]

_DEFAULT_SCHEMA = "antiphon"
_EXTRA_TIMEOUT_SECONDS = 2.0
"""How much longer than PostgreSQL we wait for a statement. PostgreSQL must give up first: it might complete
a statement long after we gave up."""
MIN_POSTGRES_VERSION = 14
"""The first version that has everything `write.sql` uses."""

_POOLER_CHECKS = 3
"""How often a pooler is checked: the traffic of other clients may hide that it shares a connection."""

# Sent after connecting, because poolers such as PgBouncer refuse them in the request for a connection.
_SETTINGS = {
    "application_name": "antiphon",
    # Each statement is planned for the current size of the tables, and never with a sequential scan: no
    # operation may get slower as the number of tasks grows.
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "off",
    "jit": "off",
    # Notices a machine that disappeared without closing its connections.
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

CONNECTION_LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
)
"""The errors of a connection that is lost or cannot be made."""

_POOLER_ADVICE = (
    "Antiphon needs connections that it does not share: use the address of PostgreSQL itself, "
    "or set pool_mode = session in the pooler."
)
_ADVICE = (
    (asyncpg.InvalidPasswordError, "Check the user and the password in the URL."),
    (asyncpg.InvalidAuthorizationSpecificationError, "Check the user and the password in the URL."),
    (asyncpg.InvalidCatalogNameError, "Create the database first: createdb."),
    (asyncpg.InsufficientPrivilegeError, "Allow this user to create and use the schema."),
    (
        asyncpg.TooManyConnectionsError,
        "Raise PostgreSQL's max_connections: each process of Antiphon needs five.",
    ),
    (
        asyncpg.LockNotAvailableError,
        "Another transaction, such as the one of pg_dump, uses the tables: try again when it has ended.",
    ),
    # Only a pooler in transaction mode loses what a session has prepared and set.
    (asyncpg.InvalidSQLStatementNameError, _POOLER_ADVICE),
    (asyncpg.DuplicatePreparedStatementError, _POOLER_ADVICE),
    (asyncpg.DiskFullError, "Free some space on PostgreSQL's disk; then try again."),
    (asyncpg.ReadOnlySQLTransactionError, "This PostgreSQL is read-only: name the primary in the URL."),
)


@dataclass(frozen=True, slots=True)
class Database:
    """One database, and how to connect to it."""

    dsn: str = field(repr=False)
    schema: str
    display_url: str
    """The URL without its password, for messages."""
    timeout: float
    """Seconds that a connection attempt or a statement may take."""

    @classmethod
    def from_url(cls, url: str, timeout: float) -> Database:
        """Parse a URL; raises `ValueError` for an invalid schema name."""
        base, _, query = url.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        schema = dict(pairs).get("schema", _DEFAULT_SCHEMA)
        if not (schema.isascii() and schema.replace("_", "a").isalnum() and schema == schema.lower()):
            raise ValueError(
                f"Invalid schema name {schema!r}: use lowercase letters, digits and underscores."
            )
        options = urlencode([pair for pair in pairs if pair[0] != "schema"], safe="/")
        return cls(f"{base}?{options}" if options else base, schema, hide_password(url), timeout)

    async def connect(self) -> asyncpg.Connection:
        """Return a new connection; raises `StoreUnavailable`."""
        connection = await self._connect()
        try:
            version = connection.get_server_version().major
            if version < MIN_POSTGRES_VERSION:
                raise StoreUnavailable(
                    f"PostgreSQL {version} at {self.display_url} is too old: "
                    f"install PostgreSQL {MIN_POSTGRES_VERSION} or later."
                )
            settings = {
                **_SETTINGS,
                "search_path": self.schema,
                "statement_timeout": str(int(self.timeout * 1000)),
            }
            await connection.execute(";".join(f"SET {name} TO '{to}'" for name, to in settings.items()))
        except BaseException as error:
            connection.terminate()
            if isinstance(error, (asyncpg.PostgresError, *CONNECTION_LOST)):
                raise self.explain(error, "reached") from error
            raise
        return connection

    async def check_pooler(self) -> None:
        """Raise `StoreUnavailable` if a pooler gives one connection of PostgreSQL to several clients.

        Changes no setting, because the pooler would pass it on to the other clients.
        """
        first = await self._connect(statement_cache_size=0)
        try:
            if await _backend_pid(first) == first.get_server_pid():
                return  # no pooler: PostgreSQL itself has announced this process
            second = await self._connect(statement_cache_size=0)
            try:
                for _ in range(_POOLER_CHECKS):
                    if await _backend_pid(first) == await _backend_pid(second):
                        raise StoreUnavailable(
                            f"The store {self.display_url} cannot be opened: its address is that of a pooler "
                            f"in transaction mode, such as PgBouncer. {_POOLER_ADVICE}"
                        )
            finally:
                second.terminate()
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            raise self.explain(error, "reached") from error
        finally:
            first.terminate()

    async def _connect(self, **options: Any) -> asyncpg.Connection:
        """Return a new connection without settings; raises `StoreUnavailable`."""
        try:
            return await asyncpg.connect(
                self.dsn,
                timeout=self.timeout,
                command_timeout=self.timeout + _EXTRA_TIMEOUT_SECONDS,
                **options,
            )
        except ValueError as error:  # asyncpg cannot parse the URL, and may quote a part of the password
            reason = str(error) if self.display_url == self.dsn.partition("?")[0] else "its URL is malformed"
            raise StoreUnavailable(
                f"The store {self.display_url} cannot be reached: {reason}. Correct the URL. Special "
                "characters of a user or a password have to be percent-encoded."
            ) from None
        except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
            raise self.explain(error, "reached") from error

    def explain(self, error: BaseException, doing: str) -> StoreUnavailable:
        """Return an error that says what failed, why, and what to do."""
        advice = next((text for kind, text in _ADVICE if isinstance(error, kind)), "")
        if not advice:
            is_lost = isinstance(error, CONNECTION_LOST)
            advice = "PostgreSQL may be starting or stopped: try again." if is_lost else "Then try again."
        reason = str(error).rstrip(".") or type(error).__name__
        return StoreUnavailable(
            f"The store {self.display_url} cannot be {doing}: {reason}. {advice} "
            "No acknowledged write is lost."
        )


async def _backend_pid(connection: asyncpg.Connection) -> int:
    """Return the process of PostgreSQL that serves a connection now."""
    async with connection.transaction():
        return int(await connection.fetchval("SELECT pg_backend_pid()"))
