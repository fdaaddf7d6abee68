"""The connections of all people at the workbench: found by id, bounded in number, closed when unused."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

from antiphon.client import Client
from antiphon.console.routes import ConsoleUser, Problem
from antiphon.console.sources import ServerSource
from antiphon.console.workbench.connection import BenchConnection

__all__ = ["Connections"]

logger = logging.getLogger("antiphon")

MAX_CONNECTIONS = 64
MAX_CONNECTIONS_PER_USER = 12
IDLE_SECONDS = 600.0
"""How long a connection stays open without a page and without a running call."""
MAX_UNWATCHED_SECONDS = 3600.0
"""How long a connection with running calls stays open without a page."""
MAX_KEPT_BYTES = 256 * 1024 * 1024
"""How many bytes of calls and messages all connections keep. The ones used last keep theirs longest."""
CHECK_BYTES = 1024 * 1024
"""After how many more bytes the size of all connections is computed."""
CHECK_SECONDS = 30.0


class Connections:
    """The connections of the workbench. A person sees their own only."""

    def __init__(self) -> None:
        self._connections: dict[str, BenchConnection] = {}
        self._closing: asyncio.Task[None] | None = None
        self._unchecked_bytes = 0

    def find(self, id: str, user: ConsoleUser) -> BenchConnection:
        """Return a person's connection; raises `Problem` if the person has none of this id."""
        connection = self._connections.get(id)
        if connection is None or connection.user.rights != user.rights:
            raise Problem(404, "This connection was closed. Connect again.")
        connection.used_at = time.monotonic()
        return connection

    def client(self, source: ServerSource, user: ConsoleUser, id: str) -> Client:
        """Return the client of a person's connection to a server; raises `Problem` if there is none."""
        connection = self.find(id, user)
        if connection.source is not source:
            raise Problem(404, "This connection is one to another server.")
        return connection.client

    async def open(
        self, source: ServerSource, user: ConsoleUser, protocol: str | None, *, again: bool
    ) -> BenchConnection:
        """Return the person's connection to a server in a version, connected; `again` connects anew.

        Raises `Problem` if there are too many, and the error of the connection. A connection that could not
        be opened is kept, because its messages show why.
        """
        connection = self._find(source, user, protocol) or await self._add(source, user, protocol)
        await connection.open(again=again)
        return connection

    def known(self, source: ServerSource, user: ConsoleUser, protocol: str | None) -> str | None:
        """Return the id of the person's connection to a server in a version, if there is one."""
        found = self._find(source, user, protocol)
        return None if found is None else found.id

    async def remove(self, connection: BenchConnection) -> None:
        """Close a connection and forget it."""
        self._connections.pop(connection.id, None)
        await connection.close()

    async def remove_all(self, source: ServerSource) -> None:
        """Close everybody's connections to a server."""
        for connection in [each for each in self._connections.values() if each.source is source]:
            await self.remove(connection)

    async def close(self) -> None:
        """Close all connections."""
        if self._closing is not None:
            self._closing.cancel()
        for connection in [*self._connections.values()]:
            await self.remove(connection)

    def _find(self, source: ServerSource, user: ConsoleUser, protocol: str | None) -> BenchConnection | None:
        for connection in self._connections.values():
            if (
                connection.source is source
                and connection.protocol == protocol
                and connection.user.rights == user.rights
            ):
                return connection
        return None

    async def _add(self, source: ServerSource, user: ConsoleUser, protocol: str | None) -> BenchConnection:
        await self._make_room(user)
        connection = BenchConnection(secrets.token_urlsafe(12), source, user, protocol, self._note_kept)
        self._connections[connection.id] = connection
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._close_unused())
        return connection

    async def _make_room(self, user: ConsoleUser) -> None:
        """Close the connections that were not used for longest; raises `Problem` if all are in use."""
        while True:
            own = [each for each in self._connections.values() if each.user.rights == user.rights]
            crowd = own if len(own) >= MAX_CONNECTIONS_PER_USER else [*self._connections.values()]
            if len(own) < MAX_CONNECTIONS_PER_USER and len(crowd) < MAX_CONNECTIONS:
                return
            unused = sorted((each for each in crowd if not each.is_in_use), key=lambda each: each.used_at)
            if not unused:
                raise Problem(429, "Too many connections are open: close a page of the workbench first.")
            await self.remove(unused[0])

    def _note_kept(self, added: int) -> None:
        """Let connections forget what they keep if all keep too much, the one used longest ago first."""
        self._unchecked_bytes += added
        if self._unchecked_bytes < CHECK_BYTES:
            return
        self._unchecked_bytes = 0
        excess = sum(each.size for each in self._connections.values()) - MAX_KEPT_BYTES
        for connection in sorted(self._connections.values(), key=lambda each: each.used_at):
            if excess <= 0:
                return
            excess -= connection.size
            connection.forget()
            logger.info("The workbench forgot the calls and messages of %s.", connection.source.name)

    async def _close_unused(self) -> None:
        while self._connections:
            await asyncio.sleep(CHECK_SECONDS)
            now = time.monotonic()
            for connection in [*self._connections.values()]:
                if connection.feed.has_listeners:
                    connection.used_at = now
                limit = MAX_UNWATCHED_SECONDS if connection.calls.running else IDLE_SECONDS
                if now - connection.used_at > limit:
                    logger.debug("Closing an unused connection to %s.", connection.source.name)
                    await self.remove(connection)
