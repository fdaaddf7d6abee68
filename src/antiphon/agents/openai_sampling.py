"""A `sample` callback that asks a model of OpenAI through Chat Completions.

Owns how this API writes messages and answers. Many other providers have the same API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.agents.content import parts_of
from antiphon.agents.model_tools import field_of
from antiphon.agents.openai import tool_message, write_function
from antiphon.agents.sampling import (
    RESULT_LIMITS,
    Sampler,
    SamplingMessage,
    SamplingRequest,
    ToolResultBlock,
    ToolUseBlock,
    refused,
)
from antiphon.agents.schemas import object_schema
from antiphon.errors import InternalError
from antiphon.model.content import Audio, Image, Text

__all__ = ["openai_sampler"]

_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_calls": "toolUse"}
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def openai_sampler(client: Any, *, model: str, max_tokens: int = 4096, **options: Any) -> Sampler:
    """Return a callback for `Client(sample=…)` that asks a model of OpenAI, or one with the same API.

    `client` is an `openai.AsyncOpenAI`. An answer has at most `max_tokens` tokens, also if the server asks
    for more. `options` are further arguments of `chat.completions.create`, and replace those of the server:
    `temperature=None` leaves the temperature out.
    """
    return _OpenAISampler(client, model=model, max_tokens=max_tokens, options=options)


class _OpenAISampler(Sampler):
    def _write_request(
        self, request: SamplingRequest, names: Mapping[str, str], max_tokens: int
    ) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        if request.system_prompt:
            messages.append({"role": "system", "content": request.system_prompt})
        for message in request.messages:
            messages += _write_message(message, names)
        written = {
            "messages": messages,
            "max_completion_tokens": max_tokens,
            "temperature": request.temperature,
            "stop": request.stop_sequences or None,
        }
        if request.tools:
            written["tools"] = [
                write_function(
                    {
                        "name": names[tool.name],
                        "description": tool.description or "",
                        "parameters": object_schema(tool.input_schema),
                    }
                )
                for tool in request.tools
            ]
            written["tool_choice"] = None if request.tool_choice is None else request.tool_choice.mode
        return written

    async def _send(self, arguments: dict[str, Any]) -> Any:
        return await self._client.chat.completions.create(**arguments)

    def _read_answer(
        self, answer: Any, tools: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], str | None, str | None]:
        if not answer.choices:
            raise InternalError("The model of the client did not answer (no choices).")
        choice = answer.choices[0]
        said = choice.message.content or field_of(choice.message, "refusal")
        uses = [_read_use(call, tools) for call in choice.message.tool_calls or ()]
        text = [{"type": "text", "text": said or ""}] if said or not uses else []
        reason = choice.finish_reason
        return [*text, *uses], answer.model, _STOP_REASONS.get(reason, reason)


def _write_message(message: SamplingMessage, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a message of a server as messages of the API: the results of tools are messages of their own."""
    results = [_write_result(block) for block in message.blocks if isinstance(block, ToolResultBlock)]
    uses = [_write_use(block, names) for block in message.blocks if isinstance(block, ToolUseBlock)]
    parts = [_write_part(block) for block in message.blocks if isinstance(block, Text | Image | Audio)]
    if not parts and not uses:
        return results
    is_text = all(part["type"] == "text" for part in parts)
    content: Any = "\n".join(part["text"] for part in parts) if is_text else parts
    said = {"role": message.role, "content": content or None}
    return [*results, {**said, "tool_calls": uses} if uses else said]


def _write_part(block: Text | Image | Audio) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    if isinstance(block, Image):
        return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
    audio_format = _AUDIO_FORMATS.get(block.mime_type)
    if audio_format is None:
        raise refused(block, "OpenAI")
    return {"type": "input_audio", "input_audio": {"data": block.data, "format": audio_format}}


def _write_use(block: ToolUseBlock, names: Mapping[str, str]) -> dict[str, Any]:
    arguments = msgspec.json.encode(block.input).decode()
    function = {"name": names.get(block.name, block.name), "arguments": arguments}
    return {"id": block.id, "type": "function", "function": function}


def _write_result(block: ToolResultBlock) -> dict[str, Any]:
    parts = parts_of(block.result, RESULT_LIMITS, takes_images=False)
    return tool_message(block.tool_use_id, parts, is_error=block.is_error)


def _read_use(call: Any, tools: Mapping[str, str]) -> dict[str, Any]:
    name = call.function.name
    try:
        given = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        # Empty arguments in their place would make the server call a tool with other arguments.
        raise InternalError(
            f"The model of the client wrote arguments for the tool {name!r} that are not a JSON object."
        ) from None
    return {"type": "tool_use", "id": call.id, "name": tools.get(name, name), "input": given}
