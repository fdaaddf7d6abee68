"""Copies a store's file while processes use it. Does not migrate the file and knows only its counts.

The copy has the state of one moment. Writers go on meanwhile, but their write-ahead log cannot start again
before the copy is done.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from antiphon.errors import StoreUnavailable
from antiphon.store.private_files import create_private_file
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.migrations import check_application

__all__ = ["Backup", "back_up", "check"]

STEP_PAGES = 4096
"""Pages copied in one step, 16 megabytes. Ctrl-C takes effect between two steps."""

_COUNT_TASKS = "SELECT sum(tasks) FROM counts"


class Backup(NamedTuple):
    """A finished backup."""

    tasks: int
    """The number of tasks in the backup."""
    bytes: int
    """The size of the backup."""


def back_up(database: Database, target: Path) -> Backup:
    """Copy the file to `target`, which must not exist yet, and check the copy.

    Raises `FileExistsError`, `OSError`, `sqlite3.Error`, and `StoreUnavailable` for a file of another program
    or a damaged copy. The target appears only once the copy is complete.
    """
    _check_is_new(target)
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        _copy(database, partial)
        tasks = check(partial)
        _flush_to_disk(partial)
        _check_is_new(target)
        partial.rename(target)
        if os.name == "posix":  # elsewhere, a directory cannot be opened
            _flush_to_disk(target.parent)
        return Backup(tasks, target.stat().st_size)
    finally:
        partial.unlink(missing_ok=True)


def _check_is_new(target: Path) -> None:
    if target.exists():
        raise FileExistsError(f"The file {target} exists: choose another name for the backup.")


def _copy(database: Database, target: Path) -> None:
    source = database.connect("read")
    create_private_file(target)
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        # The whole copy reads from one transaction. Otherwise it would start again with every commit.
        source.execute("BEGIN")
        check_application(database, source)
        source.backup(copy, pages=STEP_PAGES)
    finally:
        copy.close()
        source.close()


def check(path: Path) -> int:
    """Check the copy, turn it into a single file without a log, and return the number of tasks."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreUnavailable(
                f"The backup is damaged, and probably the store too: {found}. Check the store with "
                "`sqlite3 FILE 'PRAGMA integrity_check'`, and keep your earlier backups."
            )
        return int(connection.execute(_COUNT_TASKS).fetchone()[0] or 0)
    finally:
        connection.close()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
