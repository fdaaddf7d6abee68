"""Brings a file to the schema of this version. `PRAGMA user_version` says which schema a file has.

Schema `n` is what `schema/1.sql` to `schema/n.sql` make, one after another. A file once released is
never changed. This module knows the files' names, not what is in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from antiphon.errors import StoreUnavailable
from antiphon.store.sqlite.connection import Database

__all__ = ["migrate", "prepare", "scripts"]

_MARK = 0x416E7470
"""Says, in the file's header, that it is a store of ours: the letters `Antp`."""


def scripts() -> list[str]:
    """The scripts of all schemas, the first first."""
    folder = Path(__file__).parent / "schema"
    paths = sorted(folder.glob("*.sql"), key=lambda path: int(path.stem))
    return [path.read_text(encoding="utf-8") for path in paths]


def prepare(database: Database) -> None:
    """Make the file ready for use; raises `StoreUnavailable` or `sqlite3.Error`."""
    steps = scripts()
    connection = database.connect("write")
    try:
        database.patiently(lambda: _version(database, connection, len(steps)))
        database.use_wal(connection)
        migrate(database, connection, steps)
    finally:
        connection.close()


def migrate(database: Database, connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    """Run the scripts that a file lacks, all or none; raises `StoreUnavailable` for a file that is not ours.

    Takes the writer's place even if there is nothing to do, so that a file that cannot be written is
    found now and not at the first task.
    """
    database.begin(connection)
    try:
        version = _version(database, connection, len(steps))
        for number, script in enumerate(steps[version:], version + 1):
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        if version == 0:
            connection.execute(f"PRAGMA application_id = {_MARK}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(database: Database, connection: sqlite3.Connection, known: int) -> int:
    """Which schema a file has: 0 for an empty one."""
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and mark != _MARK:
        raise StoreUnavailable(
            f"The file {database.path} is a database of another program: name another file."
        )
    if version > known:
        raise StoreUnavailable(
            f"The store {database.path} has schema {version}, and this Antiphon knows {known} at most: "
            "install a newer Antiphon. Nothing was changed."
        )
    return version


def _statements(script: str) -> Iterator[str]:
    """A script's statements. `executescript` would commit before it begins."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
