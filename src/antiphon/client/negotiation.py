"""Which protocol version a client and a server speak with each other: the newest that both know.

https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from antiphon.errors import (
    AntiphonError,
    Forbidden,
    TimedOut,
    Unauthorized,
    UnsupportedVersion,
)
from antiphon.model.identity import Implementation
from antiphon.model.request import Discover, Request
from antiphon.wire.client.dialect import (
    KNOWN_VERSIONS,
    ClientDialect,
    Legacy,
    Message,
    Modern,
    is_modern,
    newest,
)
from antiphon.wire.client.results import Welcome

__all__ = ["Negotiation", "Settled"]

Settled = tuple[ClientDialect, Welcome]
"""The version that was agreed on, and what the server said of itself."""


class Line(Protocol):
    """What negotiating needs of a connection."""

    async def exchange(self, speaker: ClientDialect, request: Request) -> Any:
        """Send a request in this version, and read its result."""

    async def send(self, message: Message) -> None:
        """Send a notification."""


class Negotiation:
    """How one client comes to terms; with `protocol`, on that version or not at all."""

    def __init__(
        self, line: Line, client: Implementation, capabilities: Mapping[str, Any], protocol: str | None
    ) -> None:
        self._line = line
        self._client = client
        self._capabilities = capabilities
        self._protocol = protocol

    async def settle(self, probe_timeout: float | None) -> Settled:
        """Find the version; raises `UnsupportedVersion` where there is none in common.

        A server that has not answered the first question after `probe_timeout` is asked the second one too.
        """
        if self._protocol is not None:
            return await (
                self.discover() if self._protocol == KNOWN_VERSIONS[0] else self.initialize(self._protocol)
            )
        if probe_timeout is None:
            return await self._either()
        probe = asyncio.create_task(self._either())
        done, _ = await self._wait({probe}, probe_timeout)
        if done:
            return probe.result()
        return await self._first(probe, asyncio.create_task(self.initialize()))

    async def discover(self) -> Settled:
        """Come to terms with a server that keeps no session."""
        modern = Modern(KNOWN_VERSIONS[0], self._client, self._capabilities)
        try:
            welcome = await self._line.exchange(modern, Discover())
        except UnsupportedVersion as error:
            if newest(_supported(error)) != modern.version:
                raise
            welcome = await self._line.exchange(modern, Discover())  # it said no, and named this very version
        if modern.version not in welcome.versions:
            raise _disagree(welcome.versions, modern.version)
        return modern, welcome

    async def initialize(self, version: str = KNOWN_VERSIONS[1]) -> Settled:
        """Open a session."""
        asking = Legacy(version, self._client, self._capabilities)
        welcome: Welcome = await self._line.exchange(asking, asking.hello())
        agreed = welcome.versions[0]
        forced = self._protocol is not None
        if agreed not in KNOWN_VERSIONS[1:] or (forced and agreed != version):
            raise _disagree(welcome.versions, version)
        speaker = Legacy(agreed, self._client, self._capabilities)
        await self._line.send(speaker.ready())
        return speaker, welcome

    async def _either(self) -> Settled:
        try:
            return await self.discover()
        except UnsupportedVersion as error:
            version = newest(_supported(error))
            if version is None or version == KNOWN_VERSIONS[0]:
                raise
            return await self.initialize(version)
        except (Unauthorized, Forbidden, TimedOut):
            raise
        except AntiphonError as error:
            if is_modern(error):
                raise
            refused = error
        try:
            return await self.initialize()
        except AntiphonError as error:
            raise error from refused

    async def _first(self, *trying: asyncio.Task[Settled]) -> Settled:
        """The first that succeeds, or else the last failure."""
        left = set(trying)
        failure: BaseException | None = None
        while left:
            done, left = await self._wait(left, None)
            for task in (task for task in trying if task in done):
                failure = task.exception()
                if failure is None:
                    for other in left:
                        other.cancel()
                    return task.result()
        assert failure is not None
        raise failure

    async def _wait(
        self, tasks: set[asyncio.Task[Settled]], timeout: float | None
    ) -> tuple[set[asyncio.Task[Settled]], set[asyncio.Task[Settled]]]:
        try:
            return await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise


def _supported(error: UnsupportedVersion) -> list[Any]:
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return supported if isinstance(supported, list) else []


def _disagree(offered: tuple[str, ...], wanted: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"The server speaks {', '.join(offered) or 'no version'}, and this client wants {wanted}.",
        data={"supported": list(offered), "requested": wanted},
    )
