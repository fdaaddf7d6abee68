"""Tools, resources and prompts of other programs: a definition, and a function that passes requests on.

Owns how such an item takes the place of one that an author wrote. The function gets the arguments as they
came, and its outcome is not converted. It is not run again after a question, unless it `replays`: then it
asks by returning an `InputRequired`. It must not know where the other program is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec

from antiphon.errors import DefinitionError
from antiphon.model.catalog import PromptDefinition, ResourceDefinition, TemplateDefinition, ToolDefinition
from antiphon.model.outcome import InputRequired, PromptResult, ReadResult, Result
from antiphon.model.request import GetPrompt
from antiphon.runtime.authoring.offer import EVERYBODY, Offer
from antiphon.runtime.authoring.options import TaskPolicy
from antiphon.runtime.authoring.prompt import Prompt
from antiphon.runtime.authoring.resource import Resource
from antiphon.runtime.authoring.signature import Signature
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.authoring.uri_template import PrefixTemplate, UriTemplate
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.context import Context
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import AuthorFunction, Environment
from antiphon.runtime.providers import Completer
from antiphon.runtime.scopes import ScopesOption, meta_with_scopes, read_option

__all__ = [
    "CallForeign",
    "FillForeign",
    "ForeignPrompt",
    "ForeignResource",
    "ForeignTool",
    "ReadForeign",
]

CallForeign: TypeAlias = Callable[[dict[str, Any], Context], Awaitable[Result | InputRequired]]
"""Runs a tool of another program: gets the arguments of the call, and the context to ask and report with."""
ReadForeign: TypeAlias = Callable[[str, Context], Awaitable[ReadResult | InputRequired]]
"""Reads a resource of another program: gets the URI."""
FillForeign: TypeAlias = Callable[[dict[str, str], Context], Awaitable[PromptResult | InputRequired]]
"""Gets a prompt of another program: gets the arguments of the prompt."""


class _ForeignFunction(AuthorFunction):
    """A function that takes one argument and the context, and is not checked against a signature."""

    __slots__ = ()

    def __init__(self, function: Callable[[Any, Context], Awaitable[Any]], *, replays: bool) -> None:
        async def invoke(given: Any, ctx: Context) -> Any:
            return await function(given, ctx)

        self.signature = _signature()
        self.bind = _bind
        self.names = {}
        self.takes_artifacts = False
        self.invoke = invoke
        self._generate = None
        self._injection = None
        self._context = self.signature.context
        self.is_threaded = False
        self.replays = replays

    def holds(self, call: Call[Any]) -> bool:
        """Return whether a question can end the request: a caller that answers nothing is never asked."""
        may_ask = bool(call.request_meta.capabilities) or call.request.request_state is not None
        return may_ask and super().holds(call)


def _bind(given: Any) -> dict[str, Any]:
    return {"given": given}


@cache
def _signature() -> Signature:
    async def invoke(given: dict[str, Any], ctx: Context) -> Result:
        raise NotImplementedError  # only its signature is used

    return Signature.of(invoke, Context)


class ForeignTool(Tool):
    """A tool of another program. `definition` is listed with the scopes and the task policy added."""

    __slots__ = ()

    def __init__(
        self,
        definition: ToolDefinition,
        function: CallForeign,
        threads: ThreadExecutor,
        *,
        scopes: ScopesOption | None = None,
        artifact_over: int | None = None,
        timeout: float | None = None,
        task: TaskPolicy = "forbidden",
        answer_within: float | None = None,
        replays: bool = False,
        offer: Offer = EVERYBODY,
    ) -> None:
        super().__init__(
            _ForeignFunction(function, replays=replays),
            threads,
            name=definition.name,
            scopes=scopes,
            artifact_over=artifact_over,
            timeout=timeout,
            task=task,
            answer_within=answer_within,
            resume=False,
            visible=offer.visible,
        )
        self.offer = offer
        self.is_restricted = self.is_restricted or offer.is_conditional
        self.definition = msgspec.structs.replace(
            definition,
            meta=meta_with_scopes(definition.meta, self.scopes),
            execution=ToolDefinition.execution_for(task),
        )


class ForeignResource(Resource):
    """A resource or a resource template of another program."""

    __slots__ = ()

    def __init__(
        self,
        definition: ResourceDefinition | TemplateDefinition,
        function: ReadForeign,
        *,
        scopes: ScopesOption | None = None,
        complete: Completer | None = None,
        replays: bool = False,
        offer: Offer = EVERYBODY,
    ) -> None:
        self._function = _ForeignFunction(function, replays=replays)
        is_template = isinstance(definition, TemplateDefinition)
        self.uri = definition.uri_template if isinstance(definition, TemplateDefinition) else definition.uri
        self.template = _template(self.uri) if is_template else None
        self.scopes = read_option(self.uri, scopes)
        self.offer = offer
        self.complete = complete
        self.definition = msgspec.structs.replace(
            definition, meta=meta_with_scopes(definition.meta, self.scopes)
        )

    async def read(
        self, call: Call[Any], variables: Mapping[str, str], uri: str, environment: Environment
    ) -> ReadResult | InputRequired:
        """Pass the URI on, and return the contents."""
        read: ReadResult | InputRequired = await self._function.run(call, _bind(uri), environment)
        return read


class ForeignPrompt(Prompt):
    """A prompt of another program."""

    __slots__ = ()

    def __init__(
        self,
        definition: PromptDefinition,
        function: FillForeign,
        *,
        scopes: ScopesOption | None = None,
        complete: Completer | None = None,
        replays: bool = False,
        offer: Offer = EVERYBODY,
    ) -> None:
        self._function = _ForeignFunction(function, replays=replays)
        self.name = definition.name
        self.parameters = {argument.name: str for argument in definition.arguments or ()}
        self.scopes = read_option(self.name, scopes)
        self.offer = offer
        self.complete = complete
        self.definition = msgspec.structs.replace(
            definition, meta=meta_with_scopes(definition.meta, self.scopes)
        )

    async def fill(self, call: Call[GetPrompt], environment: Environment) -> PromptResult | InputRequired:
        """Pass the arguments on, and return the messages."""
        given = _bind(dict(call.request.arguments))
        filled: PromptResult | InputRequired = await self._function.run(call, given, environment)
        return filled


def _template(uri: str) -> UriTemplate | PrefixTemplate:
    """Return the template for a URI; a template that this library cannot match matches by its beginning."""
    try:
        return UriTemplate(uri)
    except DefinitionError:
        return PrefixTemplate(uri)
