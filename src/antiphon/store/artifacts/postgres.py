"""Artifacts in a PostgreSQL database: the database of the task store, for processes on many machines.

Owns two tables in the schema of the tasks, created when the store is opened. Each chunk is its own statement,
so that an artifact of any size holds no lock and needs little memory.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from antiphon.errors import StoreUnavailable
from antiphon.store.artifacts.database import DatabaseArtifacts
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.migrations import prepare

__all__ = ["PostgresArtifacts"]

# PostgreSQL can fail if two processes create the same table at the same time, so they take a lock.
_TABLES = """
DO $$ BEGIN
    PERFORM pg_advisory_xact_lock(1097757811);
    CREATE TABLE IF NOT EXISTS artifact (
        principal text NOT NULL,
        id text NOT NULL,
        created bigint NOT NULL,
        expires bigint NOT NULL,
        size bigint,
        record bytea NOT NULL,
        PRIMARY KEY (principal, id)
    );
    CREATE INDEX IF NOT EXISTS artifact_of ON artifact (principal, created, id);
    CREATE INDEX IF NOT EXISTS artifact_expires ON artifact (expires);
    CREATE TABLE IF NOT EXISTS artifact_chunk (
        principal text NOT NULL,
        id text NOT NULL,
        number integer NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (principal, id, number),
        FOREIGN KEY (principal, id) REFERENCES artifact ON DELETE CASCADE
    );
END $$
"""


class PostgresArtifacts(DatabaseArtifacts):
    """An artifact store that processes on many machines may share."""

    def __init__(self, url: str, *, timeout: float = 5.0) -> None:
        self._database = Database.from_url(url, timeout)
        self._connection: ReconnectingConnection | None = None

    async def open(self) -> None:
        """Connect, and create the tables if they do not exist."""
        await prepare(self._database)
        self._connection = ReconnectingConnection(self._database)
        await self._fetch(_TABLES, doing="opened")

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _rows(self, statement: str, *values: Any) -> list[Any]:
        return await self._fetch(statement, *values, doing="read", retry=True)

    async def _write(self, statement: str, *values: Any) -> None:
        await self._fetch(statement, *values, doing="written")

    async def _delete(self, owners: list[tuple[str, str]]) -> None:
        for owner in owners:  # the foreign key deletes the chunks
            await self._fetch(
                "DELETE FROM artifact WHERE principal = $1 AND id = $2", *owner, doing="written", retry=True
            )

    async def _fetch(self, statement: str, *values: Any, doing: str, retry: bool = False) -> list[Any]:
        if self._connection is None:
            raise StoreUnavailable(
                f"The artifact store {self._database.display_url} is not open: call open() first."
            )
        try:
            return await self._connection.fetch(statement, *values, retry=retry)
        except asyncpg.PostgresError as error:
            raise self._database.explain(error, doing) from error
