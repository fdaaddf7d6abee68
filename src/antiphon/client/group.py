"""Several servers as one: their tools and prompts get prefixes, and each call goes to the server that has it.

Owns which client a name or a URI belongs to. How a server is called is in `client`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar

import msgspec

from antiphon.client.client import Client
from antiphon.client.lifetime import Lifetime
from antiphon.client.streaming.stream import Stream
from antiphon.client.tasks.handle import TaskHandle
from antiphon.errors import AntiphonError, ClientError, DefinitionError, NotFound, ResourceNotFound
from antiphon.gateway.names import attributed, check_prefix, prefix_for, qualified
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import (
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from antiphon.model.outcome import Completion, InputRequired, PromptResult, ReadResult, Result
from antiphon.model.request import PromptReference, ResourceReference
from antiphon.runtime.authoring.uri_template import PrefixTemplate, UriTemplate

__all__ = ["ClientGroup"]

logger = logging.getLogger("antiphon.client")

MAX_KEPT_NAMES = 10_000
"""How many names of tools that went away lead to no other tool."""

T = TypeVar("T")
Named = TypeVar("Named", ToolDefinition, PromptDefinition)


class _Route(NamedTuple):
    """Where a name of the group leads."""

    client: Client
    name: str


class ClientGroup:
    """Connections to several servers, open inside `async with`, with the methods of `Client`.

    `servers` are `Client` objects, or targets of clients: URLs, commands, and servers in this process. A
    client that is open already stays open when the group closes. In a mapping, the keys are the prefixes of
    the servers. In a sequence, the prefix of a server is made of the server's own name, so use a mapping for
    servers that you do not trust. The tool `search` of the server `github` is `github_search` in the group.
    While the group is open, a name never leads to another tool. Further keywords are options of the clients
    that the group creates.

    With `optional=True`, a server that cannot be reached is left out with a warning. In a mapping, `optional`
    may also be the keys of the servers that can be missing. Raises `ValueError` for wrong prefixes, keys and
    options. Opening raises `ClientError` if the names of two servers in a sequence overlap, such as `github`
    and `github_search`.
    """

    def __init__(
        self,
        servers: Mapping[str, Any] | Sequence[Any],
        *,
        optional: bool | Collection[str] = False,
        **options: Any,
    ) -> None:
        if isinstance(servers, str):
            raise ValueError(
                "servers is one string: pass a list of servers, or a mapping from prefixes to servers."
            )
        pairs: Iterable[tuple[str | None, Any]]
        pairs = servers.items() if isinstance(servers, Mapping) else [(None, target) for target in servers]
        if options and all(isinstance(target, Client) for _, target in pairs):
            raise ValueError(
                f"No client of the group uses {', '.join(options)}: pass options to each Client."
            )
        self._members = [_Member(prefix, target, options) for prefix, target in pairs]
        if not isinstance(optional, bool):
            _check_keys(optional, self._members)
        for member in self._members:
            member.is_optional = optional if isinstance(optional, bool) else member.prefix in optional
        self._clients: dict[str, Client] = {}
        self._unavailable: dict[str, AntiphonError] = {}
        self._routes: dict[str, dict[str, _Route]] = {"tool": {}, "prompt": {}}
        self._kept: dict[str, dict[str, _Route]] = {"tool": {}, "prompt": {}}
        """The routes of all names that the group has given, also those that no list has now."""
        self._is_open = False

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise ClientError("The group is open already: leave it before you open it again.")
        self._is_open, self._unavailable = True, {}
        try:
            await asyncio.gather(*(member.open() for member in self._members))
            self._name_members()
            await self.tools()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def is_open(self) -> bool:
        """Whether the group is open."""
        return self._is_open

    @property
    def clients(self) -> Mapping[str, Client]:
        """The clients of the servers that were reached, by prefix."""
        return self._clients

    @property
    def unavailable(self) -> Mapping[str, AntiphonError]:
        """Why servers were left out, by prefix or, if they were passed without one, by their number."""
        return self._unavailable

    @property
    def instructions(self) -> str | None:
        """The instructions of all servers, each with the prefix that they are for."""
        texts = [attributed(prefix, client.instructions) for prefix, client in self._clients.items()]
        return "\n\n".join(text for text in texts if text) or None

    # Lists

    async def tools(self) -> list[ToolDefinition]:
        """Return the tools of all servers, with prefixes."""
        lists = await self._lists(lambda client: client.tools(), lambda offers: offers.tools)
        return self._named("tool", lists)

    async def prompts(self) -> list[PromptDefinition]:
        """Return the prompts of all servers, with prefixes."""
        lists = await self._lists(lambda client: client.prompts(), lambda offers: offers.prompts)
        return self._named("prompt", lists)

    async def resources(self) -> list[ResourceDefinition]:
        """Return the resources of all servers. Their URIs stay as they are."""
        lists = await self._lists(lambda client: client.resources(), lambda offers: offers.resources)
        return [resource for resources in lists.values() for resource in resources or ()]

    async def templates(self) -> list[TemplateDefinition]:
        """Return the resource templates of all servers. Their URIs stay as they are."""
        lists = await self._lists(lambda client: client.templates(), lambda offers: offers.resources)
        return [template for templates in lists.values() for template in templates or ()]

    # Requests

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, /, **options: Any) -> Result:
        """Call a tool by its name in the group, with the options of `Client.call`.

        Raises `NotFound` if no server has the tool.
        """
        client, name = await self._route("tool", name)
        return await client.call(name, arguments, **options)

    async def call_once(
        self, name: str, arguments: Mapping[str, Any] | None = None, /, **options: Any
    ) -> Result | InputRequired | TaskHandle:
        """Send one round of a call, with the options of `Client.call_once`; raises `NotFound`."""
        client, name = await self._route("tool", name)
        return await client.call_once(name, arguments, **options)

    async def submit(
        self, name: str, arguments: Mapping[str, Any] | None = None, /, **options: Any
    ) -> TaskHandle:
        """Call a tool as a task, with the options of `Client.submit`; raises `NotFound`.

        To follow the task in another process, keep the prefix too: `group.clients[prefix].task(id)`.
        """
        client, name = await self._route("tool", name)
        return await client.submit(name, arguments, **options)

    def stream(self, name: str, arguments: Mapping[str, Any] | None = None, /, **options: Any) -> Stream:
        """Call a tool and read the segments of its output, with the options of `Client.stream`.

        Raises `NotFound` if no server had the tool when the list of tools was read last.
        """
        client, name = self._known_route("tool", name)
        return client.stream(name, arguments, **options)

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Any
    ) -> PromptResult:
        """Fill in a prompt by its name in the group; raises `NotFound` if no server has the prompt."""
        client, name = await self._route("prompt", name)
        return await client.prompt(name, arguments, **options)

    async def read(self, uri: str, **options: Any) -> ReadResult:
        """Read a resource of the first server that lists the URI, or has a template for it.

        Raises `ResourceNotFound` if several servers have resources and none has this one.
        """
        return await (await self._owner(uri)).read(uri, **options)

    async def complete(
        self,
        ref: str | PromptReference | ResourceReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Completion:
        """Suggest values for an argument of a prompt, by its name, or of a resource, by its URI template."""
        if isinstance(ref, ResourceReference) or (isinstance(ref, str) and ("://" in ref or "{" in ref)):
            client = await self._owner(ref if isinstance(ref, str) else ref.uri)
            return await client.complete(ref, argument, value, context, **options)
        client, name = await self._route("prompt", ref if isinstance(ref, str) else ref.name)
        return await client.complete(PromptReference(name), argument, value, context, **options)

    async def ping(self) -> None:
        """Check that all servers respond."""
        await asyncio.gather(*(client.ping() for client in self._clients.values()))

    # Inside

    def _name_members(self) -> None:
        """Give each server that was reached its prefix; raises the error of one that is not optional."""
        for number, member in enumerate(self._members, start=1):
            if member.error is None:
                self._clients[self._free_prefix(member)] = member.client
            elif member.is_optional:
                key = member.prefix or str(number)
                self._unavailable[key] = member.error
                logger.warning("The server %s is left out of the group: %s", key, member.error)
            else:
                raise member.error
        if any(member.prefix is None for member in self._members):
            self._check_overlap()

    def _check_overlap(self) -> None:
        """Raise `ClientError` if a server named itself so that it could take the names of another server."""
        for shorter, longer in itertools.permutations(self._clients, 2):
            if longer.startswith(f"{shorter}_"):
                raise ClientError(
                    f"The names of two servers of the group overlap: {shorter} and {longer}. One could offer "
                    "tools under the names of the other. Pass a mapping from prefixes to servers."
                )

    def _free_prefix(self, member: _Member) -> str:
        """Return the prefix of a server; the second server with the name `uni` has the prefix `uni2`."""
        if member.prefix is not None:
            return member.prefix
        server = member.client.server
        prefix = prefix_for(server.name if server is not None else "server")
        numbered = (f"{prefix}{number}" for number in itertools.count(2))
        return next(free for free in itertools.chain([prefix], numbered) if free not in self._clients)

    async def _lists(
        self,
        read: Callable[[Client], Awaitable[list[T]]],
        offered: Callable[[ServerCapabilities], bool],
    ) -> dict[str, list[T] | None]:
        """Return the lists of all servers that offer the kind, by prefix; `None` for a list that failed."""
        clients = {prefix: client for prefix, client in self._clients.items() if offered(client.offers)}
        lists = await asyncio.gather(*(self._list(prefix, read) for prefix in clients))
        return dict(zip(clients, lists, strict=True))

    async def _list(self, prefix: str, read: Callable[[Client], Awaitable[list[T]]]) -> list[T] | None:
        client = self._clients[prefix]
        try:
            return await read(client)
        except AntiphonError as error:
            if not any(member.is_optional for member in self._members if member.client is client):
                raise
            logger.warning("The lists of the server %s are left out of the group: %s", prefix, error)
            return None

    def _named(self, kind: Literal["tool", "prompt"], lists: Mapping[str, list[Named] | None]) -> list[Named]:
        """Return the definitions under their names in the group, and keep the routes from these names."""
        found: dict[str, list[Named]] = {}
        failed = [prefix for prefix, listed in lists.items() if listed is None]
        silent = [self._clients[prefix] for prefix in failed]
        # A server whose list failed keeps its names, and other servers cannot take them.
        routes = {name: route for name, route in self._routes[kind].items() if route.client in silent}
        missing = failed + list(self._unavailable)
        # `a` with `b_c` and `a_b` with `c` would be the same. The longer prefix gets the name, so that the
        # server with the shorter one cannot take it. Later lists change no route: a model that knows a name
        # would call another server.
        for prefix in sorted(lists, key=len, reverse=True):
            found[prefix] = []
            for definition in lists[prefix] or ():
                route = _Route(self._clients[prefix], definition.name)
                name = self._free_name(kind, qualified(prefix, definition.name), route, routes)
                owner = _owner_of(name, prefix, missing)
                if owner is not None and name not in self._kept[kind]:
                    logger.warning(
                        "The %s %s of the server %s is left out: its name is for the server %s, "
                        "which is missing.",
                        kind,
                        name,
                        prefix,
                        owner,
                    )
                    continue
                routes[name] = route
                found[prefix].append(msgspec.structs.replace(definition, name=name))
        self._routes[kind] = routes
        self._keep(kind, routes)
        return [definition for prefix in lists for definition in found[prefix]]

    def _free_name(self, kind: str, name: str, route: _Route, taken: Mapping[str, _Route]) -> str:
        """Return the name, or the name with the first number that never led to another tool."""
        kept = self._kept[kind]
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        for free in itertools.chain([name], numbered):
            if free not in taken and kept.get(free, route) == route:
                break
        return free

    def _keep(self, kind: str, routes: Mapping[str, _Route]) -> None:
        """Keep the names while the group is open; the oldest that no list has are forgotten above a bound."""
        kept = {name: route for name, route in self._kept[kind].items() if name not in routes}
        excess = max(len(kept) - MAX_KEPT_NAMES, 0)
        self._kept[kind] = dict(itertools.islice(kept.items(), excess, None)) | dict(routes)

    async def _route(self, kind: Literal["tool", "prompt"], name: str) -> _Route:
        """Return the route of a name, and read the lists again if it is new; raises `NotFound`."""
        if name not in self._routes[kind]:
            await (self.tools() if kind == "tool" else self.prompts())
        return self._known_route(kind, name)

    def _known_route(self, kind: Literal["tool", "prompt"], name: str) -> _Route:
        route = self._routes[kind].get(name)
        if route is None:
            prefixes = ", ".join(self._clients) or "none"
            raise NotFound(
                f"No server of the group has the {kind} {name!r}. Names begin with the prefix of a server "
                f"and an underscore. The servers are: {prefixes}."
            )
        return route

    async def _owner(self, uri: str) -> Client:
        """Return the client whose server has a resource, or a template with or for this URI."""
        clients = [client for client in self._clients.values() if client.offers.resources]
        if len(clients) == 1:
            return clients[0]
        listed = await self._lists(lambda client: client.resources(), lambda offers: offers.resources)
        for prefix, resources in listed.items():
            if any(resource.uri == uri for resource in resources or ()):
                return self._clients[prefix]
        templates = await self._lists(lambda client: client.templates(), lambda offers: offers.resources)
        for prefix, found in templates.items():
            if any(_fits(template.uri_template, uri) for template in found or ()):
                return self._clients[prefix]
        raise ResourceNotFound(
            f"No server of the group has the resource {uri!r}. Read it from the client of one server: "
            "group.clients[prefix].read(uri)."
        )

    async def _close(self) -> None:
        """Close all clients; raises the first error of closing after all are closed."""
        ended = await asyncio.gather(
            *(member.lifetime.end() for member in self._members), return_exceptions=True
        )
        self._clients, self._is_open = {}, False
        self._routes, self._kept = {"tool": {}, "prompt": {}}, {"tool": {}, "prompt": {}}
        for error in ended:
            if isinstance(error, BaseException):
                raise error


class _Member:
    """One server of a group."""

    def __init__(self, prefix: str | None, target: Any, options: Mapping[str, Any]) -> None:
        if prefix is not None:
            try:
                check_prefix(prefix, "ClientGroup")
            except DefinitionError as error:
                raise ValueError(str(error)) from None
        self.prefix = prefix
        self.client = target if isinstance(target, Client) else Client(target, **options)
        self.is_optional = False
        self.error: AntiphonError | None = None
        """Why the server could not be reached."""
        self.lifetime = Lifetime(self.client)

    async def open(self) -> None:
        """Connect. An `AntiphonError` is kept, and not raised."""
        self.error = None
        try:
            await self.lifetime.begin()
        except AntiphonError as error:
            self.error = error


def _owner_of(name: str, prefix: str, missing: Iterable[str]) -> str | None:
    """Return the longer prefix that a name of a server also begins with, if its server is missing."""
    for other in missing:
        if other.startswith(f"{prefix}_") and name.startswith(f"{other}_"):
            return other
    return None


def _fits(template: str, uri: str) -> bool:
    """Return whether a template of a server is this URI, or matches it."""
    if template == uri:
        return True
    try:
        return UriTemplate(template).match(uri) is not None
    except DefinitionError:  # an expression that this library does not know
        return PrefixTemplate(template).match(uri) is not None


def _check_keys(optional: Collection[str], members: Iterable[_Member]) -> None:
    prefixes = [member.prefix for member in members]
    wrong = [key for key in ([optional] if isinstance(optional, str) else optional) if key not in prefixes]
    if wrong or isinstance(optional, str):
        raise ValueError(
            f"optional={optional!r} is neither a bool nor a collection of keys of the mapping: "
            f"{', '.join(str(prefix) for prefix in prefixes)}."
        )
