"""Artifact stores: in memory, an SQLite file, PostgreSQL or a folder, all with the same contract.

`contract.py` is the contract, and `database.py` is the part that SQLite and PostgreSQL share. Nothing here
knows how a tool makes an artifact or how a client reads one.
"""

from __future__ import annotations

from antiphon.store.artifacts.contract import ArtifactStore
from antiphon.store.urls import parse_store_url, require_asyncpg

__all__ = ["ArtifactStore", "open_artifacts"]


def open_artifacts(url: str) -> ArtifactStore:
    """Return the artifact store that a URL names, not yet opened; raises `ValueError` for an invalid URL."""
    found = parse_store_url(url, artifacts=True)
    if found.scheme == "memory":
        from antiphon.store.artifacts.memory import MemoryArtifacts

        return MemoryArtifacts()
    if found.scheme == "sqlite":
        from antiphon.store.artifacts.sqlite import SQLiteArtifacts

        return SQLiteArtifacts(found.location)
    if found.scheme == "file":
        from antiphon.store.artifacts.files import FileArtifacts

        return FileArtifacts(found.location)
    require_asyncpg()
    from antiphon.store.artifacts.postgres import PostgresArtifacts

    return PostgresArtifacts(found.location)
