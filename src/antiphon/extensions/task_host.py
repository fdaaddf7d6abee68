"""Tasks for the server of another framework: an Antiphon server beside it stores them and runs its tools.

Owns the path of a request about tasks, and the context in which tools run. It must not know the framework,
which passes requests as the protocol writes them.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, cast, get_args

import msgspec

from antiphon.errors import DefinitionError
from antiphon.model.identity import Principal
from antiphon.model.outcome import Result
from antiphon.model.request import RequestId
from antiphon.runtime.authoring.options import check_options
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.failures import is_failure
from antiphon.runtime.execution.supervisor import Supervised, Supervisor
from antiphon.runtime.limits import Limits
from antiphon.server import Server
from antiphon.store.contract import Store
from antiphon.transport.server.pipeline import Pipeline
from antiphon.wire import jsonrpc
from antiphon.wire.server.dialect import Dialect
from antiphon.wire.server.tasks import EXTENSION

__all__ = [
    "EXTENSION",
    "TASK_METHODS",
    "RunTool",
    "TaskHost",
    "TaskMode",
    "TaskOptions",
    "TaskTool",
    "check_names",
    "current_context",
    "read_options",
]

TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
"""The methods of the tasks extension."""

RunTool: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Result]]
"""Runs a tool of the framework: gets the arguments, and the context to ask and report with."""

TaskMode: TypeAlias = Literal["optional", "required"]
"""Whether a tool runs as a task: if the caller accepts tasks, or always."""

_context: contextvars.ContextVar[Context | None] = contextvars.ContextVar("antiphon_task", default=None)


class TaskOptions(TypedDict, total=False):
    """How the calls of one tool run as tasks."""

    task: TaskMode
    """Whether calls run as tasks: `"optional"` (if the caller accepts tasks; the default) or `"required"`."""
    task_ttl: float | None
    """How long the store keeps a task after its end, in seconds; 3600 by default, `None` for ever."""
    poll_interval: float
    """How often callers should poll a task, in seconds; 1 by default."""
    answer_within: float | None
    """How long to wait for an answer before the call becomes a task, in seconds. The function can also
    convert the call itself, with `await current_context().promise()`. Without this option, every call from a
    caller that accepts tasks is a task from the start."""
    replay: bool
    """Whether the function may run again from its beginning, after a question and after its worker was lost.
    By default it runs once: it waits in its process when it asks, and fails if the process is lost."""
    max_attempts: int
    """How often a task with `replay` is tried if its worker is lost each time; 5 by default."""
    max_running: int | None
    """How many tasks of the tool one process runs at once."""
    timeout: float | None
    """How long the function may take, in seconds. Waiting for answers does not count."""


class TaskTool(NamedTuple):
    """A tool of the framework whose calls run as tasks."""

    options: TaskOptions
    run: RunTool


def current_context() -> Context:
    """Return the Antiphon context of the task that runs the calling function.

    With it, a function of another framework can use steps, sleep, wait for events and ask other people.
    Raises `RuntimeError` if no task runs the function.
    """
    ctx = _context.get()
    if ctx is None:
        raise RuntimeError(
            "No task of Antiphon runs this function. Name its tool in the Tasks extension, and call the tool "
            "with a client that accepts tasks."
        )
    return ctx


def read_options(name: str, given: TaskMode | TaskOptions) -> TaskOptions:
    """Return the options of a tool; raises `DefinitionError` for an unknown one, or an invalid value."""
    options: Mapping[str, Any] = {"task": given} if isinstance(given, str) else given
    modes = " or ".join(map(repr, get_args(TaskMode)))
    if not isinstance(options, Mapping):
        raise DefinitionError(f"{name!r}: {given!r} is invalid. Pass {modes}, or options.")
    if options.get("task") == "forbidden":
        raise DefinitionError(f"{name!r}: the tools of Tasks(…) run as tasks. Pass {modes}, or leave it out.")
    check_options(name, options, TaskOptions)
    return cast(TaskOptions, {"task": "optional", "replay": False, **options})


def check_names(server: str, named: Iterable[str], registered: Iterable[str]) -> None:
    """Raise `DefinitionError` if the server does not have a tool that the extension names."""
    for name in sorted(set(named) - set(registered)):
        raise DefinitionError(
            f"The server {server!r} has no tool {name!r} that can run as a task, and Tasks(…) names it. "
            "Register the tool before the server starts, or remove its name."
        )


class TaskHost:
    """An Antiphon server with the task tools of another framework's server. Both start and stop together.

    `start` is a sentence that tells an author how to start the extension.
    """

    def __init__(
        self,
        *,
        store: str | Store | None,
        secrets: Sequence[str | bytes] | None,
        limits: Limits | None,
        task_claims: Sequence[str],
        run_tasks: bool,
        start: str,
    ) -> None:
        self._settings: dict[str, Any] = {
            "store": store,
            "secrets": secrets,
            "limits": limits,
            "task_claims": task_claims,
        }
        self._run_tasks = run_tasks
        self._not_running = f"The Tasks extension does not run. {start}"
        self._server: Server | None = None
        self._pipeline: Pipeline | None = None
        self._supervisor = Supervisor()
        self._clean: contextvars.Context | None = None
        self._users = 0

    @property
    def is_durable(self) -> bool:
        """Whether tasks are kept for later processes."""
        return bool(self._settings["store"] or os.environ.get("ANTIPHON_STORE"))

    @property
    def server(self) -> Server:
        """The Antiphon server behind the extension; raises `RuntimeError` before the first start."""
        if self._server is None:
            raise RuntimeError(self._not_running)
        return self._server

    @asynccontextmanager
    async def running(self, name: str, tools: Mapping[str, TaskTool]) -> AsyncIterator[None]:
        """Store and run tasks for the server of this name while the context is open.

        Nested use starts the host once. Raises `DefinitionError`, and `StoreError` if the store cannot be
        opened.
        """
        if self._server is None:
            self._server = Server(name, **self._settings)
            # Tools may be added later. Without a store, the server would not expect tasks.
            store = "memory:" if not tools and self._server.store is None else None
            self._server.configure(run_tasks=self._run_tasks, store=store)
        for each, tool in tools.items():
            self.add_tool(each, tool)
        async with self._server.running():
            if self._users == 0:
                self._clean, self._pipeline = contextvars.copy_context(), Pipeline(self._server.engine)
            self._users += 1
            try:
                yield
            finally:
                self._users -= 1
                if self._users == 0:
                    self._clean = self._pipeline = None

    def has_tool(self, name: str) -> bool:
        """Return whether calls of a tool can run as tasks."""
        return name in self.server.engine.registry.tools

    def add_tool(self, name: str, tool: TaskTool) -> None:
        """Let calls of a tool run as tasks, unless they can already. Raises `DefinitionError`."""
        if self.has_tool(name):
            return

        async def run_tool(antiphon_context: Context, **arguments: Any) -> Result:
            token = _context.set(antiphon_context)
            try:
                return await tool.run(arguments, antiphon_context)
            finally:
                _context.reset(token)

        self.server.add_tool(run_tool, name=name, **tool.options)

    async def serve(
        self,
        method: str,
        params: Mapping[str, Any],
        principal: Principal,
        *,
        id: RequestId,
        headers: Mapping[bytes, bytes] | None = None,
        caller: Caller | None = None,
    ) -> dict[str, Any]:
        """Serve a request, and return the JSON-RPC response.

        `headers` are those of the HTTP request, to be compared with the message; `None` if they need not be.
        Raises `RuntimeError` if the host does not run.
        """
        if self._clean is None or self._pipeline is None:
            raise RuntimeError(self._not_running)
        # A task outlives the request that creates it. So it must not see the context variables of the
        # framework for this request, such as the HTTP request and its access token.
        serving = asyncio.get_running_loop().create_task(
            self._serve(self._pipeline, method, params, principal, id, headers, caller or Caller()),
            context=self._clean.copy(),
        )
        response: dict[str, Any] = msgspec.json.decode(await serving)
        return response

    async def _serve(
        self,
        pipeline: Pipeline,
        method: str,
        params: Mapping[str, Any],
        principal: Principal,
        id: RequestId,
        headers: Mapping[bytes, bytes] | None,
        caller: Caller,
    ) -> bytes:
        work = Supervised()
        self._supervisor.enter(work, asyncio.get_running_loop())
        dialect: Dialect | None = None
        call: Call[Any] | None = None
        try:
            frame = jsonrpc.decode(jsonrpc.request(id, method, params))
            dialect = pipeline.dialects.choose(frame, None, None)
            request, request_meta = pipeline.read(frame, dialect, None, headers)
            call = pipeline.call(dialect, request, request_meta, id, caller, work, principal)
            return await pipeline.serve(dialect, call)
        except BaseException as raised:
            if not is_failure(raised, work):
                raise
            return pipeline.refuse(raised, dialect, call, id)[1]
        finally:
            self._supervisor.leave(work)
