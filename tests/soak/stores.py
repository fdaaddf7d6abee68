"""The stores under test, and what befalls them: locks, kills, restarts, read-only times."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg

from tests.support.postgres import Postgres

__all__ = ["PostgresStore", "SqliteStore", "Store"]


class SqliteStore:
    """A file."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tasks.db"
        self.url = f"sqlite:///{self.path}"

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Lock the whole store from outside: for its clients it is as if it were gone."""
        with closing(
            sqlite3.connect(self.path, timeout=5, isolation_level=None, check_same_thread=False)
        ) as db:
            with contextlib.suppress(sqlite3.OperationalError):  # too busy: then there is no outage
                await asyncio.to_thread(db.execute, "BEGIN EXCLUSIVE")
            yield


class PostgresStore:
    """A schema of a server, which nobody else uses meanwhile."""

    kind = "postgres"

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._schema = f"soak{secrets.token_hex(4)}"
        self.url = server.url(self._schema)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Lock the whole store from outside: for its clients it is as if it were gone."""
        connection = await asyncpg.connect(self._server.dsn)
        try:
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE {self._schema}.tasks IN ACCESS EXCLUSIVE MODE")
                yield
        finally:
            await connection.close()

    @asynccontextmanager
    async def killed(self) -> AsyncIterator[None]:
        """Kill all processes of the server, and start it again."""
        await asyncio.to_thread(self._server.kill)
        try:
            yield
        finally:
            await asyncio.to_thread(self._server.start)

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Stop the server at once, and start it again."""
        await asyncio.to_thread(self._server.stop)
        try:
            yield
        finally:
            await asyncio.to_thread(self._server.start)

    @asynccontextmanager
    async def read_only(self) -> AsyncIterator[None]:
        """Let the server refuse all writes, as a standby does."""
        await self._set("ALTER SYSTEM SET default_transaction_read_only = on")
        try:
            yield
        finally:
            await self._set("ALTER SYSTEM RESET default_transaction_read_only")

    async def _set(self, statement: str) -> None:
        settings = {"default_transaction_read_only": "off"}
        connection = await asyncpg.connect(self._server.dsn, server_settings=settings)
        try:
            await connection.execute(statement)
            await connection.execute("SELECT pg_reload_conf()")
        finally:
            await connection.close()


Store = SqliteStore | PostgresStore
