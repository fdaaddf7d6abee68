"""Reads every row of a store once, in the state of one moment, for a check of the store.

Servers may use the store meanwhile. Nothing is written or migrated. Only the log of one task is in memory at
a time. Damaged rows are read as they are; this module does not know what they mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from antiphon.store import rules
from antiphon.store.urls import parse_store_url, require_asyncpg

__all__ = ["Scan", "ScannedEntry", "ScannedTask", "ScannedWaits", "open_scan", "scanned_waits", "with_logs"]

_BUSY_TIMEOUT_SECONDS = 60.0
"""How long to wait for a busy store: longer than a server does, because nobody waits for a response."""


class ScannedEntry(NamedTuple):
    """An entry as it is stored."""

    task: int
    """The key of the task."""
    number: int
    kind: str
    at: int
    format: int
    data: str
    """JSON text, which may be damaged."""


class ScannedWaits(NamedTuple):
    """The columns of a task that concern its waits."""

    server: str
    wakes: int | None
    tags: tuple[str, ...] | None
    """`None` if they cannot be read."""
    are_indexed: bool
    """Whether the index of tags has the tags of the task, and no others."""


class ScannedTask(msgspec.Struct):
    """A task as it is stored."""

    key: int
    id: str
    tool: str
    phase: str
    version: int
    created: int
    lease: int
    format: int
    head: str
    """JSON text, which may be damaged."""
    waits: ScannedWaits | None = None
    """`None` for a store of an earlier schema."""
    log: list[ScannedEntry] = []


def scanned_waits(
    server: str, wakes: int | None, tags: str | None, indexed: str | None, key: Callable[[str], str]
) -> ScannedWaits:
    """Return the waits in a row. `indexed` is a JSON list of the keys that the index has for the task.

    `key` returns the key of a tag in the index.
    """
    try:
        found, keys = rules.decode_tags(tags), rules.decode_tags(indexed)
    except msgspec.MsgspecError:
        return ScannedWaits(server, wakes, None, are_indexed=False)
    return ScannedWaits(server, wakes, found, {*map(key, found)} == {*keys})


class Scan(Protocol):
    """An open scan of a store."""

    orphans: int
    """How many entries belong to no task. Known after all tasks were read."""

    async def counts(self) -> Mapping[str, int]:
        """Return the number of tasks in each phase, as the store counted them."""

    async def damages(self) -> list[str]:
        """Return what the database itself finds damaged."""

    def tasks(self) -> AsyncIterator[ScannedTask]:
        """Yield every task with its log."""


def open_scan(url: str) -> AbstractAsyncContextManager[Scan]:
    """Return a scan of the store that a URL names; raises `ValueError` for a store that cannot be scanned.

    Entering it, and its methods, raise `StoreUnavailable`.
    """
    found = parse_store_url(url)
    if found.scheme == "memory":
        raise ValueError("Tasks in the memory of a server cannot be checked: only that server sees them.")
    if found.scheme == "sqlite":
        from antiphon.store.sqlite.scan import SQLiteScan

        path = Path(found.location).absolute()
        if not path.is_file():
            raise ValueError(f"There is no store at {found.location}.")
        return SQLiteScan(str(path), _BUSY_TIMEOUT_SECONDS)
    require_asyncpg()
    from antiphon.store.postgres.scan import PostgresScan

    return PostgresScan(found.location, _BUSY_TIMEOUT_SECONDS)


async def with_logs(
    scan: Scan, tasks: AsyncIterator[ScannedTask], entries: AsyncIterator[ScannedEntry]
) -> AsyncIterator[ScannedTask]:
    """Yield tasks with their logs. Both iterators are in the order of the tasks' keys."""
    entry = await anext(entries, None)
    async for task in tasks:
        while entry is not None and entry.task < task.key:
            scan.orphans += 1
            entry = await anext(entries, None)
        log: list[ScannedEntry] = []
        while entry is not None and entry.task == task.key:
            log.append(entry)
            entry = await anext(entries, None)
        task.log = log
        yield task
    while entry is not None:
        scan.orphans += 1
        entry = await anext(entries, None)
