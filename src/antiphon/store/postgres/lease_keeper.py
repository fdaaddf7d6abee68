"""Renews leases on a connection of its own, for a thread that runs while the event loop is blocked.

asyncpg needs an event loop, so the lease keeper has one, which runs only during its blocking methods. It
shares neither the connections nor the loop of the store, and knows no table.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import asyncpg

from antiphon.store import rules, unavailable
from antiphon.store.postgres.connection import ReconnectingConnection
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.statements import escape_text, sql, to_bigint, unescape_text

__all__ = ["PostgresLeaseKeeper"]

_MAX_ATTEMPTS = 5
"""Attempts of a statement that PostgreSQL aborts because of a deadlock with another process."""

Value = TypeVar("Value")


class PostgresLeaseKeeper:
    """A connection that renews leases. It is made with the first renewal."""

    def __init__(self, database: Database, clock: Callable[[], int | None]) -> None:
        self._database = database
        self._clock = clock
        self._connection = ReconnectingConnection(database)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._closed = False

    def renew(self, claims: Collection[tuple[str, int]], *, lease: float) -> set[str]:
        """Block until the leases are extended; raises `StoreUnavailable`."""
        held, length = dict(claims), rules.lease_milliseconds(lease)
        with self._lock:
            if self._closed:
                raise unavailable.closed()
            return self._run(self._renew(held, length)) if held else set()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if not self._closed and self._loop is not None:
                self._run(self._connection.close())
                self._loop.close()
            self._closed = True

    async def _renew(self, held: dict[str, int], length: int) -> set[str]:
        ids = [escape_text(id) for id in held]
        tokens = [to_bigint(token) for token in held.values()]
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                rows = await self._connection.fetch(
                    sql("renew"), self._clock(), ids, tokens, [length] * len(ids), retry=True
                )
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
                if attempt == _MAX_ATTEMPTS:
                    raise self._database.explain(error, "written") from error
            except asyncpg.PostgresError as error:
                raise self._database.explain(error, "written") from error
            else:
                break
        return {unescape_text(row["id"]) for row in rows if not row["is_stopping"]}

    def _run(self, work: Coroutine[Any, Any, Value]) -> Value:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(work)
        # No thread can run two event loops, so a caller that has one lends this work another thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._loop.run_until_complete, work).result()
