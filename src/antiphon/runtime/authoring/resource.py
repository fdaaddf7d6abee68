"""Resources: functions that callers read by URI, or by a URI that matches a template.

Owns how a function's value becomes the contents of a resource. It must not know the registry.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pydantic

from antiphon.errors import DefinitionError, InvalidParams
from antiphon.model.catalog import ResourceDefinition, TemplateDefinition
from antiphon.model.content import Annotations, BlobContents, Contents, Icon, TextContents
from antiphon.model.outcome import InputRequired, ReadResult
from antiphon.runtime.authoring.offer import Visible, read_offer
from antiphon.runtime.authoring.signature import Signature, explain, name_of
from antiphon.runtime.authoring.uri_template import PrefixTemplate, UriTemplate
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import AuthorFunction, Environment
from antiphon.runtime.providers import Completer
from antiphon.runtime.scopes import ScopesOption, meta_with_scopes, read_option

__all__ = ["Resource"]

_any: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(Any)


class Resource:
    """A resource or a resource template."""

    __slots__ = (
        "_function",
        "_mime",
        "_shared",
        "_ttl_ms",
        "complete",
        "definition",
        "offer",
        "scopes",
        "template",
        "uri",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        threads: ThreadExecutor,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        scopes: ScopesOption | None = None,
        tags: Collection[str] = (),
        enabled: bool = True,
        visible: Visible | None = None,
        replay: bool = True,
        cache_ttl: float = 0,
        shared: bool = False,
    ) -> None:
        self._function = AuthorFunction(function, threads, replay=replay)
        signature = self._function.signature
        self.uri = uri
        self.template: UriTemplate | PrefixTemplate | None = (
            UriTemplate(uri) if UriTemplate.is_template(uri) else None
        )
        self.scopes = read_option(uri, scopes)
        self.offer = read_offer(uri, tags, enabled, visible)
        if shared and visible is not None:
            raise DefinitionError(
                f"{uri}: visible= and shared=True contradict each other: a shared cache would give the "
                "contents to callers who do not see the resource. Remove one of them."
            )
        self._mime = mime_type
        self._ttl_ms = int(cache_ttl * 1000)
        self._shared = shared
        self.complete: Completer | None = None
        """Completes the variables of the template, if another program has the template."""
        _check_variables(name_of(function), signature, self.template)
        common: dict[str, Any] = {
            "name": name or name_of(function),
            "title": title,
            "description": description or signature.description,
            "mime_type": mime_type,
            "annotations": annotations,
            "icons": tuple(icons) if icons else None,
            "meta": meta_with_scopes(meta, self.scopes),
        }
        self.definition = (
            ResourceDefinition(uri=uri, size=size, **common)
            if self.template is None
            else TemplateDefinition(uri_template=uri, **common)
        )

    def holds(self, call: Call[Any]) -> bool:
        """Return whether the process has to hold the run of a call, because a question ends the request."""
        return self._function.holds(call)

    async def read(
        self, call: Call[Any], variables: Mapping[str, str], uri: str, environment: Environment
    ) -> ReadResult | InputRequired:
        """Run the function and return its contents; raises `InvalidParams` for invalid template variables."""
        try:
            arguments = self._function.bind(variables)
        except pydantic.ValidationError as error:
            raise InvalidParams(f"Invalid URI {uri!r}:\n{explain(error)}", data={"uri": uri}) from None
        value = await self._function.run(call, arguments, environment)
        if type(value) is InputRequired:
            return value
        return ReadResult(tuple(self._contents(value, uri)), self._ttl_ms, self._shared)

    def _contents(self, value: Any, uri: str) -> Iterable[Contents]:
        if isinstance(value, TextContents | BlobContents):
            return [value]
        if isinstance(value, list | tuple) and value and isinstance(value[0], TextContents | BlobContents):
            return value
        if isinstance(value, str):
            return [TextContents(uri, value, self._mime or "text/plain")]
        if isinstance(value, bytes | bytearray):
            mime = self._mime or "application/octet-stream"
            return [BlobContents(uri, base64.b64encode(value).decode(), mime)]
        data = _any.dump_python(value, mode="json", by_alias=True)
        return [TextContents(uri, msgspec.json.encode(data).decode(), self._mime or "application/json")]


def _check_variables(label: str, signature: Signature, template: UriTemplate | PrefixTemplate | None) -> None:
    """Raise `DefinitionError` unless variables and required parameters have the same names."""
    names = set(template.names) if template else set()
    unknown = names - set(signature.parameters)
    if unknown and not signature.open:
        raise DefinitionError(
            f"{label}: the URI template has the variable {{{sorted(unknown)[0]}}}, and the function has no "
            "parameter of that name. Add the parameter, or rename the variable."
        )
    required = set(signature.schema.get("required", ()))
    always = names - (template.optional if template else frozenset())
    if missing := required - always:
        raise DefinitionError(
            f"{label}: the parameter {sorted(missing)[0]!r} has no default, and the URI has no required "
            f"variable {{{sorted(missing)[0]}}}. Add one of the two."
        )
