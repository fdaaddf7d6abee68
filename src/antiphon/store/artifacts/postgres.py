"""Artifacts in a PostgreSQL database: that of the task store, for instances on many machines.

Owns two tables in the schema of the tasks, made when the store is opened. Each piece is a statement of its
own, so that an artifact of any size holds no lock and needs little memory.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from antiphon.errors import StoreUnavailable
from antiphon.store.artifacts.tables import Tables
from antiphon.store.postgres.link import Database, Link
from antiphon.store.postgres.migrations import prepare

__all__ = ["PostgresArtifacts"]

# Two instances that make a table in the same moment would be in each other's way, hence the lock.
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


class PostgresArtifacts(Tables):
    """A store of artifacts that instances on many machines share."""

    def __init__(self, url: str, *, patience: float = 5.0) -> None:
        self._database = Database.of(url, patience)
        self._link: Link | None = None

    async def open(self) -> None:
        """Connect, and make the tables if they are not there."""
        await prepare(self._database)
        self._link = Link(self._database)
        await self._fetch(_TABLES, doing="opened")

    async def close(self) -> None:
        """Let go of the connection."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _rows(self, statement: str, *values: Any) -> list[Any]:
        return await self._fetch(statement, *values, doing="read", again=True)

    async def _write(self, statement: str, *values: Any) -> None:
        await self._fetch(statement, *values, doing="written")

    async def _delete(self, owners: list[tuple[str, str]]) -> None:
        for owner in owners:  # the chunks go with it
            await self._fetch(
                "DELETE FROM artifact WHERE principal = $1 AND id = $2", *owner, doing="written", again=True
            )

    async def _fetch(self, statement: str, *values: Any, doing: str, again: bool = False) -> list[Any]:
        if self._link is None:
            raise StoreUnavailable(f"The artifacts in {self._database.place} are closed.")
        try:
            return await self._link.fetch(statement, *values, again=again)
        except asyncpg.PostgresError as error:
            raise self._database.explain(error, doing) from error
