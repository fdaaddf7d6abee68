"""Offers the tools, resources and prompts of one upstream server in the server that mounts it.

Owns the names, and the lists as they change. It must not know how the server is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from antiphon.backoff import Backoff
from antiphon.errors import AntiphonError, Busy, DefinitionError, Failure, RequestError
from antiphon.gateway.forwarding import forward, translated_errors
from antiphon.gateway.names import attributed, other_prefixes, qualified
from antiphon.gateway.options import Mounted
from antiphon.gateway.upstream import Upstream
from antiphon.gateway.upstream_client import UpstreamClient
from antiphon.model.capabilities import PROTECTED
from antiphon.model.catalog import (
    SCOPES_META_KEY,
    Definition,
    Kind,
    PromptArgument,
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
from antiphon.printable import is_visible, printable, printable_title
from antiphon.runtime.authoring.foreign import ForeignPrompt, ForeignResource, ForeignTool
from antiphon.runtime.authoring.offer import read_offer
from antiphon.runtime.authoring.options import TaskPolicy
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.authoring.uri_template import PrefixTemplate
from antiphon.runtime.budget import share_of
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.providers import Listing, Provider
from antiphon.turn import Turn
from antiphon.wire.mirrored_headers import declared

__all__ = ["UpstreamProvider", "read_list"]

logger = logging.getLogger("antiphon.gateway")

START_SECONDS, PROCESS_START_SECONDS = 5.0, 10.0
"""How long the start of a server waits for the first connection to a URL, and to a command. An upstream
server that takes longer is connected in the background."""
REFRESH_SECONDS = 2.0
"""How long a caller waits for a list of an upstream server. After that, it gets the last one."""
CHANGES_SECONDS, LONGEST_CHANGES_SECONDS = 0.1, 60.0
"""How long changes of lists are gathered before they are read once more: at first, and if they never end."""
SECONDS_PER_ITEM = 0.001
"""The shortest such time for each item that a server lists: the work on them is a small part of it."""
_CALM_FACTOR = 4
"""A server whose lists stay the same for so many times the current delay may change them at once again."""
_MAX_NAMED, _MAX_NAME_CHARACTERS = 5, 80
"""How many names of items that are left out the log shows, and how much of each."""
MAX_SUBSCRIPTIONS = 10_000
"""How many resources of one server callers can subscribe to, all together."""
_KINDS: tuple[Kind, ...] = ("tools", "templates", "resources", "prompts")
_NAMED: tuple[Kind, ...] = ("tools", "prompts")
"""The lists whose items get a prefix."""
_URIS: tuple[Kind, ...] = ("resources", "templates")
_STALE: Mapping[str, tuple[Kind, ...]] = {
    "tools": ("tools",),
    "resources": ("resources", "templates"),
    "prompts": ("prompts",),
}
"""The lists to read again when the server announces a change."""


class _Made(NamedTuple):
    """An item as the server defines it, and as it is offered, with the headers that repeat its arguments."""

    definition: Definition
    item: Tool | Resource | Prompt
    headers: Mapping[str, tuple[str, ...]]


class _Pace:
    """When the lists of a server are read again. One that changes them all the time has to wait longer."""

    def __init__(self) -> None:
        self._backoff = Backoff(CHANGES_SECONDS, LONGEST_CHANGES_SECONDS)
        self._next = 0.0

    @property
    def left(self) -> float:
        """How many seconds it takes until a list may be read."""
        return max(0.0, self._next - asyncio.get_running_loop().time())

    async def wait(self) -> None:
        """Wait until a list may be read."""
        await asyncio.sleep(self.left)

    def slow_down(self, items: int) -> None:
        """Note that lists of so many items were read, because they had changed."""
        now = asyncio.get_running_loop().time()
        if now - self._next > _CALM_FACTOR * self._backoff.delay:
            self._backoff.reset()
        self._next = now + max(self._backoff.next_delay(), items * SECONDS_PER_ITEM)


class UpstreamProvider(Provider):
    """The items of one upstream server."""

    def __init__(self, engine: Engine, mounted: Mounted) -> None:
        self.kinds: Sequence[Kind] = ("tools",)
        self._engine = engine
        self._mounted = mounted
        self.upstream = Upstream(mounted, self._connected, self._changed, share=engine.limits.principal_share)
        self.prefix = mounted.name if mounted.prefix else None
        self._offer = read_offer(f"mount({mounted.name!r}, …)", mounted.tags, True, mounted.visible)
        self._subscriptions: Counter[str] = Counter()
        """How many subscriptions there are, by URI."""
        self._subscribed: dict[str, Counter[str]] = {}
        """The same by the share of the caller, a principal or an address."""
        if mounted.tasks:
            engine.tasks.needed = True  # its tools may come later
        self._made: dict[Kind, dict[str, _Made]] = {}
        """The items of each list, by the names that the server has for them."""
        self._schemes: set[str] = set()
        self._problems: dict[Kind, Mapping[str, Sequence[str]]] = {}
        """Why items of each list cannot be offered, and which."""
        self._reported: dict[Kind, frozenset[str]] = {}
        """What is left out of each list, as it was logged."""
        self._has_begun = False
        """Whether the server was connected before: from then on it takes nothing that another one has."""
        self._registering, self._reading = asyncio.Lock(), asyncio.Lock()
        self._pace = _Pace()
        self._refreshing: dict[Kind, asyncio.Task[None]] = {}
        self._stale: dict[str, bool] = {}
        """The lists that have changed since they were read, and whether that is only assumed."""
        self._following: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._wait_until = 0.0

    # Running

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the server, and stay connected until the end.

        A server that cannot be reached does not keep the others from starting, and neither do names that are
        taken: what has them is left out.
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
            seconds = PROCESS_START_SECONDS if self._mounted.is_command else START_SECONDS
            self._wait_until = asyncio.get_running_loop().time() + seconds
            self._running = asyncio.create_task(self.upstream.run(self._tried.set))

    async def end(self) -> None:
        """Disconnect."""
        running, self._running = self._running, None
        self._has_begun = False
        tasks = {*self._refreshing.values(), *([] if self._following is None else [self._following])}
        if running is not None:
            tasks.add(running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._refreshing.clear()
        self._following = None

    # Lists

    @property
    def protects(self) -> bool:
        """Whether the server protects what it offers, or the mount does."""
        return self.upstream.is_protected or self._mounted.scopes is not None

    def _guard(self) -> None:
        """Offer what a command protects to nobody but who runs the gateway too: it cannot check callers."""
        mounted = self._mounted
        self._offer = read_offer(f"mount({mounted.name!r}, …)", mounted.tags, True, mounted.visible)
        instructions = self.upstream.client.instructions
        if self.upstream.is_protected:
            instructions = None
            self._offer = replace(self._offer, guard=_runs_the_gateway)
            logger.error(
                "The server %r is not offered over HTTP: it authenticates its callers, needs scopes or has "
                "middleware of its own that may check who calls, and a gateway that starts it as a command "
                "cannot tell it. Serve it over HTTP with antiphon run and name its URL. Or offer it to every "
                "caller with --allow-anonymous, in Python allow_anonymous=True.",
                mounted.name,
            )
        self._engine.describe(self, attributed(self.prefix, instructions))

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
        self._made.clear()  # how the server asks may have changed, so that all items are made anew
        self._schemes = set()
        for kind in _KINDS:
            definitions: Sequence[Definition] = ()
            if has[kind]:
                try:
                    definitions = await read_list(client, kind)
                except RequestError as error:  # some servers have resources, and no list of templates
                    logger.debug("The server %r does not list %s: %s", self._mounted.name, kind, error)
            await self._register(kind, definitions)
        self._has_begun = True
        for uri in tuple(self._subscriptions):
            await self._try(client.subscribe(uri), f"subscribe to {uri}")

    async def _changed(self, change: Change) -> None:
        """Follow a change that the server announces."""
        if isinstance(change, ResourceUpdated):
            if change.uri in self._subscriptions and self._offers(change.uri):
                self._engine.changes.publish(ResourceUpdated(change.uri))
            return
        self._stale[change.kind] = change.assumed and self._stale.get(change.kind, True)
        # In the background: the connection hands this change over, and cannot bring a list meanwhile.
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow_changes())

    async def _follow_changes(self) -> None:
        """Read the lists that have changed, and notify callers, also if the change was taken back since.

        Changes that come meanwhile are followed together, however many a server announces.
        """
        while self._stale:
            await self._pace.wait()
            stale, self._stale = self._stale, {}
            for name, is_assumed in stale.items():
                has_changed = [await self._read_again(kind) for kind in _STALE[name]]
                if not is_assumed and not any(has_changed):
                    self._engine.changes.publish(ListChanged(name))
            self._pace.slow_down(self._size)

    def _refresh(self, kind: Kind) -> asyncio.Task[None]:
        """Read a list again in the background, unless that is under way."""
        task = self._refreshing.get(kind)
        if task is None or task.done():
            task = self._refreshing[kind] = asyncio.create_task(self._look_again(kind))
        return task

    async def _look_again(self, kind: Kind) -> None:
        await self._pace.wait()
        if await self._read_again(kind):
            self._pace.slow_down(self._size)

    async def _read_again(self, kind: Kind) -> bool:
        """Read a list again, and offer what it has now; return whether it has changed."""
        async with self._reading:  # one after the other: an older list must not replace a newer one
            try:
                client = self.upstream.client
                definitions = await read_list(client, kind)
                if client is self.upstream.client:
                    return await self._register(kind, definitions)
            except AntiphonError as error:
                logger.warning("Cannot read the %s of the server %r: %s", kind, self._mounted.name, error)
        return False

    @property
    def _size(self) -> int:
        """How many items the server lists."""
        return sum(map(len, self._made.values()))

    async def _register(self, kind: Kind, definitions: Sequence[Definition]) -> bool:
        """Offer the items of a list, in place of those that are offered; return whether it has changed."""
        async with self._registering:
            if not self.upstream.is_protected and any(map(self._is_marked, definitions)):
                await self._protect(kind)
            return await self._register_changed(kind, definitions)

    def _is_marked(self, definition: Definition) -> bool:
        """Return whether a server that was started as a command protects an item, or says so of itself."""
        mounted = self._mounted
        return (
            mounted.is_command
            and not mounted.allow_anonymous
            and definition.meta is not None
            and not definition.meta.keys().isdisjoint((PROTECTED, SCOPES_META_KEY))
        )

    async def _protect(self, but: Kind) -> None:
        """Guard everything: the server protects itself, and did not know that when it was connected."""
        self.upstream.is_protected = True
        self._guard()
        made, self._made = self._made, {}
        for kind, items in made.items():
            if kind != but:
                await self._register_changed(kind, [each.definition for each in items.values()])

    async def _register_changed(self, kind: Kind, definitions: Sequence[Definition]) -> bool:
        """Make the items of a list that have changed, and offer them with the others.

        Other work of the event loop goes on meanwhile, however many there are.
        """
        before = self._made.get(kind)
        made: dict[str, _Made] = {}
        problems: dict[str, list[str]] = {}
        turn = Turn()
        for definition in definitions:
            await turn.step()
            had = None if before is None else before.get(_name_of(definition))
            if had is None or had.definition != definition:
                try:
                    had = self._make(definition)
                except DefinitionError as error:
                    problems.setdefault(str(error), []).append(_name_of(definition))
                    continue
            made[_name_of(definition)] = had
        if before is not None and list(made.values()) == list(before.values()):
            return False
        self._made[kind] = made
        self._schemes = {name.partition(":")[0] for kind in _URIS for name in self._made.get(kind, ())}
        await self._offer_made(kind, problems, await self._covered(kind))
        if kind in _URIS and not self._has_begun:
            for each in self._later_mounts():
                await each.give_way(self)
        return True

    async def _offer_made(
        self, kind: Kind, problems: dict[str, list[str]], covered: Collection[str] = ()
    ) -> None:
        """Register the items of a list that were made, without those whose names can only be another's."""
        registry = self._engine.registry
        reserved = other_prefixes(self.prefix, [each.prefix for each in registry.providers])
        items: list[Tool | Resource | Prompt] = []
        mirrored: dict[str, Mapping[str, tuple[str, ...]]] = {}
        before, turn = registry.claims(self, kind), Turn()
        for name, made in self._made[kind].items():
            await turn.step()
            key = _key(made.item)
            if kind in _NAMED and key.startswith(reserved):
                problems.setdefault("the name belongs to another server here", []).append(name)
            elif key in covered:
                problems.setdefault("a template of another server has this URI", []).append(name)
            else:
                items.append(made.item)
                if isinstance(made.item, Tool) and before.get(key) is not made.item:
                    self._engine.prepare(made.item)  # here, because others have their turn between
                if made.headers:
                    mirrored[key] = made.headers
        self._problems[kind] = problems
        self._engine.replace(self, kind, items, mirrored)

    def reassigned(self, kind: Kind) -> None:
        """Log what is left out, in one line for each reason, unless that was logged before."""
        problems = dict(self._problems.get(kind, {}))
        if displaced := self._engine.registry.displaced(self, kind):
            names = {_key(each.item): name for name, each in self._made.get(kind, {}).items()}
            problems["this name is taken"] = [names[key] for key in displaced if key in names]
        lines = {
            f"{len(names)} {kind}, because {reason}: "
            f"{', '.join(repr(printable(name, _MAX_NAME_CHARACTERS)) for name in names[:_MAX_NAMED])}"
            for reason, names in problems.items()
        }
        for line in sorted(lines - self._reported.get(kind, frozenset()))[:_MAX_NAMED]:
            logger.error("Left out of what the server %r offers: %s.", self._mounted.name, line)
        self._reported[kind] = frozenset(lines)

    def _later_mounts(self) -> list[UpstreamProvider]:
        """Return the servers that are mounted after this one."""
        providers = self._engine.registry.providers
        later = providers[providers.index(self) + 1 :]
        return [each for each in later if isinstance(each, UpstreamProvider)]

    async def give_way(self, earlier: UpstreamProvider) -> None:
        """Leave out the resources for which a server has templates that is mounted before, and came later."""
        if "resources" in self._made:
            async with self._registering:
                covered = await self._covered("resources", anew=True)
                if any(key in covered for key in self._made["resources"]):
                    await self._offer_made("resources", {}, covered)

    async def _covered(self, kind: Kind, *, anew: bool = False) -> Collection[str]:
        """Return the URIs of this server that belong to a template of the author or of an earlier mount.

        Those that are offered already stay, unless they are looked at `anew`.
        """
        if kind != "resources":
            return ()
        registry = self._engine.registry
        ranks: dict[Any, int] = {each: rank for rank, each in enumerate(registry.providers)}
        templates = [
            item.template
            for uri, item in registry.registered("templates").items()
            if ranks.get(registry.owner("templates", uri), -1) < ranks[self]
            and _names_scheme(uri)
            and not isinstance(item.template, PrefixTemplate)
        ]
        covered, turn = set(), Turn()
        for uri in self._made["resources"]:
            if not anew and registry.owner("resources", uri) is self:
                continue
            for template in templates:
                await turn.step()
                if template.match(uri) is not None:
                    covered.add(uri)
                    break
        return covered

    async def list(self, kind: Kind, call: Call[Any]) -> Listing | None:
        """Read a list again whose changes the server does not announce, for as long as a caller may wait."""
        announced = "resources" if kind == "templates" else kind
        try:
            client = self.upstream.client
        except AntiphonError:
            return None
        if kind in self.kinds and announced not in client.offers.list_changes:
            patience = REFRESH_SECONDS if self._pace.left < REFRESH_SECONDS else 0
            await asyncio.wait({self._refresh(kind)}, timeout=patience)
        return None

    async def find(self, kind: Kind, key: str, call: Call[Any]) -> Tool | Resource | Prompt | None:
        """Return a resource that the server does not list, if its URI looks like those that it lists."""
        if kind != "resources" or "resources" not in self.kinds:
            return None
        if key.partition(":")[0] not in self._schemes:
            return None
        return self._resource(ResourceDefinition(key, key))

    # Items

    def _make(self, definition: Definition) -> _Made:
        """Return the item for a definition; raises `DefinitionError` for one that cannot be offered."""
        name = _name_of(definition)
        if not name:
            raise DefinitionError("the name is empty")
        arguments = definition.arguments or () if isinstance(definition, PromptDefinition) else ()
        if not all(map(is_visible, (name, *(each.name for each in arguments)))):
            raise DefinitionError("a name has invisible characters, or some that reorder text")
        shown = _cleaned(definition)
        if self._offer.guard is not None:  # another gateway may have started this one as a command
            shown = msgspec.structs.replace(shown, meta={**(shown.meta or {}), PROTECTED: True})
        if isinstance(shown, ToolDefinition):
            tool = self._tool(shown)
            return _Made(definition, tool, _headers(tool))
        item = self._prompt(shown) if isinstance(shown, PromptDefinition) else self._resource(shown)
        return _Made(definition, item, {})

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
            replays=self.upstream.returns_questions,
            offer=self._offer,
        )

    def _resource(self, definition: ResourceDefinition | TemplateDefinition) -> ForeignResource:
        return ForeignResource(
            definition,
            self._read,
            scopes=self._mounted.scopes,
            complete=self._complete,
            replays=self.upstream.returns_questions,
            offer=self._offer,
        )

    def _prompt(self, definition: PromptDefinition) -> ForeignPrompt:
        return ForeignPrompt(
            msgspec.structs.replace(definition, name=self._name(definition.name)),
            partial(self._fill, definition.name),
            scopes=self._mounted.scopes,
            complete=partial(self._complete, prompt=definition.name),
            replays=self.upstream.returns_questions,
            offer=self._offer,
        )

    @property
    def _promises(self) -> bool:
        """Whether the server decides for each call whether it becomes a task."""
        return self.upstream.returns_questions and self.upstream.client.offers.tasks

    def _name(self, name: str) -> str:
        return qualified(self.prefix, name)

    # Requests

    async def _call(
        self, name: str, is_task: bool, arguments: dict[str, Any], context: Context
    ) -> Result | InputRequired:
        task = TaskParams() if is_task else None
        outcome: Result | InputRequired = await forward(
            self.upstream, CallTool(name=name, arguments=arguments, task=task), context
        )
        return outcome

    async def _read(self, uri: str, context: Context) -> ReadResult | InputRequired:
        read: ReadResult | InputRequired = await forward(self.upstream, ReadResource(uri=uri), context)
        return read

    async def _fill(
        self, name: str, arguments: dict[str, str], context: Context
    ) -> PromptResult | InputRequired:
        filled: PromptResult | InputRequired = await forward(
            self.upstream, GetPrompt(name=name, arguments=arguments), context
        )
        return filled

    async def _complete(self, call: Call[Complete], prompt: str | None = None) -> Completion:
        self.upstream.check(call)
        request = call.request
        if prompt is not None:
            request = msgspec.structs.replace(request, ref=PromptReference(prompt))
        with translated_errors(self._mounted.name):
            meta = RequestMeta(raw=self.upstream.mark_of(call))
            completion: Completion = await self.upstream.client.forward(request, meta)
        return completion

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        """Subscribe to a resource of the server, for as long as any caller does."""
        if not self._offers(uri):
            return
        name, share = self._mounted.name, call.principal.share
        if uri not in self._subscriptions and len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise Busy(
                f"Callers are subscribed to {MAX_SUBSCRIPTIONS} resources of the server {name!r}, which is "
                "all that a gateway passes on. Try again later."
            )
        most = share_of(MAX_SUBSCRIPTIONS, self._engine.limits.principal_share)
        own = self._subscribed.get(share, Counter[str]())
        if share and uri not in own and len(own) >= most:
            raise Busy(
                f"You are subscribed to {most} resources of the server {name!r}, which is your share of "
                "those that a gateway passes on. End some of these subscriptions."
            )
        self._subscribed.setdefault(share, own)[uri] += 1
        self._subscriptions[uri] += 1
        if self._subscriptions[uri] == 1 and (client := self._subscribing) is not None:
            try:
                await self._try(client.subscribe(uri), f"subscribe to {uri}")
            except BaseException:
                self._forget_subscription(uri, share)
                raise

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        """Unsubscribe from a resource of the server, if no other caller has subscribed to it."""
        if self._forget_subscription(uri, call.principal.share) and (client := self._subscribing) is not None:
            await self._try(client.unsubscribe(uri), f"unsubscribe from {uri}")

    def _forget_subscription(self, uri: str, share: str) -> bool:
        """Forget one subscription of a caller; return whether it was the last one to this resource."""
        own = self._subscribed.get(share, Counter[str]())
        if uri not in own:
            return False
        for counter in (own, self._subscriptions):
            counter[uri] -= 1
            if not counter[uri]:
                del counter[uri]
        if not own:
            del self._subscribed[share]
        return uri not in self._subscriptions

    @property
    def _subscribing(self) -> UpstreamClient | None:
        """The connection on which changes of resources come; `None` while there is none."""
        try:
            client = self.upstream.client
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


async def read_list(client: UpstreamClient, kind: Kind) -> Sequence[Definition]:
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


def _name_of(definition: Definition) -> str:
    """Return the name or the URI that the server has for an item."""
    if isinstance(definition, ResourceDefinition):
        return definition.uri
    return definition.uri_template if isinstance(definition, TemplateDefinition) else definition.name


def _names_scheme(template: str) -> bool:
    """Return whether a template says of which scheme its URIs are: one that fits all of them owns none."""
    return ":" in template.partition("{")[0]


def _cleaned(definition: Definition) -> Definition:
    """Return a definition whose titles show all that they have, and cannot reorder what a person reads."""
    changes: dict[str, Any] = {}
    if definition.title is not None:
        changes["title"] = printable_title(definition.title)
    if isinstance(definition, ResourceDefinition | TemplateDefinition):
        changes["name"] = printable_title(definition.name)
    if isinstance(definition, PromptDefinition) and definition.arguments is not None:
        changes["arguments"] = tuple(map(_cleaned_argument, definition.arguments))
    hints = definition.annotations if isinstance(definition, ToolDefinition) else None
    if hints is not None and hints.title is not None:
        changes["annotations"] = msgspec.structs.replace(hints, title=printable_title(hints.title))
    return msgspec.structs.replace(definition, **changes) if changes else definition


def _cleaned_argument(argument: PromptArgument) -> PromptArgument:
    if argument.title is None:
        return argument
    return msgspec.structs.replace(argument, title=printable_title(argument.title))


def _headers(tool: Tool) -> Any:
    """Return the headers that repeat arguments of a tool; none if its schema declares them wrongly."""
    try:
        return declared(tool.definition.input_schema)
    except DefinitionError:
        return {}
