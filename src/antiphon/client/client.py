"""The public `Client`. It connects the parts of this package, and owns nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from antiphon.client.callbacks import (
    Callbacks,
    ElicitCallback,
    RequestHandler,
    Roots,
    SampleCallback,
    handlers_for,
)
from antiphon.client.catalog_cache import CatalogCache
from antiphon.client.connection import Callback, Connection, deliver
from antiphon.client.inbox.requests import InboxClient, InboxRequests
from antiphon.client.input_rounds import InputRounds
from antiphon.client.notifications import Notifications
from antiphon.client.streaming.segment_queue import SegmentQueue
from antiphon.client.streaming.stream import Stream, StreamedCall
from antiphon.client.targets import channel_to, check_times
from antiphon.client.tasks.handle import TaskHandle
from antiphon.client.tasks.redeeming import checked
from antiphon.client.tasks.requests import TaskRequests
from antiphon.client.tool_calls import ToolCalls, tool_call
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import (
    Kind,
    PromptDefinition,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from antiphon.model.identity import Implementation, LogLevel, Principal
from antiphon.model.outcome import Completion, InputRequired, PromptResult, ReadResult, Result
from antiphon.model.request import (
    CallTool,
    Complete,
    CompletionArgument,
    CompletionContext,
    GetPrompt,
    PromptReference,
    ReadResource,
    Request,
    RequestMeta,
    ResourceReference,
)
from antiphon.model.segment import MODES, ResponseMode
from antiphon.model.task_status import TaskStatus
from antiphon.model.ui import declare_ui
from antiphon.runtime.change_feed import Listener
from antiphon.version import VERSION
from antiphon.wire.client.tasks import related
from antiphon.wire.versions import VERSIONS

if TYPE_CHECKING:
    import ssl

    import aiohttp
    import httpx2

    from antiphon.client.oauth.oauth import OAuth

__all__ = ["Client"]


class Client(InboxClient):
    """A connection to one server, open inside `async with`.

    `target` is the URL of a server, the command that starts one, or a `Server` in this process. All methods
    may raise `Unreachable`, `TimedOut`, `BadAnswer`, or the `RequestError` that the server answers with.

    `headers`, `auth`, `tls`, `proxy` and `http` are for a URL, `env` and `cwd` for a command. `auth` is a
    bearer token, an `OAuth` or an `httpx2.Auth`. `proxy` is the address of a proxy, or `False` for none; by
    default the environment names one. `http` is an `aiohttp.ClientSession` or an `httpx2.AsyncClient`.
    `principal` is the caller of a `Server` in this process: a `Principal`, or its id. Raises `ValueError` for
    an option that the target does not use, and for a negative time.

    `timeout` bounds each request and each whole list, `connect_timeout` the negotiation of a version.
    `probe_timeout` is how long a child process has to answer in the newest version before the client tries an
    older one. `shutdown_timeout` is how long a child process has to exit. `reconnect_timeout` is how long a
    server may be unreachable while the client waits for a task. `keep_alive_timeout` is how long a stream of
    changes may bring nothing, not even a keep-alive, before the client opens it again. All are in seconds.
    `max_message` bounds one message of the server, and all segments of one stream, in bytes. `max_requests`
    bounds the requests that the client sends over HTTP at once.

    Callbacks are plain or async functions: `on_progress` takes a `Progress`, `on_log` a `Log`, `on_change`
    a `ListChanged` or a `ResourceUpdated`.

    Pass callbacks that answer the questions of tools: `elicit` asks the person at the client, `sample` asks a
    model, and `roots` are the folders that the client works in, or a function that returns them. A call
    takes at most `max_rounds` rounds. `handlers` answer other requests of the server, by method;
    `capabilities` declare them. `shows_ui` declares that you show MCP Apps to a person, as a host does.
    """

    def __init__(
        self,
        target: Any,
        *,
        name: str = "antiphon",
        version: str | None = None,
        auth: str | OAuth | httpx2.Auth | None = None,
        headers: Mapping[str, str] | None = None,
        http: aiohttp.ClientSession | httpx2.AsyncClient | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: str | Literal[False] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        principal: Principal | str | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 30.0,
        probe_timeout: float = 5.0,
        shutdown_timeout: float = 2.0,
        reconnect_timeout: float = 30.0,
        keep_alive_timeout: float = 60.0,
        max_message: int = 64 * 1024 * 1024,
        max_requests: int = 100,
        max_pages: int = 1000,
        protocol: str | None = None,
        log_level: LogLevel | None = None,
        on_log: Callback | None = None,
        on_progress: Callback | None = None,
        on_change: Callback | None = None,
        elicit: ElicitCallback | None = None,
        sample: SampleCallback | None = None,
        roots: Roots | None = None,
        max_rounds: int = 100,
        handlers: Mapping[str, RequestHandler] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        shows_ui: bool = False,
    ) -> None:
        if protocol is not None and protocol not in VERSIONS.spoken_by_client:
            raise ValueError(f"protocol={protocol!r} is not one of {', '.join(VERSIONS.spoken_by_client)}.")
        check_times(
            timeout=timeout,
            connect_timeout=connect_timeout,
            probe_timeout=probe_timeout,
            shutdown_timeout=shutdown_timeout,
            reconnect_timeout=reconnect_timeout,
        )
        answering, declared = handlers_for(elicit, sample, roots)
        declared |= capabilities or {}
        all_handlers = {**answering, **(handlers or {})}
        callbacks = Callbacks(all_handlers)
        self._catalog = CatalogCache(lambda: asyncio.get_running_loop().time(), max_pages=max_pages)
        self._notifications = Notifications(
            self._catalog,
            log_level=log_level,
            on_log=on_log,
            on_progress=on_progress,
            on_change=on_change,
            has_handlers=bool(all_handlers),
        )
        self._connection = Connection(
            channel_to(
                target,
                auth=auth,
                headers=headers,
                http=http,
                tls=tls,
                proxy=proxy,
                env=env,
                cwd=cwd,
                principal=principal,
                connect_timeout=connect_timeout,
                max_message=max_message,
                max_requests=max_requests,
                shutdown_timeout=shutdown_timeout,
                keep_alive_timeout=keep_alive_timeout,
            ),
            Implementation(name, VERSION if version is None else version),
            declare_ui(declared) if shows_ui else declared,
            callbacks=callbacks,
            on_notification=self._notifications.handle,
            on_new_session=self._notifications.restart,
            protocol=protocol,
            timeout=timeout,
            connect_timeout=connect_timeout,
            probe_timeout=probe_timeout,
        )
        self._rounds = InputRounds(callbacks, max_rounds)
        self._calls = ToolCalls(self._connection, self._catalog, self.tools, max_message)
        self._tasks = TaskRequests(
            self._connection,
            self._rounds,
            reconnect_timeout=reconnect_timeout,
            max_pages=max_pages,
            max_streams=min(16, max_requests // 4),
            max_requests=max_requests,
            max_message=max_message,
        )
        self._inbox = InboxRequests(self._tasks)
        self._notifications.attach(self._connection, self._tasks)

    async def __aenter__(self) -> Self:
        await self._connection.open()
        try:
            await self._notifications.start()
        except BaseException:
            await self._connection.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._notifications.close()
        finally:
            await self._connection.close()

    # The server
    @property
    def server(self) -> Implementation | None:
        """The name and version of the server, if it sends them."""
        return self._connection.welcome.server

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the server declares, in the words of MCP."""
        return self._connection.welcome.capabilities

    @property
    def offers(self) -> ServerCapabilities:
        """What the server offers, in the same form for every protocol version."""
        return self._connection.offers

    @property
    def instructions(self) -> str | None:
        """The instructions of the server for its use, if it sends any."""
        return self._connection.welcome.instructions

    @property
    def version(self) -> str:
        """The protocol version that client and server have negotiated."""
        return self._connection.dialect.version

    async def ping(self, *, timeout: float | None = None) -> None:
        """Check that the server responds."""
        await self._connection.ask(self._connection.dialect.ping(), timeout=timeout)

    # Tools, resources and prompts

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        resume: InputRequired | None = None,
        answers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: Callback | None = None,
        on_task: Callback | None = None,
        allow_task: bool = True,
        log_level: LogLevel | None = None,
        meta: Mapping[str, Any] | None = None,
        check: bool = True,
        **kwargs: Any,
    ) -> Result:
        """Call a tool and return its result, however many rounds it takes.

        Further keywords are arguments of the tool. The client's callbacks answer the tool's questions. If the
        server makes a task of the call, the client waits for the task; `timeout` covers that too, and
        without one there is no limit. A call that is given up cancels the task, unless you pass `on_task`: it
        gets the `TaskHandle`, and the task is yours. With `allow_task=False`, the server has to answer the
        call itself; it may refuse to. `resume` and `answers` continue a call that `call_once` left off.

        Raises `Failure` if the tool failed, unless `check` is false; `TaskCancelled` or `TaskLost` if a
        task ended without a result.
        """
        request = tool_call(name, {**(arguments or {}), **kwargs}, resume, answers)
        outcome = await self._rounds.drive(
            request, self._sender(timeout, on_progress, log_level, meta, allow_task)
        )
        if isinstance(outcome, TaskStatus):
            handle = self._handle(outcome, on_progress)
            if on_task is not None:
                await deliver(on_task, handle)
            outcome = await handle.drive(timeout=timeout, cancels=on_task is None)
        return checked(outcome, f"The tool {name!r}") if check else cast(Result, outcome)

    async def call_once(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        resume: InputRequired | None = None,
        answers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        on_progress: Callback | None = None,
        allow_task: bool = True,
        log_level: LogLevel | None = None,
        meta: Mapping[str, Any] | None = None,
        check: bool = True,
        **kwargs: Any,
    ) -> Result | InputRequired | TaskHandle:
        """Send one round of a call, and return its outcome as it is.

        A call that asks something returns an `InputRequired`; a call that becomes a task returns the
        task's handle. To continue an `InputRequired`, in this process or in another, make the same call
        again with it as `resume` and with `answers` to its questions by key. Further keywords are
        arguments of the tool. `allow_task` is as in `call`. Raises `Failure` if the tool failed, unless
        `check` is false.
        """
        request = tool_call(name, {**(arguments or {}), **kwargs}, resume, answers)
        outcome = await self._sender(timeout, on_progress, log_level, meta, allow_task)(request)
        if isinstance(outcome, TaskStatus):
            return self._handle(outcome, on_progress)
        if isinstance(outcome, Result) and check:
            return checked(outcome, f"The tool {name!r}")
        return cast("Result | InputRequired", outcome)

    async def submit(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        ttl: float | None = None,
        response_modes: Sequence[ResponseMode] = ("task",),
        timeout: float | None = None,
        on_progress: Callback | None = None,
        log_level: LogLevel | None = None,
        meta: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> TaskHandle:
        """Call a tool as a task, and return the task's handle without waiting for the result.

        Further keywords are arguments of the tool. `ttl` is how long the server should keep the task, in
        seconds, in versions where the caller can say so. If the server answers at once, the handle has the
        result already, and no id unless there is a task as well. A server with the response modes of SEP-1905
        answers at once if `response_modes` has "immediate". Raises `ValueError` for "streaming".
        """
        _check_modes(response_modes, "task", "immediate")
        request = CallTool(name=name, arguments={**(arguments or {}), **kwargs})
        send = self._sender(timeout, on_progress, log_level, meta)
        outcome = await self._rounds.drive(await self._calls.as_task(request, ttl, response_modes), send)
        if not isinstance(outcome, TaskStatus):
            outcome = TaskStatus(related(outcome.meta) or "", "completed", result=outcome)
        return self._handle(outcome, on_progress)

    def stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        response_modes: Sequence[ResponseMode] = ("streaming", "task"),
        timeout: float | None = None,
        on_progress: Callback | None = None,
        log_level: LogLevel | None = None,
        meta: Mapping[str, Any] | None = None,
        check: bool = True,
        **kwargs: Any,
    ) -> Stream:
        """Call a tool and read the segments of its output while it runs.

        async with client.stream("write", topic="trees") as stream:
            async for segment in stream: ...

        Further keywords are arguments of the tool. A call that becomes a task is read across broken
        connections. A server that does not stream sends everything at the end. `timeout` bounds the whole
        call; without one there is no limit, but an answer may be silent only for the client's own `timeout`.
        Leaving the context early cancels the call. `Stream` lists the errors that reading raises. With
        "immediate" in `response_modes`, a server with the modes of SEP-1905 sends a result that it has at
        once as a whole. Raises `ValueError` for other modes.
        """
        _check_modes(response_modes, *MODES)
        request = CallTool(name=name, arguments={**(arguments or {}), **kwargs})
        segments = SegmentQueue(self._tasks.max_message)
        call = StreamedCall(
            self._calls,
            self._tasks,
            segments,
            request,
            self._request_meta(log_level, meta),
            response_modes=response_modes,
            timeout=timeout,
            on_progress=on_progress or self._notifications.on_progress,
        )
        return Stream(segments, call.drive, name=f"The tool {name!r}", timeout=timeout, check=check)

    def task(self, id: str) -> TaskHandle:
        """Return the handle of a task that this client, or another process, created before."""
        if not id:
            raise ValueError("The id of the task is empty: pass the id of a handle that has one.")
        return self._handle(id)

    async def tasks(self) -> list[TaskStatus]:
        """Return the caller's own tasks; raises `MethodNotFound` in versions that do not list tasks."""
        async with self._connection.deadline("the list of tasks"):
            return [status async for status in self._tasks.list()]

    async def tools(self) -> list[ToolDefinition]:
        """Return all tools of the server."""
        return await self._list("tools")

    async def resources(self) -> list[ResourceDefinition]:
        """Return all resources of the server."""
        return await self._list("resources")

    async def templates(self) -> list[TemplateDefinition]:
        """Return all resource templates of the server."""
        return await self._list("templates")

    async def prompts(self) -> list[PromptDefinition]:
        """Return all prompts of the server."""
        return await self._list("prompts")

    async def read(self, uri: str, *, timeout: float | None = None) -> ReadResult:
        """Read a resource, however many rounds it takes."""

        async def send(request: ReadResource) -> Any:
            return await self._connection.ask(request, self._request_meta(), timeout=timeout)

        return cast(ReadResult, await self._rounds.drive(ReadResource(uri=uri), send))

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> PromptResult:
        """Fill in a prompt, however many rounds it takes."""

        async def send(request: GetPrompt) -> Any:
            return await self._connection.ask(request, self._request_meta(), timeout=timeout)

        request = GetPrompt(name=name, arguments=dict(arguments or {}))
        return cast(PromptResult, await self._rounds.drive(request, send))

    async def complete(
        self,
        ref: str | PromptReference | ResourceReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Completion:
        """Suggest values for an argument of a prompt, by its name, or of a resource, by its URI template."""
        if isinstance(ref, str):
            ref = ResourceReference(ref) if "://" in ref or "{" in ref else PromptReference(ref)
        known = CompletionContext(dict(context or {}))
        request = Complete(ref, CompletionArgument(argument, value), known)
        return cast(Completion, await self._connection.ask(request, self._request_meta(), timeout=timeout))

    # Notifications

    async def set_log_level(self, level: LogLevel) -> None:
        """Receive log messages of this level and above from now on; raises `ValueError`."""
        await self._notifications.set_log_level(level)

    async def subscribe(self, uri: str) -> None:
        """Call `on_change` when this resource changes; raises `ClientError` if the server refuses."""
        await self._notifications.subscriptions.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Stop calling `on_change` for this resource."""
        await self._notifications.subscriptions.remove(uri)

    def listen(self, *uris: str, lists: bool = True) -> AbstractAsyncContextManager[Listener]:
        """Iterate over changes of these resources and, with `lists`, of the server's lists.

        async with client.listen("file:///notes.txt") as changes:
            async for change in changes: ...

        If the connection is lost, the client connects again for as long as the context lasts. It then yields
        a change of everything that it listens to, with `assumed=True`, because it may have missed some.
        """
        return self._notifications.listen(*uris, lists=lists)

    # Inside

    async def _list(self, kind: Kind) -> list[Any]:
        async def ask(request: Request) -> Any:
            return await self._connection.ask(request, self._request_meta())

        async with self._connection.deadline(f"the list of {kind}"):
            return await self._catalog.get(kind, ask, mirroring=self._mirrors)

    @property
    def _mirrors(self) -> bool:
        """Whether arguments are repeated in headers, for tools that declare it."""
        return self._connection.channel.has_headers and self._connection.dialect.mirrors_arguments

    def _sender(
        self,
        timeout: float | None,
        on_progress: Callback | None,
        log_level: LogLevel | None,
        meta: Mapping[str, Any] | None,
        allow_task: bool = True,
    ) -> Callable[[CallTool], Awaitable[Any]]:
        request_meta = self._request_meta(log_level, meta, wants_answer=not allow_task)
        progress = on_progress or self._notifications.on_progress

        async def send(request: CallTool) -> Any:
            return await self._calls.send(request, request_meta, timeout=timeout, on_progress=progress)

        return send

    def _handle(self, task: TaskStatus | str, on_progress: Callback | None = None) -> TaskHandle:
        return TaskHandle(self._tasks, task, on_progress=on_progress or self._notifications.on_progress)

    def _request_meta(
        self,
        log_level: LogLevel | None = None,
        meta: Mapping[str, Any] | None = None,
        *,
        wants_answer: bool = False,
    ) -> RequestMeta:
        level = log_level or self._notifications.log_level
        return RequestMeta(log_level=level, raw=meta or {}, wants_answer=wants_answer)


def _check_modes(modes: Sequence[ResponseMode], *possible: ResponseMode) -> None:
    """Raise `ValueError` for response modes that a method does not have."""
    if isinstance(modes, str) or not modes or not set(modes) <= set(possible):
        raise ValueError(f"response_modes={modes!r} is not a sequence of {', '.join(possible)}.")
