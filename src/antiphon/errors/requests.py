"""Errors of requests: the request gets a JSON-RPC error in place of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from antiphon.errors.base import AntiphonError, clean_message

__all__ = [
    "AlreadyAnswered",
    "BadMediaType",
    "BadOrigin",
    "BodyTooLarge",
    "Busy",
    "Forbidden",
    "HeadTooLarge",
    "HeaderMismatch",
    "InsufficientScope",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotAllowed",
    "MethodNotFound",
    "MissingCapability",
    "NoEndpoint",
    "NotAcceptable",
    "NotFound",
    "ParseError",
    "RateLimited",
    "RequestError",
    "ResourceNotFound",
    "SessionLost",
    "StreamGone",
    "TaskEnded",
    "TaskForbidden",
    "TaskNotFound",
    "TaskNotWaiting",
    "TaskRequired",
    "Unauthorized",
    "UnsupportedVersion",
]

_STORE_RETRY_AFTER_SECONDS = 2
"""When a caller should try again after the store did not respond."""


class RequestError(AntiphonError):
    """A JSON-RPC error. Raise it on the server to send one; a client raises it for one that it received."""

    code: int = -32603
    """The code of the JSON-RPC error."""
    status: ClassVar[int] = 400
    """The status of the HTTP response."""
    headers: tuple[tuple[str, str], ...] = ()
    # The id of the request that failed, if the error was raised after the id was read.
    request_id: str | int | None = None

    def __init__(self, message: str, *, data: Any = None, code: int | None = None) -> None:
        message = clean_message(message)
        super().__init__(message)
        self.message = message
        """The message of the JSON-RPC error."""
        self.data = data
        """The data of the JSON-RPC error."""
        if code is not None:
            self.code = code


class ParseError(RequestError):
    """The body is not JSON."""

    code = -32700


class InvalidRequest(RequestError):
    """The body is JSON, but not a valid JSON-RPC request."""

    code = -32600


class BodyTooLarge(InvalidRequest):
    """The body, or a part of it, is larger than a limit. The message names the part and the limit."""

    status = 413


class HeadTooLarge(InvalidRequest):
    """The request has more than `Limits.max_headers` headers, or they exceed `Limits.max_head_bytes`."""

    status = 431


class BadMediaType(InvalidRequest):
    """The content type of the body is not JSON."""

    status = 415


class NotAcceptable(InvalidRequest):
    """The Accept header allows no media type that the server can respond with."""

    status = 406


class BadOrigin(InvalidRequest):
    """The server does not trust the Origin or the Host header of the request."""

    status = 403


class Unauthorized(InvalidRequest):
    """The request has no valid credentials. `challenge` becomes the `WWW-Authenticate` header."""

    status = 401

    def __init__(self, message: str = "Authentication is required.", *, challenge: str = "Bearer") -> None:
        super().__init__(message)
        self.headers = (("www-authenticate", challenge),)


class Forbidden(InvalidRequest):
    """The caller is authenticated, but not allowed to do this.

    `authenticate` and middleware refuse the HTTP request with it. In a tool, the call fails with the message.
    In a prompt or a resource, the request gets a JSON-RPC error with the message.
    """

    status = 403


class InsufficientScope(Forbidden):
    """The caller is authenticated, but its token does not have the scopes that the request needs."""

    def __init__(self, message: str, *, scopes: tuple[str, ...] = (), challenge: str | None = None) -> None:
        super().__init__(message)
        self.scopes = scopes
        """All scopes that the request needs, whether the caller has some of them or not."""
        if challenge is None:
            challenge = f'Bearer error="insufficient_scope", scope="{" ".join(scopes)}"'
        self.headers = (("www-authenticate", challenge),)


class SessionLost(InvalidRequest):
    """The session is unknown, has ended, or belongs to another caller. The client must initialize again."""

    status = 404


class StreamGone(InvalidRequest):
    """The server no longer keeps the stream that the client wants to resume."""

    status = 410


class NoEndpoint(InvalidRequest):
    """There is no MCP endpoint at this path."""

    status = 404


class MethodNotAllowed(InvalidRequest):
    """The MCP endpoint does not support this HTTP method."""

    status = 405
    headers = (("allow", "GET, POST, DELETE"),)


class MethodNotFound(RequestError):
    """The protocol version has no such method, or the server does not support it."""

    code = -32601
    status = 404


class InvalidParams(RequestError):
    """The parameters of the request are invalid."""

    code = -32602


class NotFound(InvalidParams):
    """The server has no tool or prompt with this name."""


class ResourceNotFound(NotFound):
    """The server has no resource with this URI. The function of a template raises it for an unknown URI."""


class InternalError(RequestError):
    """The server failed unexpectedly. Its log has the details."""

    code = -32603
    status = 500


class Busy(InternalError):
    """The server is at a limit, or is shutting down. Retry after `retry_after` seconds."""

    status = 503

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.headers = (("retry-after", str(retry_after)),)

    @classmethod
    def without_store(cls) -> Busy:
        """Return the error for a request that needs the store while the store does not respond."""
        return Busy(
            "The store of this server is unavailable: try again.", retry_after=_STORE_RETRY_AFTER_SECONDS
        )


class RateLimited(Busy):
    """The caller exceeded its rate limit. Retry after `retry_after` seconds."""

    status = 429


class HeaderMismatch(RequestError):
    """An HTTP header is missing, malformed, or contradicts the body."""

    code = -32020


class MissingCapability(RequestError):
    """The request needs a capability that the client did not declare."""

    code = -32021

    def __init__(
        self,
        message: str,
        *,
        needs: Mapping[str, Any] | None = None,
        data: Any = None,
        code: int | None = None,
    ) -> None:
        super().__init__(message, data=data, code=code)
        self.needs = needs
        """The missing capabilities, as a client would declare them."""


class TaskRequired(MissingCapability):
    """The tool runs only as a task, and the caller does not accept tasks."""


class TaskForbidden(MethodNotFound):
    """The caller asked for a task, and the tool does not run as a task."""


class TaskNotFound(InvalidParams):
    """The caller has no task with this id: it has expired, belongs to another caller, or never existed."""


class TaskEnded(InvalidParams):
    """The task has finished, and cannot be cancelled."""


class TaskNotWaiting(InvalidParams):
    """The task has ended, or asks nothing at the moment, and cannot be answered."""


class AlreadyAnswered(TaskNotWaiting):
    """The question has another answer already, and the first one counts."""


class UnsupportedVersion(RequestError):
    """The server does not support the requested protocol version."""

    code = -32022
