"""Maintains a store from outside: makes a backup, and gives free space back.

Finds the function for the kind of store that a URL names, or says what to use instead. Does not open the
store as a server would, so nothing is migrated.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.store.urls import parse_store_url

if TYPE_CHECKING:
    from antiphon.store.sqlite.backup import Backup
    from antiphon.store.sqlite.database import Database

__all__ = ["back_up_store", "compact_store"]

_BUSY_TIMEOUT_SECONDS = 60.0
"""How long to wait for the write lock: longer than a server does, because nobody waits for a response."""


def back_up_store(url: str, target: Path) -> Backup:
    """Copy a store to a file while servers use it.

    Raises `ValueError` for a store that cannot be copied like this or a target that cannot be used, and
    `StoreUnavailable`.
    """
    from antiphon.store.sqlite.backup import back_up

    database = _sqlite_database(
        url,
        memory="Tasks in the memory of a server cannot be backed up. Keep them in a file: sqlite:///tasks.db.",
        postgres="Back up a PostgreSQL store with PostgreSQL's own tools: pg_dump --schema={schema} {url}",
    )
    if not target.absolute().parent.is_dir():
        raise ValueError(f"There is no directory {target.parent}: make it first.")
    try:
        return back_up(database, target)
    except FileExistsError as error:
        raise ValueError(str(error)) from None
    except (sqlite3.Error, OSError) as error:
        raise database.explain(error, f"copied to {target}") from error


def compact_store(url: str) -> tuple[int, int]:
    """Rewrite the file of a store without free space; return its size before and after.

    Raises `ValueError` for a store that has no file, and `StoreUnavailable`.
    """
    from antiphon.store.sqlite.free_space import compact
    from antiphon.store.sqlite.migrations import check_application

    database = _sqlite_database(
        url,
        memory="Tasks in the memory of a server have no file to compact.",
        postgres="PostgreSQL reuses free space by itself. To give it back to the disk, run VACUUM FULL on "
        "the tables of the schema {schema} in {url}",
    )
    before = Path(database.path).stat().st_size
    try:
        connection = database.connect("read")
        try:
            check_application(database, connection)
        finally:
            connection.close()
        compact(database)
    except (sqlite3.Error, OSError) as error:
        raise database.explain(error, "compacted") from error
    return before, Path(database.path).stat().st_size


def _sqlite_database(url: str, *, memory: str, postgres: str) -> Database:
    """Return the database of an SQLite store; raises `ValueError` with one of the texts for other stores."""
    from antiphon.store.sqlite.database import Database

    found = parse_store_url(url)
    if found.scheme == "memory":
        raise ValueError(memory)
    if found.scheme == "postgresql":
        from antiphon.store.postgres.database import Database as PostgresDatabase

        named = PostgresDatabase.from_url(found.location, _BUSY_TIMEOUT_SECONDS)
        raise ValueError(postgres.format(schema=named.schema, url=named.display_url))
    path = Path(found.location).absolute()
    if not path.is_file():
        raise ValueError(f"There is no store at {found.location}.")
    return Database(str(path), _BUSY_TIMEOUT_SECONDS)
