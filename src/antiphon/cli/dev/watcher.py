"""Notices changed Python files, by their times and sizes. Needs no service of the operating system."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["FileWatcher"]

POLL_SECONDS = 0.3
SETTLE_SECONDS = 0.1
"""How long files must stay the same after a change: an editor may write several of them."""
MAX_FILES = 5000
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv", "env"}


class FileWatcher:
    """Watches the Python files below a folder, and some files elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._others: frozenset[str] = frozenset()
        self._known = self._scan()

    def include(self, files: Iterable[str]) -> None:
        """Watch these files too, wherever they are."""
        new = frozenset(files) - self._others
        if new:
            self._others |= new
            self._known.update(_stats(new))

    async def changed(self) -> list[str]:
        """Wait for a change, and return the files that were changed, added or removed."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            found = await asyncio.to_thread(self._scan)
            if found == self._known:
                continue
            while True:  # until the editor has written everything
                await asyncio.sleep(SETTLE_SECONDS)
                again = await asyncio.to_thread(self._scan)
                if again == found:
                    break
                found = again
            before, self._known = self._known, found
            return sorted(
                name for name in before.keys() | found.keys() if before.get(name) != found.get(name)
            )

    def _scan(self) -> dict[str, tuple[int, int]]:
        return {**_stats(self._python_files()), **_stats(self._others)}

    def _python_files(self) -> list[str]:
        found: list[str] = []
        for place, folders, files in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED and name[0] != ".")
            found += (os.path.join(place, name) for name in files if name.endswith(".py"))
            if len(found) >= MAX_FILES:
                break
        return found[:MAX_FILES]


def _stats(files: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    found = {}
    for name in files:
        try:
            status = os.stat(name)
        except OSError:
            continue
        found[name] = (status.st_mtime_ns, status.st_size)
    return found
