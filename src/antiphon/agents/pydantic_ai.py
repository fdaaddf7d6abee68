"""The tools of MCP servers as a toolset of Pydantic AI: `pip install antiphon[pydantic-ai]`.

Owns the definitions, the calls and the errors as Pydantic AI has them. The client answers questions and waits
for tasks.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any, Generic, Self

import msgspec

from antiphon.agents.content import ContentLimits, Picture, joined, parts_of
from antiphon.agents.model_tools import tools_for_model
from antiphon.agents.schemas import object_schema, with_api_keys, with_keys_of_tool
from antiphon.client.client import Client
from antiphon.client.group import ClientGroup
from antiphon.client.lifetime import Lifetime
from antiphon.errors import AntiphonError, InvalidParams
from antiphon.model.catalog import ToolDefinition
from antiphon.model.outcome import Result

try:
    from pydantic_ai import BinaryContent, ModelRetry, RunContext, ToolFailed
    from pydantic_ai import ToolDefinition as AgentTool
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise ImportError(
        "AntiphonToolset needs Pydantic AI 2.66 or later: pip install 'antiphon[pydantic-ai]'"
    ) from error

__all__ = ["AntiphonToolset"]

# The server checks the arguments against the schema of the tool.
_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


class AntiphonToolset(AbstractToolset[AgentDepsT], Generic[AgentDepsT]):  # type: ignore[misc] # mypy does not read pydantic_ai
    """The tools of a `Client` or a `ClientGroup` for agents of Pydantic AI.

    The toolset opens the client for the runs of an agent, unless the client is open already. `id` tells
    several toolsets of an agent apart. `select` leaves out the tools for which it returns false.
    `max_retries` is how often a model may repeat a call with invalid arguments; by default the agent says it.
    With `include_instructions`, the model reads the instructions of the servers as its own. `max_characters`
    bounds the text of a result, and `max_image_bytes` each image.
    """

    def __init__(
        self,
        client: Client | ClientGroup,
        *,
        id: str | None = None,
        select: Callable[[ToolDefinition], bool] | None = None,
        max_retries: int | None = None,
        include_instructions: bool = False,
        max_characters: int = 100_000,
        max_image_bytes: int = 5_000_000,
    ) -> None:
        self._client = client
        self._id = id
        self._select = select
        self._max_retries = max_retries
        self._include_instructions = include_instructions
        self._limits = ContentLimits(max_characters, max_image_bytes)
        self._lifetime = Lifetime(client)
        self._runs = 0
        self._opening = asyncio.Lock()
        self._names: dict[str, str] = {}
        self._keys: dict[str, dict[str, str]] = {}

    @property
    def id(self) -> str | None:
        """The id of the toolset, if you passed one."""
        return self._id

    async def __aenter__(self) -> Self:
        async with self._opening:
            if self._runs == 0:
                await self._lifetime.begin()
            self._runs += 1
        return self

    async def __aexit__(self, *args: Any) -> None:
        async with self._opening:
            self._runs -= 1
            if self._runs == 0:
                await self._lifetime.end()

    async def get_instructions(self, ctx: RunContext[AgentDepsT]) -> str | None:
        """Return the instructions of the servers, if the toolset passes them on."""
        return self._client.instructions if self._include_instructions else None

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools that the agent can use, by name."""
        tools = await tools_for_model(self._client, self._select)
        self._names = {name: tool.name for name, tool in tools.items()}
        return {name: self._agent_tool(name, tool, ctx) for name, tool in tools.items()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Call a tool and return its result.

        Raises `ModelRetry` if the server refuses the arguments, and `ToolFailed` if the tool fails or cannot
        be called. The model gets the message of both.
        """
        arguments = with_keys_of_tool(tool_args, self._keys.get(name, {}))
        try:
            result = await self._client.call(self._names.get(name, name), arguments, check=False)
        except InvalidParams as error:
            raise ModelRetry(str(error)) from error
        except AntiphonError as error:
            raise ToolFailed(str(error)) from error
        if result.is_error:
            raise ToolFailed(joined(parts_of(result, self._limits, takes_images=False)))
        return self._value(result)

    def _agent_tool(
        self, name: str, tool: ToolDefinition, ctx: RunContext[AgentDepsT]
    ) -> ToolsetTool[AgentDepsT]:
        schema, self._keys[name] = with_api_keys(object_schema(tool.input_schema))
        definition = AgentTool(
            name=name,
            description=tool.description or tool.title,
            parameters_json_schema=schema,
            return_schema=tool.output_schema,
            metadata={"meta": tool.meta, "title": tool.title},
        )
        retries = ctx.max_retries if self._max_retries is None else self._max_retries
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=retries, args_validator=_ANY_OBJECT)

    def _value(self, result: Result) -> Any:
        """Return the value for the agent: structured data, a text, or texts and images."""
        parts = parts_of(result, self._limits, takes_images=True)
        if any(isinstance(part, Picture) for part in parts):
            return [
                BinaryContent(base64.b64decode(part.data), media_type=part.mime_type)
                if isinstance(part, Picture)
                else part
                for part in parts
            ]
        if result.structured and len(msgspec.json.encode(result.data)) <= self._limits.max_characters:
            return result.data
        return joined(parts)
