"""Notices that a database file was deleted or replaced while it is open.

The connections of a process go on to use the file that they opened, even without a name. What they write into
it is lost. So the file at the path is compared now and then with the file that was opened. This module opens
no file: closing it again would release the locks that SQLite has on it.
"""

from __future__ import annotations

import os
import time

from antiphon.errors import StoreUnavailable

__all__ = ["FileCheck"]

_CHECK_INTERVAL_SECONDS = 0.25
"""How often the file is looked at. Not for every operation, because a look releases the interpreter lock."""


class FileCheck:
    """Compares the file at a path with the file that was opened. Any thread may use it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None
        self._next_check = 0.0

    def forget(self) -> None:
        """Accept every file, because a new one is about to be opened."""
        self._opened = None

    def remember(self) -> None:
        """Accept only the file that is at the path now."""
        self._opened = self._find()

    def verify(self, *, at_once: bool = False) -> None:
        """Check that the file is still the one that was opened; raises `StoreUnavailable`.

        Looks at the file at most every few hundred milliseconds, or with `at_once` in any case.
        """
        opened, now = self._opened, time.monotonic()
        if opened is None or (now < self._next_check and not at_once):
            return
        found = self._find()
        if found == opened:
            self._next_check = now + _CHECK_INTERVAL_SECONDS
            return
        self._next_check = 0.0  # refuse every operation until the file is back
        if found is None:
            raise StoreUnavailable(
                f"The file of the store {self._path} was deleted or moved away while it was in use, and "
                "writes would be lost. Restore it from a backup and restart this process. Without a backup, "
                "the process starts with an empty store."
            )
        raise StoreUnavailable(
            f"The file of the store {self._path} was replaced by another file while it was in use, and "
            "writes would be lost. Restart this process to use the new file."
        )

    def _find(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino
