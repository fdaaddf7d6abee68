"""Parses the URLs of task stores and artifact stores. Owns their schemes and forms, and opens no store."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["StoreURL", "is_database_url", "is_store_url", "parse_store_url", "require_asyncpg"]

Scheme: TypeAlias = Literal["memory", "sqlite", "postgresql", "file"]

_DATABASE_PREFIXES = ("sqlite:", "postgresql:", "postgres:")

_TASK_URLS = (
    "`memory:` for the memory of this process, `sqlite:///file.db` or `sqlite:////absolute/file.db` for a "
    "file, or `postgresql://user@host/database` for a PostgreSQL database"
)
_ARTIFACT_URLS = f"{_TASK_URLS}, or `file:///folder` or `file:////absolute/folder` for the files of a folder"


class StoreURL(NamedTuple):
    """A parsed store URL."""

    scheme: Scheme
    location: str
    """A path for `sqlite` and `file`, the whole URL for `postgresql`, and empty for `memory`."""


def parse_store_url(url: str, *, artifacts: bool = False) -> StoreURL:
    """Parse the URL of a task store, or with `artifacts` of an artifact store; raises `ValueError`."""
    scheme, _, rest = url.partition(":")
    valid = f"Use {_ARTIFACT_URLS if artifacts else _TASK_URLS}."
    if scheme == "memory":
        if rest:
            raise ValueError(f"The store URL {url!r} has text after `memory:`. {valid}")
        return StoreURL("memory", "")
    if scheme in ("postgresql", "postgres"):
        if not rest.startswith("//"):
            raise ValueError(f"The store URL {url!r} names no database. {valid}")
        return StoreURL("postgresql", url)
    path = rest.removeprefix("///")
    has_path = path != rest and path != ""
    if scheme == "sqlite":
        if not has_path or path.endswith("/"):
            raise ValueError(f"The store URL {url!r} names no file. {valid}")
        return StoreURL("sqlite", path)
    if scheme == "file" and artifacts:
        if not has_path:
            raise ValueError(f"The store URL {url!r} names no folder. {valid}")
        return StoreURL("file", path)
    raise ValueError(f"Unknown store URL {url!r}. {valid}")


def is_database_url(url: str) -> bool:
    """Return whether a URL names a store in a database, which outlives the process."""
    return url.startswith(_DATABASE_PREFIXES)


def is_store_url(text: str) -> bool:
    """Return whether a text has the scheme of a task store."""
    return text.startswith("memory:") or is_database_url(text)


def require_asyncpg() -> None:
    """Check that PostgreSQL can be used; raises `ValueError` if asyncpg is not installed."""
    if find_spec("asyncpg") is None:
        raise ValueError("A PostgreSQL store needs asyncpg: pip install 'antiphon[postgres]'.")
