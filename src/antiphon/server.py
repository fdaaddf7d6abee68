"""The public `Server`: what an author registers, and which of it serves a request.

Knows no protocol version, no bytes and no connection; those are the transports' and the wire's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from antiphon.authentication import Authenticate
from antiphon.errors import (
    Busy,
    DefinitionError,
    InternalError,
    InvalidParams,
    MethodNotFound,
    NotFound,
    RequestError,
    StoreUnavailable,
    Unauthorized,
)
from antiphon.model.content import Icon
from antiphon.model.notification import Acknowledged, ResourceUpdated
from antiphon.model.outcome import (
    DONE,
    Completion,
    Discovery,
    Done,
    InputRequired,
    Listened,
    Outcome,
    Page,
    Prompted,
    Read,
    Result,
)
from antiphon.model.party import ANONYMOUS, Implementation, Principal
from antiphon.model.request import (
    CallTool,
    Complete,
    Discover,
    GetPrompt,
    Initialize,
    Listen,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    Ping,
    ReadResource,
    SetLogLevel,
    Subscribe,
    Unsubscribe,
)
from antiphon.runtime.call import Call, Peer
from antiphon.runtime.catalog import Catalog
from antiphon.runtime.changes import Changes, wants
from antiphon.runtime.completion import Completers
from antiphon.runtime.functions import Threads
from antiphon.runtime.limits import Limits
from antiphon.runtime.options import PromptOptions, ResourceOptions, ToolOptions
from antiphon.runtime.prompt import Prompt
from antiphon.runtime.resource import Resource
from antiphon.runtime.rounds import Rounds
from antiphon.runtime.run import Shed
from antiphon.runtime.seal import Seal
from antiphon.runtime.stage import Function, Stage
from antiphon.runtime.tool import Tool
from antiphon.wire.headers import Mirrored, declared

if TYPE_CHECKING:
    from antiphon.transport.asgi import App

__all__ = ["Server"]

logger = logging.getLogger("antiphon")
F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Server"], AbstractAsyncContextManager[Any]]


class Server:
    """An MCP server.

    `authenticate` says who is calling; `secrets` is the ring of keys that several processes share
    (from `ANTIPHON_SECRETS`, separated by commas, unless given); `lifespan` opens what the functions
    need, which they find as `ctx.lifespan`; `ttl` is how long, in seconds, callers may keep its lists;
    `shed` says, given the seconds spent in a call, whether to hand it back to the caller at the next
    checkpoint (`shed_after` is a ready one).
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
        page_size: int = 100,
        ttl: float = 0,
    ) -> None:
        self.info = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=tuple(icons) if icons else None,
        )
        self.limits = limits or Limits()
        self.instructions = instructions
        self.seal = Seal(_secrets() if secrets is None else secrets)
        self.changes = Changes()
        self._authenticate = authenticate
        self._lifespan = lifespan
        self._users = 0
        self._starting = asyncio.Lock()
        self._open: AbstractAsyncContextManager[Any] | None = None
        self._ttl_ms = int(ttl * 1000)
        self._threads = Threads(self.limits.threads)
        self.stage = Stage(threads=self._threads, carrier=Rounds(self.seal, name, self.limits), shed=shed)
        self._catalog = Catalog(self.changes, page_size)
        self._mirrored: dict[str, Mirrored] = {}
        self._completers = Completers(self._catalog, self._threads)
        self._handlers: Mapping[type[Any], Callable[[Call[Any]], Any]] = {
            CallTool: self._call_tool,
            ListTools: self._list_tools,
            ListResources: self._list_resources,
            ListTemplates: self._list_templates,
            ListPrompts: self._list_prompts,
            ReadResource: self._read_resource,
            GetPrompt: self._get_prompt,
            Complete: self._complete,
            Initialize: self._discover,
            Discover: self._discover,
            Ping: self._ping,
            SetLogLevel: self._set_log_level,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Listen: self._listen,
        }

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
        tool = Tool(function, self._threads, **options)
        mirrored = declared(tool.definition.input_schema)
        self._catalog.add_tool(tool)
        if mirrored:
            self._mirrored[tool.name] = mirrored

    def remove_tool(self, name: str) -> None:
        """Offer a tool no longer; raises `NotFound`. Callers that listen are told."""
        self._catalog.remove_tool(name)
        self._mirrored.pop(name, None)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Offer a function as the resource at `uri`, or at every address that a URI template matches.

        `ResourceOptions` lists the options. Raises `DefinitionError`.
        """
        return self._register(lambda target: self.add_resource(target, uri, **options))

    def add_resource(
        self, function: Callable[..., Any], uri: str, **options: Unpack[ResourceOptions]
    ) -> None:
        """Offer a function as a resource, with the options of `resource`. Callers that listen are told."""
        self._catalog.add_resource(Resource(function, self._threads, uri, **options))

    def remove_resource(self, uri: str) -> None:
        """Offer a resource no longer; raises `NotFound`. Callers that listen are told."""
        self._catalog.remove_resource(uri)

    def updated(self, uri: str) -> None:
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

    @staticmethod
    def _register(add: Callable[[Any], None]) -> Callable[[F], F]:
        def decorate(target: F) -> F:
            add(target)
            return target

        return decorate

    # Running

    def asgi(
        self, *, path: str = "/mcp", hosts: Sequence[str] | None = None, origins: Sequence[str] | None = None
    ) -> App:
        """An ASGI app that serves at `path`, or at the place where it is mounted.

        `hosts` and `origins` are the values of the Host and Origin headers that it trusts, `"*"` for
        all. Without them, one that is reached at a loopback address trusts only local ones.
        """
        from antiphon.transport.asgi import App

        return App(self, path=path, hosts=hosts, origins=origins)

    async def stdio(self) -> None:
        """Serve one client on the standard input and output, until it closes them."""
        from antiphon.transport.stdio import serve

        await serve(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the server's lifespan open; nested use shares one."""
        async with self._starting:
            if self._users == 0:
                self.changes.reopen()
                if self._lifespan is not None:
                    self._open = self._lifespan(self)
                    self.stage = replace(self.stage, lifespan=await self._open.__aenter__())
            self._users += 1
        try:
            yield
        finally:
            async with self._starting:
                self._users -= 1
                if self._users == 0:
                    self.changes.close()
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

    def function(self, tool: str) -> Function:
        """The function behind a tool; raises `NotFound`."""
        return self._catalog.tool(tool).function

    def mirrored(self, tool: str) -> Mirrored | None:
        """The headers that mirror arguments of a tool, each with the path of its argument."""
        return self._mirrored.get(tool)

    # Serving

    def handle(self, call: Call[Any]) -> Awaitable[Any]:
        """Serve a call: what to await for its outcome; both may raise, see `error_of`."""
        call.deadline = call.started + self.limits.call_time
        outcome: Awaitable[Any] = self._handlers[type(call.request)](call)
        return outcome

    def error_of(self, call: Call[Any], raised: Exception) -> RequestError:
        """What to tell a caller of something that was raised; what it was stays in the log."""
        if isinstance(raised, RequestError):
            return raised
        if isinstance(raised, StoreUnavailable):
            logger.warning("Request %r needs the store: %s", call.id, raised)
            return Busy("The tasks of this server cannot be reached now: try again.", retry_after=2)
        logger.error("Request %r failed.", call.id, exc_info=raised)
        return InternalError(
            f"The server failed to serve this. Its log has the details, under request {call.id!r}."
        )

    def overdue(self, call: Call[Any]) -> Result:
        """How a call ends that took too long; raises `InternalError` where that is an error."""
        allowed = call.deadline - call.started
        if not isinstance(call.request, CallTool):
            raise InternalError(f"The server did not finish within {allowed:g} seconds.")
        return Result(
            f"The tool {call.request.name!r} did not finish within {allowed:g} seconds.", is_error=True
        )

    def _call_tool(self, call: Call[CallTool]) -> Any:
        tool = self._catalog.tools.get(call.request.name)
        if tool is None:
            raise NotFound(f"Unknown tool: {call.request.name!r}.")
        if tool.timeout is not None:
            call.deadline = call.started + tool.timeout
        return tool.run(call, self.stage)

    async def _list_tools(self, call: Call[ListTools]) -> Page:
        self._offered("tools", self._catalog.tools)
        return self._catalog.page("tools", call.request.cursor, self._ttl_ms)

    async def _list_resources(self, call: Call[ListResources]) -> Page:
        self._offered("resources", self._catalog.resources or self._catalog.templates)
        return self._catalog.page("resources", call.request.cursor, self._ttl_ms)

    async def _list_templates(self, call: Call[ListTemplates]) -> Page:
        self._offered("resources", self._catalog.resources or self._catalog.templates)
        return self._catalog.page("templates", call.request.cursor, self._ttl_ms)

    async def _list_prompts(self, call: Call[ListPrompts]) -> Page:
        self._offered("prompts", self._catalog.prompts)
        return self._catalog.page("prompts", call.request.cursor, self._ttl_ms)

    async def _read_resource(self, call: Call[ReadResource]) -> Read | InputRequired:
        resource, variables = self._catalog.resource(call.request.uri)
        return await resource.read(call, variables, call.request.uri, self.stage)

    async def _get_prompt(self, call: Call[GetPrompt]) -> Prompted | InputRequired:
        return await self._catalog.prompt(call.request.name).fill(call, self.stage)

    async def _complete(self, call: Call[Complete]) -> Completion:
        return await self._completers.suggest(call)

    async def _discover(self, call: Call[Any]) -> Discovery:
        return Discovery(self.info, self.capabilities, self.instructions, self._ttl_ms)

    async def _ping(self, call: Call[Ping]) -> Done:
        return DONE

    async def _set_log_level(self, call: Call[SetLogLevel]) -> Done:
        _peer(call).log_level = call.request.level
        return DONE

    async def _subscribe(self, call: Call[Subscribe]) -> Done:
        self._catalog.resource(call.request.uri)
        subscriptions = _peer(call).subscriptions
        if len(subscriptions) >= Peer.SUBSCRIPTIONS:
            raise InvalidParams(
                f"A session can subscribe to {Peer.SUBSCRIPTIONS} resources: give some back first."
            )
        subscriptions.add(call.request.uri)
        return DONE

    async def _unsubscribe(self, call: Call[Unsubscribe]) -> Done:
        _peer(call).subscriptions.discard(call.request.uri)
        return DONE

    async def _listen(self, call: Call[Listen]) -> Listened:
        call.deadline = float("inf")
        interests = call.request.notifications
        if len(interests.resource_subscriptions) > Peer.SUBSCRIPTIONS:
            raise InvalidParams(f"A listener can name {Peer.SUBSCRIPTIONS} resources at most.")
        with self.changes.listen(wants(interests)) as listener:
            await call.notify(Acknowledged(interests))
            async for change in listener:
                await call.notify(change)
        return Listened(call.id)

    @property
    def capabilities(self) -> dict[str, Any]:
        """What it can do, as it tells its callers."""
        found: dict[str, Any] = {"logging": {}}
        if self._catalog.tools:
            found["tools"] = {"listChanged": True}
        if self._catalog.resources or self._catalog.templates:
            found["resources"] = {"subscribe": True, "listChanged": True}
        if self._catalog.prompts:
            found["prompts"] = {"listChanged": True}
        if self._completers:
            found["completions"] = {}
        return found

    @staticmethod
    def _offered(kind: str, shelf: Mapping[str, Any]) -> None:
        if not shelf:
            raise MethodNotFound(f"This server has no {kind}.")


def _maybe(function: Any, decorate: Callable[[Any], Any]) -> Any:
    """A decorator that was used with its function, or without."""
    if function is None:
        return decorate
    if not callable(function):
        raise DefinitionError(f"{function!r} is not a function. Options have names: name={function!r}.")
    return decorate(function)


def _peer(call: Call[Any]) -> Peer:
    if call.peer is None:
        raise InvalidParams("This needs a session: initialize first, and send its id.")
    return call.peer


def shed_after(seconds: float) -> Shed:
    """Hand a call back to its caller once this many seconds were spent in it."""
    return lambda spent: spent >= seconds


def _secrets() -> list[str]:
    return [secret.strip() for secret in os.environ.get("ANTIPHON_SECRETS", "").split(",") if secret.strip()]
