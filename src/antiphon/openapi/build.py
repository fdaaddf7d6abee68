"""Creates a server from a document: a tool or a resource for each operation that the author chose.

It must not know how a request is written or an answer is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from antiphon.errors import DefinitionError, Failure
from antiphon.model.catalog import ResourceDefinition, TemplateDefinition, ToolAnnotations, ToolDefinition
from antiphon.model.outcome import ReadResult, Result
from antiphon.openapi.answers import to_contents, to_result
from antiphon.openapi.api import Answer, Api, address_of, check_base_url, origin_of, sets_of
from antiphon.openapi.document import Document, load
from antiphon.openapi.inputs import Inputs, Parameter, read_inputs
from antiphon.openapi.names import slug, tool_names
from antiphon.openapi.operations import MAX_OPERATIONS, FoundOperation, chosen, find_operations, label_of
from antiphon.openapi.options import ApiOptions, FastAPIOptions, OpenAPIOptions, Operation, ServerOptions
from antiphon.openapi.outputs import Output, read_output
from antiphon.openapi.requests import write_request
from antiphon.openapi.schemas import SchemaConverter, bounded_text
from antiphon.openapi.segments import Segments
from antiphon.printable import printable, redacted_url
from antiphon.runtime.authoring.foreign import ForeignResource, ForeignTool
from antiphon.runtime.authoring.offer import Offer
from antiphon.runtime.authoring.options import check_seconds
from antiphon.runtime.authoring.uri_template import UriTemplate
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.context import Context

__all__ = ["server_for_app", "server_for_document"]

S = TypeVar("S")

_MAX_DESCRIPTION_CHARACTERS = 2000
_MAX_TITLE_CHARACTERS = 100
_APP_URL = "http://localhost"
"""The address at which a FastAPI app believes to be called in its own process."""
_INSTRUCTIONS = (
    "The tools are operations of an HTTP API. A list is an object with `items`. If a result has `next`, call "
    "the tool again with the same arguments and those of `next` to get the next page."
)


def server_for_document(kind: type[S], source: Any, options: OpenAPIOptions) -> S:
    """Create a server of a class for the API of a document; raises `DefinitionError`."""
    given: dict[str, Any] = dict(options)
    client = given.pop("client", None)
    base_url = given.pop("base_url", None) or address_of(client)
    server: S = _server(kind, load(source), given, base_url=base_url, client=client)
    return server


def server_for_app(kind: type[S], app: Any, options: FastAPIOptions) -> S:
    """Create a server of a class for a FastAPI app; raises `DefinitionError`."""
    if not callable(app) or not callable(getattr(app, "openapi", None)):
        raise DefinitionError(
            f"from_fastapi: a {type(app).__name__} is not a FastAPI app. For another API, pass its OpenAPI "
            "document to from_openapi."
        )
    given: dict[str, Any] = dict(options)
    base_url = given.pop("base_url", None) or _APP_URL
    app_lifespan = given.pop("app_lifespan", True)
    document = load(app.openapi())
    server: S = _server(kind, document, given, base_url=base_url, app=app, app_lifespan=app_lifespan)
    return server


def _server(
    kind: type[Any], document: Document, given: dict[str, Any], *, base_url: str | None, **target: Any
) -> Any:
    own = {name: given.pop(name) for name in tuple(given) if name in ApiOptions.__annotations__}
    unknown = [name for name in given if name not in ServerOptions.__annotations__]
    if unknown:
        raise DefinitionError(
            f"There is no option {unknown[0]!r}. The options are those of Server, and "
            f"{', '.join(ApiOptions.__annotations__)}."
        )
    check_seconds("timeout", own.get("timeout", 30.0))
    info = document.info
    title = printable(str(info.get("title") or ""), _MAX_TITLE_CHARACTERS)
    given.setdefault("name", title or "api")
    given.setdefault("version", printable(str(info.get("version") or "0.0.0"), 40))
    given.setdefault("instructions", _INSTRUCTIONS)
    server = kind(given.pop("name"), **given)
    passed = {name: own[name] for name in ("headers", "timeout", "max_response_bytes") if name in own}
    api = Api(**target, **passed)
    hidden = sets_of(target.get("client"), own.get("headers"))
    has_credentials = bool(own.get("headers")) or target.get("client") is not None
    _Builder(server.engine, document, own, api, base_url, hidden, target.get("app"), has_credentials).build()
    return server


class _Builder:
    """Registers the operations of one document."""

    def __init__(
        self,
        engine: Engine,
        document: Document,
        options: Mapping[str, Any],
        api: Api,
        base_url: str | None,
        hidden: frozenset[tuple[str, str]],
        app: Any,
        has_credentials: bool,
    ) -> None:
        self._engine = engine
        self._app = app
        self._segments = Segments()
        self._document = document
        self._options = options
        self._api = api
        self._base_url = None if base_url is None else check_base_url(base_url)
        self._has_credentials = has_credentials
        self._hidden = hidden
        self._requests = SchemaConverter(document, "request")
        self._responses = SchemaConverter(document, "response")
        self._authority = slug(engine.info.name).lower() or "api"

    def build(self) -> None:
        """Register a tool or a resource for each operation; raises `DefinitionError`."""
        found = find_operations(self._document)
        operations = [each.operation for each in found]
        self._segments = Segments(operations, self._options.get("multi_segment"), self._app)
        offered = chosen("include", self._options.get("include"), operations, otherwise=True)
        offered -= chosen("exclude", self._options.get("exclude"), operations, otherwise=False)
        resources = chosen("resources", self._options.get("resources"), operations, otherwise=False)
        tasks = chosen("tasks", self._options.get("tasks"), operations, otherwise=False)
        if len(offered) > MAX_OPERATIONS:
            raise DefinitionError(
                f"The document has {len(offered)} operations, and a server offers at most {MAX_OPERATIONS}. "
                'Choose some of them: include={"tags": ["…"]}.'
            )
        names = tool_names(operations, self._options.get("names") or {})
        self._engine.add_provider(self._api)
        for each in found:
            operation = each.operation
            if operation not in offered:
                continue
            try:
                call = self._call(each, names[operation])
                if operation not in resources or not self._add_resource(call, each):
                    self._add_tool(call, each, is_task=operation in tasks)
            except (DefinitionError, msgspec.EncodeError, UnicodeError, RecursionError) as error:
                raise DefinitionError(
                    f"{label_of(operation)} of the document: {str(error).rstrip('.')}. To leave the "
                    f'operation out, pass exclude={{"paths": [{printable(operation.path, 200)!r}]}}.'
                ) from None

    def _call(self, found: FoundOperation, name: str) -> _ApiCall:
        base_url = self._base_url or self._address_in_document(found)
        inputs = read_inputs(
            self._document,
            self._requests,
            found,
            self._hidden,
            self._segments,
            # A function may set any header, which the caller then does not have to pass.
            requires_headers=not callable(self._options.get("headers")),
        )
        # With an artifact in its place, a result does not fit the schema of the document.
        lists_schema = (
            self._options.get("output_schemas", True) and self._options.get("artifact_over") is None
        )
        output = read_output(self._document, self._responses, found.raw, lists_schema=lists_schema)
        return _ApiCall(self._api, base_url, found.operation, inputs, output, name)

    def _address_in_document(self, found: FoundOperation) -> str:
        """Return the address that the document names for an operation; raises `DefinitionError`.

        The author's credentials are for the API of the document. An operation may name any other address.
        """
        url = self._document.server_url(found.raw, found.item)
        if url is None:
            raise DefinitionError("the document does not name the address of the API: pass base_url=")
        address = check_base_url(url)
        if self._has_credentials:
            root = self._document.server_url()
            if root is None or origin_of(root) != origin_of(address):
                home = "the document has none of its own" if root is None else f"not {redacted_url(root)}"
                raise DefinitionError(
                    f"its `servers` lead to {redacted_url(address)}, {home}, and headers= or client= may "
                    "have credentials that are not for it. If they are, pass the address as base_url="
                )
        return address

    def _add_tool(self, call: _ApiCall, found: FoundOperation, *, is_task: bool) -> None:
        definition = ToolDefinition(
            name=call.name,
            title=_title(found.raw),
            description=_description(found),
            input_schema=call.inputs.schema,
            output_schema=call.output.schema,
            annotations=_annotations(call.operation.method),
        )
        msgspec.json.encode(definition)  # raises now and not when a client asks for the list
        tool = ForeignTool(
            definition,
            call.run,
            self._engine.threads,
            scopes=self._options.get("scopes"),
            artifact_over=self._options.get("artifact_over"),
            task="optional" if is_task else "forbidden",
            replays=True,
            offer=_offer(call),
        )
        self._engine.add_tool(tool, {})

    def _add_resource(self, call: _ApiCall, found: FoundOperation) -> bool:
        """Register an operation as a resource; return false if it cannot be one."""
        uri = _uri(self._authority, call)
        if uri is None:
            return False
        common: dict[str, Any] = {
            "name": call.name,
            "title": _title(found.raw),
            "description": _description(found),
            "mime_type": call.output.media_type,
        }
        try:
            template = UriTemplate(uri)
        except DefinitionError:  # a parameter has a name that a template cannot have
            return False
        definition = (
            TemplateDefinition(uri_template=uri, **common)
            if template.names
            else ResourceDefinition(uri=uri, **common)
        )
        msgspec.json.encode(definition)

        async def read(given: str, context: Context) -> ReadResult:
            return await call.read(given, template.match(given) or {}, context)

        scopes = self._options.get("scopes")
        resource = ForeignResource(definition, read, scopes=scopes, replays=True, offer=_offer(call))
        self._engine.registry.add_resource(resource)
        return True


@dataclass(frozen=True, slots=True)
class _ApiCall:
    """Sends the requests of one operation."""

    api: Api
    base_url: str
    operation: Operation
    inputs: Inputs
    output: Output
    name: str

    async def run(self, arguments: dict[str, Any], context: Context) -> Result:
        """Call the operation, and return the result of the tool; raises `Failure`."""
        answer = await self._send(arguments, context)
        label, is_open = label_of(self.operation), self.output.is_open
        result = to_result(answer, label, self.inputs, arguments, is_open=is_open)
        if self.output.schema is not None and not isinstance(result.data, dict):
            result.is_error = True  # without it, the result has to fit the output schema
        return result

    async def read(self, uri: str, variables: dict[str, str], context: Context) -> ReadResult:
        """Call the operation, and return the contents of the resource.

        Raises `ResourceNotFound` and `Failure`.
        """
        return to_contents(await self._send(variables, context), label_of(self.operation), uri)

    async def _send(self, arguments: Mapping[str, Any], context: Context) -> Answer:
        try:
            request = write_request(self.operation, self.inputs, arguments, self.name)
        except (UnicodeError, msgspec.EncodeError):
            raise Failure(f"Invalid arguments for the tool {self.name!r}: they are not valid text.") from None
        return await self.api.send(self.base_url, request, self.output.accept, context)


def _offer(call: _ApiCall) -> Offer:
    """Return the offer of an operation, with the tags of the document: `server.disable` finds them."""
    return Offer(call.name, frozenset(call.operation.tags))


def _uri(authority: str, call: _ApiCall) -> str | None:
    """Return the URI or the URI template of an operation, or `None` if it cannot be a resource."""
    if call.operation.method != "GET" or call.inputs.body is not None:
        return None
    path, query = call.operation.path, []
    for parameter in call.inputs.parameters:
        if not _is_scalar(parameter):
            if parameter.required:
                return None
        elif parameter.place == "path":
            path = path.replace(f"{{{parameter.name}}}", f"{{{parameter.argument}}}")
        elif parameter.place == "query":
            query.append(parameter.argument)
        elif parameter.required:
            return None
    return f"api://{authority}{path}" + (f"{{?{','.join(query)}}}" if query else "")


def _is_scalar(parameter: Parameter) -> bool:
    return not parameter.is_json and not {"array", "object"} & set(parameter.types)


def _title(raw: Mapping[str, Any]) -> str | None:
    summary = raw.get("summary")
    return printable(summary, _MAX_TITLE_CHARACTERS) if isinstance(summary, str) and summary.strip() else None


def _description(found: FoundOperation) -> str:
    """Return the summary and the description of an operation; without both, its method and path."""
    given = (found.raw.get("summary"), found.raw.get("description"))
    texts = [text.strip() for text in given if isinstance(text, str) and text.strip()]
    if len(texts) == 2 and texts[1].startswith(texts[0]):
        del texts[0]
    if found.operation.deprecated:
        texts.insert(0, "Deprecated.")
    return bounded_text("\n\n".join(texts) or label_of(found.operation), _MAX_DESCRIPTION_CHARACTERS)


def _annotations(method: str) -> ToolAnnotations:
    if method in ("GET", "QUERY"):
        return ToolAnnotations(read_only_hint=True)
    return ToolAnnotations(
        read_only_hint=False,
        destructive_hint=True if method == "DELETE" else None,
        idempotent_hint=True if method in ("PUT", "DELETE") else None,
    )
