"""The public `Server`: what an author registers, and which of it serves a request.

Knows no protocol version, no bytes and no connection; those are the transports' and the wire's.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from antiphon.authentication import Authenticate
from antiphon.errors import DefinitionError
from antiphon.model.content import Icon
from antiphon.model.identity import Implementation
from antiphon.model.notification import ResourceUpdated
from antiphon.runtime.authoring.options import PromptOptions, ResourceOptions, ToolOptions, check_options
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.engine import Engine, Settings
from antiphon.runtime.execution.run import Shed
from antiphon.runtime.limits import Limits
from antiphon.runtime.middleware import Middleware
from antiphon.runtime.observability.telemetry import CallKey, Timing
from antiphon.store.artifacts import ArtifactStore
from antiphon.store.contract import Store
from antiphon.transport.server.http.router import Routes
from antiphon.wire.mirrored_headers import declared

if TYPE_CHECKING:
    from antiphon.transport.server.http.app import App

__all__ = ["Server"]

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
        middleware: Sequence[Middleware] = (),
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
        self._routes = Routes()
        self._engine = Engine(
            Settings(
                info=Implementation(
                    name=name,
                    version=version,
                    title=title,
                    description=description,
                    website_url=website_url,
                    icons=tuple(icons) if icons else None,
                ),
                limits=limits or Limits(),
                secrets=_secrets() if secrets is None else secrets,
                instructions=instructions,
                authenticate=authenticate,
                lifespan=None if lifespan is None else lambda: lifespan(self),
                middleware=tuple(middleware),
                shed=shed,
                store=store,
                single_use_state=single_use_state,
                artifacts=artifacts,
                log_arguments=log_arguments,
                page_size=page_size,
                list_ttl=list_ttl,
            )
        )

    @property
    def engine(self) -> Engine:
        """The engine behind the server, for code that hosts it: transports, workers and gateways."""
        return self._engine

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        return self._engine.limits

    @property
    def name(self) -> str:
        """The name of the server."""
        return self._engine.info.name

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
        """Register a function as a tool, with the options of `tool`. Listening clients are notified."""
        check_options(function, options, ToolOptions)
        tool = Tool(function, self._engine.threads, **options)
        self._engine.add_tool(tool, declared(tool.definition.input_schema))

    def remove_tool(self, name: str) -> None:
        """Remove a tool; raises `NotFound`. Listening clients are notified."""
        self._engine.remove_tool(name)

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
        self._registry.add_resource(Resource(function, self._engine.threads, uri, **options))

    def remove_resource(self, uri: str) -> None:
        """Offer a resource no longer; raises `NotFound`. Callers that listen are told."""
        self._registry.remove_resource(uri)

    def notify_resource_updated(self, uri: str) -> None:
        """Tell the callers that subscribed to a resource that it no longer holds what it did."""
        self._engine.changes.publish(ResourceUpdated(uri))

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
        self._registry.add_prompt(Prompt(function, self._engine.threads, **options))

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no longer; raises `NotFound`. Callers that listen are told."""
        self._registry.remove_prompt(name)

    def completion(self, owner: str, argument: str) -> Callable[[F], F]:
        """Let a function suggest values for an argument of a prompt or a variable of a template.

        `owner` is the prompt's name or the URI template. The function takes what has been typed so
        far and, if it likes, the other arguments as a mapping.
        """
        return self._register(lambda target: self._engine.completions.add(owner, argument, target))

    def route(self, path: str, *, methods: Sequence[str] = ("GET",)) -> Callable[[F], F]:
        """Serve a page of your own over HTTP beside MCP: a health check, a webhook, a download.

        The function takes an `HttpRequest` and returns text, bytes, data for JSON, or an `HttpResponse`. It
        is not authenticated: look at the request yourself. Raises `DefinitionError` for a path that is
        taken.
        """
        return self._register(lambda target: self._routes.add(path, methods, target))

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
        self._engine.configure(
            store=store, run_tasks=run_tasks, task_tools=task_tools, max_running_tasks=max_running_tasks
        )

    @property
    def store(self) -> str | Store | None:
        """The store of its tasks, or `None` if tasks are kept in memory."""
        return self._engine.tasks.store_setting

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(self._registry.tools)

    @property
    def task_tools(self) -> tuple[str, ...]:
        """The names of the tools that can run as tasks."""
        return self._registry.task_tools

    def asgi(
        self,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] | None = None,
        probes: bool = False,
    ) -> App:
        """Return an ASGI app that serves MCP at `path`, or at the place where it is mounted.

        `hosts` and `origins` are the values of the Host and Origin headers that the app trusts, `"*"` for
        all. Without them, an app that is reached at a loopback address trusts only local ones. `probes`
        adds `/healthz`, `/readyz` and `/metrics`. The pages of `route` are served beside `path`.
        """
        from antiphon.transport.server.http.app import App

        return App(self._engine, path=path, hosts=hosts, origins=origins, routes=self._routes, probes=probes)

    async def stdio(self) -> None:
        """Serve one client on the standard input and output, until it closes them."""
        from antiphon.transport.server.stdio import serve

        await serve(self._engine)

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

    def running(self) -> AbstractAsyncContextManager[None]:
        """Start the server without a transport, and stop it at the end; nested use starts it once."""
        return self._engine.running()

    @property
    def counters(self) -> Mapping[CallKey, int]:
        """How many calls there were so far, by tool, kind of response and outcome."""
        return self._engine.telemetry.counters

    @property
    def timings(self) -> Mapping[str, Timing]:
        """How long calls took, by tool. They are timed from the first look at this on."""
        return self._engine.telemetry.timings

    async def metrics(self) -> str:
        """Return metrics about calls, tasks and the store, in the text format of Prometheus."""
        return await self._engine.metrics()

    @property
    def _registry(self) -> Registry:
        return self._engine.registry


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
