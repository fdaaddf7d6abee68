"""The public `Server`: what an author registers, and which of it serves a request.

Knows no protocol version, no bytes and no connection; those are the transports' and the wire's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from antiphon.authentication import Authenticate
from antiphon.errors import (
    DefinitionError,
    RequestError,
    Unauthorized,
)
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.content import Icon
from antiphon.model.identity import ANONYMOUS, Implementation, Principal
from antiphon.model.notification import ResourceUpdated
from antiphon.model.outcome import (
    Result,
)
from antiphon.model.segment import StreamEnd
from antiphon.runtime.artifacts.service import ArtifactService
from antiphon.runtime.authoring.completion import CompletionRegistry
from antiphon.runtime.authoring.options import PromptOptions, ResourceOptions, ToolOptions, check_options
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.carriers.client import ClientCarrier
from antiphon.runtime.carriers.seal import Seal
from antiphon.runtime.change_feed import ChangeFeed
from antiphon.runtime.dispatch import Dispatcher
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import AuthorFunction, Environment
from antiphon.runtime.execution.run import Shed
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.telemetry import Counted, Telemetry, Timing
from antiphon.runtime.relay import Relay, share
from antiphon.runtime.tasks.lifecycle import TaskLifecycle
from antiphon.store.artifacts import ArtifactStore
from antiphon.store.contract import Store
from antiphon.wire.mirrored_headers import Mirrored, declared

if TYPE_CHECKING:
    from antiphon.transport.server.http.app import App

__all__ = ["Server"]

logger = logging.getLogger("antiphon")
F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


class Server:
    """An MCP server.

    `authenticate` says who is calling; `secrets` is the ring of keys that several processes share
    (from `ANTIPHON_SECRETS`, separated by commas, unless given); `lifespan` opens what the functions
    need, which they find as `ctx.lifespan`; `list_ttl` is how long, in seconds, callers may keep its lists;
    `shed` says, given the seconds spent in a call, whether to hand it back to the caller at the next
    checkpoint (`shed_after` is a ready one). `store` is where tasks are kept, `sqlite:///tasks.db` for
    example (from `ANTIPHON_STORE` unless given; in memory, if neither says); with one that all
    processes share, `single_use_state` lets callers use a request state only once. `artifacts` is where
    artifacts are kept: a database, `file:///folder` or `memory:` (from `ANTIPHON_ARTIFACTS`
    unless given; with the tasks if those are in a file, else in memory). `log_arguments` puts the
    arguments of calls into the lines of the logger `antiphon.calls`.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] | None = None,
        authenticate: Authenticate | None = None,
        secrets: Sequence[str | bytes] | None = None,
        lifespan: Lifespan | None = None,
        limits: Limits | None = None,
        shed: Shed | None = None,
        store: str | Store | None = None,
        single_use_state: bool = False,
        artifacts: str | ArtifactStore | None = None,
        log_arguments: bool = False,
        page_size: int = 100,
        list_ttl: float = 0,
    ) -> None:
        if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
            raise DefinitionError(
                f"The lifespan {lifespan.__name__!r} is a generator. "
                "Put @contextlib.asynccontextmanager above it."
            )
        self.info = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=tuple(icons) if icons else None,
        )
        self.limits = limits or Limits()
        self.seal = Seal(_secrets() if secrets is None else secrets)
        self.changes = ChangeFeed()
        self._authenticate = authenticate
        self._lifespan = lifespan
        self._users = 0
        self._works = True
        self._starting = asyncio.Lock()
        self._open: AbstractAsyncContextManager[Any] | None = None
        self._threads = ThreadExecutor(self.limits.max_threads)
        self._catalog = Registry(self.changes, page_size)
        self._mirrored: dict[str, Mirrored] = {}
        self._completers = CompletionRegistry(self._catalog, self._threads)
        self.relay = Relay(name)
        share(self.changes, self.relay)
        self._tasks = TaskLifecycle(
            store,
            self.limits,
            self._catalog.tool,
            lambda: self._service.stage,
            relay=self.relay,
            needed=single_use_state,
        )
        use_once = self._tasks.use_once if single_use_state else None
        rounds = ClientCarrier(self.seal, name, self.limits, use_once=use_once)
        self._telemetry = Telemetry(log_arguments=log_arguments)
        self._artifacts = ArtifactService(
            name, artifacts, lambda: self._tasks.wanted, self.limits, self._threads
        )
        self._service = Dispatcher(
            self.info,
            self._catalog,
            self._completers,
            self.changes,
            self.limits,
            Environment(
                threads=self._threads,
                carrier=rounds,
                limits=self.limits,
                shed=shed,
                artifacts=self._artifacts,
                telemetry=self._telemetry,
            ),
            self._artifacts,
            instructions=instructions,
            ttl_ms=int(list_ttl * 1000),
        )
        self._catalog.unlisted = self._artifacts.at
        self._artifacts.on_first = self._offer_artifacts
        if self._artifacts.enabled:
            self._offer_artifacts()

    @property
    def name(self) -> str:
        """The server's name."""
        return self.info.name

    # Registering

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Offer a function as a tool; used as `@server.tool` or `@server.tool(…)`.

        The name, the description and the schemas come from the function unless given in the
        options (see `ToolOptions`). Raises `DefinitionError`.
        """
        return _maybe(function, self._register(lambda target: self.add_tool(target, **options)))

    def add_tool(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """Offer a function as a tool, with the options of `tool`. Callers that listen are told."""
        check_options(function, options, ToolOptions)
        tool = Tool(function, self._threads, **options)
        tool.tally = self._telemetry.tally(tool.name)
        mirrored = declared(tool.definition.input_schema)
        self._catalog.add_tool(tool)
        if mirrored:
            self._mirrored[tool.name] = mirrored
        if tool.has_artifacts:
            self._offer_artifacts()

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer; raises `NotFound`. Callers that listen are told."""
        self._catalog.remove_tool(name)
        self._mirrored.pop(name, None)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Offer a function as the resource at `uri`, or at every address that a URI template matches.

        `ResourceOptions` lists the options. Raises `DefinitionError`.
        """
        if not isinstance(uri, str):
            name = getattr(uri, "__name__", "name")
            raise DefinitionError(f'A resource has an address: @server.resource("data://{name}").')
        return self._register(lambda target: self.add_resource(target, uri, **options))

    def add_resource(
        self, function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]
    ) -> None:
        """Offer a function as a resource, with the options of `resource`. Callers that listen are told."""
        check_options(function, options, ResourceOptions)
        self._catalog.add_resource(Resource(function, self._threads, uri, **options))

    def remove_resource(self, uri: str) -> None:
        """Offer a resource no longer; raises `NotFound`. Callers that listen are told."""
        self._catalog.remove_resource(uri)

    def notify_resource_updated(self, uri: str) -> None:
        """Tell the callers that subscribed to a resource that it no longer holds what it did."""
        self.changes.publish(ResourceUpdated(uri))

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Offer a function as a prompt; used as `@server.prompt` or `@server.prompt(…)`.

        It returns a string, messages, blocks, or a list of these. Raises `DefinitionError`.
        """
        return _maybe(function, self._register(lambda target: self.add_prompt(target, **options)))

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> None:
        """Offer a function as a prompt, with the options of `prompt`. Callers that listen are told."""
        check_options(function, options, PromptOptions)
        self._catalog.add_prompt(Prompt(function, self._threads, **options))

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no longer; raises `NotFound`. Callers that listen are told."""
        self._catalog.remove_prompt(name)

    def completion(self, owner: str, argument: str) -> Callable[[F], F]:
        """Let a function suggest values for an argument of a prompt or a variable of a template.

        `owner` is the prompt's name or the URI template. The function takes what has been typed so
        far and, if it likes, the other arguments as a mapping.
        """
        return self._register(lambda target: self._completers.add(owner, argument, target))

    def _offer_artifacts(self) -> None:
        """Tell callers that there are artifacts, and where."""
        self._artifacts.enabled = True
        offered = self._artifacts.resources[0]
        if offered.uri not in self._catalog.templates:
            self._catalog.add_resource(offered)

    @staticmethod
    def _register(add: Callable[[Any], None]) -> Callable[[F], F]:
        def decorate(target: F) -> F:
            add(target)
            return target

        return decorate

    # Running

    def configure(
        self,
        *,
        store: str | Store | None = None,
        run_tasks: bool | None = None,
        task_tools: Collection[str] | None = None,
        max_running_tasks: int | None = None,
    ) -> None:
        """Change how this process keeps and runs tasks, before the server starts.

        `store` replaces the store; `run_tasks=False` leaves tasks to other processes; `task_tools` names the
        only tools whose tasks run here; `max_running_tasks` replaces the limit of that name. What is not
        given stays as it is. Raises `RuntimeError` while the server runs, and `DefinitionError` for a tool
        that is never run as a task.
        """
        if self._users:
            raise RuntimeError("The server is running: configure it before it starts.")
        unknown = sorted(set(task_tools or ()) - set(self.task_tools))
        if unknown:
            offered = ", ".join(self.task_tools) or "none"
            raise DefinitionError(f"No tool {unknown[0]!r} runs as a task here. These do: {offered}.")
        if store is not None:
            self._tasks.wanted = store
        if run_tasks is not None:
            self._works = run_tasks
        if task_tools is not None:
            self._tasks.tools = tuple(task_tools)
        if max_running_tasks is not None:
            self._tasks.limits = replace(self._tasks.limits, max_running_tasks=max_running_tasks)

    @property
    def store(self) -> str | Store | None:
        """The store of its tasks, or `None` if tasks are kept in memory."""
        return self._tasks.wanted

    @property
    def task_tools(self) -> tuple[str, ...]:
        """The names of the tools that can run as tasks."""
        return tuple(name for name, tool in self._catalog.tools.items() if tool.task != "forbidden")

    def asgi(
        self, *, path: str = "/mcp", hosts: Sequence[str] | None = None, origins: Sequence[str] | None = None
    ) -> App:
        """An ASGI app that serves at `path`, or at the place where it is mounted.

        `hosts` and `origins` are the values of the Host and Origin headers that it trusts, `"*"` for
        all. Without them, one that is reached at a loopback address trusts only local ones.
        """
        from antiphon.transport.server.http.app import App

        return App(self, path=path, hosts=hosts, origins=origins)

    async def stdio(self) -> None:
        """Serve one client on the standard input and output, until it closes them."""
        from antiphon.transport.server.stdio import serve

        await serve(self)

    def run(
        self,
        transport: Literal["stdio", "http", "streamable-http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
    ) -> None:
        """Serve from a program, until it is told to end; `antiphon run FILE` does more.

        `http` and `streamable-http` are one. Raises `ValueError` for a transport that there is not.
        """
        if transport == "stdio":
            asyncio.run(self.stdio())
        elif transport in ("http", "streamable-http"):
            from antiphon.transport.server.http.serve import serve_http

            serve_http(self.asgi(path=path), host=host, port=port, drain=self.limits.drain_timeout)
        else:
            raise ValueError(f"transport={transport!r} is not one of 'stdio', 'http', 'streamable-http'.")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the server's lifespan open; nested use shares one."""
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

    async def _start(self) -> None:
        self.changes.reopen()
        self._telemetry.start()
        if self._lifespan is not None:
            opening = self._lifespan(self)
            lifespan = await opening.__aenter__()
            self._open = opening
            self._service.stage = replace(self._service.stage, lifespan=lifespan)
        if self._service.gives_promises or self._tasks.is_wanted:
            self._service.desk = await self._tasks.start(self._works)

    async def _stop(self) -> None:
        """Stop whatever has been started."""
        self.changes.close()
        self._service.desk = None
        await self._tasks.stop()
        await self._artifacts.close()
        self._threads.close()
        if self._open is not None:
            opened, self._open = self._open, None
            await opened.__aexit__(None, None, None)

    async def identify(self, headers: Mapping[str, str]) -> Principal:
        """Who sends these headers; raises `Unauthorized` or `Forbidden`."""
        if self._authenticate is None:
            return ANONYMOUS
        found = self._authenticate(headers)
        principal = await found if inspect.isawaitable(found) else found
        if principal is None:
            raise Unauthorized()
        return principal

    @property
    def authenticates(self) -> bool:
        """Whether it asks who is calling."""
        return self._authenticate is not None

    def function(self, tool: str) -> AuthorFunction:
        """The function behind a tool; raises `NotFound`."""
        return self._catalog.tool(tool).function

    @property
    def mirrored(self) -> Mapping[str, Mirrored]:
        """For each tool that has some, the headers that mirror its arguments, and their paths."""
        return self._mirrored

    @property
    def counters(self) -> Mapping[Counted, int]:
        """How many calls there were so far, by tool, kind of response and outcome."""
        return self._telemetry.counters

    @property
    def timings(self) -> Mapping[str, Timing]:
        """How long calls took, by tool. They are timed from the first look at this on."""
        return self._telemetry.timings

    async def metrics(self) -> str:
        """What there is to say of calls, tasks and the store, in the text format of Prometheus."""
        return await self._tasks.metrics(self._telemetry)

    async def store_answers(self) -> bool | None:
        """Whether the store does; `None` if there is none."""
        return await self._tasks.answers()

    # Serving, as the transports want it

    @property
    def handle(self) -> Callable[[Call[Any]], Awaitable[Any]]:
        """Serves a call: gives what to await for its outcome; both may raise, see `error_of`."""
        return self._service.handle

    def error_of(self, call: Call[Any], raised: Exception) -> RequestError:
        """What to tell a caller of something that was raised; what it was stays in the log."""
        return self._service.error_of(call, raised)

    async def overdue(self, call: Call[Any]) -> Result | StreamEnd:
        """How a call ends that took too long; raises `InternalError` where that is an error."""
        return await self._service.overdue(call)

    @property
    def capabilities(self) -> ServerCapabilities:
        """What it can do, as it tells its callers."""
        return self._service.capabilities

    @property
    def stage(self) -> Environment:
        """What all its runs share."""
        return self._service.stage

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(self._catalog.tools)


def _maybe(function: Any, decorate: Callable[[Any], Any]) -> Any:
    """A decorator that was used with its function, or without."""
    if function is None:
        return decorate
    if not callable(function):
        raise DefinitionError(f"{function!r} is not a function. Options have names: name={function!r}.")
    return decorate(function)


def shed_after(seconds: float) -> Shed:
    """Hand a call back to its caller once this many seconds were spent in it."""
    return lambda spent: spent >= seconds


def _secrets() -> list[str]:
    return [secret.strip() for secret in os.environ.get("ANTIPHON_SECRETS", "").split(",") if secret.strip()]
