"""What a transport may ask of a server, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from antiphon.model.outcome import Outcome
from antiphon.model.party import Implementation, Principal
from antiphon.runtime.call import Call
from antiphon.runtime.changes import Changes
from antiphon.runtime.limits import Limits
from antiphon.runtime.seal import Seal

__all__ = ["Host"]


class Host(Protocol):
    """A server, as its transports see it."""

    @property
    def info(self) -> Implementation:
        """What the server says of itself."""

    @property
    def limits(self) -> Limits:
        """Its bounds."""

    @property
    def seal(self) -> Seal:
        """Its keys."""

    @property
    def changes(self) -> Changes:
        """What changes about what it offers."""

    async def handle(self, call: Call[Any]) -> Outcome:
        """Serve a call; raises `RequestError`."""

    @property
    def authenticates(self) -> bool:
        """Whether it asks who is calling."""

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        """Who sends these headers; raises `Unauthorized` or `Forbidden`."""

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]] | None:
        """The headers that mirror arguments of a tool, each with the path of its argument."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the server's lifespan open; nested use shares one."""
