"""Migrates a file to the schema of this version, so that processes of an earlier version can still use it.

The scripts `schema/1.sql` to `schema/n.sql`, run in order, create schema `n`. A released script never
changes, and scripts only add; what a script replaces, such as an index, earlier versions can do without.
`PRAGMA user_version` holds the oldest schema that a process must support to use the file, because every
version refuses a file whose `user_version` it does not support. The table `schema_versions` holds the
schemas that the file has; files up to schema 2 have no such table, and their `user_version` is their schema.
This module does not know what is in the scripts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from antiphon.errors import StoreUnavailable
from antiphon.store.private_files import create_private_file, warn_if_public
from antiphon.store.schema_scripts import read_scripts
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.free_space import allow_release

__all__ = ["OLDEST", "check_application", "migrate", "prepare", "schema_version", "scripts"]

OLDEST = 2
"""The oldest schema whose processes can use a file of this version. Raise it for a script that does more
than add, and then a process of an earlier version refuses the file."""

_APPLICATION_ID = 0x416E7470
"""The number in the header of every file of ours: the letters `Antp`."""

_CREATE_VERSIONS_TABLE = """
    CREATE TABLE IF NOT EXISTS schema_versions (
        version INTEGER PRIMARY KEY, oldest INTEGER NOT NULL
    ) STRICT
"""


def scripts() -> list[str]:
    """Return the scripts of all schemas, in order."""
    return read_scripts(Path(__file__).parent / "schema")


def prepare(database: Database) -> None:
    """Create or migrate the file; raises `StoreUnavailable` or `sqlite3.Error`."""
    steps = scripts()
    database.file.forget()
    create_private_file(database.path)  # its log files get the same permissions from SQLite
    connection = database.connect("write")
    try:
        database.retry_while_busy(lambda: allow_release(connection))
        database.retry_while_busy(lambda: schema_version(database, connection, len(steps)))
        database.use_wal(connection)
        migrate(database, connection, steps)
        database.file.remember()
        warn_if_public(database.path)
    finally:
        connection.close()


def migrate(
    database: Database, connection: sqlite3.Connection, steps: Sequence[str], *, oldest: int = OLDEST
) -> None:
    """Run the missing scripts, all or none; raises `StoreUnavailable` for a file of another program.

    Takes the write lock even if no script is missing, so that a file that cannot be written is noticed now
    and not with the first task.
    """
    database.begin(connection)
    try:
        version = schema_version(database, connection, len(steps))
        if version < len(steps):
            _run_scripts(connection, steps, version, oldest)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def schema_version(database: Database, connection: sqlite3.Connection, known: int) -> int:
    """Return the schema of a file, 0 for an empty file.

    Raises `StoreUnavailable` for a file of another program, and for a file that needs a newer schema than
    `known`.
    """
    tables = check_application(database, connection)
    oldest = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if oldest > known:
        raise StoreUnavailable(
            f"The store {database.path} needs schema {oldest}, because a newer Antiphon has migrated it, but "
            f"this version supports schemas up to {known}: install a newer Antiphon, or restore the backup "
            "from before the upgrade. The file was not changed."
        )
    if "schema_versions" not in tables:
        return oldest
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM schema_versions").fetchone()[0])


def check_application(database: Database, connection: sqlite3.Connection) -> set[str]:
    """Return the names of the tables; raises `StoreUnavailable` for a file of another program."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if tables and application_id != _APPLICATION_ID:
        raise StoreUnavailable(
            f"The file {database.path} is a database of another program: choose another file."
        )
    return tables


def _run_scripts(connection: sqlite3.Connection, steps: Sequence[str], version: int, oldest: int) -> None:
    connection.execute(_CREATE_VERSIONS_TABLE)
    for number, script in enumerate(steps[version:], version + 1):
        for statement in _statements(script):
            connection.execute(statement)
        connection.execute("INSERT INTO schema_versions VALUES (?, ?)", (number, min(oldest, number)))
    connection.execute(f"PRAGMA user_version = {min(oldest, len(steps))}")
    if version == 0:
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements, because `executescript` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
