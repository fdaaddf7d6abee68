"""The life of a server's tasks machinery: the store, the worker and the desk, opened and closed together."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection

from antiphon.runtime.desk import Desk
from antiphon.runtime.limits import Limits
from antiphon.runtime.promises import Promises
from antiphon.runtime.stage import Stage
from antiphon.runtime.tool import Tool
from antiphon.runtime.worker import Worker
from antiphon.store import open_store
from antiphon.store.log import Store

__all__ = ["Tasks"]

logger = logging.getLogger("antiphon")


class Tasks:
    """What a server needs to give promises, and to keep them."""

    def __init__(
        self,
        store: str | Store | None,
        limits: Limits,
        find: Callable[[str], Tool],
        stage: Callable[[], Stage],
        *,
        needed: bool = False,
    ) -> None:
        self._needed = needed
        self.wanted = store if store is not None else os.environ.get("ANTIPHON_STORE") or None
        """Where tasks are to be kept; to be changed before the start, if at all."""
        self._limits = limits
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

    async def start(self, works: bool) -> Desk:
        """Open the store, and begin to run tasks; raises `StoreUnavailable`."""
        if self.wanted is None:
            logger.warning(
                "No store is configured, so tasks are kept in memory and lost with this process. "
                "Set ANTIPHON_STORE, or Server(store=…), to sqlite:///tasks.db for example."
            )
        wanted = "memory:" if self.wanted is None else self.wanted
        self._store = open_store(wanted) if isinstance(wanted, str) else wanted
        await self._store.open()
        self._worker = Worker(self._store, self._limits, self._find, self._stage, tools=self.tools)
        if works:
            self._worker.start()
        return Desk(Promises(self._store, self._worker, self._limits))

    async def stop(self) -> None:
        """Let what runs end or hand it over, and close the store."""
        if self._worker is not None:
            await self._worker.stop(within=self._limits.drain)
        if self._store is not None:
            await self._store.close()
        self._worker = self._store = None

    async def use_once(self, key: str, *, until: int) -> bool:
        """Note a key in the store; false if it was noted before."""
        return True if self._store is None else await self._store.use_once(key, until=until)
