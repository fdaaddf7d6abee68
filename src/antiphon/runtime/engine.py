"""What a transport may ask of a server, and nothing more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from antiphon.errors import RequestError
from antiphon.model.identity import Implementation, Principal
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.runtime.execution.call import Call
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import Relay

__all__ = ["Engine"]


class Engine(Protocol):
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
    def changes(self) -> ChangeFeed:
        """What changes about what it offers."""

    @property
    def relay(self) -> Relay:
        """What its processes say to each other."""

    @property
    def handle(self) -> Callable[[Call[Any]], Awaitable[Any]]:
        """Serves a call: gives what to await for its outcome; both may raise, see `error_of`."""

    def error_of(self, call: Call[Any], raised: Exception) -> RequestError:
        """What to tell a caller of something that was raised."""

    async def overdue(self, call: Call[Any]) -> Any:
        """How a call ends that took too long; raises `RequestError` where that is an error."""

    async def store_answers(self) -> bool | None:
        """Whether the store does; `None` if there is none."""

    async def metrics(self) -> str:
        """What there is to say of calls, tasks and the store, for a monitor."""

    @property
    def authenticates(self) -> bool:
        """Whether it asks who is calling."""

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        """Who sends these headers; raises `Unauthorized` or `Forbidden`."""

    @property
    def mirrored(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """For each tool that has some, the headers that mirror its arguments, and their paths."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the server's lifespan open; nested use shares one."""
