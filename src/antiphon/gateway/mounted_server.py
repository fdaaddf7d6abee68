"""Offers the tools, resources and prompts of a `Server` of this process in another one, without a connection.

Functions get the lifespan of their own server, and its middleware is around them. Everything else is that of
the server which mounts: who calls, tasks and their store, limits, secrets, artifacts and metrics.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import DefinitionError
from antiphon.gateway.names import MAX_NAME_CHARACTERS, attributed, other_prefixes, qualified
from antiphon.model.catalog import Kind
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.notification import ListChanged
from antiphon.model.outcome import Completion, InputRequired, PromptResult, ReadResult, Result
from antiphon.model.request import CallTool, Complete, GetPrompt, PromptReference, Request
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.invoke import AuthorFunction, Environment
from antiphon.runtime.lists import listing_of
from antiphon.runtime.middleware import IncomingRequest, run_through
from antiphon.runtime.providers import Completer, Listing, Provider
from antiphon.turn import Turn

__all__ = ["ServerProvider"]

logger = logging.getLogger("antiphon")

_KINDS: tuple[Kind, ...] = ("tools", "resources", "templates", "prompts")
_NAMED: tuple[Kind, ...] = ("tools", "prompts")
"""The lists whose items get a prefix."""
_CHANGED: Mapping[str, Sequence[Kind]] = {
    "tools": ("tools",),
    "resources": ("resources", "templates"),
    "prompts": ("prompts",),
}
"""The lists that have changed when a server says which one has."""
Item: TypeAlias = Tool | Resource | Prompt
_MAX_NAMED = 5
"""How many items that are left out of a list the log names at once."""


class _Inside:
    """Runs functions of the inner server on behalf of the outer one."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._outer: Environment | None = None
        self._own: Environment | None = None

    def environment(self, outer: Environment) -> Environment:
        """Return the environment of the outer server, with what belongs to the inner one."""
        if self._own is None or self._outer is not outer:
            self._outer = outer
            own = self.engine.environment
            self._own = replace(
                outer,
                lifespan=own.lifespan,
                shed=own.shed,
                dependency_overrides=own.dependency_overrides,
            )
        return self._own

    def forget(self) -> None:
        """Forget the environment: the lifespan has ended."""
        self._outer = self._own = None

    async def serve(self, call: Call[Any], request: Request, last: Callable[[], Awaitable[Any]]) -> Any:
        """Serve a request through the middleware of the inner server, which sees its own names."""
        meta = call.request_meta
        incoming = IncomingRequest(request, call.principal, call.id, meta.client, meta.raw)
        return await run_through(self.engine.middleware, incoming, last)


class _MountedFunction(AuthorFunction):
    """A function of the inner server, which runs in the environment of both."""

    __slots__ = ("_inner", "_inside")

    def __init__(self, function: AuthorFunction, inside: _Inside) -> None:
        for name in AuthorFunction.__slots__:
            setattr(self, name, getattr(function, name))
        self._inner = function
        self._inside = inside

    def holds(self, call: Call[Any]) -> bool:
        """Return whether the process has to hold the run of a call, because a question ends the request."""
        return self._inner.holds(call)

    async def run(self, call: Call[Any], arguments: dict[str, Any], environment: Environment) -> Any:
        """Run the function."""
        return await self._inner.run(call, arguments, self._inside.environment(environment))


class _MountedTool(Tool):
    """A tool of a server that has middleware."""

    __slots__ = ("_layers",)

    def __init__(self, tool: Tool, inside: _Inside) -> None:
        _copy_slots(Tool, tool, self)
        further = tool._layers if isinstance(tool, _MountedTool) else ()
        self._layers: tuple[tuple[_Inside, str], ...] = ((inside, tool.name), *further)
        """The servers with middleware that the tool was mounted through, the outermost first, and its names
        in them."""

    async def run(self, call: Call[CallTool], environment: Environment) -> Result | InputRequired:
        """Run the function, with the middleware of all these servers around it."""
        run: Callable[[], Awaitable[Any]] = partial(super().run, call, environment)
        for inside, own_name in reversed(self._layers):
            run = partial(inside.serve, call, msgspec.structs.replace(call.request, name=own_name), run)
        outcome: Result | InputRequired = await run()
        return outcome


class _MountedResource(Resource):
    """A resource of a server that has middleware."""

    __slots__ = ("_inner", "_inside")

    def __init__(self, resource: Resource, inside: _Inside) -> None:
        _copy_slots(Resource, resource, self)
        self._inner = resource
        self._inside = inside

    async def read(
        self, call: Call[Any], variables: Mapping[str, str], uri: str, environment: Environment
    ) -> ReadResult | InputRequired:
        """Read the resource, with the middleware of its server around it."""
        outcome: ReadResult | InputRequired = await self._inside.serve(
            call, call.request, lambda: self._inner.read(call, variables, uri, environment)
        )
        return outcome


class _MountedPrompt(Prompt):
    """A prompt of a server that has middleware."""

    __slots__ = ("_inner", "_inside")

    def __init__(self, prompt: Prompt, own_name: str, inside: _Inside) -> None:
        _copy_slots(Prompt, prompt, self)
        self._inner = own_name, prompt
        self._inside = inside

    async def fill(self, call: Call[GetPrompt], environment: Environment) -> PromptResult | InputRequired:
        """Fill in the prompt, with the middleware of its server around it."""
        name, prompt = self._inner
        own = msgspec.structs.replace(call.request, name=name)
        outcome: PromptResult | InputRequired = await self._inside.serve(
            call, own, lambda: prompt.fill(call, environment)
        )
        return outcome


class ServerProvider(Provider):
    """The items of a server of this process."""

    def __init__(
        self, engine: Engine, name: str, inner: Engine, *, prefix: bool, is_withheld: bool = False
    ) -> None:
        self._engine = engine
        self._guard = _is_no_stranger if is_withheld else None
        self._name = name
        self.prefix = name if prefix else None
        self._inner = inner
        self._inside = _Inside(inner)
        self._left_out: dict[Kind, set[str]] = {kind: set() for kind in _KINDS}
        """The items whose names are taken, so that each is logged once."""
        self._others: dict[Kind, set[str]] = {kind: set() for kind in _KINDS}
        """The names that belong to other mounts by how they begin."""
        self._copies: dict[Kind, dict[str, tuple[Item, bool, Item]]] = {kind: {} for kind in _KINDS}
        """The items of the server, whether they are enabled there, and what is offered for them."""

    @property
    def protects(self) -> bool:
        """Whether callers of the server have to say who they are over HTTP, or need scopes."""
        return self._guard is not None or any(each.protects for each in self._inner.registry.providers)

    @property
    def kinds(self) -> Sequence[Kind]:  # type: ignore[override]
        """The lists in which the server can have items."""
        return tuple(kind for kind in _KINDS if self._inner.registry.offers(kind))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the lifespan of the server; raises `DefinitionError` if one of its names is taken."""
        async with self._inner.running_inside():
            await self._register(_KINDS, is_starting=True)
            if self._guard is None:
                self._engine.describe(self, attributed(self.prefix, self._inner.instructions))
            following = asyncio.create_task(self._follow())
            try:
                yield
            finally:
                following.cancel()
                await asyncio.wait({following})
                self._inside.forget()

    async def _follow(self) -> None:
        """Offer what the server adds while it runs, and pass its changes on."""
        with self._inner.changes.listen(lambda change: True) as changes:
            async for change in changes:
                if isinstance(change, ListChanged):
                    await self._register(_CHANGED[change.kind])
                else:
                    self._engine.changes.publish(change)

    async def _register(self, kinds: Sequence[Kind], *, is_starting: bool = False) -> None:
        """Offer the items of the server; those that have not changed stay as they are.

        Raises `DefinitionError` if two authors have used one name at the start. Later, and if the name comes
        from a server that one of them mounts, the item is left out.
        """
        registry, turn = self._inner.registry, Turn()
        for kind in kinds:
            before = self._engine.registry.claims(self, kind)
            copies: dict[str, tuple[Item, bool, Item]] = {}
            items: list[Item] = []
            left_out: set[str] = set()
            written: list[str] = []
            for key, item in tuple(registry.registered(kind).items()):
                await turn.step()
                is_enabled, had = not registry.is_disabled(kind, key), self._copies[kind].get(key)
                if had is None or had[0] is not item or had[1] is not is_enabled:
                    had = item, is_enabled, self._mounted(item, is_enabled=is_enabled)
                copies[key] = had
                if registry.owner(kind, key) is None:
                    written.append(_key(had[2]))
                elif self._is_anothers(kind, _key(had[2])):
                    left_out.add(_key(had[2]))
                    continue
                items.append(had[2])
                if isinstance(had[2], Tool) and before.get(had[2].name) is not had[2]:
                    self._engine.prepare(had[2])  # here, because others have their turn between
            mirrored = {}
            if kind == "tools":
                mirrored = {self._qualified(tool): headers for tool, headers in self._inner.mirrored.items()}
            if is_starting:
                self._check_free(kind, items, frozenset(written))
            self._copies[kind], self._others[kind] = copies, left_out
            self._engine.replace(self, kind, items, mirrored, frozenset(written))

    def _check_free(self, kind: Kind, items: Sequence[Item], written: Collection[str]) -> None:
        """Raise `DefinitionError` if a name that the author wrote is written in this process elsewhere."""
        try:
            own = (item for item in items if _key(item) in written)
            self._engine.registry.check_free(self, kind, own)
        except DefinitionError as error:
            raise DefinitionError(f"Cannot mount {self._name!r}: {error}") from None

    def reassigned(self, kind: Kind) -> None:
        """Log the items whose names are taken, each once."""
        left_out = self._others[kind].union(self._engine.registry.displaced(self, kind))
        for key in sorted(left_out - self._left_out[kind])[:_MAX_NAMED]:
            logger.error(
                "The mounted server %r has a %s, and its name here, %r, is taken. It is left out.",
                self._name,
                kind.removesuffix("s"),
                key,
            )
        self._left_out[kind] = left_out

    def _is_taken(self, kind: Kind, key: str) -> bool:
        """Return whether an item of another owner has a name or a URI."""
        outer = self._engine.registry
        return key in outer.registered(kind) and outer.owner(kind, key) is not self

    def _is_anothers(self, kind: Kind, key: str) -> bool:
        """Return whether a name belongs to another mount by how it begins."""
        prefixes = [each.prefix for each in self._engine.registry.providers]
        return kind in _NAMED and key.startswith(other_prefixes(self.prefix, prefixes))

    def _qualified(self, name: str) -> str:
        return qualified(self.prefix, name)

    def _mounted(self, item: Tool | Resource | Prompt, *, is_enabled: bool) -> Tool | Resource | Prompt:
        """Return a copy of an item for the outer server."""
        if isinstance(item, Tool):
            mounted: Tool | Resource | Prompt = self._tool(item)
        else:
            mounted = self._resource(item) if isinstance(item, Resource) else self._prompt(item)
        mounted.offer = replace(item.offer, enabled=is_enabled, guard=item.offer.guard or self._guard)
        if isinstance(mounted, Tool):
            mounted.is_restricted = mounted.is_restricted or mounted.offer.is_conditional
        return mounted

    def _tool(self, tool: Tool) -> Tool:
        mounted = _MountedTool(tool, self._inside) if self._inner.middleware else copy.copy(tool)
        mounted.function = _MountedFunction(tool.function, self._inside)
        mounted.name = self._qualified(tool.name)
        mounted.definition = msgspec.structs.replace(tool.definition, name=mounted.name)
        return mounted

    def _resource(self, resource: Resource) -> Resource:
        mounted = copy.copy(resource)
        mounted._function = _MountedFunction(resource._function, self._inside)
        mounted.complete = self._completer(None)
        return _MountedResource(mounted, self._inside) if self._inner.middleware else mounted

    def _prompt(self, prompt: Prompt) -> Prompt:
        mounted = copy.copy(prompt)
        mounted._function = _MountedFunction(prompt._function, self._inside)
        mounted.name = self._qualified(prompt.name)
        mounted.definition = msgspec.structs.replace(prompt.definition, name=mounted.name)
        mounted.complete = self._completer(prompt.name)
        return _MountedPrompt(mounted, prompt.name, self._inside) if self._inner.middleware else mounted

    def _completer(self, prompt: str | None) -> Completer | None:
        if not self._inner.completions:
            return None

        async def complete(call: Call[Complete]) -> Completion:
            request = call.request
            if prompt is not None:
                request = msgspec.structs.replace(request, ref=PromptReference(prompt))
            environment = self._inside.environment(self._engine.environment)
            return await self._inner.completions.suggest(call.derive(request=request), environment)

        return complete

    # What the providers of the server have

    async def list(self, kind: Kind, call: Call[Any]) -> Listing | None:
        """Return what a caller sees of the server; `None` for all items that it has registered."""
        if self._guard is not None and not self._guard(call.principal):
            return Listing(())
        listing = await listing_of(self._inner.registry, kind, call)
        if listing is not None and self._guard is not None:
            listing = replace(listing, shared=False)
        if listing is None or kind not in _NAMED:
            return listing
        definitions = [
            msgspec.structs.replace(each, name=name)
            for each in listing.definitions
            if not self._is_taken(kind, name := self._qualified(each.name))
            and not (self._is_anothers(kind, name) and name not in self._engine.registry.registered(kind))
        ]
        return replace(listing, definitions=definitions)

    async def find(self, kind: Kind, key: str, call: Call[Any]) -> Tool | Resource | Prompt | None:
        """Return an item that a provider of the server knows. Only its name in the outer server finds it."""
        if self._is_anothers(kind, key):
            return None
        own = await self._own_name(kind, key, call) if kind in _NAMED else key
        if own is None or self._inner.registry.hides(kind, own, call.principal):
            return None
        for provider in self._inner.registry.providers:
            if (found := await provider.find(kind, own, call)) is not None:
                return self._mounted(found, is_enabled=True)
        return None

    async def _own_name(self, kind: Kind, name: str, call: Call[Any]) -> str | None:
        """Return the name that the server itself has for a tool or a prompt; `None` if it cannot have one."""
        if self.prefix is None:
            return name
        if not name.startswith(f"{self.prefix}_"):
            return None
        if len(name) == MAX_NAME_CHARACTERS:  # it may end with a digest of a longer name
            listing = await listing_of(self._inner.registry, kind, call)
            for each in () if listing is None else listing.definitions:
                if self._qualified(each.name) == name:
                    return each.name
        own = name.removeprefix(f"{self.prefix}_")
        return own if self._qualified(own) == name else None

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        """Tell the providers of the server."""
        for provider in self._inner.registry.providers:
            await provider.subscribe(uri, call)

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        """Tell the providers of the server."""
        for provider in self._inner.registry.providers:
            await provider.unsubscribe(uri, call)


def _key(item: Item) -> str:
    return item.uri if isinstance(item, Resource) else item.name


def _is_no_stranger(principal: Principal) -> bool:
    """Return whether a caller is known, or runs the server."""
    return bool(principal.id) or principal is ANONYMOUS


def _copy_slots(kind: type[Any], source: Any, target: Any) -> None:
    """Copy the attributes that a class declares, as far as they are set."""
    for name in kind.__slots__:
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))
