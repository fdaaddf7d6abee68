"""Offers the tools, resources and prompts of one upstream server in the server that mounts it.

Owns the names, and the lists as they change. It must not know how the server is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from antiphon.errors import AntiphonError, Busy, DefinitionError, Failure, RequestError
from antiphon.gateway.forwarding import forward, translated_errors
from antiphon.gateway.names import attributed, qualified
from antiphon.gateway.options import Mounted
from antiphon.gateway.upstream import Upstream
from antiphon.gateway.upstream_client import UpstreamClient
from antiphon.model.catalog import (
    Definition,
    Kind,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.notification import Change, ListChanged, ResourceUpdated
from antiphon.model.outcome import Completion, InputRequired, PromptResult, ReadResult, Result
from antiphon.model.request import (
    CallTool,
    Complete,
    GetPrompt,
    PromptReference,
    ReadResource,
    RequestMeta,
    TaskParams,
)
from antiphon.runtime.authoring.foreign import ForeignPrompt, ForeignResource, ForeignTool
from antiphon.runtime.authoring.offer import read_offer
from antiphon.runtime.authoring.options import TaskPolicy
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.providers import Listing, Provider
from antiphon.wire.mirrored_headers import declared

__all__ = ["UpstreamProvider"]

logger = logging.getLogger("antiphon.gateway")

_START_SECONDS, _PROCESS_START_SECONDS = 5.0, 10.0
"""How long the start of a server waits for the first connection to a URL, and to a command. An upstream
server that takes longer is connected in the background."""
_REFRESH_SECONDS = 2.0
"""How long a caller waits for a list of an upstream server. After that, it gets the last one."""
_CHANGES_SECONDS = 0.1
"""How long changes of a list are gathered before it is read once more."""
_MAX_SUBSCRIPTIONS = 10_000
"""How many resources of one server callers can subscribe to, all together."""
_KINDS: tuple[Kind, ...] = ("tools", "resources", "templates", "prompts")
_STALE: Mapping[str, tuple[Kind, ...]] = {
    "tools": ("tools",),
    "resources": ("resources", "templates"),
    "prompts": ("prompts",),
}
"""The lists to read again when the server announces a change."""


class UpstreamProvider(Provider):
    """The items of one upstream server."""

    def __init__(self, engine: Engine, mounted: Mounted) -> None:
        self.kinds: Sequence[Kind] = ("tools",)
        self._engine = engine
        self._mounted = mounted
        self._upstream = Upstream(
            mounted, self._connected, self._changed, share=engine.limits.principal_share
        )
        self._offer = read_offer(f"mount({mounted.name!r}, …)", mounted.tags, True, mounted.visible)
        self._subscriptions: Counter[str] = Counter()
        if mounted.tasks:
            engine.tasks.needed = True  # its tools may come later
        self._known: dict[Kind, Sequence[Definition]] = {}
        self._refreshing: dict[Kind, asyncio.Task[None]] = {}
        self._stale: dict[str, bool] = {}
        """The lists that have changed since they were read, and whether that is only assumed."""
        self._following: dict[str, asyncio.Task[None]] = {}
        self._running: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._wait_until = 0.0
        self._has_started = False

    # Running

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the server, and stay connected until the end.

        A server that cannot be reached does not keep the others from starting. Raises `DefinitionError` if
        the name of one of its tools or prompts is taken.
        """
        beginning = [each for each in self._engine.registry.providers if isinstance(each, UpstreamProvider)]
        try:
            for each in beginning:  # at once: none waits for another one to connect
                each.begin()
            assert self._running is not None
            waiting = asyncio.create_task(self._tried.wait())
            await asyncio.wait(
                {waiting, self._running},
                timeout=max(0.0, self._wait_until - asyncio.get_running_loop().time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            waiting.cancel()
            if self._running.done():
                self._running.result()
            elif not self._tried.is_set():
                logger.warning(
                    "The server %r does not respond yet. The others are served; its tools are offered when "
                    "it responds.",
                    self._mounted.name,
                )
            self._has_started = True
        except BaseException:
            for each in beginning:
                await each.end()
            raise
        try:
            yield
        finally:
            await self.end()

    def begin(self) -> None:
        """Start to connect, unless that has begun."""
        if self._running is None:
            self._tried.clear()
            seconds = _PROCESS_START_SECONDS if self._mounted.is_command else _START_SECONDS
            self._wait_until = asyncio.get_running_loop().time() + seconds
            self._running = asyncio.create_task(self._upstream.run(self._tried.set))

    async def end(self) -> None:
        """Disconnect."""
        running, self._running = self._running, None
        self._has_started = False
        tasks = {*self._refreshing.values(), *self._following.values()}
        if running is not None:
            tasks.add(running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._refreshing.clear()
        self._following.clear()

    # Lists

    @property
    def protects(self) -> bool:
        """Whether the server protects what it offers, or the mount does."""
        return self._upstream.is_protected or self._mounted.scopes is not None

    def _guard(self) -> None:
        """Offer what a command protects to nobody but who runs the gateway too: it cannot check callers."""
        mounted, is_protected = self._mounted, self._upstream.is_protected
        self._offer = read_offer(f"mount({mounted.name!r}, …)", mounted.tags, True, mounted.visible)
        if is_protected:
            self._offer = replace(self._offer, guard=_runs_the_gateway)
            logger.error(
                "The server %r is not offered over HTTP: it authenticates its callers or needs scopes, and a "
                "gateway that starts it as a command cannot tell it who calls. Serve it over HTTP with "
                "antiphon run and name its URL. Or offer it to every caller with --allow-anonymous, in "
                "Python allow_anonymous=True.",
                mounted.name,
            )

    async def _connected(self, client: UpstreamClient) -> None:
        """Register everything that the server offers."""
        self._guard()
        offers = client.offers
        has = {
            "tools": offers.tools,
            "resources": offers.resources,
            "templates": offers.resources,
            "prompts": offers.prompts,
        }
        self.kinds = tuple(kind for kind in _KINDS if has[kind])
        instructions = None if self._upstream.is_protected else client.instructions
        self._engine.describe(self, attributed(self._prefix, instructions))
        self._known.clear()  # how the server asks may have changed, so that all items are made anew
        for kind in _KINDS:
            definitions: Sequence[Definition] = ()
            if has[kind]:
                try:
                    definitions = await _listed(client, kind)
                except RequestError as error:  # some servers have resources, and no list of templates
                    logger.debug("The server %r does not list %s: %s", self._mounted.name, kind, error)
            self._register(kind, definitions)
        for uri in tuple(self._subscriptions):
            await self._try(client.subscribe(uri), f"subscribe to {uri}")

    async def _changed(self, change: Change) -> None:
        """Follow a change that the server announces."""
        if isinstance(change, ResourceUpdated):
            if change.uri in self._subscriptions:
                self._engine.changes.publish(ResourceUpdated(change.uri))
            return
        self._stale[change.kind] = change.assumed and self._stale.get(change.kind, True)
        # In the background: the connection hands this change over, and cannot bring a list meanwhile.
        following = self._following.get(change.kind)
        if following is None or following.done():
            self._following[change.kind] = asyncio.create_task(self._follow_changes(change.kind))

    def _refresh(self, kind: Kind) -> asyncio.Task[None]:
        """Read a list again in the background, unless that is under way."""
        task = self._refreshing.get(kind)
        if task is None or task.done():
            task = self._refreshing[kind] = asyncio.create_task(self._read_again(kind))
        return task

    async def _follow_changes(self, name: str) -> None:
        """Read the lists that have changed, and notify callers, also if the change was taken back since.

        Changes that come meanwhile are followed together, however many a server announces.
        """
        while name in self._stale:
            is_assumed, before = self._stale.pop(name), dict(self._known)
            for kind in _STALE[name]:
                await self._read_again(kind)
            if not is_assumed and all(self._known.get(kind) is before.get(kind) for kind in _STALE[name]):
                self._engine.changes.publish(ListChanged(name))
            await asyncio.sleep(_CHANGES_SECONDS)

    async def _read_again(self, kind: Kind) -> None:
        try:
            self._register(kind, await _listed(self._upstream.client, kind))
        except AntiphonError as error:
            logger.warning("Cannot read the %s of the server %r: %s", kind, self._mounted.name, error)

    def _register(self, kind: Kind, definitions: Sequence[Definition]) -> None:
        """Offer the items of a list, in place of those that are offered; unchanged ones stay as they are."""
        if self._known.get(kind) == definitions:
            return
        items = {_key(item): item for each in definitions if (item := self._item(each)) is not None}
        for key in tuple(items):
            owner = self._engine.registry.owner(kind, key)
            if owner is not self and key in self._engine.registry.registered(kind):
                self._report_taken(kind, key)
                del items[key]
        mirrored = {
            key: headers
            for key, item in items.items()
            if isinstance(item, Tool) and (headers := _headers(item))
        }
        self._engine.replace(self, kind, list(items.values()), mirrored)
        self._known[kind] = definitions

    def _report_taken(self, kind: Kind, key: str) -> None:
        """Raise `DefinitionError` for a name that is taken, if the server is starting; later, log it.

        The URIs of two servers cannot be told apart by a prefix, so the first one has the resource.
        """
        what = kind.removesuffix("s")
        message = f"The server {self._mounted.name!r} has a {what} {key!r}, and this name is taken"
        if kind in ("tools", "prompts") and not self._has_started:
            raise DefinitionError(f"{message}. Mount it under another name.")
        logger.error("%s. It is left out.", message)

    async def list(self, kind: Kind, call: Call[Any]) -> Listing | None:
        """Read a list again whose changes the server does not announce, for as long as a caller may wait."""
        announced = "resources" if kind == "templates" else kind
        try:
            client = self._upstream.client
        except AntiphonError:
            return None
        if kind in self.kinds and announced not in client.offers.list_changes:
            await asyncio.wait({self._refresh(kind)}, timeout=_REFRESH_SECONDS)
        return None

    async def find(self, kind: Kind, key: str, call: Call[Any]) -> Tool | Resource | Prompt | None:
        """Return a resource that the server does not list, if its URI looks like those that it lists."""
        if kind != "resources" or "resources" not in self.kinds:
            return None
        listed = (*self._known.get("resources", ()), *self._known.get("templates", ()))
        schemes = {_uri(each).partition(":")[0] for each in listed}
        if key.partition(":")[0] not in schemes:
            return None
        return self._resource(ResourceDefinition(key, key))

    # Items

    def _item(self, definition: Definition) -> Tool | Resource | Prompt | None:
        """Return the item for a definition; `None` for one that cannot be offered."""
        try:
            if isinstance(definition, ToolDefinition):
                return self._tool(definition) if definition.name else None
            if isinstance(definition, PromptDefinition):
                return self._prompt(definition)
            return self._resource(definition)
        except DefinitionError as error:
            logger.warning("Left out of what the server %r offers: %s", self._mounted.name, error)
            return None

    def _tool(self, definition: ToolDefinition) -> ForeignTool:
        mounted = self._mounted
        is_chosen = definition.name in mounted.tasks or "*" in mounted.tasks
        may_be_task = is_chosen or definition.task_support != "forbidden" or self._promises
        policy: TaskPolicy = "optional" if may_be_task else "forbidden"
        return ForeignTool(
            msgspec.structs.replace(definition, name=self._name(definition.name)),
            partial(self._call, definition.name, definition.task_support == "required"),
            self._engine.threads,
            scopes=mounted.scopes,
            artifact_over=mounted.artifact_over,
            timeout=mounted.timeout,
            task=policy,
            # A server that decides for each call whether it becomes a task also decides it for the gateway.
            answer_within=float("inf") if self._promises and not is_chosen else None,
            replays=self._upstream.returns_questions,
            offer=self._offer,
        )

    def _resource(self, definition: ResourceDefinition | TemplateDefinition) -> ForeignResource:
        return ForeignResource(
            definition,
            self._read,
            scopes=self._mounted.scopes,
            complete=self._complete,
            replays=self._upstream.returns_questions,
            offer=self._offer,
        )

    def _prompt(self, definition: PromptDefinition) -> ForeignPrompt:
        return ForeignPrompt(
            msgspec.structs.replace(definition, name=self._name(definition.name)),
            partial(self._fill, definition.name),
            scopes=self._mounted.scopes,
            complete=partial(self._complete, prompt=definition.name),
            replays=self._upstream.returns_questions,
            offer=self._offer,
        )

    @property
    def _promises(self) -> bool:
        """Whether the server decides for each call whether it becomes a task."""
        return self._upstream.returns_questions and self._upstream.client.offers.tasks

    @property
    def _prefix(self) -> str | None:
        return self._mounted.name if self._mounted.prefix else None

    def _name(self, name: str) -> str:
        return qualified(self._prefix, name)

    # Requests

    async def _call(
        self, name: str, is_task: bool, arguments: dict[str, Any], context: Context
    ) -> Result | InputRequired:
        task = TaskParams() if is_task else None
        outcome: Result | InputRequired = await forward(
            self._upstream, CallTool(name=name, arguments=arguments, task=task), context
        )
        return outcome

    async def _read(self, uri: str, context: Context) -> ReadResult | InputRequired:
        read: ReadResult | InputRequired = await forward(self._upstream, ReadResource(uri=uri), context)
        return read

    async def _fill(
        self, name: str, arguments: dict[str, str], context: Context
    ) -> PromptResult | InputRequired:
        filled: PromptResult | InputRequired = await forward(
            self._upstream, GetPrompt(name=name, arguments=arguments), context
        )
        return filled

    async def _complete(self, call: Call[Complete], prompt: str | None = None) -> Completion:
        self._upstream.check(call)
        request = call.request
        if prompt is not None:
            request = msgspec.structs.replace(request, ref=PromptReference(prompt))
        with translated_errors(self._mounted.name):
            completion: Completion = await self._upstream.client.forward(request, RequestMeta())
        return completion

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        """Subscribe to a resource of the server, for as long as any caller does."""
        if not self._offers(uri):
            return
        if uri not in self._subscriptions and len(self._subscriptions) >= _MAX_SUBSCRIPTIONS:
            raise Busy(
                f"Callers are subscribed to {_MAX_SUBSCRIPTIONS} resources of the server "
                f"{self._mounted.name!r}, which is all that a gateway passes on. Try again later."
            )
        self._subscriptions[uri] += 1
        if self._subscriptions[uri] == 1 and (client := self._subscribing) is not None:
            await self._try(client.subscribe(uri), f"subscribe to {uri}")

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        """Unsubscribe from a resource of the server, if no other caller has subscribed to it."""
        if uri not in self._subscriptions:
            return
        self._subscriptions[uri] -= 1
        if self._subscriptions[uri] <= 0:
            del self._subscriptions[uri]
            if (client := self._subscribing) is not None:
                await self._try(client.unsubscribe(uri), f"unsubscribe from {uri}")

    @property
    def _subscribing(self) -> UpstreamClient | None:
        """The connection on which changes of resources come; `None` while there is none."""
        try:
            client = self._upstream.client
        except Failure:
            return None
        return client if client.offers.resource_subscriptions else None

    async def _try(self, request: Awaitable[None], what: str) -> None:
        """Send a request that may fail without harm to the caller; a failure is logged."""
        try:
            await request
        except AntiphonError as error:
            logger.warning("Cannot %s at the server %r: %s", what, self._mounted.name, error)

    def _offers(self, uri: str) -> bool:
        """Return whether a resource belongs to this server."""
        registry = self._engine.registry
        try:
            resource, _ = registry.resource(uri)
        except AntiphonError:
            return False
        kind: Kind = "resources" if resource.template is None else "templates"
        return registry.owner(kind, resource.uri) is self


async def _listed(client: UpstreamClient, kind: Kind) -> Sequence[Definition]:
    """Return a list of the server."""
    readers: dict[Kind, Callable[[], Any]] = {
        "tools": client.tools,
        "resources": client.resources,
        "templates": client.templates,
        "prompts": client.prompts,
    }
    listed: Sequence[Definition] = await readers[kind]()
    return listed


def _runs_the_gateway(principal: Principal) -> bool:
    """Return whether a caller runs the gateway: over stdio, or in its process."""
    return principal is ANONYMOUS


def _key(item: Tool | Resource | Prompt) -> str:
    return item.uri if isinstance(item, Resource) else item.name


def _uri(definition: Definition) -> str:
    if isinstance(definition, ResourceDefinition):
        return definition.uri
    return definition.uri_template if isinstance(definition, TemplateDefinition) else definition.name


def _headers(tool: Tool) -> Any:
    """Return the headers that repeat arguments of a tool; none if its schema declares them wrongly."""
    try:
        return declared(tool.definition.input_schema)
    except DefinitionError:
        return {}
