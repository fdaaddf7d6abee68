"""The one tree of errors.

Every error knows its JSON-RPC code and its HTTP status, and its message says what to do about it.
Only the wire turns them into frames; nothing here knows a protocol version.

    AntiphonError
    ├── Failure               a tool ran and failed: the caller gets a result with isError
    │   ├── CommandFailed     a program that it ran ended with an exit code other than 0
    │   ├── Declined          a person was asked, and said no
    │   └── UnknownArtifact   the caller named an artifact that is not there for it
    ├── RequestError          a request that gets a JSON-RPC error instead of a result
    │   ├── ParseError        −32700   not JSON
    │   ├── InvalidRequest    −32600   JSON, but not a JSON-RPC request
    │   │   ├── BodyTooLarge             413
    │   │   ├── BadMediaType             415
    │   │   ├── NotAcceptable            406
    │   │   ├── BadOrigin                403
    │   │   ├── Unauthorized             401, with WWW-Authenticate
    │   │   ├── Forbidden                403
    │   │   ├── NoEndpoint               404
    │   │   ├── SessionLost              404
    │   │   ├── StreamGone               410
    │   │   └── MethodNotAllowed         405
    │   ├── MethodNotFound    −32601
    │   │   └── TaskForbidden
    │   ├── InvalidParams     −32602
    │   │   ├── TaskNotFound
    │   │   ├── TaskEnded
    │   │   └── NotFound                 no such tool or prompt
    │   │       └── ResourceNotFound
    │   ├── InternalError     −32603
    │   │   └── Busy                     503, with Retry-After
    │   │       └── RateLimited          429, with Retry-After
    │   ├── HeaderMismatch    −32020
    │   ├── MissingCapability −32021
    │   │   └── TaskRequired
    │   └── UnsupportedVersion −32022
    ├── DefinitionError       a tool, prompt or resource that cannot be registered as written
    ├── SealError             a sealed token that does not open
    ├── StoreError            a store that did not do what it was asked to
    │   ├── Stale             the log has grown since the writer looked
    │   ├── LeaseLost         another worker has the task now
    │   ├── NoTask            there is no such task, or no more
    │   ├── TooLarge          an artifact has more bytes than one may have
    │   └── StoreUnavailable  the store cannot be reached, is full, or cannot be written
    └── ClientError           what only a caller sees
        ├── Unreachable       no connection, or it was lost before the answer came
        │   └── ProcessEnded  the server's process has ended; `code` is its exit code
        ├── TimedOut          the deadline passed
        ├── TaskCancelled     the task was cancelled, and gives nothing
        ├── TaskLost          the task is not there: it has expired, is another's, or never was
        └── BadAnswer         the other side does not speak MCP
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = [
    "AntiphonError",
    "BadAnswer",
    "BadMediaType",
    "BadOrigin",
    "BodyTooLarge",
    "Busy",
    "ClientError",
    "CommandFailed",
    "Declined",
    "DefinitionError",
    "Failure",
    "Forbidden",
    "HeaderMismatch",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "LeaseLost",
    "MethodNotAllowed",
    "MethodNotFound",
    "MissingCapability",
    "NoEndpoint",
    "NoTask",
    "NotAcceptable",
    "NotFound",
    "ParseError",
    "ProcessEnded",
    "RateLimited",
    "RequestError",
    "ResourceNotFound",
    "SealError",
    "SessionLost",
    "Stale",
    "StoreError",
    "StoreUnavailable",
    "StreamGone",
    "TaskCancelled",
    "TaskEnded",
    "TaskForbidden",
    "TaskLost",
    "TaskNotFound",
    "TaskRequired",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "UnknownArtifact",
    "Unreachable",
    "UnsupportedVersion",
]


class AntiphonError(Exception):
    """The root of everything this library raises."""


class Failure(AntiphonError):
    """Raised by a tool to end its call as failed; raised by a client for a call that ended so.

    `message` is what people and models read. Programs get `details`, a mapping, and what there is of
    the result all the same, `partial`; `data` is for those who want to write the whole structured
    content themselves. `content` holds the blocks of a failed call, where they are more than the message.
    """

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        partial: Any = None,
        data: Any = None,
        content: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] | None = details
        self.partial: Any = partial
        if partial is None and isinstance(data, Mapping):
            self.partial = data.get("partial_results")
        self.data = data
        self.content = content


class CommandFailed(Failure):
    """A program that a tool ran failed; its caller gets the exit code, and what it wrote to its stderr."""

    def __init__(self, exit_code: int, stderr: str, *, partial: Any = None) -> None:
        fence = "`" * (1 + max([2, *map(len, re.findall("`+", stderr))]))
        super().__init__(
            f"Command failed (exit code {exit_code}):\n\n{fence}\n{stderr}\n{fence}",
            partial=partial,
            data={"status": "error", "exit_code": exit_code, "stderr": stderr},
        )
        self.exit_code = exit_code
        self.stderr = stderr


class UnknownArtifact(Failure):
    """There is no such artifact for this caller: it never was, is somebody else's, or has expired."""


class Declined(Failure):
    """A person was asked and said no; left alone, it ends the call as failed.

    `action` is `decline` for an explicit no and `cancel` for a dialogue that was closed.
    """

    def __init__(self, message: str, *, action: str) -> None:
        super().__init__(message)
        self.action = action


class RequestError(AntiphonError):
    """A request that is answered with a JSON-RPC error.

    Raised on the server to answer so; raised on the client for such an answer.
    """

    code: int = -32603
    status: ClassVar[int] = 400
    headers: tuple[tuple[str, str], ...] = ()
    request_id: str | int | None = None

    def __init__(self, message: str, *, data: Any = None, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        if code is not None:
            self.code = code


class ParseError(RequestError):
    """The body is not JSON."""

    code = -32700


class InvalidRequest(RequestError):
    """The body is JSON, but not a JSON-RPC request that can be served."""

    code = -32600


class BodyTooLarge(InvalidRequest):
    """The body is longer than `Limits.max_body_bytes` allows."""

    status = 413


class BadMediaType(InvalidRequest):
    """The content type of the body is not JSON."""

    status = 415


class NotAcceptable(InvalidRequest):
    """The caller accepts no media type that the answer could have."""

    status = 406


class BadOrigin(InvalidRequest):
    """The Origin or Host header is not one that this server trusts."""

    status = 403


class Unauthorized(InvalidRequest):
    """The caller did not say who it is, or not convincingly; `challenge` is the WWW-Authenticate."""

    status = 401

    def __init__(self, message: str = "Authentication is required.", *, challenge: str = "Bearer") -> None:
        super().__init__(message)
        self.headers = (("www-authenticate", challenge),)


class Forbidden(InvalidRequest):
    """The caller is known and may not do this."""

    status = 403


class SessionLost(InvalidRequest):
    """The session does not exist here, has ended, or is someone else's: initialize again."""

    status = 404


class StreamGone(InvalidRequest):
    """The stream that was to be taken up again is no longer kept."""

    status = 410


class NoEndpoint(InvalidRequest):
    """There is nothing of MCP's at this address."""

    status = 404


class MethodNotAllowed(InvalidRequest):
    """The HTTP method has no meaning at this address."""

    status = 405
    headers = (("allow", "GET, POST, DELETE"),)


class MethodNotFound(RequestError):
    """The protocol version in use has no such method, or this server does not offer it."""

    code = -32601
    status = 404


class InvalidParams(RequestError):
    """The method exists, its parameters do not fit."""

    code = -32602


class NotFound(InvalidParams):
    """There is no tool or prompt of that name."""


class ResourceNotFound(NotFound):
    """There is no resource at that address."""


class InternalError(RequestError):
    """The server failed in a way that is not the caller's fault; the log has the details."""

    code = -32603
    status = 500


class Busy(InternalError):
    """The server is at its limit, or is shutting down; try again."""

    status = 503

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.headers = (("retry-after", str(retry_after)),)


class RateLimited(Busy):
    """The caller made more requests than the server allows it; try again after the given time."""

    status = 429


class HeaderMismatch(RequestError):
    """An HTTP header is missing, malformed, or disagrees with the body."""

    code = -32020


class MissingCapability(RequestError):
    """The request needs a capability that the client did not declare.

    `needs` are the missing capabilities, each with its modes; the dialect writes them into the error.
    """

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


class TaskRequired(MissingCapability):
    """The tool takes so long that it only gives promises, and the caller did not say it takes them."""


class TaskForbidden(MethodNotFound):
    """The tool only gives answers, and the caller wants a promise."""


class TaskNotFound(InvalidParams):
    """There is no such task for this caller: it never was, is somebody else's, or has expired."""


class TaskEnded(InvalidParams):
    """The task has ended, and cannot be cancelled any more."""


class UnsupportedVersion(RequestError):
    """The protocol version asked for is not spoken here."""

    code = -32022


class DefinitionError(AntiphonError, TypeError):
    """A tool, prompt or resource cannot be registered as it is written."""


class SealError(AntiphonError):
    """A sealed token was altered, has expired, or was sealed with another key."""


class StoreError(AntiphonError):
    """A store did not do what it was asked to."""


class Stale(StoreError):
    """The log has grown since the writer looked: look again."""


class LeaseLost(StoreError):
    """Another worker has the task now: stop."""


class NoTask(StoreError):
    """There is no such task, or no more."""


class TooLarge(StoreError):
    """An artifact has more bytes than `Limits.max_artifact_bytes` allows."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is full, or cannot be written; nothing that was promised is lost."""


class ClientError(AntiphonError):
    """A call that could not be completed, for a reason other than an answer of the server's."""


class Unreachable(ClientError):
    """There is no connection to the server, or it was lost before the answer came."""


class ProcessEnded(Unreachable):
    """The process of the server has ended; `code` is its exit code, where there is one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class TimedOut(ClientError, TimeoutError):
    """The deadline passed before the answer came."""


class TaskCancelled(ClientError):
    """The task was cancelled, by this caller or another, and gives nothing."""


class TaskLost(ClientError):
    """The server does not know the task: it has expired, is somebody else's, or never was."""


class BadAnswer(ClientError):
    """The other side sent something that is not MCP."""
