"""The options of `Server.from_openapi` and `Server.from_fastapi`.

Owns the names and meanings of the options. It must not know how an option takes effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    import aiohttp
    import httpx2

    from antiphon.authentication import Authenticate
    from antiphon.model.content import Icon
    from antiphon.runtime.execution.context import Context
    from antiphon.runtime.execution.run import Shed
    from antiphon.runtime.limits import Limits
    from antiphon.runtime.middleware import Middleware
    from antiphon.runtime.scopes import ScopesOption
    from antiphon.runtime.tasks.inbox import Audiences
    from antiphon.store.artifacts import ArtifactStore
    from antiphon.store.contract import Store

__all__ = [
    "ApiOptions",
    "ChooseOperations",
    "FastAPIOptions",
    "Headers",
    "OpenAPIOptions",
    "Operation",
    "OperationFilter",
    "ServerOptions",
]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation of an OpenAPI document, as a filter function sees it."""

    method: str
    """The HTTP method, in capital letters."""
    path: str
    """The path as the document writes it, such as `/users/{id}`."""
    operation_id: str | None
    """The `operationId`, or `None` without one."""
    tags: tuple[str, ...]
    """The tags, such as `("issues",)`."""
    deprecated: bool
    """Whether the document says that the operation should not be used any more."""


class OperationFilter(TypedDict, total=False):
    """Chooses operations. An operation has to fit every key that you set, with one of its values."""

    tags: Collection[str]
    """Tags of the document, such as `{"issues"}`."""
    methods: Collection[str]
    """HTTP methods, such as `{"GET"}`."""
    paths: Collection[str]
    """Patterns for the path, such as `"/repos/*"`: `*` stands for any text, slashes too."""
    operation_ids: Collection[str]
    """Patterns for the `operationId`, such as `"repos/get-*"`."""


ChooseOperations: TypeAlias = OperationFilter | Sequence[OperationFilter] | Callable[[Operation], bool]
"""A filter, a list of filters of which one has to fit, or a function that gets an `Operation`."""

Headers: TypeAlias = (
    "Mapping[str, str] | Callable[[Context], Mapping[str, str] | Awaitable[Mapping[str, str]]]"
)
"""HTTP headers, or a function that returns them for the `Context` of a call."""


class ServerOptions(TypedDict, total=False):
    """The options of `Server`, for functions that create one."""

    name: str
    version: str
    title: str | None
    description: str | None
    instructions: str | None
    website_url: str | None
    icons: Sequence[Icon] | None
    protocols: Sequence[str] | None
    authenticate: Authenticate | None
    hide_forbidden: bool
    task_claims: Sequence[str]
    audiences: Audiences | None
    middleware: Sequence[Middleware]
    secrets: Sequence[str | bytes] | None
    lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None
    limits: Limits | None
    shed: Shed | None
    store: str | Store | None
    single_use_state: bool
    artifacts: str | ArtifactStore | None
    log_arguments: bool
    page_size: int
    list_ttl: float


class ApiOptions(TypedDict, total=False):
    """The options that concern an API, of `Server.from_openapi` and `Server.from_fastapi`."""

    include: ChooseOperations | None
    """The operations to offer. By default, all of the document."""
    exclude: ChooseOperations | None
    """Operations to leave out, though `include` chooses them."""
    resources: ChooseOperations | None
    """GET operations to offer as resources and resource templates in place of tools. An operation that needs
    headers, cookies or lists as arguments stays a tool."""
    tasks: ChooseOperations | None
    """Operations whose tools callers may run as tasks."""
    names: Mapping[str, str]
    """Names for tools, by `operationId`, in place of those made from it."""
    multi_segment: Collection[str]
    """Names of path parameters whose values may contain slashes, such as `{"path"}`. A slash in another value
    is refused, because it could lead to another operation. Parameters with the converter `path` of FastAPI,
    and those that the document marks with `x-multi-segment: true`, need no name here."""
    base_url: str | None
    """The address of the API. Without it, the `base_url` of `client` is used, or the `servers` of the
    document."""
    headers: Headers | None
    """HTTP headers for the requests, such as credentials; or a function that returns them for the `Context`
    of a call. Callers cannot replace these headers."""
    timeout: float
    """How long the API may take to answer, in seconds; 30 by default."""
    max_response_bytes: int
    """The size of the largest answer that is passed on; 4 MiB by default. A larger one is an error."""
    artifact_over: int | None
    """The size in bytes above which a result is stored as an artifact; callers get a preview and the id.
    Tools then list no schemas of their results."""
    output_schemas: bool
    """Whether tools list the schemas of their results (the default). Set it to `False` for an API that does
    not keep to its document: some clients refuse a result that does not match."""
    scopes: ScopesOption | None
    """The scopes that callers need for the tools and resources."""


class OpenAPIOptions(ServerOptions, ApiOptions, total=False):
    """The options of `Server.from_openapi`, besides those of `Server`."""

    client: httpx2.AsyncClient | aiohttp.ClientSession | Any
    """The HTTP client for the requests, with its credentials: an `httpx2.AsyncClient` or an
    `aiohttp.ClientSession`. You close it. Without one, the server has its own."""


class FastAPIOptions(ServerOptions, ApiOptions, total=False):
    """The options of `Server.from_fastapi`, besides those of `Server`."""

    app_lifespan: bool
    """Whether the lifespan of the app runs with the server (the default). Set it to `False` if the app is
    served by itself too, because then its lifespan runs already."""
