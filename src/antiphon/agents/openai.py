"""The tools of MCP servers for the APIs of OpenAI: Chat Completions and Responses.

Owns how these APIs write definitions, tool calls and results. It reads the objects of the package `openai` by
their fields, and does not import the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from antiphon.agents.content import Part, Picture, joined, parts_of
from antiphon.agents.model_tools import ModelToolOptions, ModelTools, RequestedUse, field_of
from antiphon.model.outcome import Result

if TYPE_CHECKING:
    from antiphon.client.client import Client
    from antiphon.client.group import ClientGroup

__all__ = ["openai_tools", "tool_message", "write_function"]

Api: TypeAlias = Literal["chat", "responses"]

MAX_DESCRIPTION_CHARACTERS = 1024
"""The length of the longest description that every model of OpenAI accepts."""


async def openai_tools(
    client: Client | ClientGroup, *, api: Api = "chat", **options: Unpack[ModelToolOptions]
) -> ModelTools:
    """Return the tools of a `Client` or a `ClientGroup` for an API of OpenAI.

    `api` is "chat" for Chat Completions, or "responses". The results of `ModelTools.call` are messages of
    Chat Completions, or items for the input of Responses. `options` are `ModelToolOptions`. Raises
    `ValueError` or `TypeError` for wrong options, and the errors of the client.
    """
    if api not in ("chat", "responses"):
        raise ValueError(f"api={api!r} is not an API of OpenAI: pass 'chat' or 'responses'.")
    return await _OpenAITools(client, api, options).refresh()


class _OpenAITools(ModelTools):
    """The tools for an API of OpenAI. A result is a message, or an item of the input."""

    _knows_optional = False

    def __init__(self, client: Client | ClientGroup, api: Api, options: ModelToolOptions) -> None:
        super().__init__(client, {"max_description": MAX_DESCRIPTION_CHARACTERS, **options})
        self._is_chat = api == "chat"

    @property
    def _api(self) -> str:
        return "OpenAI"

    def _write_definition(
        self, name: str, description: str, schema: dict[str, Any], *, strict: bool
    ) -> dict[str, Any]:
        function = {"name": name, "description": description, "parameters": schema, "strict": strict}
        return write_function(function) if self._is_chat else {"type": "function", **function}

    def _uses_in(self, response: Any) -> Iterable[Any] | None:
        if isinstance(response, list | tuple):
            return [item for item in response if self._read_use(item) is not None]
        output = field_of(response, "output")
        if isinstance(output, list | tuple):
            return [item for item in output if field_of(item, "type") == "function_call"]
        choices = field_of(response, "choices")
        message = field_of(choices[0], "message") if choices else response
        if field_of(message, "role") != "assistant" or isinstance(field_of(message, "content"), list):
            return None
        return field_of(message, "tool_calls") or ()

    def _read_use(self, item: Any) -> RequestedUse | None:
        if field_of(item, "type") == "function_call":
            use_id, function = field_of(item, "call_id"), item
        else:
            use_id = field_of(item, "id")
            function = field_of(item, "function") or field_of(item, "custom")
        name = field_of(function, "name")
        if not isinstance(name, str) or not isinstance(use_id, str):
            return None
        return RequestedUse(use_id, name, field_of(function, "arguments"), item)

    def _write_result(self, use: RequestedUse, result: Result) -> dict[str, Any]:
        is_item = field_of(use.item, "type") == "function_call"
        parts = parts_of(result, self._limits, takes_images=is_item)
        if not is_item:
            return tool_message(use.id, parts, is_error=result.is_error)
        return {
            "type": "function_call_output",
            "call_id": use.id,
            "output": _output(_marked(parts) if result.is_error else parts),
        }


def tool_message(use_id: str, parts: list[Part], *, is_error: bool) -> dict[str, Any]:
    """Return the result of a tool call as a message of Chat Completions."""
    return {
        "role": "tool",
        "tool_call_id": use_id,
        "content": joined(_marked(parts) if is_error else parts),
    }


def _marked(parts: list[Part]) -> list[Part]:
    """Return the parts of an error with a mark before them, because the APIs have no field for it."""
    first = parts[0]
    return [f"Error: {first}", *parts[1:]] if isinstance(first, str) else ["Error:", *parts]


def write_function(function: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a function as Chat Completions has it."""
    return {"type": "function", "function": function}


def _output(parts: list[Part]) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, Picture) for part in parts):
        return joined(parts)
    return [
        {"type": "input_image", "image_url": f"data:{part.mime_type};base64,{part.data}"}
        if isinstance(part, Picture)
        else {"type": "input_text", "text": part}
        for part in parts
    ]
