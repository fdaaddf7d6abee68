"""The tools of MCP servers for the Messages API of Anthropic.

Owns how this API writes definitions, tool uses and results. It reads the objects of the package `anthropic`
by their fields, and does not import the package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from antiphon.agents.content import ContentLimits, Part, Picture, parts_of
from antiphon.agents.model_tools import ModelToolOptions, ModelTools, RequestedUse, field_of
from antiphon.model.outcome import Result

if TYPE_CHECKING:
    from antiphon.client.client import Client
    from antiphon.client.group import ClientGroup

__all__ = ["anthropic_tools", "tool_result", "write_part"]

MAX_IMAGE_BYTES = 3_700_000
"""The size of the largest image that the API accepts: 5 MB in base64."""


async def anthropic_tools(client: Client | ClientGroup, **options: Unpack[ModelToolOptions]) -> ModelTools:
    """Return the tools of a `Client` or a `ClientGroup` for the Messages API of Anthropic.

    The results of `ModelTools.call` are content blocks for the next message of the user. `options` are
    `ModelToolOptions`. Raises `ValueError` or `TypeError` for wrong options, and the errors of the client.
    """
    return await _AnthropicTools(client, {"max_image_bytes": MAX_IMAGE_BYTES, **options}).refresh()


class _AnthropicTools(ModelTools):
    """The tools for the Messages API. A result is a content block for the next message of the user."""

    _knows_optional = True

    @property
    def _api(self) -> str:
        return "Anthropic"

    def _write_definition(
        self, name: str, description: str, schema: dict[str, Any], *, strict: bool
    ) -> dict[str, Any]:
        definition = {"name": name, "description": description, "input_schema": schema}
        return {**definition, "strict": True} if strict else definition

    def _uses_in(self, response: Any) -> Iterable[Any] | None:
        content = response if isinstance(response, list | tuple) else field_of(response, "content")
        if isinstance(content, str):
            return ()
        if not isinstance(content, list | tuple):
            return None
        return [block for block in content if self._read_use(block) is not None]

    def _read_use(self, item: Any) -> RequestedUse | None:
        name, use_id = field_of(item, "name"), field_of(item, "id")
        if field_of(item, "type") != "tool_use" or not isinstance(name, str) or not isinstance(use_id, str):
            return None
        return RequestedUse(use_id, name, field_of(item, "input"), item)

    def _write_result(self, use: RequestedUse, result: Result) -> dict[str, Any]:
        return tool_result(use.id, result, self._limits)


def tool_result(use_id: str, result: Result, limits: ContentLimits) -> dict[str, Any]:
    """Return the result of a tool use as a content block."""
    # The API refuses images in the result of a tool that failed.
    parts = parts_of(result, limits, takes_images=not result.is_error)
    block = {"type": "tool_result", "tool_use_id": use_id, "content": [write_part(part) for part in parts]}
    return {**block, "is_error": True} if result.is_error else block


def write_part(part: Part) -> dict[str, Any]:
    """Return a text or an image as a content block."""
    if isinstance(part, Picture):
        source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
        return {"type": "image", "source": source}
    return {"type": "text", "text": part}
