"""The two parties of a call: who they say they are, what they can do, and who the caller really is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from antiphon.model.base import Value
from antiphon.model.content import Icon

__all__ = ["ANONYMOUS", "LOG_LEVELS", "Implementation", "LogLevel", "Principal"]

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: Mapping[Any, int] = {level: rank for rank, level in enumerate(get_args(LogLevel))}
"""Each level with its rank; higher is graver."""


class Implementation(Value, frozen=True):
    """What a client or a server says of itself; nobody has verified it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: tuple[Icon, ...] | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling, as the server's `authenticate` function found out.

    `id` is what tasks, sessions and sealed state are bound to; `scopes` and `claims` are the author's.
    """

    id: str
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)


ANONYMOUS = Principal("")
"""The caller of a server that does not ask who is calling."""
