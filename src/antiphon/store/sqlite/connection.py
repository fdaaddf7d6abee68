"""Connections to one SQLite file, and what its errors mean in words. Knows no table."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from antiphon.errors import StoreUnavailable

__all__ = ["Database"]

_OLDEST = (3, 37, 0)
"""STRICT tables came with it; RETURNING and UPDATE FROM are older."""

_TURN = 0.1
"""Seconds that one try and the nap after it take at most, unless the whole machine stands still."""

_ADVICE = (
    ("SQLITE_FULL", "Free some space, or allow the store more; then try again."),
    ("SQLITE_READONLY", "Make the file and its directory writable for this user."),
    ("SQLITE_CANTOPEN", "Check that the directory exists and that this user may write to it."),
    ("SQLITE_PERM", "Make the file and its directory writable for this user."),
    ("SQLITE_BUSY", "Another process has held the file for too long: find it, then try again."),
    ("SQLITE_LOCKED", "Another process has held the file for too long: find it, then try again."),
    (
        "SQLITE_CORRUPT",
        "The file is damaged: restore it from a copy, or save what `sqlite3 FILE .recover` finds.",
    ),
    (
        "SQLITE_NOTADB",
        "The file is no SQLite database, or is damaged: name another, or restore it from a copy.",
    ),
    ("SQLITE_IOERR", "The disk failed, or is full: look at the system's log, then try again."),
)


@dataclass(frozen=True, slots=True)
class Database:
    """One file, and how to connect to it."""

    path: str
    busy: float
    """Seconds to wait while another process writes."""
    max_bytes: int | None = None
    """How large the file may get; `None` for as large as the disk."""

    def connect(self, role: Literal["write", "read"]) -> sqlite3.Connection:
        """A new connection, which any one thread at a time may use; raises `sqlite3.Error`."""
        connection = sqlite3.connect(
            self.path,
            timeout=self.busy,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            self._set_up(connection, role)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: sqlite3.Connection, role: Literal["write", "read"]) -> None:
        if role == "read":
            connection.execute("PRAGMA query_only = ON")
            # Room for the inner pages of a file with a million tasks, so that a look costs two reads.
            connection.execute("PRAGMA cache_size = -8192")
            return
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16384")
        # A larger log is copied back more rarely, and then has more changes of the same pages to drop.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # The writer waits for its turn in `begin`, with shorter and fairer naps than SQLite's own.
        connection.execute("PRAGMA busy_timeout = 0")
        if self.max_bytes is not None:
            size = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max(self.max_bytes // size, 1)}")

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin to write, as soon as no other process does; raises `sqlite3.Error` after too long."""
        self.patiently(lambda: connection.execute("BEGIN IMMEDIATE"))

    def use_wal(self, connection: sqlite3.Connection) -> None:
        """Turn the write-ahead log on; raises `StoreUnavailable` where there can be none."""
        modes: list[str] = []
        self.patiently(lambda: modes.append(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]))
        if modes[-1] != "wal":
            raise StoreUnavailable(
                f"The store {self.path} cannot keep a write-ahead log: its file system is not a local one, "
                "or its name is not that of a file. Put it on a local disk."
            )

    def patiently(self, action: Callable[[], object]) -> None:
        """Do what only one process can at a time, again and again while another is at it.

        A machine, or a process, that stood still meanwhile has not waited: nobody else could go on either.
        """
        waited, nap, before = 0.0, 0.0002, time.monotonic()
        while True:
            try:
                action()
            except sqlite3.OperationalError as error:
                if not _name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or waited > self.busy:
                    raise
            else:
                return
            time.sleep(nap * random.uniform(0.5, 1.5))
            nap = min(nap * 1.5, 0.005)
            now = time.monotonic()
            waited, before = waited + min(now - before, _TURN), now

    def explain(self, error: BaseException, doing: str) -> StoreUnavailable:
        """The same in words, with what to do about it."""
        name = _name(error)
        advice = next((text for prefix, text in _ADVICE if name.startswith(prefix)), "Then try again.")
        text = f"The store {self.path} cannot be {doing}: {error}{f' ({name})' if name else ''}. {advice}"
        damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
        return StoreUnavailable(text if damaged else f"{text} Nothing that was acknowledged is lost.")

    def check(self) -> None:
        """Look for what can be known beforehand; raises `StoreUnavailable`."""
        if sqlite3.sqlite_version_info < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old: {oldest} or later is needed."
            )
        if not Path(self.path).parent.is_dir():
            raise StoreUnavailable(f"There is no directory for the store {self.path}: make it first.")


def _name(error: BaseException) -> str:
    return str(getattr(error, "sqlite_errorname", ""))
