"""The two parties of a call: how client and server describe themselves, and the authenticated caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from antiphon.model.base import Value
from antiphon.model.content import Icon

__all__ = [
    "ANONYMOUS",
    "LOG_LEVELS",
    "STRANGER",
    "Implementation",
    "LogLevel",
    "Principal",
    "Stranger",
    "problem_of",
]

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: Mapping[Any, int] = {level: rank for rank, level in enumerate(get_args(LogLevel))}
"""Each log level with its rank; a higher rank is more severe."""


class Implementation(Value, frozen=True):
    """How a client or a server describes itself. Nobody has verified it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: tuple[Icon, ...] | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller, as the server's `authenticate` function returns it."""

    id: str
    """The id of the caller. Tasks, artifacts, sessions and request states belong to this id.

    The id of an authenticated caller is a string that is not empty: the empty id means an anonymous caller.
    """
    scopes: frozenset[str] = frozenset()
    """The permissions of the caller, for your own checks."""
    claims: Mapping[str, Any] = field(default_factory=dict)
    """Anything else that your functions need to know about the caller.

    Tasks store only the claims that `Server(task_claims=…)` names.
    """
    expires_at: float | None = field(default=None, compare=False)
    """When the caller must authenticate again, in seconds since the epoch; `None` for never.

    A stream of changes ends then. A call or a task that has begun goes on.
    """

    @property
    def share(self) -> str:
        """The key of the shares of the limits that the caller has: its id, or a stranger's network address.

        It is empty for a caller who runs the server, over stdio or in its process: then no share applies.
        """
        return self.id

    def with_claims(self, names: Sequence[str]) -> Principal:
        """Return the principal with these claims only."""
        return replace(self, claims={name: self.claims[name] for name in names if name in self.claims})


_UNKNOWN_ADDRESS = "unknown"
"""The share of strangers whose address is unknown. Stores hold it: it never changes."""


@dataclass(frozen=True, slots=True)
class Stranger(Principal):
    """The caller of a server without authentication who comes over the network, and may be anybody.

    A stranger has the id of `ANONYMOUS`, and so the same tasks, but must name each of them. An id cannot be
    guessed, so it is the key to a task or an artifact. A list would hand out everybody's keys.
    """

    id: str = ""
    address: str = ""
    """Where the caller comes from: an IPv4 address, an IPv6 network, or nothing if it is unknown."""

    @property
    def share(self) -> str:
        """The network address: strangers at one address have one share, and so do those at unknown ones."""
        return self.address or _UNKNOWN_ADDRESS


ANONYMOUS = Principal("")
"""The caller of a server without authentication, who runs the server or shares its process.

No authenticated caller has an empty id.
"""

STRANGER = Stranger()
"""A stranger whose address is unknown, as over a Unix socket. All are one caller, as behind a proxy."""


def problem_of(principal: Any) -> str | None:
    """Return why a value is not an authenticated caller, without the value; `None` if it is one."""
    if not isinstance(principal, Principal):
        return f"a value of the type {type(principal).__name__}, and not a Principal"
    if not isinstance(principal.id, str):
        return f"a Principal whose id has the type {type(principal.id).__name__}, and not str"
    if not principal.id:
        return "a Principal with an empty id"
    return None if _is_storable(principal.id) else "a Principal whose id has a NUL or a lone surrogate"


def _is_storable(text: str) -> bool:
    """Return whether every store can hold a text."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
