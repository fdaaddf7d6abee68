"""Where tasks are kept: one append-only log each, behind one contract."""

from __future__ import annotations

from antiphon.store.contract import Store

__all__ = ["DATABASES", "open_store"]

DATABASES = ("sqlite:", "postgresql:", "postgres:")
"""How the URLs of stores begin that outlive the process."""

_KNOWN = (
    "`memory:` keeps tasks in this process, `sqlite:///file.db` and `sqlite:////absolute/file.db` in a file, "
    "`postgresql://user@host/database` in a PostgreSQL database"
)


def open_store(url: str) -> Store:
    """The store that a URL names, not yet opened; raises `ValueError` for a URL that names none."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        if rest:
            raise ValueError(f"{url!r} says too much. {_KNOWN}.")
        from antiphon.store.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        path = rest.removeprefix("///")
        if path == rest or not path or path.endswith("/"):
            raise ValueError(f"{url!r} names no file. {_KNOWN}.")
        from antiphon.store.sqlite import SQLiteStore

        return SQLiteStore(path)
    if scheme in ("postgresql", "postgres"):
        if not rest.startswith("//"):
            raise ValueError(f"{url!r} names no database. {_KNOWN}.")
        try:
            from antiphon.store.postgres import PostgresStore
        except ImportError:
            raise ValueError("A PostgreSQL store needs asyncpg: pip install 'antiphon[postgres]'.") from None
        return PostgresStore(url)
    raise ValueError(f"There is no store for {url!r}. {_KNOWN}.")
