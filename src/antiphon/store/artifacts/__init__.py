"""Where artifacts are kept: in memory, a SQLite file, PostgreSQL, or a folder, behind one contract."""

from __future__ import annotations

from antiphon.store.artifacts.contract import ArtifactStore

__all__ = ["ArtifactStore", "open_artifacts"]

_KNOWN = (
    "`memory:` keeps artifacts in this process, `sqlite:///file.db` and `postgresql://…` in a database, "
    "`file:///folder` and `file:////absolute/folder` in the files of a folder"
)


def open_artifacts(url: str) -> ArtifactStore:
    """The store that a URL names, not yet opened; raises `ValueError` for a URL that names none."""
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        from antiphon.store.artifacts.memory import MemoryArtifacts

        return MemoryArtifacts()
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        try:
            from antiphon.store.artifacts.postgres import PostgresArtifacts
        except ImportError:
            raise ValueError("PostgreSQL needs asyncpg: pip install 'antiphon[postgres]'.") from None
        return PostgresArtifacts(url)
    path = rest.removeprefix("///")
    if scheme not in ("sqlite", "file") or path == rest or not path:
        raise ValueError(f"There is no store of artifacts for {url!r}. {_KNOWN}.")
    if scheme == "sqlite":
        from antiphon.store.artifacts.sqlite import SQLiteArtifacts

        return SQLiteArtifacts(path)
    from antiphon.store.artifacts.files import FileArtifacts

    return FileArtifacts(path)
