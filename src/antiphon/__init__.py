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

from antiphon.log_records import clean_records
from antiphon.version import VERSION

if TYPE_CHECKING:
    from antiphon.adoption.adopt import adopt
    from antiphon.authentication import BearerTokens
    from antiphon.authorization.issued_tokens import IssuedTokens
    from antiphon.authorization.issuer import Issuer
    from antiphon.client import Client, Stream
    from antiphon.client.group import ClientGroup
    from antiphon.client.oauth.grants import IdTokenExchange
    from antiphon.client.oauth.keyring_logins import KeyringLogins
    from antiphon.client.oauth.logins import FileLogins, MemoryLogins
    from antiphon.client.oauth.oauth import OAuth
    from antiphon.console.mount import Console
    from antiphon.errors import (
        AntiphonError,
        AuthorizationFailed,
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
        RetriesExhausted,
        Unanswered,
        Unauthorized,
        UnknownArtifact,
    )
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
    from antiphon.runtime.authoring.depends import Depends
    from antiphon.runtime.execution.context import Context
    from antiphon.runtime.execution.retrying import Retry
    from antiphon.runtime.limits import Limits
    from antiphon.server import Server, shed_after
    from antiphon.transport.server.http.router import HttpRequest, HttpResponse

__all__ = [
    "Annotations",
    "AntiphonError",
    "Artifact",
    "Audio",
    "AuthorizationFailed",
    "BearerTokens",
    "BlobContents",
    "Client",
    "ClientError",
    "ClientGroup",
    "CommandFailed",
    "Completion",
    "Console",
    "Context",
    "Declined",
    "DefinitionError",
    "Depends",
    "Elicit",
    "EmbeddedResource",
    "Failure",
    "FileLogins",
    "Forbidden",
    "HttpRequest",
    "HttpResponse",
    "Icon",
    "IdTokenExchange",
    "Image",
    "InputRequired",
    "InsufficientScope",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "IssuedTokens",
    "Issuer",
    "KeyringLogins",
    "Limits",
    "ListRoots",
    "MemoryLogins",
    "MethodNotFound",
    "MissingCapability",
    "NotFound",
    "OAuth",
    "OpenUrl",
    "Principal",
    "PromptMessage",
    "RateLimited",
    "RequestError",
    "ResourceLink",
    "ResourceNotFound",
    "Result",
    "RetriesExhausted",
    "Retry",
    "Sample",
    "Segment",
    "Server",
    "Stream",
    "Text",
    "TextContents",
    "ToolAnnotations",
    "Unanswered",
    "Unauthorized",
    "UnknownArtifact",
    "adopt",
    "shed_after",
]

__version__ = VERSION

# A name is imported when it is first used: a client does not load the server, and `antiphon --help` neither.
# The table repeats the imports above, which type checkers and editors read.
_NAMES = {
    "antiphon.authentication": ("BearerTokens",),
    "antiphon.authorization.issued_tokens": ("IssuedTokens",),
    "antiphon.authorization.issuer": ("Issuer",),
    "antiphon.client": ("Client", "Stream"),
    "antiphon.client.group": ("ClientGroup",),
    "antiphon.client.oauth.grants": ("IdTokenExchange",),
    "antiphon.client.oauth.keyring_logins": ("KeyringLogins",),
    "antiphon.client.oauth.logins": ("FileLogins", "MemoryLogins"),
    "antiphon.client.oauth.oauth": ("OAuth",),
    "antiphon.console.mount": ("Console",),
    "antiphon.errors": (
        "AntiphonError",
        "AuthorizationFailed",
        "ClientError",
        "CommandFailed",
        "Declined",
        "DefinitionError",
        "Failure",
        "Forbidden",
        "InsufficientScope",
        "InternalError",
        "InvalidParams",
        "InvalidRequest",
        "MethodNotFound",
        "MissingCapability",
        "NotFound",
        "RateLimited",
        "RequestError",
        "ResourceNotFound",
        "RetriesExhausted",
        "Unanswered",
        "Unauthorized",
        "UnknownArtifact",
    ),
    "antiphon.model.catalog": ("PromptMessage", "ToolAnnotations"),
    "antiphon.model.content": (
        "Annotations",
        "Audio",
        "BlobContents",
        "EmbeddedResource",
        "Icon",
        "Image",
        "ResourceLink",
        "Text",
        "TextContents",
    ),
    "antiphon.model.identity": ("Principal",),
    "antiphon.model.outcome": ("Completion", "InputRequired", "Result"),
    "antiphon.model.question": ("Elicit", "ListRoots", "OpenUrl", "Sample"),
    "antiphon.model.segment": ("Segment",),
    "antiphon.runtime.artifacts.artifact": ("Artifact",),
    "antiphon.runtime.authoring.depends": ("Depends",),
    "antiphon.runtime.execution.context": ("Context",),
    "antiphon.runtime.execution.retrying": ("Retry",),
    "antiphon.runtime.limits": ("Limits",),
    "antiphon.server": ("Server", "shed_after"),
    "antiphon.adoption.adopt": ("adopt",),
    "antiphon.transport.server.http.router": ("HttpRequest", "HttpResponse"),
}
_SUBMODULES = ("agents", "authentication", "client", "errors", "middleware", "server", "testing")
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

# A filter on a logger must be there before the first record, whichever module is imported first.
clean_records()


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"antiphon.{name}")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
