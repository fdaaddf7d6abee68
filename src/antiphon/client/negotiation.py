"""Finds the newest protocol version that a client and a server both speak.

Owns the order of the attempts. Knows no version by name: the table of versions says which there are.
https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from antiphon.errors import (
    AntiphonError,
    BadAnswer,
    Forbidden,
    MethodNotFound,
    RequestError,
    TimedOut,
    Unauthorized,
    Unreachable,
    UnsupportedVersion,
)
from antiphon.model.identity import Implementation
from antiphon.model.request import CallTool, ListTools, Request
from antiphon.wire.client.dialect import ClientDialect, Message, comes_from_stateless_server
from antiphon.wire.client.results import Welcome, supported_versions, version_mismatch
from antiphon.wire.versions import Version, VersionTable

__all__ = ["Negotiation", "Settled"]

Settled = tuple[ClientDialect, Welcome]
"""The dialect of the negotiated version, and the server's description of itself."""


class Line(Protocol):
    """The part of a connection that a negotiation uses."""

    async def exchange(self, dialect: ClientDialect, request: Request) -> Any:
        """Send a request in a dialect, and return its result."""

    async def send(self, message: Message) -> None:
        """Send a notification."""

    async def reconnect(self) -> None:
        """Connect again after the server closed the connection."""


class Negotiation:
    """Negotiates for one client. `protocol` is the only version that the client accepts, if it names one."""

    def __init__(
        self,
        line: Line,
        client: Implementation,
        capabilities: Mapping[str, Any],
        protocol: str | None,
        versions: VersionTable,
    ) -> None:
        self._line = line
        self._client = client
        self._capabilities = capabilities
        self._protocol = protocol
        self._versions = versions
        self.prefers_sessions = False
        """Whether the client opens a session at a server that also speaks a version without sessions."""
        self._is_stateless = False
        """Whether the server has shown that it speaks a stateless version, although no common one."""

    async def settle(self, probe_timeout: float | None) -> Settled:
        """Negotiate a version; raises `UnsupportedVersion` if both sides have none in common.

        With a server that refuses to open a session, the client goes on without one, in a draft.
        """
        try:
            return await self._settle(probe_timeout)
        except (MethodNotFound, BadAnswer, Unreachable) as refusal:
            return await self._go_on_bare(refusal)

    async def _settle(self, probe_timeout: float | None) -> Settled:
        """Negotiate a version of a server that says which it has.

        The client starts with the newest stateless version. If the server has not answered after
        `probe_timeout` seconds, the client tries to open a session at the same time.
        """
        if self._protocol is not None:
            return await self.reopen(self._protocol)
        if self.prefers_sessions:
            return await self._initialize()
        if probe_timeout is None:
            return await self._newest()
        probe = asyncio.create_task(self._newest())
        done, _ = await self._wait({probe}, probe_timeout)
        if done:
            return probe.result()
        return await self._first(probe, asyncio.create_task(self._initialize()))

    async def reopen(self, version: str) -> Settled:
        """Connect in this version; raises `UnsupportedVersion` if the server does not speak it."""
        found = self._versions.find(version)
        if found is None:
            raise version_mismatch(self._versions.spoken_by_client, version)
        return await self._connect(found)

    async def _connect(self, version: Version) -> Settled:
        return await (self._discover(version) if version.stateless else self._initialize(version))

    async def _discover(self, version: Version) -> Settled:
        """Connect to a server without sessions."""
        dialect = self._dialect(version)
        try:
            welcome = await self._line.exchange(dialect, dialect.greeting())
        except UnsupportedVersion as error:
            if self._versions.newest_of(supported_versions(error)) is not version:
                raise
            # The server refused the version, and named the same version as one that it supports.
            welcome = await self._line.exchange(dialect, dialect.greeting())
        if version.name not in welcome.versions:
            raise version_mismatch(welcome.versions, version.name)
        return dialect, welcome

    async def _initialize(self, version: Version | None = None) -> Settled:
        """Open a session, by default in the newest version that has sessions."""
        wanted = version or self._versions.newest(stateless=False)
        dialect = self._dialect(wanted)
        welcome: Welcome = await self._line.exchange(dialect, dialect.greeting())
        agreed = self._versions.newest_of(welcome.versions)
        is_forced = self._protocol is not None
        if agreed is None or agreed.stateless or (is_forced and agreed is not wanted):
            raise version_mismatch(welcome.versions, wanted.name)
        dialect = self._dialect(agreed)
        ready = dialect.ready()
        if ready is not None:
            await self._line.send(ready)
        return dialect, welcome

    async def _go_on_bare(self, refusal: MethodNotFound | BadAnswer | Unreachable) -> Settled:
        """Speak a draft without a session; raises the refusal if there is no server that understands it."""
        version = self._versions.bare if self._protocol is None else self._versions.find(self._protocol)
        if version is None or version.advertised or self._is_stateless or not _refuses_sessions(refusal):
            raise refusal
        dialect = self._dialect(version).bare()
        if self._protocol is None and not isinstance(refusal, MethodNotFound):
            await self._find_server(dialect, refusal)
        elif _has_closed(refusal):
            await self._line.reconnect()
        return dialect, Welcome((version.name,))

    async def _find_server(self, dialect: ClientDialect, refusal: BadAnswer | Unreachable) -> None:
        """Raise the refusal if no request is answered: the address may be wrong, or the command not a server.

        A server of a draft need not list its tools. It answers a call of no tool at least with an error.
        """
        for request in (ListTools(), CallTool(name="")):
            if _has_closed(refusal):
                await self._line.reconnect()
            try:
                await self._line.exchange(dialect, request)
            except (Unauthorized, Forbidden):
                raise
            except RequestError:
                return
            except (BadAnswer, Unreachable):
                continue
            return
        raise refusal

    async def _newest(self) -> Settled:
        """Connect in the newest version that both sides speak."""
        newest = self._versions.newest(stateless=True)
        try:
            return await self._discover(newest)
        except UnsupportedVersion as error:
            self._is_stateless = True
            common = self._versions.newest_of(supported_versions(error))
            if common is None or common is newest:
                raise
            return await self._connect(common)
        except (Unauthorized, Forbidden, TimedOut):
            raise
        except AntiphonError as error:
            if comes_from_stateless_server(error):
                raise
            refused = error
        if _has_closed(refused):
            await self._line.reconnect()
        try:
            return await self._initialize()
        except AntiphonError as error:
            raise error from refused

    def _dialect(self, version: Version) -> ClientDialect:
        return self._versions.client_dialect(version, self._client, self._capabilities)

    async def _first(self, *trying: asyncio.Task[Settled]) -> Settled:
        """Return the result of the first attempt that succeeds; raises the last error if none does."""
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


def _has_closed(error: Exception) -> bool:
    """Return whether the server closed the connection in place of an answer."""
    return isinstance(error, Unreachable) and error.was_closed


def _refuses_sessions(error: Exception) -> bool:
    """Return whether a server that knows no sessions may answer `initialize` so."""
    is_unknown = isinstance(error, BadAnswer) and error.status == 404
    return is_unknown or isinstance(error, MethodNotFound) or _has_closed(error)
