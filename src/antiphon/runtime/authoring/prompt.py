"""Prompts: functions that return messages for a model.

Owns how a prompt's arguments are read and how its value becomes messages. It must not know the registry.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import pydantic

from antiphon.errors import InvalidParams
from antiphon.model.catalog import PromptArgument, PromptDefinition, PromptMessage
from antiphon.model.content import Block, Icon
from antiphon.model.outcome import InputRequired, PromptResult
from antiphon.model.request import GetPrompt
from antiphon.runtime.authoring.offer import Visible, read_offer
from antiphon.runtime.authoring.results import blocks
from antiphon.runtime.authoring.signature import Signature, explain, name_of
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import AuthorFunction, Environment
from antiphon.runtime.providers import Completer
from antiphon.runtime.scopes import ScopesOption, meta_with_scopes, read_option

__all__ = ["Prompt", "choices"]


class Prompt:
    """A prompt that callers get by name."""

    __slots__ = ("_function", "complete", "definition", "name", "offer", "parameters", "scopes")

    def __init__(
        self,
        function: Callable[..., Any],
        threads: ThreadExecutor,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        scopes: ScopesOption | None = None,
        tags: Collection[str] = (),
        enabled: bool = True,
        visible: Visible | None = None,
        replay: bool = True,
    ) -> None:
        self._function = AuthorFunction(function, threads, replay=replay)
        signature = self._function.signature
        self.name = name or name_of(function)
        self.parameters = signature.parameters
        self.complete: Completer | None = None
        """Completes the arguments of the prompt, if another program has the prompt."""
        self.scopes = read_option(self.name, scopes)
        self.offer = read_offer(self.name, tags, enabled, visible)
        self.definition = PromptDefinition(
            name=self.name,
            title=title,
            description=description or signature.description,
            arguments=tuple(_arguments(signature)) or None,
            icons=tuple(icons) if icons else None,
            meta=meta_with_scopes(meta, self.scopes),
        )

    def holds(self, call: Call[Any]) -> bool:
        """Return whether the process has to hold the run of a call, because a question ends the request."""
        return self._function.holds(call)

    async def fill(self, call: Call[GetPrompt], environment: Environment) -> PromptResult | InputRequired:
        """Run the function and return its messages; raises `InvalidParams` for invalid arguments."""
        arguments = self._bound(call.request.arguments)
        value = await self._function.run(call, arguments, environment)
        if isinstance(value, PromptResult | InputRequired):
            return value
        return PromptResult(tuple(_messages(value)), self.definition.description)

    def _bound(self, given: Mapping[str, str]) -> dict[str, Any]:
        try:
            return self._function.bind(given)
        except pydantic.ValidationError as error:
            # The protocol passes all arguments as strings. Arguments of other types may be JSON in a string.
            decoded = {
                key: value if self.parameters.get(key) is str else _decoded(value)
                for key, value in given.items()
            }
            try:
                return self._function.bind(decoded)
            except pydantic.ValidationError:
                problems = explain(error, self._function.names)
                raise InvalidParams(f"Invalid arguments for the prompt {self.name!r}:\n{problems}") from None


def choices(hint: Any) -> tuple[str, ...]:
    """Return the values of a `Literal` or enum type; an empty tuple for other types."""
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
        content = value.get("content")
        if isinstance(content, Mapping):  # a content block in the form of the protocol
            return [PromptMessage(value["role"], cast(Block, content))]
        return [PromptMessage(value["role"], block) for block in blocks(content)]
    return [PromptMessage("user", block) for block in blocks(value)]
