"""Durable tasks for a FastMCP server, as an extension that replaces its own. Needs `fastmcp` 4.1 or later.

Owns how FastMCP meets the tasks: its extension methods, its calls of tools, and its lifespan. The engine
behind the tasks is in `task_host`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

from fastmcp.exceptions import DisabledError, FastMCPError, NotFoundError, ToolError
from fastmcp.server.context import Context as ToolContext
from fastmcp.server.dependencies import bind_request_context, extract_version_spec, get_access_token
from fastmcp.server.extensions import MethodBinding, ServerExtension, ToolCallContinuation, ToolCallOutcome
from fastmcp.server.providers import Provider
from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
from fastmcp.utilities.versions import VersionSpec
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, RequestParams
from pydantic import RootModel

from antiphon.errors import DefinitionError
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

_is_nested: ContextVar[bool] = ContextVar("antiphon_nested_call", default=False)
"""Whether a tool runs already, so that the next call comes from the tool and not from a client."""


class _TaskResult(RootModel[dict[str, Any]]):
    """The promise of a task, as the protocol writes it."""


class Tasks(ServerExtension):  # type: ignore[misc] # mypy does not read fastmcp
    """Runs the tools of a FastMCP server that have `task=True` as durable tasks.

    Add the extension to the server that you run:

        mcp.add_extension(Tasks(store="sqlite:///tasks.db"))

    - `store`: where tasks are stored, such as `sqlite:///tasks.db`. Default: `ANTIPHON_STORE`, or in memory.
    - `tools`: further options of tools, by name. `TaskConfig` sets the policy and the poll interval.
    - `secrets`: the keys that encrypt request states. All processes of a server need the same keys.
    - `limits`: sizes, counts and timeouts. See `Limits`.
    - `run_tasks`: whether this process runs tasks, or leaves them to other processes.
    - `task_claims`: further claims of an access token that tasks store. The token itself is never stored.

    Raises `DefinitionError` if an option is invalid.
    """

    identifier = EXTENSION

    def __init__(
        self,
        *,
        store: str | Store | None = None,
        tools: Mapping[str, TaskOptions] | None = None,
        secrets: Sequence[str | bytes] | None = None,
        limits: Limits | None = None,
        run_tasks: bool = True,
        task_claims: Sequence[str] = (),
    ) -> None:
        self._options = {name: read_options(name, options) for name, options in (tools or {}).items()}
        for name, options in (tools or {}).items():
            if "task" in options or "poll_interval" in options:
                raise DefinitionError(
                    f"{name!r}: set the mode and the poll interval with @mcp.tool(task=TaskConfig(…))."
                )
        self._host = TaskHost(
            store=store,
            secrets=secrets,
            limits=limits,
            task_claims=(*STORED_CLAIMS, *task_claims),
            run_tasks=run_tasks,
            start="Add it to the server that you run, and not to a server that is mounted in it.",
        )
        self._provider: _TaskProvider | None = None

    @property
    def task_server(self) -> Server:
        """The Antiphon server that stores and runs the tasks, for events and metrics.

        Raises `RuntimeError` before the first start.
        """
        return self._host.server

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Let FastMCP run tasks while the server runs.

        Raises `DefinitionError` if the server has no name of its own. FastMCP raises `StoreError` if the
        store cannot be opened, and `DefinitionError` if a tool is missing that you named.
        """
        generated = rf"{type(self.server).__name__}-[0-9a-f]{{4}}"
        if self._host.is_durable and re.fullmatch(generated, self.server.name):
            raise DefinitionError(
                "The server has no name, and FastMCP invents another one at each start. Tasks are stored "
                'under the name: write FastMCP("my-server").'
            )
        if self._provider is None:
            self._provider = _TaskProvider(self._running)
            self.server.add_provider(self._provider)
        yield

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Run tasks, from the time at which tools can be called."""
        tools: dict[str, TaskTool] = {}
        for tool in await self.server.get_tasks():
            if isinstance(tool, Tool) and tool.task_config.supports_tasks():
                tools[tool.name] = self._task_tool(tool, None)
                if tool.version is not None:
                    tools[_task_name(tool.name, tool.version)] = self._task_tool(tool, tool.version)
        check_names(self.server.name, self._options, tools)
        async with self._host.running(self.server.name, tools):
            yield

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods of the tasks extension."""
        return [
            MethodBinding(method, RequestParams, self._handle, METHOD_VERSIONS) for method in TASK_METHODS
        ]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, context: ToolContext, call_next: ToolCallContinuation
    ) -> ToolCallOutcome:
        """Create a task for a call of a task tool, if the caller accepts tasks."""
        version = extract_version_spec(cast("dict[str, Any] | None", params.meta))
        try:
            tool = await context.fastmcp.get_tool(params.name, _spec(version))
        except NotFoundError:
            tool = None
        if tool is None or not tool.task_config.supports_tasks():
            return await _answer(call_next)
        request = context.request_context
        if _is_nested.get() or request is None:
            if tool.task_config.mode == "required":
                raise ToolError(f"The tool {params.name!r} only runs as a task: a client has to call it.")
            return await call_next()
        if not accepts_tasks(request.protocol_version, request.meta):
            if tool.task_config.mode == "required":
                raise needs_tasks(params.name)
            return await _answer(call_next)
        name = _task_name(params.name, version)
        if not self._host.has_tool(name):  # it was added after the server had started
            self._host.add_tool(name, self._task_tool(tool, version))
        wire = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        result = await serve_call(
            self._host,
            {**wire, "name": name, "_meta": request.meta},
            principal_of(get_access_token()),
            request.session,
            request.request_id,
        )
        if result["resultType"] == "task":
            return _TaskResult(result)
        if result["resultType"] == "input_required":
            return InputRequiredToolResult(InputRequiredResult.model_validate(result, by_name=False))
        return ToolResult.from_mcp_result(CallToolResult.model_validate(result, by_name=False))

    async def _handle(self, ctx: ServerRequestContext[Any, Any], params: RequestParams) -> dict[str, Any]:
        return await serve_method(self._host, ctx, principal_of(get_access_token()))

    def _task_tool(self, tool: Tool, version: str | None) -> TaskTool:
        """Return how tasks run a tool, with the options of FastMCP and those that you passed."""
        options = read_options(
            tool.name,
            {
                **self._options.get(tool.name, {}),
                "task": "required" if tool.task_config.mode == "required" else "optional",
                "poll_interval": tool.task_config.poll_interval.total_seconds(),
            },
        )
        return TaskTool(options, partial(self._run, tool.name, version))

    async def _run(self, name: str, version: str | None, arguments: dict[str, Any], ctx: Context) -> Result:
        """Run a tool of the server in a task."""

        async def invoke(round: Mapping[str, Any]) -> CallToolResult | InputRequiredResult:
            async with request_of(ctx, name, arguments, round, {}) as request:
                with bind_request_context(request):
                    return await self._invoke(name, arguments, version)

        token = _is_nested.set(True)
        try:
            with authenticated_as(ctx.principal):
                return await run_rounds(ctx, invoke)
        finally:
            _is_nested.reset(token)

    async def _invoke(
        self, name: str, arguments: dict[str, Any], version: str | None
    ) -> CallToolResult | InputRequiredResult:
        """Run a tool once. The middleware saw the request that created the task."""
        try:
            result = await self.server.call_tool(
                name, arguments, version=_spec(version), run_middleware=False
            )
        except (DisabledError, NotFoundError):
            return failed(f"Unknown tool: {name!r}")
        except FastMCPError as error:
            if isinstance(error.__cause__, MCPError):
                # The message is FastMCP's, which may hide the details.
                raise MCPError(error.__cause__.code, str(error)) from error
            return failed(str(error))
        if isinstance(result, InputRequiredToolResult):
            return result.input_required
        written = result.to_mcp_result()
        if isinstance(written, CallToolResult):
            return written
        content, data = written if isinstance(written, tuple) else (written, None)
        return CallToolResult(content=content, structured_content=data)


class _TaskProvider(Provider):  # type: ignore[misc] # mypy does not read fastmcp
    """Provides nothing. FastMCP enters the lifespans of providers last, when the tools can be called.

    A task of an earlier process may run as soon as the lifespan of the tasks is open.
    """

    def __init__(self, running: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        super().__init__()
        self._running = running

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run tasks while the context is open."""
        async with self._running():
            yield


def _task_name(tool: str, version: str | None) -> str:
    """Return the name under which tasks of a tool are stored; a caller may ask for a version of the tool."""
    return tool if version is None else f"{tool}@{version}"


def _spec(version: str | None) -> VersionSpec | None:
    return None if version is None else VersionSpec(eq=version)


async def _answer(call_next: ToolCallContinuation) -> ToolCallOutcome:
    """Run a tool of a client's call without a task."""
    token = _is_nested.set(True)
    try:
        return await call_next()
    finally:
        _is_nested.reset(token)
