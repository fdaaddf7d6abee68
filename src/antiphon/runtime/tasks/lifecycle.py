"""The life of a server's tasks machinery: the store, the worker and the desk, opened and closed together."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection

from antiphon.errors import StoreError
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.metrics import render
from antiphon.runtime.observability.telemetry import Telemetry
from antiphon.runtime.relay import STOPPED, Relay
from antiphon.runtime.tasks.handlers import TaskHandlers
from antiphon.runtime.tasks.service import TaskService
from antiphon.runtime.tasks.worker import Worker
from antiphon.store import open_store
from antiphon.store.contract import Store

__all__ = ["TaskLifecycle"]

logger = logging.getLogger("antiphon")

_PATIENCE = 2.0
"""Seconds in which a store answers that is well."""


class TaskLifecycle:
    """What a server needs to give promises, and to keep them."""

    def __init__(
        self,
        store: str | Store | None,
        limits: Limits,
        find: Callable[[str], Tool],
        stage: Callable[[], Environment],
        *,
        relay: Relay,
        needed: bool = False,
    ) -> None:
        self._needed = needed
        self._relay = relay
        relay.on(STOPPED, self._stop_one)
        self.wanted = store if store is not None else os.environ.get("ANTIPHON_STORE") or None
        """Where tasks are to be kept; to be changed before the start, if at all."""
        self.limits = limits
        """Its bounds; to be changed before the start, if at all."""
        self._find = find
        self._stage = stage
        self._store: Store | None = None
        self._worker: Worker | None = None
        self.tools: Collection[str] | None = None
        """The tools whose tasks are run here; `None` for all of them."""

    @property
    def is_wanted(self) -> bool:
        """Whether there is to be a store, even if no tool gives promises."""
        return self._needed or self.wanted is not None

    async def start(self, works: bool) -> TaskHandlers:
        """Open the store, and begin to run tasks; raises `StoreUnavailable`."""
        if self.wanted is None:
            logger.warning(
                "No store is configured, so tasks are kept in memory and lost with this process. "
                "Set ANTIPHON_STORE, or Server(store=…), to sqlite:///tasks.db for example."
            )
        wanted = "memory:" if self.wanted is None else self.wanted
        self._store = open_store(wanted) if isinstance(wanted, str) else wanted
        await self._store.open()
        self._worker = Worker(
            self._store, self.limits, self._find, self._stage, tools=self.tools, claims=works
        )
        await self._relay.open(self._store)
        self._worker.start()
        return TaskHandlers(TaskService(self._store, self._worker, self.limits, self._relay))

    async def stop(self) -> None:
        """Let what runs end or hand it over, and close the store."""
        if self._worker is not None:
            await self._worker.stop(within=self.limits.drain)
        await self._relay.close()
        if self._store is not None:
            await self._store.close()
        self._worker = self._store = None

    async def answers(self) -> bool | None:
        """Whether the store does; `None` if there is none."""
        if self._store is None:
            return None
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._store.oldest_ready()
        except (StoreError, TimeoutError):
            return False
        return True

    async def metrics(self, telemetry: Telemetry) -> str:
        """What there is to say of calls, tasks and the store, for a monitor."""
        return await render(telemetry, self._store, self._worker)

    async def use_once(self, key: str, *, until: int) -> bool:
        """Note a key in the store; false if it was noted before."""
        return True if self._store is None else await self._store.use_once(key, until=until)

    def _stop_one(self, id: str) -> None:
        assert self._worker is not None  # the relay is closed before it goes
        self._worker.stop_one(id)
