"""What a console looks at: stores of tasks, and servers. Opens them, and closes them at the end.

A store that the console opens is seen as its operator sees it. The store of a running server stays the
server's own. Servers are reached through `Client`, as the person who looks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from antiphon.console.routes import ConsoleUser, Problem
from antiphon.errors import AntiphonError
from antiphon.model.identity import Principal
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks.inbox import Audiences, Inbox, default_audiences
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.operating import operating_service
from antiphon.runtime.tasks.service import TaskService
from antiphon.server_target import ServerTarget
from antiphon.store.artifacts import ArtifactStore, open_artifacts
from antiphon.store.contract import Record, Store

if TYPE_CHECKING:
    from antiphon.client import Client
    from antiphon.console.apps.sandbox import Sandbox

__all__ = ["AllowsTask", "Connect", "OpenArtifacts", "ServerKind", "ServerSource", "Sources", "StoreSource"]

logger = logging.getLogger("antiphon")

ServerKind: TypeAlias = Literal["url", "file", "command", "own"]
"""How a server is reached: at a URL, by starting a file or a command, or in this process."""
Connect: TypeAlias = Callable[..., "Client"]
"""Returns a client that is not connected yet. Takes the `ConsoleUser`, and options of `Client` by name."""

OpenArtifacts: TypeAlias = Callable[[], Awaitable[ArtifactStore]]
"""Returns a store of artifacts, opened at the first use."""
AllowsTask: TypeAlias = Callable[[str, Principal, str], Awaitable[bool]]
"""Takes the id of a task, its principal, and the name of its tool."""

_MAX_ADDED_SERVERS = 32
_MAX_CLIENTS = 64
"""How many people's connections to one server stay open."""


class StoreSource:
    """A store of tasks. With `server`, only the tasks of the server of this name belong to the console.

    `artifacts` is the URL of the artifacts of its tasks, or returns the artifacts of a server. `allows` says
    whether a person who is no operator has the scopes for a task of their own.
    """

    service: TaskService
    """Reads, answers and cancels tasks, on behalf of their principals; while the source is open."""

    def __init__(
        self,
        id: str,
        name: str,
        store: Store,
        *,
        server: str | None = None,
        audiences: Audiences = default_audiences,
        is_own: bool = True,
        artifacts: str | OpenArtifacts | None = None,
        allows: AllowsTask | None = None,
    ) -> None:
        self.id = id
        self.name = name
        """The name that pages show: the address without its secrets."""
        self.store = store
        self.server = server
        self._audiences = audiences
        self._is_own = is_own
        self._artifacts = artifacts
        self._allows = allows
        self._opened_artifacts: ArtifactStore | None = None
        self._opening_artifacts = asyncio.Lock()
        self._relay = Relay(server or "")
        self.feed = InboxFeed(self._relay)

    def inbox(self, server: str, *, for_operator: bool) -> Inbox:
        """Return the questions of one server's tasks to others than their callers."""
        return Inbox(
            self.store, self.feed, server=server, audiences=self._audiences, for_operator=for_operator
        )

    async def allows(self, principal: Principal, record: Record) -> bool:
        """Return whether a person has the scopes that one of their tasks needs."""
        return self._allows is None or await self._allows(record.id, principal, record.tool)

    async def artifacts(self) -> ArtifactStore | None:
        """Return the artifacts of the store's tasks, opened, or `None`; raises `StoreUnavailable`."""
        if not isinstance(self._artifacts, str):
            return None if self._artifacts is None else await self._artifacts()
        async with self._opening_artifacts:
            if self._opened_artifacts is None:
                found = open_artifacts(self._artifacts)
                await found.open()
                self._opened_artifacts = found
        return self._opened_artifacts

    async def open(self) -> None:
        """Open the store, unless a server has; raises `StoreUnavailable`."""
        if self._is_own:
            await self.store.open()
        await self._relay.open(self.store)
        self.service = operating_service(self.store, self._relay, self.feed, server=self.server)

    async def close(self) -> None:
        """Close the store, unless it belongs to a server."""
        self.feed.close()
        await self._relay.close()
        if self._opened_artifacts is not None:
            await self._opened_artifacts.close()
        if self._is_own:
            await self.store.close()


class ServerSource:
    """A server that the console talks to, as a client."""

    def __init__(
        self,
        id: str,
        name: str,
        kind: ServerKind,
        connect: Connect,
        *,
        is_added: bool = False,
        target: ServerTarget | None = None,
    ) -> None:
        self.id = id
        self.name = name
        """The name that pages show: the address without its secrets, the file or the command."""
        self.kind = kind
        self.is_added = is_added
        """Whether a person added the server in the page."""
        self.shows_apps = False
        """Whether clients declare that the console shows MCP Apps."""
        self.target = target
        """How the doctor connects to the server; `None` if only `create_client` can."""
        self._connect = connect
        self._clients: dict[Any, Client] = {}  # by the rights of their people
        self._connecting = asyncio.Lock()

    def create_client(self, user: ConsoleUser, **options: Any) -> Client:
        """Return a new client for a person, not yet connected. Open and close it with `async with`."""
        return self._connect(user, shows_ui=self.shows_apps, **options)

    async def client(self, user: ConsoleUser) -> Client:
        """Return the connected client that all pages of a person share.

        Raises the error of the connection, such as `Unreachable`.
        """
        key = user.rights
        async with self._connecting:
            client = self._clients.pop(key, None)
            if client is None:
                while len(self._clients) >= _MAX_CLIENTS:
                    await _close(self._clients.pop(next(iter(self._clients))))
                client = self.create_client(user)
                await client.__aenter__()
            self._clients[key] = client  # the last one is the one used last
            return client

    async def disconnect(self, lost: Client | None = None) -> None:
        """Close a shared client whose server is gone, or all of them. The next request connects again."""
        for key, client in [*self._clients.items()]:
            if lost in (None, client):
                del self._clients[key]
                await _close(client)


class Sources:
    """The stores and the servers of a console, by id."""

    def __init__(
        self,
        *,
        adds_servers: bool = False,
        own_stores: Callable[[], Sequence[StoreSource]] = tuple,
    ) -> None:
        self._stores: dict[str, StoreSource] = {}
        self._servers: dict[str, ServerSource] = {}
        self.adds_servers = adds_servers
        """Whether people may add servers in the page, by their URLs."""
        self.sandbox: Sandbox | None = None
        """The origin that shows MCP Apps; `None` if the console shows none."""
        self.recorded_client: Callable[[ServerSource, ConsoleUser, str], Client] | None = None
        """Returns the client of a connection of the workbench, by the id of the connection."""
        self.on_removed: list[Callable[[ServerSource], Awaitable[None]]] = []
        """Functions that are called with a server that has been removed."""
        self._own_stores = own_stores

    def use_sandbox(self, sandbox: Sandbox | None) -> None:
        """Show MCP Apps of all servers in a sandbox; `None` shows none."""
        self.sandbox = sandbox
        for source in self._servers.values():
            source.shows_apps = sandbox is not None

    @property
    def stores(self) -> Mapping[str, StoreSource]:
        """The stores, by id."""
        return self._stores

    @property
    def servers(self) -> Mapping[str, ServerSource]:
        """The servers, by id."""
        return self._servers

    def add_store(self, source: StoreSource) -> None:
        """Add a store, before the console opens."""
        self._stores[source.id] = source

    def add_server(self, source: ServerSource) -> None:
        """Add a server; raises `Problem` if people have added too many."""
        if source.is_added and sum(each.is_added for each in self._servers.values()) >= _MAX_ADDED_SERVERS:
            raise Problem(409, f"The console keeps {_MAX_ADDED_SERVERS} added servers: remove one first.")
        source.shows_apps = self.sandbox is not None
        self._servers[source.id] = source

    async def remove_server(self, id: str) -> None:
        """Remove a server that was added in the page; raises `Problem` for any other."""
        source = self._servers.get(id)
        if source is None or not source.is_added:
            raise Problem(404, "There is no such server that was added in this page.")
        del self._servers[id]
        for forget in self.on_removed:
            await forget(source)
        await source.disconnect()

    def store(self, id: str) -> StoreSource:
        """Return a store; raises `Problem` if there is none of this id."""
        if id not in self._stores:
            raise Problem(404, "The console does not have this store.")
        return self._stores[id]

    def server(self, id: str) -> ServerSource:
        """Return a server; raises `Problem` if there is none of this id."""
        if id not in self._servers:
            raise Problem(404, "The console does not have this server.")
        return self._servers[id]

    async def open(self) -> None:
        """Open all stores; raises `StoreUnavailable`. Servers are connected to when they are needed."""
        for source in self._own_stores():  # the stores of a server that runs by now
            self.add_store(source)
        for source in self._stores.values():
            await source.open()

    async def close(self) -> None:
        """Close all connections and stores."""
        for server in self._servers.values():
            await server.disconnect()
        for store in self._stores.values():
            await store.close()


async def _close(client: Client) -> None:
    try:
        await client.__aexit__(None, None, None)
    except AntiphonError as error:
        logger.debug("A connection of the console did not close cleanly: %s", error)
