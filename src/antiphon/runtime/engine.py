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
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from antiphon.authentication import Authenticate
from antiphon.errors import DefinitionError, RequestError, Unauthorized
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import ANONYMOUS, Implementation, Principal, problem_of
from antiphon.model.outcome import Result
from antiphon.model.segment import StreamEnd
from antiphon.runtime.artifacts.service import ArtifactService
from antiphon.runtime.authoring.completion import CompletionRegistry
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.budget import MemoryBudget, Usages
from antiphon.runtime.carriers.client import ClientCarrier
from antiphon.runtime.carriers.connection import ConnectionCarrier
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.runtime.dispatch import Dispatcher
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.run import Shed
from antiphon.runtime.limits import Limits
from antiphon.runtime.middleware import Handle, Middleware, wrap
from antiphon.runtime.observability.telemetry import Telemetry
from antiphon.runtime.relay import Relay, relay_changes
from antiphon.runtime.scopes import ScopeCheck
from antiphon.runtime.tasks.lifecycle import TaskLifecycle
from antiphon.store.artifacts import ArtifactStore
from antiphon.store.contract import Store

if TYPE_CHECKING:
    from antiphon.authorization.protected_resource import ProtectedResource

__all__ = ["Engine", "Lifespan", "Settings"]

logger = logging.getLogger("antiphon")

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
    task_claims: Sequence[str] = ()
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
        self.usages = Usages()
        """How much each authenticated principal uses of this process."""
        self.budget = MemoryBudget(limits, self.usages)
        """The memory that callers may make this process use."""
        self.seal = Seal(settings.secrets)
        self.changes = ChangeFeed()
        self.relay = Relay(name)
        relay_changes(self.changes, self.relay)
        self.threads = ThreadExecutor(limits.max_threads)
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
            task_tools=lambda: self.registry.task_tools,
            needed=settings.single_use_state,
            claims=settings.task_claims,
        )
        use_once = self.tasks.use_once if settings.single_use_state else None
        self.client_carrier = ClientCarrier(self.seal, name, limits, use_once=use_once)
        """Carries the journals of calls whose callers come back with the answers."""
        self.connection_carrier = ConnectionCarrier()
        """Carries the journals of calls whose callers are asked on the connection."""
        self._dispatcher = Dispatcher(
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
        )
        self.handle: Handle = self._dispatcher.handle
        """Serves a call: returns an awaitable for its outcome. Both may raise, see `error_of`."""
        if settings.middleware:
            self.handle = wrap(self._dispatcher.handle, settings.middleware, timeout=limits.call_timeout)
        self.mirrored: dict[str, Mapping[str, tuple[str, ...]]] = {}
        """The HTTP headers that repeat arguments of a tool, by tool: header names, and paths of arguments."""
        self.registry.find_unlisted = self.artifacts.resources_for
        self.artifacts.on_enabled = self._offer_artifacts
        if self.artifacts.enabled:
            self._offer_artifacts()
        self._authenticate = settings.authenticate
        self._logged_mistaken_principal = False
        self._lifespan = settings.lifespan
        self._users = 0
        self._drain_ends: float | None = None
        self._starting = asyncio.Lock()
        self._open: AbstractAsyncContextManager[Any] | None = None

    # Registering

    def add_tool(self, tool: Tool, mirrored: Mapping[str, tuple[str, ...]]) -> None:
        """Offer a tool; raises `DefinitionError` if its name is taken."""
        tool.counters = self.telemetry.counters_of(tool.name)
        if self.protected_resource is not None and self.protected_resource.scopes:
            tool.needs_scopes = True
        self.registry.add_tool(tool)
        if mirrored:
            self.mirrored[tool.name] = mirrored
        if tool.has_artifacts:
            self._offer_artifacts()

    def remove_tool(self, name: str) -> None:
        """Withdraw a tool; raises `NotFound`."""
        self.registry.remove_tool(name)
        self.mirrored.pop(name, None)

    def configure(
        self,
        *,
        store: str | Store | None = None,
        run_tasks: bool | None = None,
        task_tools: Collection[str] | None = None,
        max_running_tasks: int | None = None,
    ) -> None:
        """Change how this process keeps and runs tasks; raises `RuntimeError` while the server runs."""
        if self._users:
            raise RuntimeError("The server is running: configure it before it starts.")
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

    def stop_claiming(self) -> None:
        """Claim no more tasks, because the server is about to stop. Everything else continues."""
        self.tasks.stop_claiming()

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
        self._drain_ends = None
        self.changes.reopen()
        self.telemetry.start()
        if self._lifespan is not None:
            opening = self._lifespan()
            self.environment.lifespan = await opening.__aenter__()
            self._open = opening
        if self.registry.task_tools or self.tasks.is_needed:
            self._dispatcher.task_handlers = await self.tasks.start()

    async def _stop(self) -> None:
        """Stop what was started."""
        self.changes.close()
        self._dispatcher.task_handlers = None
        await self.tasks.stop(within=self.begin_drain())
        await self.artifacts.close()
        self.threads.close()
        if self._open is not None:
            opened, self._open = self._open, None
            await opened.__aexit__(None, None, None)

    # Serving

    @property
    def authenticates(self) -> bool:
        """Whether callers have to say who they are."""
        return self._authenticate is not None

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
        return self._dispatcher.error_of(request_id, raised)

    async def overdue(self, call: Call[Any]) -> Result | StreamEnd:
        """Return the outcome of a call that took too long; raises `InternalError` if it is no tool call."""
        return await self._dispatcher.overdue(call)

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self._dispatcher.capabilities

    async def store_responds(self) -> bool | None:
        """Return whether the store responds; `None` without a store."""
        return await self.tasks.store_responds()

    async def metrics(self) -> str:
        """Return metrics about calls, tasks and the store, in the text format of Prometheus."""
        return await self.tasks.metrics(self.telemetry, self.budget)

    def _offer_artifacts(self) -> None:
        """List the resource template under which callers find artifacts."""
        self.artifacts.enabled = True
        offered = self.artifacts.resources[0]
        if offered.uri not in self.registry.templates:
            self.registry.add_resource(offered)
