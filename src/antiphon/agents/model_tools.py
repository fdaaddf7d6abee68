"""The tools of MCP servers for the API of a model: definitions, and calls from a tool use to its result.

Owns the calls, with the questions, the tasks and the streams behind them. The subclasses know how an API
writes definitions, tool uses and results.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict

import msgspec

from antiphon.agents.content import ContentLimits
from antiphon.agents.names import api_names
from antiphon.agents.schemas import (
    object_schema,
    strict_schema,
    with_api_keys,
    with_keys_of_tool,
    without_nulls,
)
from antiphon.client.streaming.stream import Stream
from antiphon.client.tasks.handle import TaskHandle
from antiphon.errors import AntiphonError, ClientError, Forbidden, TimedOut, Unauthorized
from antiphon.gateway.names import free_name
from antiphon.model.catalog import ToolDefinition
from antiphon.model.outcome import Result
from antiphon.model.segment import Segment
from antiphon.printable import printable

if TYPE_CHECKING:
    from antiphon.client.client import Client
    from antiphon.client.group import ClientGroup

__all__ = [
    "CHECK_TASK",
    "ModelToolOptions",
    "ModelTools",
    "RequestedUse",
    "SegmentCallback",
    "ToolUse",
    "field_of",
    "tools_for_model",
]

logger = logging.getLogger("antiphon.agents")

CHECK_TASK = "check_task"
"""The tool that a model calls to get the result of a task that took too long."""
_POSITIVE = ("task_timeout", "max_characters", "max_image_bytes", "max_description")
"""The options that are numbers."""
_MAX_KNOWN_TASKS = 1000
_MAX_NAMES_IN_MESSAGE = 50
_CANCEL_SECONDS = 2.0
"""How long a call that is given up tries to cancel its task."""


class ToolUse(msgspec.Struct, frozen=True):
    """A tool that a model wants to use."""

    id: str
    """The id of the tool use in the model's response."""
    name: str
    """The name of the tool at the client, which can differ from the name that the model knows."""
    arguments: dict[str, Any]


SegmentCallback: TypeAlias = Callable[[ToolUse, Segment], Awaitable[None] | None]
"""Takes each segment of a tool's output while the tool runs."""


class ModelToolOptions(TypedDict, total=False):
    """The options of `openai_tools` and `anthropic_tools`."""

    select: Callable[[ToolDefinition], bool] | None
    """Returns whether a model may use a tool. By default all tools."""
    strict: bool
    """Whether to use strict mode, for the tools whose schemas allow it. By default no."""
    task_timeout: float | None
    """How long a call waits for a task, in seconds. Then the model is told that the task still runs, and asks
    for the result with a tool `check_task`. By default there is no limit and no such tool."""
    on_segment: SegmentCallback | None
    """Takes each segment of a tool's output while the tool runs."""
    max_characters: int
    """How many characters of a result the model gets. By default 100,000."""
    max_image_bytes: int
    """How large an image may be. By default 5 MB for OpenAI and 3.7 MB for Anthropic."""
    max_description: int
    """How many characters of a tool's description the model gets. By default 1,024 for OpenAI, which refuses
    more, and 10,000 for Anthropic."""


class RequestedUse(msgspec.Struct, frozen=True):
    """A tool use as the model wrote it. Its arguments are not read yet, and its tool may not exist."""

    id: str
    name: str
    arguments: Any
    item: Any
    """The part of the model's response."""


class _RunningTask:
    """A task that a model started, and how much of its output the program has."""

    def __init__(self, handle: TaskHandle) -> None:
        self.handle = handle
        self.delivered = 0
        """The number of the last segment that `on_segment` got."""


class ModelTools(list[Any], ABC):
    """The definitions of tools for the API of a model, as a list, and the calls of these tools.

    Pass the list itself, or `[*tools, …]` with tools of your own. `openai_tools` and `anthropic_tools` create
    it.
    """

    _knows_optional: bool
    """Whether properties of a strict schema may be optional."""

    def __init__(self, client: Client | ClientGroup, options: ModelToolOptions) -> None:
        super().__init__()
        unknown = options.keys() - ModelToolOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"Unknown options: {', '.join(sorted(unknown))}.")
        for name in _POSITIVE:
            value: Any = options.get(name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value!r} is not a number above 0.")
        self._client = client
        self._select = options.get("select")
        self._strict = options.get("strict", False)
        self._task_timeout = options.get("task_timeout")
        self._on_segment = options.get("on_segment")
        self._limits = ContentLimits(
            options.get("max_characters", 100_000), options.get("max_image_bytes", 5_000_000)
        )
        self._max_description = options.get("max_description", 10_000)
        self._tools: dict[str, ToolDefinition] = {}
        self._strict_names: set[str] = set()
        self._keys: dict[str, dict[str, str]] = {}
        """The keys of arguments at the tool, by the keys that a model knows, for each tool."""
        self._running: dict[str, _RunningTask] = {}
        self._check_task: str | None = None

    async def refresh(self) -> Self:
        """Read the list of tools again, and replace the definitions. Returns itself."""
        tools = await tools_for_model(self._client, self._select)
        self._check_task = None
        if self._task_timeout is not None:
            # A tool of a server may be called check_task too.
            self._check_task = free_name(CHECK_TASK, tools)
            tools[self._check_task] = _check_task_definition(self._task_timeout)
        self._tools = tools
        self._strict_names, self._keys = set(), {}
        self[:] = [self._definition(name, tool) for name, tool in self._tools.items()]
        return self

    def has(self, tool_call: Any) -> bool:
        """Return whether a tool use of a model is for one of these tools, and not for a tool of your own."""
        use = self._read_use(tool_call)
        return use is not None and use.name in self._tools

    async def call(self, tool_call: Any) -> dict[str, Any]:
        """Call the tool that a model wants to use, and return the result for the next request to the model.

        `tool_call` is the SDK's object, or a mapping with the same fields. A call that fails has a result
        that says why, because the API expects a result for each tool use. Raises `TypeError` if `tool_call`
        is not a tool use.
        """
        use = self._read_use(tool_call)
        if use is None:
            raise TypeError(f"{printable(repr(tool_call), 200)} is not a tool use of {self._api}.")
        try:
            return self._write_result(use, await self._run(use))
        except Exception as error:
            logger.exception("The tool %s could not be called for a model.", use.name)
            return self._write_result(use, _failed(f"The tool failed: {type(error).__name__}."))

    async def call_all(self, response: Any) -> list[dict[str, Any]]:
        """Call all tools that a response of the model wants to use, at once.

        Returns the results in the order of the tool uses; an empty list if the model uses no tool. `response`
        is the response of the API, its message, or a list of tool uses. Raises `TypeError` for anything else.
        """
        uses = self._uses_in(response)
        if uses is None:
            raise TypeError(f"{printable(repr(response), 200)} is not a response of {self._api}.")
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(self.call(item)) for item in uses]
        return [call.result() for call in calls]

    # One API

    @property
    @abstractmethod
    def _api(self) -> str:
        """The name of the API, for messages."""

    @abstractmethod
    def _write_definition(
        self, name: str, description: str, schema: dict[str, Any], *, strict: bool
    ) -> dict[str, Any]:
        """Return a definition as the API expects it."""

    @abstractmethod
    def _uses_in(self, response: Any) -> Iterable[Any] | None:
        """Return the tool uses in a response; `None` if it is no response."""

    @abstractmethod
    def _read_use(self, item: Any) -> RequestedUse | None:
        """Return a tool use; `None` if the item is something else."""

    @abstractmethod
    def _write_result(self, use: RequestedUse, result: Result) -> dict[str, Any]:
        """Return a result as the API expects it in the next request."""

    # Definitions

    def _definition(self, name: str, tool: ToolDefinition) -> dict[str, Any]:
        description = tool.description or tool.title or ""
        if len(description) > self._max_description:
            description = f"{description[: self._max_description - 1]}…"
        schema = object_schema(tool.input_schema)
        strict = strict_schema(tool.input_schema, optional=self._knows_optional) if self._strict else None
        if strict is not None:
            self._strict_names.add(name)
        written, self._keys[name] = with_api_keys(strict or schema)
        return self._write_definition(name, description, written, strict=strict is not None)

    # Calls

    async def _run(self, requested: RequestedUse) -> Result:
        tool = self._tools.get(requested.name)
        if tool is None:
            names = ", ".join(list(self._tools)[:_MAX_NAMES_IN_MESSAGE])
            return _failed(f"There is no tool {requested.name!r}. The tools are: {names}.")
        try:
            arguments = _read_arguments(requested.arguments)
        except ValueError as error:
            return _failed(f"The arguments of {requested.name} are not a JSON object: {error}")
        arguments = with_keys_of_tool(arguments, self._keys[requested.name])
        if requested.name in self._strict_names:
            arguments = without_nulls(arguments, object_schema(tool.input_schema))
        use = ToolUse(requested.id, tool.name, arguments)
        try:
            if requested.name == self._check_task:
                return await self._check(use)
            return await self._call(use)
        except AntiphonError as error:
            if isinstance(error, ClientError | Unauthorized | Forbidden):
                logger.warning("The tool %s could not be called for a model: %s", tool.name, error)
            return _failed(str(error) or f"The tool failed: {type(error).__name__}.")

    async def _call(self, use: ToolUse) -> Result:
        if self._task_timeout is not None:
            handle = await self._client.submit(use.name, use.arguments)
            try:
                return await self._wait(use, _RunningTask(handle))
            except asyncio.CancelledError:
                await _cancel(handle)  # the model does not know the task
                raise
        if self._on_segment is not None:
            return await self._read_segments(use, self._client.stream(use.name, use.arguments, check=False))
        return await self._client.call(use.name, use.arguments, check=False)

    async def _read_segments(self, use: ToolUse, opened: Stream, task: _RunningTask | None = None) -> Result:
        async with opened as stream:
            async for segment in stream:
                if task is not None:
                    task.delivered = segment.number
                await self._deliver(use, segment)
        return stream.result

    async def _deliver(self, use: ToolUse, segment: Segment) -> None:
        if self._on_segment is None:
            return
        try:
            waiting = self._on_segment(use, segment)
            if inspect.isawaitable(waiting):
                await waiting
        except Exception:
            logger.exception("The callback for segments failed.")

    # Tasks

    async def _wait(self, use: ToolUse, task: _RunningTask) -> Result:
        """Return the result of a task, or tell the model how to get the result later."""
        handle = task.handle
        stream = handle.stream(after=task.delivered, timeout=self._task_timeout, check=False)
        try:
            result = await self._read_segments(use, stream, task)
        except TimedOut:
            if handle.id is None:
                raise
            self._running[handle.id] = task
            while len(self._running) > _MAX_KNOWN_TASKS:
                del self._running[next(iter(self._running))]
            return Result(
                f"The tool is still running, as the task {handle.id}. Call {self._check_task} with this "
                "task_id to get the result later."
            )
        self._running.pop(handle.id or "", None)
        return result

    async def _check(self, use: ToolUse) -> Result:
        task = self._running.get(str(use.arguments.get("task_id")))
        if task is None:
            return _failed(
                f"There is no running task {use.arguments.get('task_id')!r}. Pass the task_id of a tool that "
                "said that it is still running; the result of a task is returned once."
            )
        return await self._wait(use, task)


async def tools_for_model(
    client: Client | ClientGroup, select: Callable[[ToolDefinition], bool] | None
) -> dict[str, ToolDefinition]:
    """Return the tools that a model may use, by the names that an API accepts."""
    tools = [tool for tool in await client.tools() if "model" in tool.visibility]
    if select is not None:
        tools = [tool for tool in tools if select(tool)]
    names = api_names(tool.name for tool in tools)
    return {names[tool.name]: tool for tool in tools}


async def _cancel(handle: TaskHandle) -> None:
    with contextlib.suppress(AntiphonError, TimeoutError):
        async with asyncio.timeout(_CANCEL_SECONDS):
            await handle.cancel()


def field_of(item: Any, name: str) -> Any:
    """Return a field of an SDK's object, or of a mapping; `None` without it."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _failed(message: str) -> Result:
    return Result(message, is_error=True)


def _read_arguments(written: Any) -> dict[str, Any]:
    """Return arguments that a model wrote, as JSON or as an object; raises `ValueError`."""
    if isinstance(written, str):
        try:
            written = msgspec.json.decode(written) if written.strip() else {}
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise ValueError(f"{error}.") from None
    if written is None:
        return {}
    if not isinstance(written, Mapping):
        raise ValueError(f"they are of the type {type(written).__name__}.")
    arguments = dict(written)
    try:
        # An SDK also passes on half a surrogate pair, and objects that are nested too deep to be sent.
        msgspec.json.encode(arguments)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError) as error:
        raise ValueError(f"{error}.") from None
    return arguments


def _check_task_definition(seconds: float) -> ToolDefinition:
    return ToolDefinition(
        name=CHECK_TASK,
        description=(
            "Get the result of a tool that is still running. Waits for the result for up to "
            f"{seconds:g} seconds."
        ),
        input_schema={
            "type": "object",
            "properties": {"task_id": {"type": "string", "description": "The id of the task."}},
            "required": ["task_id"],
        },
    )
