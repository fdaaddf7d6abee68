"""Completes the arguments of prompts and the variables of resource templates.

Owns the functions that authors registered for this. It must not know how a client shows the values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.errors import DefinitionError, InvalidParams
from antiphon.model.outcome import Completion
from antiphon.model.request import Complete, PromptReference
from antiphon.runtime.authoring.prompt import choices
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.signature import name_of
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.executor import ThreadExecutor, as_async

__all__ = ["CompletionRegistry"]

_MAX_VALUES = 100
"""The protocol's bound on the values of one response.

https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion
"""


class CompletionRegistry:
    """The completion functions of one server, by prompt or template and by argument."""

    def __init__(self, registry: Registry, threads: ThreadExecutor) -> None:
        self._registry = registry
        self._threads = threads
        self._functions: dict[tuple[str, str], Callable[[str, Mapping[str, str]], Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._functions) or any(
            choices(hint) for prompt in self._registry.prompts.values() for hint in prompt.parameters.values()
        )

    def add(self, owner: str, argument: str, function: Callable[..., Any]) -> None:
        """Register a completion function for an argument: `function(value)` or `function(value, arguments)`.

        Raises `DefinitionError` for a function with other parameters.
        """
        positional = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        if len(positional) not in (1, 2):
            raise DefinitionError(
                f"{name_of(function)}: a completion function takes one or two parameters: the value typed so "
                "far, and the other arguments as a mapping."
            )
        first, *rest = (parameter.name for parameter in positional)
        run = as_async(function, self._threads)

        def complete(value: str, others: Mapping[str, str]) -> Any:
            return run(**{first: value, **({rest[0]: others} if rest else {})})

        self._functions[owner, argument] = complete

    async def suggest(self, call: Call[Complete]) -> Completion:
        """Return the values that complete a partial value; raises `InvalidParams` for an unknown argument.

        Without a completion function, the values come from the parameter's `Literal` or enum type.
        """
        request = call.request
        name, typed = request.argument.name, request.argument.value
        if isinstance(request.ref, PromptReference):
            owner = request.ref.name
            known = self._registry.prompt(owner).parameters
        else:
            owner = request.ref.uri
            known = self._variables(owner)
        if name not in known:
            raise InvalidParams(f"{owner!r} has no argument {name!r}.")
        found = self._functions.get((owner, name))
        if found is None:
            values = [choice for choice in choices(known[name]) if choice.startswith(typed)]
        else:
            values = await found(typed, request.context.arguments)
        if isinstance(values, Completion):
            return values
        listed = tuple(str(value) for value in values or ())
        return Completion(listed[:_MAX_VALUES], total=len(listed), has_more=len(listed) > _MAX_VALUES)

    def _variables(self, uri: str) -> Mapping[str, Any]:
        resource = self._registry.templates.get(uri)
        if resource is None or resource.template is None:
            if uri in self._registry.resources:
                return {}
            raise InvalidParams(f"Unknown resource template: {uri!r}.")
        return dict.fromkeys(resource.template.names)
