"""A `sample` callback that asks a model of Anthropic through the Messages API.

Owns how this API writes messages and answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from antiphon.agents.anthropic import tool_result, write_part
from antiphon.agents.content import Picture
from antiphon.agents.sampling import (
    RESULT_LIMITS,
    Sampler,
    SamplingBlock,
    SamplingMessage,
    SamplingRequest,
    ToolResultBlock,
    ToolUseBlock,
    refused,
)
from antiphon.agents.schemas import object_schema
from antiphon.model.content import Image, Text

__all__ = ["anthropic_sampler"]

_STOP_REASONS = {
    "end_turn": "endTurn",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "tool_use": "toolUse",
}
_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def anthropic_sampler(client: Any, *, model: str, max_tokens: int = 4096, **options: Any) -> Sampler:
    """Return a callback for `Client(sample=…)` that asks a model of Anthropic.

    `client` is an `anthropic.AsyncAnthropic`. An answer has at most `max_tokens` tokens, also if the server
    asks for more. `options` are further arguments of `messages.create`, and replace those of the server. The
    temperature that a server asks for is passed on if the SDK has an argument for it.
    """
    return _AnthropicSampler(client, model=model, max_tokens=max_tokens, options=options)


class _AnthropicSampler(Sampler):
    def _write_request(
        self, request: SamplingRequest, names: Mapping[str, str], max_tokens: int
    ) -> dict[str, Any]:
        written = {
            "messages": [_write_message(message, names) for message in request.messages],
            "max_tokens": max_tokens,
            "system": request.system_prompt or None,
            "stop_sequences": request.stop_sequences or None,
        }
        # Newer models take no temperature, and neither does the newer SDK.
        if "temperature" in inspect.signature(self._client.messages.create).parameters:
            written["temperature"] = request.temperature
        if request.tools:
            written["tools"] = [
                {
                    "name": names[tool.name],
                    "description": tool.description or "",
                    "input_schema": object_schema(tool.input_schema),
                }
                for tool in request.tools
            ]
            if request.tool_choice is not None:
                written["tool_choice"] = {"type": _TOOL_CHOICES[request.tool_choice.mode]}
        return written

    async def _send(self, arguments: dict[str, Any]) -> Any:
        return await self._client.messages.create(**arguments)

    def _read_answer(
        self, answer: Any, tools: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], str | None, str | None]:
        content: list[dict[str, Any]] = []
        for block in answer.content:
            if block.type == "text":
                content.append({"type": "text", "text": block.text})
            elif block.type == "tool_use":
                name = tools.get(block.name, block.name)
                content.append({"type": "tool_use", "id": block.id, "name": name, "input": block.input})
        reason = answer.stop_reason
        return content or [{"type": "text", "text": ""}], answer.model, _STOP_REASONS.get(reason, reason)


def _write_message(message: SamplingMessage, names: Mapping[str, str]) -> dict[str, Any]:
    return {"role": message.role, "content": [_write_block(block, names) for block in message.blocks]}


def _write_block(block: SamplingBlock, names: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(block, Text):
        return write_part(block.text)
    if isinstance(block, Image):
        return write_part(Picture(block.data, block.mime_type))
    if isinstance(block, ToolUseBlock):
        name = names.get(block.name, block.name)
        return {"type": "tool_use", "id": block.id, "name": name, "input": block.input}
    if isinstance(block, ToolResultBlock):
        return tool_result(block.tool_use_id, block.result, RESULT_LIMITS)
    raise refused(block, "Anthropic")
