"""Ends leases by hand: so a test need not wait until the lease of a worker that was killed has ended.

A short lease would do the same, and a slow machine loses it also where the test wants it kept.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import asyncpg

from antiphon.store.postgres.database import Database

__all__ = ["LONG_LEASE_SECONDS", "end_leases"]

LONG_LEASE_SECONDS = 600.0
"""A lease that no test waits for."""
_CONNECT_SECONDS = 60.0


async def end_leases(url: str) -> int:
    """Let all leases of a store end now; return how many there were."""
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=_CONNECT_SECONDS, isolation_level=None)) as file:
            return file.execute("UPDATE task_rows SET lease = 1 WHERE lease > 0").rowcount
    database = Database.from_url(url, _CONNECT_SECONDS)
    connection = await asyncpg.connect(database.dsn, server_settings={"search_path": database.schema})
    try:
        now = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        done = await connection.execute(f"UPDATE tasks SET lease = {now} WHERE lease > {now}")
        return int(done.split()[-1])
    finally:
        await connection.close()
