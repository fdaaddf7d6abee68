"""The engine behind a `Server`: everything that it takes to serve requests, started and stopped together.

Transports, the worker and the command line use the engine; authors use `Server`. It knows no protocol
version, no bytes and no connection.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from antiphon.authentication import Authenticate
from antiphon.errors import DefinitionError, RequestError, Unauthorized
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import Kind
from antiphon.model.identity import ANONYMOUS, Implementation, Principal, problem_of
from antiphon.model.outcome import Result
from antiphon.model.segment import StreamEnd
from antiphon.runtime.artifacts.service import ArtifactService
from antiphon.runtime.authoring.completion import CompletionRegistry
from antiphon.runtime.authoring.offer import checked_tags
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.budget import MemoryBudget, Usages, share_of
from antiphon.runtime.carriers.client import ClientCarrier
from antiphon.runtime.carriers.connection import ConnectionCarrier
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.runtime.dispatch import Dispatcher
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.run import Shed
from antiphon.runtime.held.registry import HeldRuns
from antiphon.runtime.limits import Limits
from antiphon.runtime.middleware import Handle, Middleware, wrap
from antiphon.runtime.observability.telemetry import Telemetry
from antiphon.runtime.providers import Provider
from antiphon.runtime.relay import Relay, relay_changes
from antiphon.runtime.scopes import ScopeCheck
from antiphon.runtime.subscriptions import Accepts, visible_changes
from antiphon.runtime.tasks.inbox import Audiences, default_audiences
from antiphon.runtime.tasks.lifecycle import TaskLifecycle
from antiphon.store.artifacts import ArtifactStore
from antiphon.store.contract import Store

if TYPE_CHECKING:
    from antiphon.authorization.protected_resource import ProtectedResource

__all__ = ["Engine", "Lifespan", "Settings"]

logger = logging.getLogger("antiphon")

_MAX_NAMED_TAGS = 20
"""How many tags the warning about a tag that nothing has names."""
_LATE_CLOSE_SECONDS = 1.0
"""How long a shutdown waits for dependencies to close when its `drain_timeout` is over."""

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of a `Server`, as its engine gets them."""

    info: Implementation
    limits: Limits
    secrets: Sequence[str | bytes] = field(default=(), repr=False)
    instructions: str | None = None
    authenticate: Authenticate | None = None
    lifespan: Lifespan | None = None
    middleware: Sequence[Middleware] = ()
    shed: Shed | None = None
    store: str | Store | None = field(default=None, repr=False)  # its URL may have a password
    single_use_state: bool = False
    protocols: Sequence[str] | None = None
    task_claims: Sequence[str] = ()
    audiences: Audiences = default_audiences
    hide_forbidden: bool = False
    artifacts: str | ArtifactStore | None = field(default=None, repr=False)
    log_arguments: bool = False
    page_size: int = 100
    list_ttl: float = 0


class Engine:
    """Serves the requests of one server."""

    def __init__(self, settings: Settings) -> None:
        name, limits = settings.info.name, settings.limits
        self.info = settings.info
        self.limits = limits
        self.protocols = settings.protocols
        """The protocol versions that the server offers; `None` for all."""
        self.usages = Usages()
        """How much each authenticated principal uses of this process."""
        self.budget = MemoryBudget(limits, self.usages)
        """The memory that callers may make this process use."""
        self.seal = Seal(settings.secrets)
        self.changes = ChangeFeed()
        self.relay = Relay(name)
        relay_changes(self.changes, self.relay)
        self.threads = ThreadExecutor(
            limits.max_threads, share_of(limits.max_threads, limits.principal_share)
        )
        self.registry = Registry(self.changes, settings.page_size)
        self.completions = CompletionRegistry(self.registry, self.threads)
        self.protected_resource: ProtectedResource | None = getattr(
            settings.authenticate, "protected_resource", None
        )
        """Where callers get tokens for the server, if `IssuedTokens` authenticates them."""
        self.telemetry = Telemetry(log_arguments=settings.log_arguments)
        self.scopes = scopes = ScopeCheck(self.protected_resource)
        """Checks the scopes of callers. Transports use it for messages that are not requests."""
        self.artifacts = ArtifactService(
            name, settings.artifacts, lambda: self.tasks.store_setting, limits, self.threads, scopes
        )
        self.environment = Environment(
            threads=self.threads,
            limits=limits,
            shed=settings.shed,
            artifacts=self.artifacts,
            telemetry=self.telemetry,
        )
        self.tasks = TaskLifecycle(
            settings.store,
            limits,
            self.registry.tool,
            self.environment,
            server=name,
            relay=self.relay,
            budget=self.budget,
            task_tools=lambda: self.registry.task_tools,
            needed=settings.single_use_state,
            claims=settings.task_claims,
            audiences=settings.audiences,
        )
        use_once = self.tasks.use_once if settings.single_use_state else None
        self.client_carrier = ClientCarrier(self.seal, name, limits, use_once=use_once)
        """Carries the journals of calls whose callers come back with the answers."""
        self.held_runs = self.environment.held_runs = HeldRuns(self.client_carrier, limits, self.relay)
        """The runs of functions that are not run again, while their callers are asked."""
        self.connection_carrier = ConnectionCarrier()
        """Carries the journals of calls whose callers are asked on the connection."""
        self.dispatcher = Dispatcher(
            self.info,
            self.registry,
            self.completions,
            self.changes,
            limits,
            self.budget,
            self.environment,
            self.artifacts,
            scopes,
            instructions=settings.instructions,
            ttl_ms=int(settings.list_ttl * 1000),
            hide_forbidden=settings.hide_forbidden,
            protects=lambda: self.protects,
        )
        self._instructions: dict[Provider | None, str | None] = {None: settings.instructions}
        self.handle: Handle = self.dispatcher.handle
        """Serves a call: returns an awaitable for its outcome. Both may raise, see `error_of`.

        Read it for each call: a server that is traced has another one while it runs.
        """
        self.middleware = settings.middleware
        if settings.middleware:
            self.handle = wrap(self.dispatcher.handle, settings.middleware, timeout=limits.call_timeout)
        self._untraced_handle = self.handle
        self.mirrored: dict[str, Mapping[str, tuple[str, ...]]] = {}
        """The HTTP headers that repeat arguments of a tool, by tool: header names, and paths of arguments."""
        self._mirrored_by: dict[Provider, Mapping[str, Mapping[str, tuple[str, ...]]]] = {}
        self.registry.find_unlisted = self.artifacts.resources_for
        self.artifacts.on_enabled = self._offer_artifacts
        if self.artifacts.enabled:
            self._offer_artifacts()
        self._authenticate = settings.authenticate
        self.authenticates_elsewhere: Callable[[], bool] = lambda: False
        """Whether the server would authenticate callers over HTTP, and only who runs it reaches it here."""
        self._logged_mistaken_principal = False
        self._reported_tags: set[str] = set()
        self._lifespan = settings.lifespan
        self._users = 0
        self._drain_ends: float | None = None
        self._starting = asyncio.Lock()
        self._open = AsyncExitStack()

    # Registering

    def add_tool(self, tool: Tool, mirrored: Mapping[str, tuple[str, ...]]) -> None:
        """Offer a tool; raises `DefinitionError` if its name is taken, or if its App is missing by now."""
        if self._users:
            self.registry.check_ui(tool)
        self.prepare(tool)
        self.registry.add_tool(tool)
        if mirrored:
            self.mirrored[tool.name] = mirrored
        if tool.has_artifacts or tool.ui == self.artifacts.viewer_uri:
            self._offer_artifacts()

    def add_provider(self, provider: Provider) -> None:
        """Start a provider with the server; raises `RuntimeError` while the server runs."""
        self._check_stopped()
        self.registry.providers.append(provider)

    def replace(
        self,
        provider: Provider,
        kind: Kind,
        items: Sequence[Tool | Resource | Prompt],
        mirrored: Mapping[str, Mapping[str, tuple[str, ...]]],
        written: Collection[str] = (),
    ) -> None:
        """Offer the items of a provider, in place of those that it offers in this list.

        `mirrored` has the headers that repeat arguments, by tool; `written` are the names and URIs that come
        from no other program. An item whose name or URI belongs to another one is offered when it is free.
        """
        before = self.registry.claims(provider, kind)
        new = [item for item in items if isinstance(item, Tool) and before.get(item.name) is not item]
        for tool in new:
            self.prepare(tool)
        changed = self.registry.replace(provider, kind, items, written)
        if kind == "tools":
            self._mirrored_by[provider] = mirrored
            self._follow(changed)
        for each in self.registry.providers:
            if each is provider or not changed.isdisjoint(self.registry.claims(each, kind)):
                each.reassigned(kind)
        if any(tool.has_artifacts for tool in new):
            self._offer_artifacts()

    def _follow(self, changed: Collection[str]) -> None:
        """Take note of the tools that are offered under some names now, or that none is."""
        for name in set(self.mirrored).union(*self._mirrored_by.values()).intersection(changed):
            owner = self.registry.owner("tools", name)
            if owner is not None and (headers := self._mirrored_by[owner].get(name)):
                self.mirrored[name] = headers
            elif owner is not None or name not in self.registry.registered("tools"):
                self.mirrored.pop(name, None)
        self.telemetry.forget(set(changed) - self.registry.registered("tools").keys())

    def describe(self, provider: Provider, instructions: str | None) -> None:
        """Add the instructions of a provider to those of the author, in place of its earlier ones."""
        self._instructions[provider] = instructions
        self.dispatcher.instructions = "\n\n".join(filter(None, self._instructions.values())) or None

    @property
    def instructions(self) -> str | None:
        """The instructions of the author and of all providers."""
        return self.dispatcher.instructions

    def prepare(self, tool: Tool) -> None:
        """Give a tool the counters of its name, and what else it has of the server."""
        tool.counters = self.telemetry.counters_of(tool.name)
        if self.protected_resource is not None and self.protected_resource.scopes:
            tool.is_restricted = True

    def switch(self, names: Sequence[str], tags: Collection[str], *, enabled: bool) -> None:
        """Enable or disable items by name, URI or tag; raises `NotFound` and `DefinitionError`."""
        if not names and not tags:
            raise DefinitionError("Pass the names of tools, prompts or resources, or tags={…}.")
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise DefinitionError(
                f"{wrong[0]!r} is not a name. Pass each name by itself: 'a', 'b'. For tags, write tags={{…}}."
            )
        self.registry.switch(names, checked_tags("tags", tags), enabled=enabled)
        if self._users:
            self._report_unused_tags()

    def _report_unused_tags(self) -> None:
        """Log each tag that was enabled or disabled and that nothing has: it may be a mistake in the name.

        It is not an error, because a switch is also for items that are registered later. So the engine looks
        when the server has started, and after each switch from then on.
        """
        for tag in sorted(self.registry.unused_tags - self._reported_tags):
            self._reported_tags.add(tag)
            used = ", ".join(map(repr, sorted(self.registry.tags)[:_MAX_NAMED_TAGS]))
            logger.warning(
                "No tool, resource or prompt of the server %r has the tag %r, with which server.enable or "
                "server.disable was called. %s Correct the tag, unless you register something with it later.",
                self.info.name,
                tag,
                f"Tags in use: {used}." if used else "Nothing has a tag.",
            )

    def remove_tool(self, name: str) -> None:
        """Withdraw a tool; raises `NotFound`."""
        self.registry.remove_tool(name)
        self._follow([name])

    def configure(
        self,
        *,
        store: str | Store | None = None,
        run_tasks: bool | None = None,
        task_tools: Collection[str] | None = None,
        max_running_tasks: int | None = None,
    ) -> None:
        """Change how this process keeps and runs tasks; raises `RuntimeError` while the server runs."""
        self._check_stopped()
        unknown = sorted(set(task_tools or ()) - set(self.registry.task_tools))
        if unknown:
            offered = ", ".join(self.registry.task_tools) or "none"
            raise DefinitionError(f"No tool {unknown[0]!r} runs as a task here. These do: {offered}.")
        if store is not None:
            self.tasks.store_setting = store
        if run_tasks is not None:
            self.tasks.run_tasks = run_tasks
        if task_tools is not None:
            self.tasks.tools = tuple(task_tools)
        if max_running_tasks is not None:
            self.tasks.limits = replace(self.tasks.limits, max_running_tasks=max_running_tasks)

    def _check_stopped(self) -> None:
        if self._users:
            raise RuntimeError("The server is running: configure it before it starts.")

    # Starting and stopping

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the server, and stop it at the end; nested use starts it once."""
        async with self._starting:
            if self._users == 0:
                try:
                    await self._start()
                except BaseException:
                    await self._stop()
                    raise
            self._users += 1
        try:
            yield
        finally:
            async with self._starting:
                self._users -= 1
                if self._users == 0:
                    await self._stop()

    @asynccontextmanager
    async def running_inside(self) -> AsyncIterator[None]:
        """Start only the lifespan and the providers: another engine serves the requests and runs the tasks.

        Raises `RuntimeError` while the server runs by itself.
        """
        self._check_stopped()
        async with AsyncExitStack() as stack:
            stack.callback(self.threads.close)
            if self._lifespan is not None:
                self.environment.lifespan = await stack.enter_async_context(self._lifespan())
            for provider in self.registry.providers:
                await stack.enter_async_context(provider.running())
            self._report_unused_tags()
            yield

    def stop_claiming(self) -> None:
        """Claim no more tasks, because the server is about to stop. Everything else continues."""
        self.tasks.stop_claiming()

    def end_listeners(self) -> None:
        """End the streams of those who listen, because the server is about to stop."""
        self.changes.close()
        self.tasks.end_listeners()

    def begin_drain(self) -> float:
        """Claim no more tasks, and return how many seconds running calls and tasks have left to finish.

        The first call starts the clock of `Limits.drain_timeout`, which calls and tasks share.
        """
        self.stop_claiming()
        now = time.monotonic()
        if self._drain_ends is None:
            self._drain_ends = now + self.limits.drain_timeout
        return max(0.0, self._drain_ends - now)

    async def _start(self) -> None:
        for tool in self.registry.tools.values():
            self.registry.check_ui(tool)
        self._drain_ends = None
        self.changes.reopen()
        self.telemetry.start(self.registry.offers_named)
        if self.telemetry.tracing is not None:
            self.handle = self.telemetry.tracing.wrap(self._untraced_handle)
        if self._lifespan is not None:
            self.environment.lifespan = await self._open.enter_async_context(self._lifespan())
        for provider in self.registry.providers:
            await self._open.enter_async_context(provider.running())
        self._report_unused_tags()
        if self.registry.task_tools or self.tasks.is_needed:
            self.dispatcher.task_handlers = await self.tasks.start()

    async def _stop(self) -> None:
        """Stop what was started."""
        self.end_listeners()
        self.handle = self._untraced_handle
        self.dispatcher.task_handlers = None
        await self.held_runs.close()
        await self.tasks.stop(within=self.begin_drain())
        await self._close_dependencies()
        await self.artifacts.close()
        self.threads.close()
        await self._open.aclose()
        await self.telemetry.stop()

    async def _close_dependencies(self) -> None:
        """Wait for functions in threads whose dependencies are still open, for as long as a shutdown may.

        Then close the dependencies that need no thread.
        """
        closing = tuple(self.environment.closing)
        if closing:
            _, late = await asyncio.wait(closing, timeout=self.begin_drain())
            for each in late:
                each.cancel()
            if late:
                await asyncio.wait(late, timeout=_LATE_CLOSE_SECONDS)

    # Serving

    @property
    def authenticates(self) -> bool:
        """Whether callers have to say who they are."""
        return self._authenticate is not None

    @property
    def protects(self) -> bool:
        """Whether callers over HTTP have to say who they are, or need scopes, for anything of the server."""
        return (
            self.authenticates
            or self.authenticates_elsewhere()
            or bool(self.scopes.base)
            or self.registry.has_scopes
            or any(provider.protects for provider in self.registry.providers)
        )

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        """Return who sends these headers; raises `Unauthorized` or `Forbidden`."""
        if self._authenticate is None:
            return ANONYMOUS
        found = self._authenticate(headers)
        if not isinstance(found, Principal) and inspect.isawaitable(found):
            found = await found
        principal = found
        if principal is None:
            raise Unauthorized()
        problem = problem_of(principal)
        if problem is not None:
            self._log_mistaken_principal(problem)
            raise Unauthorized()
        return principal

    def _log_mistaken_principal(self, problem: str) -> None:
        """Log once that the `authenticate` function is wrong: callers can cause it with every request."""
        if not self._logged_mistaken_principal:
            self._logged_mistaken_principal = True
            logger.error(
                "The authenticate function of the server %r returned %s. The caller was refused with 401. "
                "Return a Principal whose id is a non-empty "
                "string, or None to refuse. This mistake is logged once.",
                self.info.name,
                problem,
            )

    def error_of(self, request_id: Any, raised: BaseException) -> RequestError:
        """Return the error response for an exception; details of an unexpected exception go to the log."""
        return self.dispatcher.error_of(request_id, raised)

    async def overdue(self, call: Call[Any]) -> Result | StreamEnd:
        """Return the outcome of a call that took too long; raises `InternalError` if it is no tool call."""
        return await self.dispatcher.overdue(call)

    def hides_tool(self, name: str, principal: Principal) -> bool:
        """Return whether a tool is registered, and is disabled or does not exist for a caller."""
        return self.registry.hides("tools", name, principal)

    def visible_changes(self, wants: Accepts, principal: Principal) -> Accepts:
        """Return a filter that keeps changes of resources from a listener for whom they do not exist."""
        return visible_changes(wants, principal, self.registry)

    async def allows_task(self, id: str, principal: Principal, tool: str) -> bool:
        """Return whether a caller has the scopes that one of its tasks needs, given the task's tool."""
        return await self.dispatcher.allows_task(id, principal, tool)

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self.dispatcher.capabilities

    async def store_responds(self) -> bool | None:
        """Return whether the store responds; `None` without a store."""
        return await self.tasks.store_responds()

    async def metrics(self) -> str:
        """Return metrics about calls, tasks and the store, in the text format of Prometheus."""
        return await self.tasks.metrics(self.telemetry)

    def _offer_artifacts(self) -> None:
        """List the resource template under which callers find artifacts."""
        self.artifacts.enabled = True
        offered = self.artifacts.resources[0]
        if offered.uri not in self.registry.registered("templates"):
            self.registry.add_resource(offered)
