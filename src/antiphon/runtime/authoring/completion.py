"""Completes the arguments of prompts and the variables of resource templates.

Owns the functions that authors registered for this. It must not know how a client shows the values.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.errors import DefinitionError, InvalidParams
from antiphon.model.identity import Principal
from antiphon.model.outcome import Completion, InputRequired
from antiphon.model.question import Question
from antiphon.model.request import Complete, PromptReference
from antiphon.runtime.authoring.prompt import Prompt, choices
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.signature import name_of, split_parameters
from antiphon.runtime.carriers.base import Check
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.executor import ThreadExecutor, as_async, share_threads
from antiphon.runtime.execution.injection import Injection
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.run import Run

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
        self._functions: dict[tuple[str, str], Callable[[Call[Complete], Environment], Any]] = {}

    def __bool__(self) -> bool:
        prompts, templates = self._registry.prompts.values(), self._registry.templates.values()
        return (
            bool(self._functions)
            or any(each.complete is not None for each in prompts)
            or any(each.complete is not None for each in templates)
            or any(choices(hint) for each in prompts for hint in each.parameters.values())
        )

    def add(self, owner: str, argument: str, function: Callable[..., Any]) -> None:
        """Register a completion function for an argument: `function(value)` or `function(value, arguments)`.

        A parameter annotated with `Context` gets the context of the request, and one annotated with `Depends`
        the value of a dependency. Raises `DefinitionError` for a function with other parameters, and if there
        is no such prompt, URI template or argument.
        """
        split = split_parameters(function, Context)
        names = [each.name for each in split.passed if each.kind is each.POSITIONAL_OR_KEYWORD]
        others = [each for each in split.passed if each.kind in (each.POSITIONAL_ONLY, each.KEYWORD_ONLY)]
        if len(names) not in (1, 2) or any(each.default is each.empty for each in others):
            raise DefinitionError(
                f"{name_of(function)}: a completion function takes one or two parameters: the value typed so "
                "far, and the other arguments as a mapping. It may also take a Context and dependencies."
            )
        self._check_argument(owner, argument, name_of(function))
        run = as_async(function, self._threads)
        needed = split.dependencies
        injection = Injection(function, needed, self._threads, may_emit=False) if needed else None

        def complete(call: Call[Complete], environment: Environment) -> Any:
            request = call.request
            given: dict[str, Any] = {names[0]: request.argument.value}
            if len(names) == 2:
                given[names[1]] = request.context.arguments
            if split.context is None and injection is None:
                return run(**given)
            own = _run(call, environment)
            context = Context(own, environment)
            if split.context is not None:
                given[split.context] = context
            return run(**given) if injection is None else injection.call(own, given, context)

        self._functions[owner, argument] = complete

    async def suggest(self, call: Call[Complete], environment: Environment) -> Completion:
        """Return the values that complete a partial value; raises `InvalidParams` for an unknown argument.

        Without a completion function, the values come from the parameter's `Literal` or enum type.
        """
        request = call.request
        name, typed = request.argument.name, request.argument.value
        item: Prompt | Resource | None
        template: Resource | None
        if isinstance(request.ref, PromptReference):
            owner = request.ref.name
            item = self._registry.prompt(owner, call.principal)
            known: Mapping[str, Any] = item.parameters
        else:
            owner = request.ref.uri
            item = template = self._registry.seen("templates", owner, call.principal)
            known = self._variables(owner, template, call.principal)
        if item is not None and item.complete is not None:
            return await item.complete(call)
        if name not in known:
            raise InvalidParams(f"{owner!r} has no argument {name!r}.")
        found = self._functions.get((owner, name))
        if found is None:
            values = [choice for choice in choices(known[name]) if choice.startswith(typed)]
        else:
            share_threads(call.principal.share)
            values = await found(call, environment)
        if isinstance(values, Completion):
            return values
        listed = tuple(str(value) for value in values or ())
        return Completion(listed[:_MAX_VALUES], total=len(listed), has_more=len(listed) > _MAX_VALUES)

    def _variables(self, uri: str, resource: Resource | None, principal: Principal) -> Mapping[str, Any]:
        if resource is None or resource.template is None:
            if self._registry.seen("resources", uri, principal) is not None:
                return {}
            raise InvalidParams(f"Unknown resource template: {uri!r}.")
        return dict.fromkeys(resource.template.names)

    def _check_argument(self, owner: str, argument: str, label: str) -> None:
        """Raise `DefinitionError` unless there is a prompt or a URI template with this argument."""
        prompts, templates = self._registry.registered("prompts"), self._registry.registered("templates")
        prompt, resource = prompts.get(owner), templates.get(owner)
        arguments: list[str] = []
        if prompt is not None:
            arguments = list(prompt.parameters)
        elif resource is not None and resource.template is not None:
            arguments = list(resource.template.names)
        elif owner not in self._registry.registered("resources"):
            owners = [*prompts, *templates]
            raise DefinitionError(
                f"{label}: there is no prompt and no URI template {owner!r}.{_hint(owner, owners)} "
                "Register it above its completions."
            )
        if argument not in arguments:
            known = f"These are: {', '.join(arguments)}." if arguments else "It has no arguments."
            raise DefinitionError(
                f"{label}: {owner!r} has no argument {argument!r} to complete."
                f"{_hint(argument, arguments)} {known}"
            )


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _run(call: Call[Complete], environment: Environment) -> Run:
    """Return the run of a completion function, in which the function cannot ask."""
    quiet = call.derive(carrier=_NoQuestions())
    return Run(quiet, Journal(), limits=environment.limits, responses={})


class _NoQuestions:
    """The carrier of a completion request, which the protocol does not allow to ask."""

    returns_questions = False
    sheds = False
    anyone_answers = False
    parking = None

    async def open(self, call: Call[Any]) -> Journal:
        """Return an empty journal."""
        return Journal()

    def confirm(self) -> None:
        """Return `None`: the run may always go on."""

    async def ask(self, run: Run, key: str, question: Question, check: Check | None) -> Any:
        """Raise `RuntimeError`."""
        raise RuntimeError("A completion function cannot ask the caller: ask in the prompt or the resource.")

    async def close(
        self, call: Call[Any], journal: Journal, stopped: InputRequired
    ) -> InputRequired | Mapping[str, Any]:
        """Return the outcome as it is."""
        return stopped
