"""Lets a model answer the `sample` questions of servers: the base of the samplers for OpenAI and Anthropic.

Owns the bounds, the check of a server's request, and the errors. The subclasses know how an API writes
messages. A server learns that the model failed, but not the message of the API, which can have secrets.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from antiphon.agents.content import ContentLimits
from antiphon.agents.names import api_names
from antiphon.errors import AntiphonError, InternalError, InvalidParams
from antiphon.model.base import Value
from antiphon.model.catalog import ToolDefinition
from antiphon.model.content import Audio, Image, Role, Text
from antiphon.model.outcome import Result
from antiphon.model.question import SampleResult
from antiphon.wire.client.results import blocks

__all__ = [
    "RESULT_LIMITS",
    "Sampler",
    "SamplingBlock",
    "SamplingMessage",
    "SamplingRequest",
    "ToolResultBlock",
    "ToolUseBlock",
    "refused",
]

logger = logging.getLogger("antiphon.agents")

RESULT_LIMITS = ContentLimits(max_characters=100_000, max_image_bytes=3_700_000)
"""How much of the result of a tool a model gets."""


class ToolUseBlock(Value, frozen=True, tag_field="type", tag="tool_use"):
    """A tool that the model used, in a conversation that a server continues."""

    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Value, frozen=True, tag_field="type", tag="tool_result"):
    """The result of a tool that the model used."""

    tool_use_id: str
    content: list[dict[str, Any]] = []
    structured_content: Any = msgspec.UNSET
    is_error: bool = False

    @property
    def result(self) -> Result:
        """The result as a value."""
        return Result(blocks(self.content), data=self.structured_content, is_error=self.is_error)


SamplingBlock: TypeAlias = Text | Image | Audio | ToolUseBlock | ToolResultBlock


class SamplingMessage(Value, frozen=True):
    """One message of the conversation that a server wants to continue."""

    role: Role
    content: SamplingBlock | list[SamplingBlock]

    @property
    def blocks(self) -> list[SamplingBlock]:
        """The content blocks, as a list also if there is one."""
        return self.content if isinstance(self.content, list) else [self.content]


class ToolChoice(Value, frozen=True):
    """Whether the model must use a tool."""

    mode: Literal["auto", "required", "none"] = "auto"


class SamplingRequest(Value, frozen=True):
    """The params of `sampling/createMessage` that the samplers use."""

    messages: list[SamplingMessage]
    max_tokens: Annotated[int, msgspec.Meta(ge=1)]
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: ToolChoice | None = None


class Sampler(ABC):
    """A `sample` callback that asks a model through an SDK."""

    sampling_capabilities: Mapping[str, Any] = {"tools": {}}
    """What the client declares: the model gets the tools of a request, and may use them."""

    def __init__(self, client: Any, *, model: str, max_tokens: int, options: Mapping[str, Any]) -> None:
        self._client = client
        self._model = model
        self._max_tokens = max_tokens
        self._options = options

    async def __call__(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the model to the params of `sampling/createMessage`.

        Raises `InvalidParams` if the server's request is wrong, or has content that the API does not accept,
        and `InternalError` if the API fails.
        """
        try:
            request = msgspec.convert(params, SamplingRequest)
        except msgspec.ValidationError as error:
            raise InvalidParams(f"Invalid params for sampling/createMessage: {error}.") from None
        names = api_names(tool.name for tool in request.tools or ())
        arguments = {
            "model": self._model,
            **self._write_request(request, names, min(request.max_tokens, self._max_tokens)),
            **self._options,
        }
        try:
            answer = await self._send({name: value for name, value in arguments.items() if value is not None})
        except AntiphonError:
            raise
        except Exception as error:
            logger.exception("The model %s did not answer a server.", self._model)
            raise InternalError(
                f"The model of the client did not answer ({type(error).__name__})."
            ) from error
        content, model, reason = self._read_answer(answer, {api: name for name, api in names.items()})
        result = SampleResult(
            "assistant", content[0] if len(content) == 1 else content, str(model or self._model), reason
        )
        written: dict[str, Any] = msgspec.to_builtins(result)
        return written

    @abstractmethod
    def _write_request(
        self, request: SamplingRequest, names: Mapping[str, str], max_tokens: int
    ) -> dict[str, Any]:
        """Return the arguments for the SDK; `names` are those of the tools at the API."""

    @abstractmethod
    async def _send(self, arguments: dict[str, Any]) -> Any:
        """Send a request with the SDK."""

    @abstractmethod
    def _read_answer(
        self, answer: Any, tools: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], str | None, str | None]:
        """Return the content blocks of an answer, the name of the model, and the reason why it stopped.

        `tools` are the names of the tools by their names at the API.
        """


def refused(block: Image | Audio, api: str) -> InvalidParams:
    """Return the error for a content block that an API does not accept."""
    return InvalidParams(
        f"The model of the client ({api}) does not accept content of the type {block.mime_type!r}."
    )
