"""The options of a mounted server."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from antiphon.runtime.authoring.offer import Visible
from antiphon.runtime.scopes import ScopesOption

if TYPE_CHECKING:
    import httpx2

    from antiphon.client.oauth.oauth import OAuth

__all__ = ["MountOptions", "Mounted"]


class MountOptions(TypedDict, total=False):
    """The options of `Server.mount`. A `Server` has `prefix` and `allow_anonymous` only."""

    prefix: bool
    """Whether the names of tools and prompts begin with the name of the mount (the default)."""
    scopes: ScopesOption | None
    """The scopes that callers need for everything that the server offers."""
    visible: Visible | None
    """A function that takes the `Principal` of a caller, or `None` if nobody knows who calls, and returns
    whether everything that the server offers exists for this caller."""
    tags: Collection[str]
    """Tags of everything that the server offers, for `Server.enable` and `disable`."""
    tasks: Collection[str]
    """The tools that callers can run as tasks, by the names that their own server gives them, or `"*"` for
    all. Tools whose own server runs them as tasks are among them."""
    artifact_over: int | None
    """Store results of more bytes as artifacts, and send the caller the beginning."""
    timeout: float | None
    """How long a call of a tool may take, in seconds."""
    env: Mapping[str, str] | None
    """Variables for the process of a command."""
    cwd: str | os.PathLike[str] | None
    """The folder in which a command is started."""
    headers: Mapping[str, str] | None
    """HTTP headers for a URL."""
    auth: str | OAuth | httpx2.Auth | None
    """A bearer token, an `OAuth` or an `httpx2.Auth` for a URL."""
    protocol: str | None
    """The only protocol version to use with the server."""
    max_connections: int | None
    """How many processes of a command (16), or sessions at a URL (100), are open at once."""
    allow_anonymous: bool
    """Whether a command or a `Server` that authenticates its own callers, or needs scopes, is offered to
    callers whom it cannot check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """One server to mount, with its options."""

    name: str
    target: Any = field(repr=False)
    """A URL, or the command that starts a server. Both may contain secrets."""
    prefix: bool = True
    scopes: ScopesOption | None = None
    visible: Visible | None = None
    tags: Collection[str] = ()
    tasks: Collection[str] = ()
    artifact_over: int | None = None
    timeout: float | None = None
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | os.PathLike[str] | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    auth: Any = field(default=None, repr=False)
    protocol: str | None = None
    max_connections: int | None = None
    allow_anonymous: bool = False

    @property
    def is_command(self) -> bool:
        """Whether the target is a command, which the gateway starts."""
        return not isinstance(self.target, str)
