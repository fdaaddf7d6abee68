"""The public `Server`: registers an author's functions, and starts the transports that serve them.

The engine handles the requests. This module must not know a protocol version or a connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from antiphon.authentication import Authenticate
from antiphon.errors import DefinitionError
from antiphon.handover import hand_over
from antiphon.model.content import Icon
from antiphon.model.identity import Implementation
from antiphon.model.notification import ResourceUpdated
from antiphon.model.ui import UI_SCHEME
from antiphon.openapi.factories import ApiFactories
from antiphon.runtime.authoring.options import (
    PromptOptions,
    ResourceOptions,
    ToolOptions,
    UiOptions,
    check_options,
)
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.server_options import check_server_options
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.engine import Engine, Settings
from antiphon.runtime.execution.run import Shed
from antiphon.runtime.execution.waiting import Duration
from antiphon.runtime.limits import Limits
from antiphon.runtime.middleware import Middleware
from antiphon.runtime.observability.telemetry import CallKey, Timing
from antiphon.runtime.tasks.events import KEEP_EVENTS_SECONDS
from antiphon.runtime.tasks.inbox import Audiences, default_audiences
from antiphon.server_switches import ServerSwitches
from antiphon.store.artifacts import ArtifactStore
from antiphon.store.contract import Store
from antiphon.transport.server.http.router import Routes
from antiphon.wire.mirrored_headers import declared

if TYPE_CHECKING:
    from antiphon.gateway.options import MountOptions
    from antiphon.runtime.authoring.ui import UiSource
    from antiphon.transport.server.http.app import App, ConsoleOptions

__all__ = ["Server", "shed_after"]

logger = logging.getLogger("antiphon")

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


class Server(ApiFactories, ServerSwitches):
    """An MCP server: register functions with decorators, then run it or mount it.

    How clients see the server:

    - `name`, `version`, `title`, `description`, `website_url`, `icons`: how the server introduces itself.
    - `instructions`: a text for the client's model about how to use the server.
    - `protocols`: the protocol versions that the server offers, such as `["2026-07-28", "2025-11-25"]`.
      Default: all, with the drafts. A request that names no version is of a draft.
    - `page_size`: the number of entries in one page of a list.
    - `list_ttl`: how long clients may cache the lists, in seconds.

    Security:

    - `authenticate`: a function that returns the `Principal` of a request from its headers. `BearerTokens` is
      a ready-made one. Without it, callers are anonymous.
    - `hide_forbidden`: leave out of the lists what the caller does not have the scopes for.
    - `task_claims`: the names of the claims of a principal that tasks store, beside its id and its scopes. A
      function that may run as a task sees only these.
    - `audiences`: a function that returns the groups and scopes for which a principal answers the questions
      of `ctx.elicit(to=…)`. Default: its scopes, and the texts in its claims `roles` and `groups`.
    - `middleware`: async callables around every request, the first one outermost. See `antiphon.middleware`.
    - `secrets`: the keys that encrypt request states and session ids. All processes of a server need the same
      keys. The first one encrypts; to rotate keys, add a new one in front. Default: `ANTIPHON_SECRETS`,
      separated by commas, or a random key.
    - `single_use_state`: refuse a request state that was used before. Needs a store that all processes share.

    Running:

    - `lifespan`: an async context manager around the life of the server. Functions find the value that it
      yields as `ctx.lifespan`.
    - `limits`: sizes, counts and timeouts. See `Limits`.
    - `shed`: a function that takes the seconds spent in a call, and returns whether to hand the call back at
      its next checkpoint. The caller then resumes the call, perhaps on another process. `shed_after` is a
      ready-made one.
    - `log_arguments`: add the arguments of calls to the lines of the logger `antiphon.calls`.

    Storage:

    - `store`: where tasks are stored, such as `sqlite:///tasks.db`. Default: `ANTIPHON_STORE`, or in memory.
    - `artifacts`: where artifacts are stored: a database, `file:///folder` or `memory:`. Default:
      `ANTIPHON_ARTIFACTS`, or the store of the tasks if it is a database, or in memory.

    Raises `DefinitionError` if an option is invalid.
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
        protocols: Sequence[str] | None = None,
        authenticate: Authenticate | None = None,
        hide_forbidden: bool = False,
        task_claims: Sequence[str] = (),
        audiences: Audiences | None = None,
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
        check_server_options(
            name,
            lifespan=lifespan,
            authenticate=authenticate,
            middleware=middleware,
            shed=shed,
            audiences=audiences,
            list_ttl=list_ttl,
            task_claims=task_claims,
            page_size=page_size,
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
                protocols=protocols,
                task_claims=tuple(task_claims),
                audiences=audiences or default_audiences,
                hide_forbidden=hide_forbidden,
                artifacts=artifacts,
                log_arguments=log_arguments,
                page_size=page_size,
                list_ttl=list_ttl,
            )
        )

    @property
    def engine(self) -> Engine:
        """The engine behind the server, for code that hosts the server: transports, workers and gateways."""
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
        """Register a function as a tool, with `@server.tool` or `@server.tool(…)`.

        The name, the description and the schemas come from the function, unless you set them in the options;
        see `ToolOptions`. Raises `DefinitionError`.
        """
        return _decorate_or_defer(function, self._register(lambda target: self.add_tool(target, **options)))

    def add_tool(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """Register a function as a tool, with the options of `tool`, and notify listening clients.

        Raises `DefinitionError`.
        """
        check_options(function, options, ToolOptions)
        tool = Tool(function, self._engine.threads, **options)
        self._engine.add_tool(tool, declared(tool.definition.input_schema))

    def remove_tool(self, name: str) -> None:
        """Remove a tool, and notify listening clients; raises `NotFound`."""
        self._engine.remove_tool(name)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a function as the resource at `uri`, with `@server.resource("data://users/{id}")`.

        `uri` is an address, or a URI template whose variables are the parameters of the function. See
        `ResourceOptions` for the options. Raises `DefinitionError`.
        """
        if not isinstance(uri, str):
            name = getattr(uri, "__name__", "name")
            raise DefinitionError(
                f'@server.resource needs an address: write @server.resource("data://{name}").'
            )
        return self._register(lambda target: self.add_resource(target, uri, **options))

    def add_resource(
        self, function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]
    ) -> None:
        """Register a function as a resource, with the options of `resource`, and notify listening clients.

        Raises `DefinitionError`.
        """
        if str(uri).startswith(UI_SCHEME):
            raise DefinitionError(f"{uri!r}: ui:// is for MCP Apps. Register one with @server.ui({uri!r}).")
        check_options(function, options, ResourceOptions)
        self._registry.add_resource(Resource(function, self._engine.threads, uri, **options))

    def ui(self, uri: str, **options: Unpack[UiOptions]) -> Callable[[F], F]:
        """Register a function that returns the HTML of an MCP App, with `@server.ui("ui://weather/view")`.

        Hosts show the App beside the results of the tools that name it as their `ui`. `uri` is an address, or
        a URI template whose variables are the parameters of the function. See `UiOptions` for the options.
        Raises `DefinitionError`.
        """
        return self._register(lambda target: self.add_ui(target, uri, **options))

    def add_ui(self, source: UiSource, uri: str, **options: Unpack[UiOptions]) -> None:
        """Register an MCP App, with the options of `ui`, and notify listening clients.

        `source` is a function that returns the HTML, the `Path` of a file, which is read for every request,
        or the HTML as a string. Raises `DefinitionError`.
        """
        from antiphon.runtime.authoring.ui import UiResource

        check_options(source if callable(source) else uri, options, UiOptions)
        self._registry.add_resource(UiResource(source, self._engine.threads, uri, **options))

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or an MCP App, and notify listening clients; raises `NotFound`."""
        self._registry.remove_resource(uri)

    def notify_resource_updated(self, uri: str) -> None:
        """Notify subscribers that a resource has changed."""
        self._engine.changes.publish(ResourceUpdated(uri))

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Register a function as a prompt, with `@server.prompt` or `@server.prompt(…)`.

        The function returns a string, a `PromptMessage`, a content block, or a list of these. See
        `PromptOptions` for the options. Raises `DefinitionError`.
        """
        return _decorate_or_defer(function, self._register(lambda target: self.add_prompt(target, **options)))

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> None:
        """Register a function as a prompt, with the options of `prompt`, and notify listening clients.

        Raises `DefinitionError`.
        """
        check_options(function, options, PromptOptions)
        self._registry.add_prompt(Prompt(function, self._engine.threads, **options))

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt, and notify listening clients; raises `NotFound`."""
        self._registry.remove_prompt(name)

    def completion(self, owner: str, argument: str) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or a variable of a template.

        `owner` is the name of the prompt, or the URI template, which must be registered before. The function
        takes the text typed so far and, as an optional second parameter, the other arguments as a mapping. It
        may also take a `Context` and dependencies. Raises `DefinitionError`.
        """
        return self._register(lambda target: self._engine.completions.add(owner, argument, target))

    def route(self, path: str, *, methods: Sequence[str] = ("GET",)) -> Callable[[F], F]:
        """Register a function that serves an HTTP page beside MCP: a health check, a webhook, a download.

        The function takes an `HttpRequest`, and returns text, bytes, data for JSON, or an `HttpResponse`. The
        page is not authenticated: check the request yourself. Raises `DefinitionError` if the path is taken.
        """
        return self._register(lambda target: self._routes.add(path, methods, target))

    def mount(self, name: str, target: Any, /, **options: Unpack[MountOptions]) -> None:
        """Offer the tools, resources and prompts of another server here, under names that begin with `name_`.

        `target` is the URL of a server or the command that starts one, in whatever protocol version it
        speaks, or another `Server`, which then needs no connection. See `MountOptions` for the options. Call
        it before the server starts. Raises `DefinitionError`.
        """
        from antiphon.gateway.mount import mount

        mount(self._engine, name, target, options)

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
        """Change how this process stores and runs tasks, before the server starts.

        `store` replaces the store. `run_tasks=False` leaves tasks to other processes. `task_tools` limits
        this process to the tasks of the tools that it names. `max_running_tasks` replaces the limit of that
        name. Options that you do not pass stay unchanged. Raises `RuntimeError` while the server runs, and
        `DefinitionError` if `task_tools` names a tool that never runs as a task.
        """
        self._engine.configure(
            store=store, run_tasks=run_tasks, task_tools=task_tools, max_running_tasks=max_running_tasks
        )

    @property
    def artifact_ui(self) -> str:
        """The address of an MCP App that shows artifacts; a tool that makes some passes it as its `ui`."""
        return self._engine.artifacts.viewer_uri

    @property
    def store(self) -> str | Store | None:
        """The store of the tasks, or `None` if tasks are stored in memory."""
        return self._engine.tasks.store_setting

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that are enabled."""
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
        console: ConsoleOptions | None = None,
    ) -> App:
        """Return an ASGI app that serves MCP at `path`, or at the path where you mount the app.

        `hosts` are the host names that the app trusts, and `origins` the origins of web pages that may call
        it from elsewhere; `"*"` trusts all. By default, the app trusts `localhost` and addresses, and with
        `authenticate` any name at an address that other machines reach. `probes` adds `/healthz`, `/readyz`
        and `/metrics`. `console` adds the console, a web page for people who answer questions and operate
        tasks: pass a `Console`. The app also serves the pages that you register with `route`. Raises
        `DefinitionError` for a console without `authenticate`, and for what is not an origin.
        """
        from antiphon.transport.server.http.app import App

        return App(
            self._engine,
            path=path,
            hosts=hosts,
            origins=origins,
            routes=self._routes,
            probes=probes,
            console=None if console is None else console.attach(self, hosts),
        )

    async def stdio(self) -> None:
        """Serve one client on standard input and output, until the client closes them."""
        from antiphon.transport.server.stdio import serve

        hand_over(self)
        await serve(self._engine)

    def run(
        self,
        transport: Literal["stdio", "http", "streamable-http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        """Serve until the process gets SIGINT or SIGTERM, or until the client closes standard input.

        `http` and `streamable-http` are the same. `hosts` and `origins` are those of `asgi`. `antiphon run
        FILE` has more options: it takes the server of the file over, and the file's call of `run` ends the
        import. Raises `ValueError` if the transport is unknown.
        """
        hand_over(self)
        if transport == "stdio":
            asyncio.run(self.stdio())
        elif transport in ("http", "streamable-http"):
            from antiphon.transport.server.http.guard import exposures
            from antiphon.transport.server.http.serve import serve_http

            if not self._engine.authenticates:
                for warning in exposures(self.name, host, hosts, origins):
                    logger.warning(warning)
            serve_http(self.asgi(path=path, hosts=hosts, origins=origins), host=host, port=port)
        else:
            raise ValueError(f"Unknown transport {transport!r}: use 'stdio', 'http' or 'streamable-http'.")

    def running(self) -> AbstractAsyncContextManager[None]:
        """Start the server without a transport, and stop it at the end of the `async with` block.

        Nested blocks share one start. Raises the error of the lifespan, and `StoreError` if the store cannot
        be opened.
        """
        return self._engine.running()

    @property
    def counters(self) -> Mapping[CallKey, int]:
        """The number of calls so far, by tool, kind of response and outcome."""
        return self._engine.telemetry.counters

    @property
    def timings(self) -> Mapping[str, Timing]:
        """The durations of calls, by tool. Calls are timed from the first access to this property on."""
        return self._engine.telemetry.timings

    async def send_event(
        self,
        name: str,
        key: str,
        data: Any = None,
        *,
        id: str | None = None,
        keep: Duration = KEEP_EVENTS_SECONDS,
    ) -> bool:
        """Send an event to the tasks that wait for it with `ctx.event(name, key=key)`, now or later.

        `data` is JSON. Every task that waits for the name and key gets the event once. It is kept for `keep`,
        in seconds or as a `timedelta`, for tasks that wait for it later, and for at least ten minutes. With
        an `id`, such as the one of a webhook's delivery, an event that is sent twice while it is kept counts
        once: the second call returns false. The event is durable when the method returns. Raises
        `ValueError` for more bytes than `Limits.max_event_bytes`, and `RuntimeError` if the server does not
        run.
        """
        return await self._engine.tasks.send_event(name, key, data, id=id, keep=keep)

    async def metrics(self) -> str:
        """Return metrics about calls, tasks and the store, in the text format of Prometheus."""
        return await self._engine.metrics()

    @property
    def _registry(self) -> Registry:
        return self._engine.registry


def _decorate_or_defer(function: Any, decorate: Callable[[Any], Any]) -> Any:
    """Decorate a function, or return the decorator if it was called with options and no function."""
    if function is None:
        return decorate
    if not callable(function):
        raise DefinitionError(f"{function!r} is not a function. Pass options by name: name={function!r}.")
    return decorate(function)


def shed_after(seconds: float) -> Shed:
    """Return a `shed` function that hands a call back to its caller after this many seconds."""
    return lambda spent: spent >= seconds


def _secrets() -> list[str]:
    return [secret.strip() for secret in os.environ.get("ANTIPHON_SECRETS", "").split(",") if secret.strip()]
