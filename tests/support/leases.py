"""Ends leases by hand: so a test need not wait until the lease of a worker that was killed has ended.

A short lease would do the same, and a slow machine loses it also where the test wants it kept.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import asyncpg

from antiphon.store.postgres.database import Database
from tests.support.polling import until

__all__ = ["LONG_LEASE_SECONDS", "end_delay", "end_leases"]

LONG_LEASE_SECONDS = 600.0
"""A lease that no test waits for."""
_CONNECT_SECONDS = 60.0


async def end_leases(url: str, task: str = "%") -> int:
    """Let the leases of a store end now, or that of one task; return how many there were.

    The time that a task waits until a worker may claim it again is a lease too.
    """
    return await _end(url, task, "TRUE")


async def end_delay(url: str, task: str) -> None:
    """Wait until a worker has given a task back with a delay, and let the delay end.

    The worker says so in the log first, and holds the task until then: `end_leases` could be too early.
    """
    await until(lambda: _end(url, task, "worker IS NULL"))


async def _end(url: str, task: str, condition: str) -> int:
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=_CONNECT_SECONDS, isolation_level=None)) as file:
            update = f"UPDATE task_rows SET lease = 1 WHERE lease > ? AND id LIKE ? AND {condition}"
            return file.execute(update, (int(time.time() * 1000), task)).rowcount
    database = Database.from_url(url, _CONNECT_SECONDS)
    connection = await asyncpg.connect(database.dsn, server_settings={"search_path": database.schema})
    try:
        now = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        update = f"UPDATE tasks SET lease = {now} WHERE lease > {now} AND id LIKE $1 AND {condition}"
        done = await connection.execute(update, task)
        return int(done.split()[-1])
    finally:
        await connection.close()
