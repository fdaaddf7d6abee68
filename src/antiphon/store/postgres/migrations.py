"""Brings a database to the schema of this version, while instances of the version before are at work.

Schema `n` is what `schema/1.sql` to `schema/n.sql` make, one after another. A file once released is never
changed, and only adds. `oldest` says from which version on instances can work with what is there; this
module knows the files' names, not what is in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import asyncpg

from antiphon.errors import StoreUnavailable
from antiphon.store.postgres.link import LOST, Database

__all__ = ["OLDEST", "prepare", "scripts"]

OLDEST = 1
"""The oldest version whose instances can work with the schema of this one."""
_LOCK = 0x416E7470
"""Says that somebody is migrating: the letters `Antp`."""

_LONGEST = 3600.0
"""Seconds that a migration may take, or the wait for another process that is at it."""

_VERSIONS = """
    CREATE TABLE IF NOT EXISTS schema_versions (
        version integer PRIMARY KEY, oldest integer NOT NULL, at timestamptz NOT NULL DEFAULT now()
    )
"""
_NEWEST = """
    SELECT coalesce(max(version), 0) AS version, coalesce(max(oldest), 0) AS oldest FROM schema_versions
"""


def scripts() -> list[str]:
    """The scripts of all schemas, the first first."""
    folder = Path(__file__).parent / "schema"
    paths = sorted(folder.glob("*.sql"), key=lambda path: int(path.stem))
    return [path.read_text(encoding="utf-8") for path in paths]


async def prepare(database: Database, steps: Sequence[str] | None = None, *, oldest: int = OLDEST) -> None:
    """Make the database ready for use; raises `StoreUnavailable`."""
    steps = scripts() if steps is None else steps
    connection = await database.connect()
    try:
        if await _version(database, connection, len(steps)) < len(steps):
            async with connection.transaction():
                await connection.execute("SET LOCAL statement_timeout = 0")
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=_LONGEST)
                await _migrate(database, connection, steps, oldest)
    except (asyncpg.PostgresError, *LOST) as error:
        raise database.explain(error, "opened") from error
    finally:
        await connection.close()


async def _migrate(
    database: Database, connection: asyncpg.Connection, steps: Sequence[str], oldest: int
) -> None:
    """Run the scripts that are lacking, all or none."""
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database.schema}")
    version = await _version(database, connection, len(steps))
    taken = await connection.fetchval("SELECT to_regclass($1)", f"{database.schema}.tasks")
    if version == 0 and taken is not None:
        raise StoreUnavailable(
            f"The schema {database.schema!r} of {database.place} is another program's: "
            "name another in the URL, with ?schema=."
        )
    await connection.execute(_VERSIONS)
    for number, script in enumerate(steps[version:], version + 1):
        await connection.execute(script, timeout=_LONGEST)
        await connection.execute(
            "INSERT INTO schema_versions (version, oldest) VALUES ($1, $2)", number, min(oldest, number)
        )


async def _version(database: Database, connection: asyncpg.Connection, known: int) -> int:
    """Which schema there is: 0 for none."""
    exists = await connection.fetchval("SELECT to_regclass($1)", f"{database.schema}.schema_versions")
    if exists is None:
        return 0
    row = await connection.fetchrow(_NEWEST)
    if row["oldest"] > known:
        raise StoreUnavailable(
            f"The store {database.place} has schema {row['version']}, and this Antiphon knows {known} "
            "at most: install a newer Antiphon. Nothing was changed."
        )
    return int(row["version"])
