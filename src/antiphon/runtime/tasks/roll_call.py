"""Finds out which workers there are: asks all of them through the store, and collects their reports.

A worker reports only when somebody asks, so workers write nothing while nobody looks. Reports are messages
and may be lost: a worker that no longer reports stays known for a while, with the time of its last report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.runtime.relay import ROLL_CALLS, WORKER_REPORTS, Relay
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.store.contract import Store

__all__ = ["RollCall", "SeenWorker", "WorkerReport"]

_REMEMBERED_MILLISECONDS = 3_600_000
"""How long a worker that no longer reports stays known."""
_MAX_WORKERS = 1000
"""How many workers are known at most: the messages of a store must not fill the memory."""


class WorkerReport(msgspec.Struct, frozen=True):
    """The description that a worker gives of itself."""

    name: str
    server: str
    host: str
    pid: int
    version: str
    """The version of Antiphon."""
    tools: tuple[str, ...]
    """The tools whose tasks the worker runs."""
    running: int
    """How many tasks the worker runs."""
    max_running: int
    """How many tasks the worker runs at most."""
    claims: bool
    """Whether the worker claims tasks. Otherwise it only runs calls of its own process that became tasks."""
    started: int
    """When the worker was started, in milliseconds since 1970."""


class SeenWorker(msgspec.Struct, frozen=True):
    """A worker, and the time of its last report."""

    report: WorkerReport
    seen: int
    """When the report came, in milliseconds since 1970, by the clock of this process."""


class RollCall:
    """The workers on a store, of all servers. Open it before use, and close it before the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._relay = Relay("")
        self._relay.subscribe(WORKER_REPORTS, self._note)
        self._seen: dict[str, SeenWorker] = {}

    async def open(self) -> None:
        """Start to collect reports."""
        await self._relay.open(self._store)

    async def close(self) -> None:
        """Stop collecting reports."""
        await self._relay.close()

    async def refresh(self, *, timeout: float = 0.5) -> None:
        """Ask all workers to report, and wait `timeout` seconds for their reports."""
        await self._relay.publish(ROLL_CALLS, None)
        await asyncio.sleep(timeout)

    @property
    def workers(self) -> Sequence[SeenWorker]:
        """The workers that have reported within the last hour, by server and name."""
        self._forget(now_ms() - _REMEMBERED_MILLISECONDS)
        return sorted(self._seen.values(), key=lambda seen: (seen.report.server, seen.report.name))

    def _note(self, data: Any) -> None:
        try:
            report = msgspec.convert(data, WorkerReport)
        except msgspec.ValidationError:  # a later version reports something else
            return
        if len(self._seen) < _MAX_WORKERS or report.name in self._seen:
            self._seen[report.name] = SeenWorker(report, now_ms())

    def _forget(self, before: int) -> None:
        for name in [name for name, seen in self._seen.items() if seen.seen < before]:
            del self._seen[name]
