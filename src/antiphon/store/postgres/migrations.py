"""Migrates a database to the schema of this version, while processes of the version before are running.

The scripts `schema/1.sql` to `schema/n.sql`, run in order, create schema `n`. A released script never
changes, and scripts only add; what a script replaces, such as an index, earlier versions can do without.
`oldest` is the oldest version whose processes can use the schema. This module does not know what is in the
scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import asyncpg

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres.database import CONNECTION_LOST, Database
from antiphon.store.schema_scripts import read_scripts

__all__ = ["OLDEST", "prepare", "scripts"]

OLDEST = 1
"""The oldest version of the schema whose processes can use the schema of this version."""
_MIGRATION_LOCK = 0x416E7470
"""The advisory lock of a process that migrates: the letters `Antp`."""

_MIGRATION_TIMEOUT_SECONDS = 3600.0
"""How long a migration, or the wait for another process that migrates, may take: tables may be large."""

TABLE_LOCK_SECONDS = 5
"""How long a migration may wait for a table that others use. All other processes wait behind it meanwhile."""

CREATE_VERSIONS_TABLE = """
    CREATE TABLE IF NOT EXISTS schema_versions (
        version integer PRIMARY KEY, oldest integer NOT NULL, at timestamptz NOT NULL DEFAULT now()
    )
"""
_CURRENT_VERSION = """
    SELECT coalesce(max(version), 0) AS version, coalesce(max(oldest), 0) AS oldest FROM schema_versions
"""


def scripts() -> list[str]:
    """Return the scripts of all schemas, in order."""
    return read_scripts(Path(__file__).parent / "schema")


async def prepare(database: Database, steps: Sequence[str] | None = None, *, oldest: int = OLDEST) -> None:
    """Create or migrate the schema; raises `StoreUnavailable`."""
    steps = scripts() if steps is None else steps
    await database.check_pooler()
    connection = await database.connect()
    try:
        if await _schema_version(database, connection, len(steps)) < len(steps):
            async with connection.transaction():
                await connection.execute("SET LOCAL statement_timeout = 0")
                await connection.execute(
                    "SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK, timeout=_MIGRATION_TIMEOUT_SECONDS
                )
                await connection.execute(f"SET LOCAL lock_timeout = '{TABLE_LOCK_SECONDS}s'")
                await _migrate(database, connection, steps, oldest)
    except (asyncpg.PostgresError, *CONNECTION_LOST) as error:
        raise database.explain(error, "opened") from error
    finally:
        await connection.close()


async def _migrate(
    database: Database, connection: asyncpg.Connection, steps: Sequence[str], oldest: int
) -> None:
    """Run the missing scripts, all or none."""
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database.schema}")
    version = await _schema_version(database, connection, len(steps))
    foreign = await connection.fetchval("SELECT to_regclass($1)", f"{database.schema}.tasks")
    if version == 0 and foreign is not None:
        raise StoreUnavailable(
            f"The schema {database.schema!r} of {database.display_url} belongs to another program: "
            "name another schema in the URL, with ?schema=."
        )
    await connection.execute(CREATE_VERSIONS_TABLE)
    for number, script in enumerate(steps[version:], version + 1):
        await connection.execute(script, timeout=_MIGRATION_TIMEOUT_SECONDS)
        await connection.execute(
            "INSERT INTO schema_versions (version, oldest) VALUES ($1, $2)", number, min(oldest, number)
        )


async def _schema_version(database: Database, connection: asyncpg.Connection, known: int) -> int:
    """Return the version of the schema, 0 for none; raises `StoreUnavailable` for one that is too new."""
    exists = await connection.fetchval("SELECT to_regclass($1)", f"{database.schema}.schema_versions")
    if exists is None:
        return 0
    row = await connection.fetchrow(_CURRENT_VERSION)
    if row["oldest"] > known:
        raise StoreUnavailable(
            f"The store {database.display_url} has schema {row['version']}, but this version of Antiphon "
            f"supports schemas up to {known}: install a newer Antiphon. The schema was not changed."
        )
    return int(row["version"])
