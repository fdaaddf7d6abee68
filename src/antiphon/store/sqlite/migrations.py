"""Migrates a file to the schema of this version. `PRAGMA user_version` holds the version of a file's schema.

The scripts `schema/1.sql` to `schema/n.sql`, run in order, create schema `n`. A released script never
changes. This module does not know what is in the scripts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from antiphon.errors import StoreUnavailable
from antiphon.store.schema_scripts import read_scripts
from antiphon.store.sqlite.database import Database

__all__ = ["migrate", "prepare", "scripts"]

_APPLICATION_ID = 0x416E7470
"""The number in the header of every file of ours: the letters `Antp`."""


def scripts() -> list[str]:
    """Return the scripts of all schemas, in order."""
    return read_scripts(Path(__file__).parent / "schema")


def prepare(database: Database) -> None:
    """Create or migrate the file; raises `StoreUnavailable` or `sqlite3.Error`."""
    steps = scripts()
    connection = database.connect("write")
    try:
        database.retry_while_busy(lambda: _schema_version(database, connection, len(steps)))
        database.use_wal(connection)
        migrate(database, connection, steps)
    finally:
        connection.close()


def migrate(database: Database, connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    """Run the missing scripts, all or none; raises `StoreUnavailable` for a file of another program.

    Takes the write lock even if no script is missing, so that a file that cannot be written is noticed now
    and not with the first task.
    """
    database.begin(connection)
    try:
        version = _schema_version(database, connection, len(steps))
        for number, script in enumerate(steps[version:], version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        if version == 0:
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _schema_version(database: Database, connection: sqlite3.Connection, known: int) -> int:
    """Return the version of a file's schema, 0 for an empty file; raises `StoreUnavailable`."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and application_id != _APPLICATION_ID:
        raise StoreUnavailable(
            f"The file {database.path} is a database of another program: choose another file."
        )
    if version > known:
        raise StoreUnavailable(
            f"The store {database.path} has schema {version}, but this version of Antiphon supports schemas "
            f"up to {known}: install a newer Antiphon. The file was not changed."
        )
    return version


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements, because `executescript` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
