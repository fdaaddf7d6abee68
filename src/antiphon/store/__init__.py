"""Stores: each keeps one append-only log per task, and all fulfil the same contract.

`contract.py` says what a store must do, `rules.py` decides what may be done with a task, and `memory.py`,
`sqlite/` and `postgres/` store the tasks. `artifacts/` stores large results in the same places. Nothing here
knows the meaning of an entry, a version of the protocol, or who calls.
"""

from __future__ import annotations

from antiphon.store.contract import Store
from antiphon.store.urls import (
    hide_password,
    is_database_url,
    is_store_url,
    parse_store_url,
    require_asyncpg,
)

__all__ = ["hide_password", "is_database_url", "is_store_url", "open_store"]


def open_store(url: str) -> Store:
    """Return the store that a URL names, not yet opened; raises `ValueError` for an invalid URL."""
    found = parse_store_url(url)
    if found.scheme == "memory":
        from antiphon.store.memory import MemoryStore

        return MemoryStore()
    if found.scheme == "sqlite":
        from antiphon.store.sqlite import SQLiteStore

        return SQLiteStore(found.location)
    require_asyncpg()
    from antiphon.store.postgres import PostgresStore

    return PostgresStore(found.location)
