"""Connects to one SQLite file and explains its errors. Knows no table."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from antiphon.backoff import Backoff
from antiphon.errors import StoreUnavailable
from antiphon.store.sqlite.file_check import FileCheck

__all__ = ["Database"]

_MAX_LOG_BYTES = 32 * 1024 * 1024
"""The size that the write-ahead log keeps: twice what it has when it is copied back as usual."""

_MIN_SQLITE_VERSION = (3, 37, 0)
"""The first version with STRICT tables. RETURNING and UPDATE FROM are older."""

_FIRST_RETRY_SECONDS = 0.0002
"""The first pause while another process writes: a commit takes a fraction of a millisecond or more."""
_LONGEST_RETRY_SECONDS = 0.005
"""The longest pause, so that a process that waited long does not miss its turn among many."""
_RETRY_FACTOR = 1.5
_RETRY_JITTER = 0.5
"""The share of random variation, so that waiting processes do not try at the same moment."""
_MAX_COUNTED_SECONDS = 0.1
"""What one attempt and its pause count at most. They only take longer if the whole machine stands still."""

_ADVICE = (
    ("SQLITE_FULL", "Free some space on the disk, or raise the store's max_bytes; then try again."),
    ("SQLITE_READONLY", "Make the file and its directory writable for this user."),
    ("SQLITE_CANTOPEN", "Check that the directory exists and that this user may write to it."),
    ("SQLITE_PERM", "Make the file and its directory writable for this user."),
    ("SQLITE_BUSY", "Another process held the write lock for too long: find that process, then try again."),
    ("SQLITE_LOCKED", "Another process held the write lock for too long: find that process, then try again."),
    (
        "SQLITE_CORRUPT",
        "The file is damaged: restore it from a backup, or recover its data with `sqlite3 FILE .recover`.",
    ),
    (
        "SQLITE_NOTADB",
        "The file is not an SQLite database or is damaged: choose another file, or restore a backup.",
    ),
    ("SQLITE_IOERR", "The disk failed or is full: check the system log, then try again."),
)


@dataclass(slots=True)
class Database:
    """One file, and how to connect to it."""

    path: str
    busy_timeout: float
    """Seconds to wait while another process writes."""
    max_bytes: int | None = None
    """The largest size of the file; `None` for no limit."""
    file: FileCheck = field(init=False)
    """Notices that the file was deleted or replaced."""

    def __post_init__(self) -> None:
        self.file = FileCheck(self.path)

    def connect(self, role: Literal["write", "read"]) -> sqlite3.Connection:
        """Return a new connection, which one thread at a time may use.

        Raises `sqlite3.Error`, and `StoreUnavailable` if the file was deleted or replaced.
        """
        self.file.verify(at_once=True)  # otherwise SQLite would create a new file
        connection = sqlite3.connect(
            self.path,
            timeout=self.busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            self._configure(connection, role)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection, role: Literal["write", "read"]) -> None:
        if role == "read":
            connection.execute("PRAGMA query_only = ON")
            # Room for the inner pages of a file with a million tasks, so that a lookup costs two reads.
            connection.execute("PRAGMA cache_size = -8192")
            return
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16384")
        # A larger write-ahead log is copied back less often, and then merges more changes of the same pages.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # After a large transaction or a long read, the log is cut to this size when it starts again.
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
        # `begin` waits for the write lock, with shorter and fairer pauses than SQLite's own.
        connection.execute("PRAGMA busy_timeout = 0")
        if self.max_bytes is not None:
            size = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {max(self.max_bytes // size, 1)}")

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a write transaction once no other process writes; raises `sqlite3.Error` after a timeout."""
        self.retry_while_busy(lambda: connection.execute("BEGIN IMMEDIATE"))

    def use_wal(self, connection: sqlite3.Connection) -> None:
        """Turn on the write-ahead log; raises `StoreUnavailable` if the file cannot have one."""
        modes: list[str] = []
        self.retry_while_busy(
            lambda: modes.append(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        )
        if modes[-1] != "wal":
            raise StoreUnavailable(
                f"The store {self.path} cannot use a write-ahead log: its file system is not local, "
                "or its path does not name a file. Put it on a local disk."
            )

    def retry_while_busy(self, action: Callable[[], object]) -> None:
        """Repeat an action that needs the write lock until no other process holds it.

        Raises `sqlite3.Error` after `busy_timeout` seconds. Time in which this process or the machine stood
        still does not count, because the process with the lock could not continue either.
        """
        backoff = Backoff(
            _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS, factor=_RETRY_FACTOR, jitter=_RETRY_JITTER
        )
        waited, before = 0.0, time.monotonic()
        while True:
            try:
                action()
            except sqlite3.OperationalError as error:
                is_busy = _error_name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
                if not is_busy or waited > self.busy_timeout:
                    raise
            else:
                return
            time.sleep(backoff.next_delay())
            now = time.monotonic()
            waited, before = waited + min(now - before, _MAX_COUNTED_SECONDS), now

    def explain(self, error: BaseException, doing: str) -> StoreUnavailable:
        """Return an error that says what failed, why, and what to do."""
        name = _error_name(error)
        advice = next((text for prefix, text in _ADVICE if name.startswith(prefix)), "Then try again.")
        text = f"The store {self.path} cannot be {doing}: {error}{f' ({name})' if name else ''}. {advice}"
        damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))
        return StoreUnavailable(text if damaged else f"{text} No acknowledged write is lost.")

    def check(self) -> None:
        """Check the version of SQLite and the directory of the file; raises `StoreUnavailable`."""
        if sqlite3.sqlite_version_info < _MIN_SQLITE_VERSION:
            needed = ".".join(map(str, _MIN_SQLITE_VERSION))
            raise StoreUnavailable(
                f"SQLite {sqlite3.sqlite_version} is too old: install SQLite {needed} or later."
            )
        if not Path(self.path).parent.is_dir():
            raise StoreUnavailable(f"There is no directory for the store {self.path}: make it first.")


def _error_name(error: BaseException) -> str:
    return str(getattr(error, "sqlite_errorname", ""))
