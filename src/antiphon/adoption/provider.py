"""Offers the tools, resources and prompts of an adopted server.

Owns how they are listed, found and called. The server keeps its own middleware, dependencies and context;
this module must not know which library it was written with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from antiphon.adoption.exchange import Exchange
from antiphon.adoption.seam import Seam
from antiphon.errors import DefinitionError, RequestError
from antiphon.model.catalog import (
    Definition,
    Kind,
    PromptDefinition,
    ResourceDefinition,
    ToolDefinition,
)
from antiphon.model.notification import ListChanged, ResourceUpdated
from antiphon.model.outcome import Completion, PromptResult, ReadResult, Result
from antiphon.model.request import Complete
from antiphon.runtime.authoring.foreign import ForeignPrompt, ForeignResource, ForeignTool
from antiphon.runtime.authoring.options import TaskPolicy
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context, call_of
from antiphon.runtime.providers import Listing, Provider
from antiphon.wire.client import results
from antiphon.wire.mirrored_headers import declared

__all__ = ["AdoptedProvider"]

logger = logging.getLogger("antiphon")

_LIST_METHODS: Mapping[Kind, str] = {
    "tools": "tools/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
    "prompts": "prompts/list",
}
_MAX_PAGES = 1000
"""How many pages of a list are read."""


class AdoptedProvider(Provider):
    """The tools, resources and prompts of an adopted server. `tasks` names the tools that can be tasks."""

    def __init__(self, engine: Engine, seam: Seam[Any], tasks: Collection[str] = ()) -> None:
        self._engine = engine
        self._seam = seam
        self.task_tools = tuple(tasks)
        self.kinds = tuple(kind for kind, method in _LIST_METHODS.items() if seam.handles(method))
        self._completes = seam.handles("completion/complete")
        self._refreshing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the lifespan of the server, and register what it has."""
        async with self._seam.running(self._changed):
            for kind in self.kinds:
                await self._refresh(kind)
            self._check_tasks()
            try:
                yield
            finally:
                for task in self._refreshing:
                    task.cancel()

    async def list(self, kind: Kind, call: Call[Any]) -> Listing | None:
        """Return what the server lists to this caller."""
        if kind not in self.kinds:
            return None
        return await self._listing(kind, call)

    async def find(self, kind: Kind, key: str, call: Call[Any]) -> Tool | Resource | Prompt | None:
        """Return an item that is not registered: only the server knows whether it has one of that name."""
        if kind == "tools" and kind in self.kinds:
            return self._item(ToolDefinition(key, {"type": "object"}))
        if kind == "prompts" and kind in self.kinds:
            return self._item(PromptDefinition(key))
        if kind == "resources" and not {"resources", "templates"}.isdisjoint(self.kinds):
            return self._item(ResourceDefinition(key, key))
        return None

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        """Tell the server that a caller wants to know of changes of a resource."""
        await self._tell("resources/subscribe", uri, call)

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        """Tell the server that a caller does not want to know of changes of a resource any more."""
        await self._tell("resources/unsubscribe", uri, call)

    async def _tell(self, method: str, uri: str, call: Call[Any]) -> None:
        if self._seam.handles(method):
            await self._seam.request(method, {"uri": uri}, Exchange(call, self._changed))

    # Items

    def _item(self, definition: Definition) -> Tool | Resource | Prompt:
        if isinstance(definition, ToolDefinition):
            call, policy = self._call(definition.name), self._task_policy(definition)
            return ForeignTool(definition, call, self._engine.threads, task=policy)
        complete = self._complete if self._completes else None
        if isinstance(definition, PromptDefinition):
            return ForeignPrompt(definition, self._fill(definition.name), complete=complete)
        return ForeignResource(definition, self._read, complete=complete)

    def _call(self, name: str) -> Callable[[dict[str, Any], Context], Awaitable[Result]]:
        call_tool, changed = self._seam.call_tool, self._changed

        def call(arguments: dict[str, Any], ctx: Context) -> Awaitable[Result]:
            return call_tool(name, arguments, Exchange(call_of(ctx), changed, ctx))

        return call

    def _fill(self, name: str) -> Callable[[dict[str, str], Context], Awaitable[PromptResult]]:
        async def fill(arguments: dict[str, str], ctx: Context) -> PromptResult:
            params = {"name": name, "arguments": arguments}
            exchange = Exchange(call_of(ctx), self._changed, ctx)
            return results.prompt(await self._seam.request("prompts/get", params, exchange))

        return fill

    async def _read(self, uri: str, ctx: Context) -> ReadResult:
        exchange = Exchange(call_of(ctx), self._changed, ctx)
        return results.resource(await self._seam.request("resources/read", {"uri": uri}, exchange))

    async def _complete(self, call: Call[Complete]) -> Completion:
        params = msgspec.to_builtins(call.request)
        if not call.request.context.arguments:
            del params["context"]
        exchange = Exchange(call, self._changed)
        return results.completion(await self._seam.request("completion/complete", params, exchange))

    # Lists

    async def _listing(self, kind: Kind, call: Call[Any] | None) -> Listing:
        """Return the list of the server, all pages of it."""
        read, method = results.listing(kind), _LIST_METHODS[kind]
        definitions: list[Definition] = []
        ttl_ms, shared, cursor = None, True, None
        for _ in range(_MAX_PAGES):
            params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
            fields = await self._seam.request(method, params, Exchange(call, self._changed))
            page = read(fields)
            for name, reason in page.rejected:
                logger.warning("Left %s out of %s, because it cannot be read: %s", name, method, reason)
            definitions += page.page.items
            shared = shared and page.page.shared
            if "ttlMs" in fields:
                ttl_ms = page.page.ttl_ms if ttl_ms is None else min(ttl_ms, page.page.ttl_ms)
            cursor = page.page.next_cursor
            if cursor is None:
                break
        return Listing([self._listed(each) for each in definitions], ttl_ms, shared=shared)

    def _listed(self, definition: Definition) -> Definition:
        """Return a definition as callers see it: tasks are those of this library."""
        if not isinstance(definition, ToolDefinition):
            return definition
        policy = self._task_policy(definition)
        if definition.task_support == policy:
            return definition
        return msgspec.structs.replace(definition, execution=ToolDefinition.execution_for(policy))

    def _task_policy(self, definition: ToolDefinition) -> TaskPolicy:
        """Return whether a tool can run as a task: if it is named, or if the server says so itself."""
        if definition.name in self.task_tools or definition.task_support == "optional":
            return "optional"
        return "forbidden"

    async def _refresh(self, kind: Kind) -> None:
        """Register the items that the server lists now."""
        try:
            listing = await self._listing(kind, None)
        except RequestError as error:
            # A list may need a caller, such as one with a token. Its items are found when somebody asks.
            logger.warning("The adopted server does not list its %s: %s", kind, error.message)
            return
        items = [self._item(definition) for definition in listing.definitions]
        headers = {
            each.name: declared(each.definition.input_schema) for each in items if isinstance(each, Tool)
        }
        self._engine.registry.check_free(self, kind, items)
        written = {each.uri if isinstance(each, Resource) else each.name for each in items}
        self._engine.replace(self, kind, items, headers, written)

    async def _refresh_later(self, kind: Kind) -> None:
        """Register the items of a list that has changed; keep those from before if that is not possible."""
        try:
            await self._refresh(kind)
        except Exception:
            logger.exception("The changed %s of the adopted server cannot be offered.", kind)

    def _check_tasks(self) -> None:
        unknown = sorted(set(self.task_tools).difference(self._engine.registry.tools))
        if unknown:
            offered = ", ".join(self._engine.registry.tools) or "none"
            raise DefinitionError(
                f"There is no tool {unknown[0]!r} to run as a task. The tools are: {offered}."
            )

    def _changed(self, change: ListChanged | ResourceUpdated) -> None:
        """Pass a change on: register the items of a list again, and notify those who listen."""
        if isinstance(change, ResourceUpdated):
            self._engine.changes.publish(change)
            return
        changed = ("resources", "templates") if change.kind == "resources" else (change.kind,)
        for kind in self.kinds:
            if kind in changed:
                task = asyncio.create_task(self._refresh_later(kind))
                self._refreshing.add(task)
                task.add_done_callback(self._refreshing.discard)
        # What a single caller sees may have changed although the registered items have not.
        self._engine.changes.publish(change)
