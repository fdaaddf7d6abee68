"""Antiphon: call and response for the Model Context Protocol.

    from antiphon import Server

    server = Server("hello")

    @server.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

Serve it with `antiphon run FILE`, call it with `antiphon call URL greet name=Ada`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.authentication import BearerTokens
from antiphon.errors import (
    AntiphonError,
    ClientError,
    CommandFailed,
    Declined,
    DefinitionError,
    Failure,
    Forbidden,
    InsufficientScope,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    NotFound,
    RateLimited,
    RequestError,
    ResourceNotFound,
    Unauthorized,
    UnknownArtifact,
)
from antiphon.log_records import clean_records
from antiphon.model.catalog import PromptMessage, ToolAnnotations
from antiphon.model.content import (
    Annotations,
    Audio,
    BlobContents,
    EmbeddedResource,
    Icon,
    Image,
    ResourceLink,
    Text,
    TextContents,
)
from antiphon.model.identity import Principal
from antiphon.model.outcome import Completion, InputRequired, Result
from antiphon.model.question import Elicit, ListRoots, OpenUrl, Sample
from antiphon.model.segment import Segment
from antiphon.runtime.artifacts.artifact import Artifact
from antiphon.runtime.execution.context import Context
from antiphon.runtime.limits import Limits
from antiphon.server import Server, shed_after
from antiphon.transport.server.http.router import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from antiphon.authorization.issued_tokens import IssuedTokens
    from antiphon.authorization.issuer import Issuer
    from antiphon.client import Client, Stream

__all__ = [
    "Annotations",
    "AntiphonError",
    "Artifact",
    "Audio",
    "BearerTokens",
    "BlobContents",
    "Client",
    "ClientError",
    "CommandFailed",
    "Completion",
    "Context",
    "Declined",
    "DefinitionError",
    "Elicit",
    "EmbeddedResource",
    "Failure",
    "Forbidden",
    "HttpRequest",
    "HttpResponse",
    "Icon",
    "Image",
    "InputRequired",
    "InsufficientScope",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "IssuedTokens",
    "Issuer",
    "Limits",
    "ListRoots",
    "MethodNotFound",
    "MissingCapability",
    "NotFound",
    "OpenUrl",
    "Principal",
    "PromptMessage",
    "RateLimited",
    "RequestError",
    "ResourceLink",
    "ResourceNotFound",
    "Result",
    "Sample",
    "Segment",
    "Server",
    "Stream",
    "Text",
    "TextContents",
    "ToolAnnotations",
    "Unauthorized",
    "UnknownArtifact",
    "shed_after",
]

__version__ = "0.1.0"

clean_records()


def __getattr__(name: str) -> Any:
    # The client brings an HTTP library with it, which a server has no use for.
    if name in ("Client", "Stream"):
        from antiphon import client

        return getattr(client, name)
    # So do access tokens, with a library for signatures.
    if name == "IssuedTokens":
        from antiphon.authorization.issued_tokens import IssuedTokens

        return IssuedTokens
    if name == "Issuer":
        from antiphon.authorization.issuer import Issuer

        return Issuer
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
