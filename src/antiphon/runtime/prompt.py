"""A prompt: a function that writes messages."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import pydantic

from antiphon.errors import InvalidParams
from antiphon.model.catalog import PromptArgument, PromptDefinition, PromptMessage
from antiphon.model.content import Icon
from antiphon.model.outcome import Prompted
from antiphon.model.request import GetPrompt
from antiphon.runtime.call import Call
from antiphon.runtime.context import Context
from antiphon.runtime.functions import Threads, awaitable
from antiphon.runtime.output import blocks
from antiphon.runtime.signature import Signature, explain, name_of

__all__ = ["Prompt", "choices"]


class Prompt:
    """A function that a caller can fill in by name."""

    __slots__ = ("_bind", "_context", "_function", "_names", "definition", "name", "parameters")

    def __init__(
        self,
        function: Callable[..., Any],
        threads: Threads,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        signature = Signature.of(function, Context)
        self.name = name or name_of(function)
        self._function = awaitable(function, threads)
        self._bind = signature.binder()
        self._names = signature.names
        self._context = signature.context
        self.parameters = signature.parameters
        self.definition = PromptDefinition(
            name=self.name,
            title=title,
            description=description or signature.description,
            arguments=tuple(_arguments(signature)) or None,
            icons=tuple(icons) if icons else None,
            meta=dict(meta) if meta else None,
        )

    async def fill(self, call: Call[GetPrompt], lifespan: Any) -> Prompted:
        """Fill it in; raises `InvalidParams` for arguments that do not fit."""
        arguments = self._bound(call.request.arguments)
        if self._context is not None:
            arguments[self._context] = Context(call, lifespan)
        value = await self._function(**arguments)
        if isinstance(value, Prompted):
            return value
        return Prompted(tuple(_messages(value)), self.definition.description)

    def _bound(self, given: Mapping[str, str]) -> dict[str, Any]:
        try:
            return self._bind(given)
        except pydantic.ValidationError as error:
            # On the wire all arguments are strings; those of other types may be JSON.
            decoded = {
                key: value if self.parameters.get(key) is str else _decoded(value)
                for key, value in given.items()
            }
            try:
                return self._bind(decoded)
            except pydantic.ValidationError:
                problems = explain(error, self._names)
                raise InvalidParams(f"Invalid arguments for the prompt {self.name!r}:\n{problems}") from None


def choices(hint: Any) -> tuple[str, ...]:
    """The values that a type allows, where they can be told: those of a `Literal` or an enum."""
    origin = get_origin(hint)
    if origin is Annotated:
        return choices(get_args(hint)[0])
    if origin is Literal:
        return tuple(str(value) for value in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(str(member.value) for member in hint)
    return ()


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _arguments(signature: Signature) -> Iterable[PromptArgument]:
    required = set(signature.schema.get("required", ()))
    for name, prop in signature.schema["properties"].items():
        yield PromptArgument(
            name=name,
            title=prop.get("title"),
            description=prop.get("description"),
            required=name in required,
        )


def _messages(value: Any) -> Iterable[PromptMessage]:
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, list | tuple):
        return [message for item in value for message in _messages(item)]
    if isinstance(value, Mapping) and "role" in value:
        return [msgspec.convert(value, PromptMessage)]
    return [PromptMessage("user", block) for block in blocks(value)]
