"""Durable tasks for a server of the official SDK, as an extension of `MCPServer`. Needs `mcp` 2.3 or later.

Owns how `MCPServer` meets the tasks: its extension methods, its calls of tools, and its lifespan. The engine
behind the tasks is in `task_host`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import Context as ToolContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    InputResponseRequestParams,
    RequestParams,
)

from antiphon.extensions.back_channel import (
    STORED_CLAIMS,
    authenticated_as,
    failed,
    principal_of,
    request_of,
    run_rounds,
)
from antiphon.extensions.requests import METHOD_VERSIONS, accepts_tasks, needs_tasks, serve_call, serve_method
from antiphon.extensions.task_host import (
    EXTENSION,
    TASK_METHODS,
    TaskHost,
    TaskMode,
    TaskOptions,
    TaskTool,
    check_names,
    current_context,
    read_options,
)
from antiphon.model.outcome import Result
from antiphon.runtime.execution.context import Context
from antiphon.runtime.limits import Limits
from antiphon.server import Server
from antiphon.store.contract import Store

__all__ = ["TaskOptions", "Tasks", "current_context"]

logger = logging.getLogger("antiphon")


class Tasks(Extension):  # type: ignore[misc] # mypy does not read mcp
    """Runs tools of an `MCPServer` as durable tasks.

    Pass the extension and its lifespan to the server:

        tasks = Tasks({"report": "required"}, store="sqlite:///tasks.db")
        mcp = MCPServer("reports", extensions=[tasks], lifespan=tasks.lifespan)

    - `tools`: the tools that run as tasks, by name: `"optional"`, `"required"`, or `TaskOptions`.
    - `store`: where tasks are stored, such as `sqlite:///tasks.db`. Default: `ANTIPHON_STORE`, or in memory.
    - `lifespan`: the lifespan of your server, if it has one. `Tasks.lifespan` enters it first.
    - `secrets`: the keys that encrypt request states. All processes of a server need the same keys.
    - `limits`: sizes, counts and timeouts. See `Limits`.
    - `run_tasks`: whether this process runs tasks, or leaves them to other processes.
    - `task_claims`: further claims of an access token that tasks store. The token itself is never stored.
    - `subscriptions`: the bus that you pass to the server, so that tools in tasks can publish changes.

    Raises `DefinitionError` if an option is invalid.
    """

    identifier = EXTENSION

    def __init__(
        self,
        tools: Mapping[str, TaskMode | TaskOptions],
        *,
        store: str | Store | None = None,
        lifespan: Callable[[MCPServer[Any]], AbstractAsyncContextManager[Any]] | None = None,
        secrets: Sequence[str | bytes] | None = None,
        limits: Limits | None = None,
        run_tasks: bool = True,
        task_claims: Sequence[str] = (),
        subscriptions: SubscriptionBus | None = None,
    ) -> None:
        self._tools = {name: read_options(name, options) for name, options in tools.items()}
        self._host = TaskHost(
            store=store,
            secrets=secrets,
            limits=limits,
            task_claims=(*STORED_CLAIMS, *task_claims),
            run_tasks=run_tasks,
            start="Pass its lifespan to the server that you run: MCPServer(…, lifespan=tasks.lifespan).",
        )
        self._lifespan = lifespan
        self._subscriptions = subscriptions
        self._mcp: MCPServer[Any] | None = None
        self._states: list[Any] = []

    @property
    def task_server(self) -> Server:
        """The Antiphon server that stores and runs the tasks, for events and metrics.

        Raises `RuntimeError` before the first start.
        """
        return self._host.server

    @asynccontextmanager
    async def lifespan(self, mcp: MCPServer[Any]) -> AsyncIterator[Any]:
        """Run tasks while the server runs. Pass this method as `MCPServer(lifespan=…)`.

        Yields the value of your own lifespan. Raises `DefinitionError` if the server does not have a tool
        that you named, and `StoreError` if the store cannot be opened.
        """
        check_names(mcp.name, self._tools, [tool.name for tool in await mcp.list_tools()])
        async with AsyncExitStack() as stack:
            state: Any = {}
            if self._lifespan is not None:
                state = await stack.enter_async_context(self._lifespan(mcp))
            self._mcp = mcp
            # Some transports enter the lifespan for each connection. Tasks see a state that is still open.
            self._states.append(state)
            stack.callback(self._states.remove, state)
            tools = {
                name: TaskTool(options, partial(self._run, name)) for name, options in self._tools.items()
            }
            await stack.enter_async_context(self._host.running(mcp.name, tools))
            yield state

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods of the tasks extension."""
        return [
            MethodBinding(method, RequestParams, self._handle, METHOD_VERSIONS) for method in TASK_METHODS
        ]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Create a task for a call of a task tool, if the caller accepts tasks."""
        options = self._tools.get(params.name)
        if options is None:
            return await call_next(ctx)
        if not accepts_tasks(ctx.protocol_version, (ctx.params or {}).get("_meta")):
            if options["task"] == "required":
                raise needs_tasks(params.name)
            return await call_next(ctx)
        return await serve_call(
            self._host,
            {**(ctx.params or {}), "name": params.name, "arguments": params.arguments or {}},
            principal_of(get_access_token()),
            ctx.session,
            ctx.request_id,
        )

    async def _handle(self, ctx: ServerRequestContext[Any, Any], params: RequestParams) -> HandlerResult:
        return await serve_method(self._host, ctx, principal_of(get_access_token()))

    async def _run(self, name: str, arguments: dict[str, Any], ctx: Context) -> Result:
        """Run a tool of the server in a task."""
        mcp = self._mcp
        assert mcp is not None  # the host runs tools only inside the lifespan

        async def invoke(round: Mapping[str, Any]) -> CallToolResult | InputRequiredResult:
            async with request_of(ctx, name, arguments, round, self._states[-1]) as request:
                context: ToolContext[Any, Any] = ToolContext(
                    request_context=request,
                    mcp_server=mcp,
                    input_params=InputResponseRequestParams.model_validate(dict(round), by_name=False),
                    subscriptions=self._subscriptions,
                )
                try:
                    return await mcp.call_tool(name, arguments, context)
                except ToolError as error:
                    if isinstance(error, UnexpectedToolError):
                        logger.exception("The tool %r failed in task %s.", name, ctx.request_id)
                    return failed(str(error))

        with authenticated_as(ctx.principal):
            return await run_rounds(ctx, invoke)
