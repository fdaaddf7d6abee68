"""A stand-in for the API of a model, on loopback: it answers from a script, and keeps the requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.web import answering

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI


class ScriptedApi:
    """Answers each request with the next response of the script."""

    def __init__(self, port: int, script: Iterable[Mapping[str, Any] | int]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[Any] = []
        self._script = iter(script)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request; a number in the script is the status of an error."""
        self.requests.append(await request.json())
        answer = next(self._script)
        if isinstance(answer, int):
            return web.json_response({"error": {"message": "refused sk-secret", "type": "e"}}, status=answer)
        return web.json_response(answer)


@asynccontextmanager
async def scripted(*script: Mapping[str, Any] | int) -> AsyncIterator[ScriptedApi]:
    """Serve a script."""
    async with answering(lambda port: ScriptedApi(port, script)) as api:
        yield api


@asynccontextmanager
async def openai_client(api: ScriptedApi) -> AsyncIterator[AsyncOpenAI]:
    """The real SDK of OpenAI, at the stand-in."""
    from openai import AsyncOpenAI  # each SDK takes a second or more to load

    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key="key", max_retries=0) as client:
        yield client


@asynccontextmanager
async def anthropic_client(api: ScriptedApi) -> AsyncIterator[AsyncAnthropic]:
    """The real SDK of Anthropic, at the stand-in."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=api.url, api_key="key", max_retries=0) as client:
        yield client


def chat(text: str | None = None, *uses: tuple[str, str, Any], finish: str | None = None) -> dict[str, Any]:
    """A response of Chat Completions: a text, or tool calls as (id, name, arguments)."""
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": written(arguments)}}
        for id, name, arguments in uses
    ]
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    reason = finish or ("tool_calls" if calls else "stop")
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-test",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
    }


def response(text: str | None = None, *uses: tuple[str, str, Any]) -> dict[str, Any]:
    """A response of the Responses API: a text, or function calls as (id, name, arguments)."""
    calls: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": f"fc_{id}",
            "call_id": id,
            "name": name,
            "arguments": written(arguments),
            "status": "completed",
        }
        for id, name, arguments in uses
    ]
    content = [{"type": "output_text", "text": text, "annotations": []}]
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-test",
        "status": "completed",
        "output": [*calls, *([said] if text is not None else [])],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def message(text: str | None = None, *uses: tuple[str, str, Any], stop: str | None = None) -> dict[str, Any]:
    """A response of the Messages API: a text, or tool uses as (id, name, input)."""
    content: list[dict[str, Any]] = [] if text is None else [{"type": "text", "text": text}]
    content += [{"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in uses]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": content,
        "stop_reason": stop or ("tool_use" if uses else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def written(arguments: Any) -> str:
    """Arguments as a model of OpenAI writes them: as JSON. A text stays as it is."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
