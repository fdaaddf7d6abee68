"""Parses the URLs of task stores and artifact stores. Owns their schemes and forms, and opens no store.

Also writes a URL for messages, without its password.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "StoreURL",
    "hide_password",
    "is_database_url",
    "is_store_url",
    "parse_store_url",
    "require_asyncpg",
]

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

    def __repr__(self) -> str:
        return f"StoreURL({self.scheme!r}, {hide_password(self.location)!r})"


def parse_store_url(url: str, *, artifacts: bool = False) -> StoreURL:
    """Parse the URL of a task store, or with `artifacts` of an artifact store; raises `ValueError`."""
    scheme, _, rest = url.partition(":")
    shown = hide_password(url)
    valid = f"Use {_ARTIFACT_URLS if artifacts else _TASK_URLS}."
    if scheme == "memory":
        if rest:
            raise ValueError(f"The store URL {shown!r} has text after `memory:`. {valid}")
        return StoreURL("memory", "")
    if scheme in ("postgresql", "postgres"):
        if not rest.startswith("//"):
            raise ValueError(f"The store URL {shown!r} names no database. {valid}")
        return StoreURL("postgresql", url)
    path = rest.removeprefix("///")
    has_path = path != rest and path != ""
    if scheme == "sqlite":
        if not has_path or path.endswith("/"):
            raise ValueError(f"The store URL {shown!r} names no file. {valid}")
        return StoreURL("sqlite", path)
    if scheme == "file" and artifacts:
        if not has_path:
            raise ValueError(f"The store URL {shown!r} names no folder. {valid}")
        return StoreURL("file", path)
    raise ValueError(f"Unknown store URL {shown!r}. {valid}")


def hide_password(url: str) -> str:
    """Return a URL for messages and logs: without the password, and without parameters, which may hold one.

    Also understands what people write by mistake, such as a password with characters that are not encoded.
    """
    found = re.match(r"(?P<scheme>[\w+.-]*:)?(?P<slashes>/*)(?P<rest>.*)\Z", url, re.DOTALL)
    assert found is not None
    scheme, slashes, rest = found["scheme"] or "", found["slashes"], found["rest"]
    if scheme in ("sqlite:", "file:") and len(slashes) > 2:  # a path
        return url
    base = rest.partition("?")[0]
    if "@" not in base and re.match(r"[^/:]*:(?!\d*(/|\Z))", base):
        base = rest  # not a host and a port, so it is a password that contains a question mark
    user, at, host = base.rpartition("@")
    if at and not slashes and ":" not in user:  # without a scheme, so the name before the colon is the user
        scheme, user = "", scheme.removesuffix(":")
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{host.partition('?')[0]}"


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
