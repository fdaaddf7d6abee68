"""Gives the space of deleted rows back to the file system. Knows no table.

SQLite keeps the pages of deleted rows in the file and uses them for new rows. A new file is created so that
such pages can be removed a few at a time, which `release_free_pages` does while other processes write. A file
of an earlier version has to be rewritten once, which `compact` does.
"""

from __future__ import annotations

import sqlite3

from antiphon.store.sqlite.database import Database

__all__ = ["FREE_PAGES", "allow_release", "compact", "is_worth_releasing", "release_free_pages"]

FREE_PAGES = """
    SELECT freelist_count, page_count, max_page_count, auto_vacuum
    FROM pragma_freelist_count, pragma_page_count, pragma_max_page_count, pragma_auto_vacuum
"""
"""The free pages, all pages, the largest number of pages, and how a file releases free pages."""

_RELEASE_ON_REQUEST = "PRAGMA auto_vacuum = INCREMENTAL"
_INCREMENTAL = 2
"""The value of `auto_vacuum` for a file that releases free pages on request."""
_MIN_FREE_PAGES = 1024
"""Free pages that a file may keep for new rows, four megabytes."""
_MIN_FREE_SHARE = 0.25
"""The share of a file's pages that may be free."""
_PORTION_PAGES = 512
"""Pages released in one transaction, so that other writers do not wait long for their turn."""
MAX_PORTIONS = 16
"""Transactions in one call. A large file becomes small over several calls."""


def allow_release(connection: sqlite3.Connection) -> None:
    """Prepare an empty file for releasing pages. Leaves other files alone."""
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        connection.execute(_RELEASE_ON_REQUEST)


def is_worth_releasing(free: int, pages: int, mode: int) -> bool:
    """Return whether a file has so many free pages that some should be released."""
    return mode == _INCREMENTAL and free > _MIN_FREE_PAGES and free > pages * _MIN_FREE_SHARE


def release_free_pages(database: Database) -> None:
    """Release some free pages if there are many.

    Raises `sqlite3.Error`, and `StoreUnavailable` if the file was deleted or replaced.
    """
    connection = database.connect("write")
    try:
        for _ in range(MAX_PORTIONS):
            free, pages, _, mode = connection.execute(FREE_PAGES).fetchone()
            if not is_worth_releasing(free, pages, mode):
                break
            # A page is released with each step of this statement, and only `executescript` runs all steps.
            database.retry_while_busy(
                lambda: connection.executescript(f"PRAGMA incremental_vacuum({_PORTION_PAGES})")
            )
        # The file itself becomes smaller when the write-ahead log is copied into it.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    finally:
        connection.close()


def compact(database: Database) -> None:
    """Rewrite the file without free pages; raises `sqlite3.Error`.

    Other processes can read meanwhile, but not write.
    """
    connection = database.connect("write")
    try:
        database.retry_while_busy(lambda: connection.execute(_RELEASE_ON_REQUEST))
        database.retry_while_busy(lambda: connection.execute("VACUUM"))
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    finally:
        connection.close()
