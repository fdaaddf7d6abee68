"""All errors of the library, in one tree.

Every error that a server sends has a JSON-RPC code and an HTTP status. Every message says what to do about
the error.

    AntiphonError
    ├── Failure               a tool ran and failed: the caller gets a result with isError
    │   ├── CommandFailed     a program that the tool ran exited with a code other than 0
    │   ├── Declined          a person declined to answer a question
    │   └── UnknownArtifact   the caller has no artifact with this id
    ├── RequestError          the request gets a JSON-RPC error in place of a result
    │   ├── ParseError        −32700   not JSON
    │   ├── InvalidRequest    −32600   JSON, but not a valid JSON-RPC request
    │   │   ├── BodyTooLarge             413
    │   │   ├── HeadTooLarge             431
    │   │   ├── BadMediaType             415
    │   │   ├── NotAcceptable            406
    │   │   ├── BadOrigin                403
    │   │   ├── Unauthorized             401, with WWW-Authenticate
    │   │   ├── Forbidden                403; in a tool, a result with isError
    │   │   │   └── InsufficientScope    403, with WWW-Authenticate
    │   │   ├── NoEndpoint               404
    │   │   ├── SessionLost              404
    │   │   ├── StreamGone               410
    │   │   └── MethodNotAllowed         405
    │   ├── MethodNotFound    −32601
    │   │   └── TaskForbidden
    │   ├── InvalidParams     −32602
    │   │   ├── TaskNotFound
    │   │   ├── TaskEnded
    │   │   ├── TaskNotWaiting           the task has no open question to answer
    │   │   └── NotFound                 no such tool or prompt
    │   │       └── ResourceNotFound
    │   ├── InternalError     −32603
    │   │   └── Busy                     503, with Retry-After
    │   │       └── RateLimited          429, with Retry-After
    │   ├── HeaderMismatch    −32020
    │   ├── MissingCapability −32021
    │   │   └── TaskRequired
    │   └── UnsupportedVersion −32022
    ├── DefinitionError       a tool, prompt, resource or setting is not valid as written
    ├── ReplayMismatch        a function has changed since its journal was recorded
    ├── SealError             a request state or session id cannot be decrypted
    ├── StoreError            a store operation failed
    │   ├── Stale             another writer has appended to the log in the meantime
    │   ├── LeaseLost         another worker has claimed the task
    │   ├── NoTask            the task does not exist, or has expired
    │   ├── TooLarge          an artifact exceeds its size limit
    │   └── StoreUnavailable  the store cannot be reached, is full, or is read-only
    └── ClientError           only clients raise these
        ├── Unreachable       no connection, or it was lost before the response
        │   └── ProcessEnded  the server's process has exited; `code` is its exit code
        ├── TimedOut          the deadline passed
        ├── AuthorizationFailed   the client got no access token
        ├── TaskCancelled     the task was cancelled, and has no result
        ├── TaskLost          the server does not know the task, or it has expired
        └── BadAnswer         the server sent something that is not MCP
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from antiphon.printable import printable

__all__ = [
    "AntiphonError",
    "AuthorizationFailed",
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
    "HeadTooLarge",
    "HeaderMismatch",
    "InsufficientScope",
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
    "ReplayMismatch",
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
    "TaskNotWaiting",
    "TaskRequired",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "UnknownArtifact",
    "Unreachable",
    "UnsupportedVersion",
]


class AntiphonError(Exception):
    """The base class of all errors of this library."""


def _writable(message: Any) -> str:
    """Return a message without lone surrogates, which names of files may have: JSON has none."""
    text = message if isinstance(message, str) else str(message)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Failure(AntiphonError):
    """A failed tool call. Raise it in a tool to fail the call; a client raises it for a call that failed.

    In a prompt or a resource, the request gets a JSON-RPC error with the message.
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
        message = _writable(message)
        super().__init__(message)
        self.message = message
        """The text that people and models read."""
        self.details: Mapping[str, Any] | None = details
        """Further fields of the structured content, for programs."""
        self.partial: Any = partial
        """The part of the result that the tool has in spite of the failure."""
        if partial is None and isinstance(data, Mapping):
            self.partial = data.get("partial_results")
        self.data = data
        """The whole structured content. A tool passes it in place of `details`."""
        self.content = content
        """The content blocks of the result, if there are more than the message."""


class CommandFailed(Failure):
    """A program that a tool ran failed. The caller gets its exit code and its error output."""

    def __init__(self, exit_code: int, stderr: str, *, partial: Any = None) -> None:
        fence = "`" * (1 + max([2, *map(len, re.findall("`+", stderr))]))
        super().__init__(
            f"Command failed (exit code {exit_code}):\n\n{fence}\n{stderr}\n{fence}",
            partial=partial,
            data={"status": "error", "exit_code": exit_code, "stderr": stderr},
        )
        self.exit_code = exit_code
        """The exit code of the program."""
        self.stderr = stderr
        """The error output of the program."""


class UnknownArtifact(Failure):
    """The caller has no artifact with this id: it has expired, is another caller's, or never existed."""


class Declined(Failure):
    """A person declined to answer a question. Unless the tool catches it, the call fails."""

    def __init__(self, message: str, *, action: str) -> None:
        super().__init__(message)
        self.action = action
        """`"decline"` if the person said no, `"cancel"` if they closed the dialog."""


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
        message = _writable(message)
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


class UnsupportedVersion(RequestError):
    """The server does not support the requested protocol version."""

    code = -32022


class DefinitionError(AntiphonError, TypeError):
    """A tool, a prompt, a resource or a setting is not valid as written. The message says what to change."""


class ReplayMismatch(AntiphonError):
    """A function runs again and does something else than the journal of its earlier run recorded.

    Its code has changed in an incompatible way, or it does not take the same path in every run. A call gets
    an error; a task is released for a worker that has the right version.
    """

    def __init__(self, message: str, *, found: str, recorded: str) -> None:
        super().__init__(message)
        self.found = found
        """The key of the step or question that this version has reached."""
        self.recorded = recorded
        """The key of the step or question in the journal."""


class SealError(AntiphonError):
    """A request state or a session id was altered, has expired, or was encrypted with another secret."""


class StoreError(AntiphonError):
    """A store operation failed."""


class Stale(StoreError):
    """Another writer has appended to the log in the meantime: read it again and retry."""


class LeaseLost(StoreError):
    """Another worker has claimed the task: stop working on it."""


class NoTask(StoreError):
    """The task does not exist, or has expired."""


class TooLarge(StoreError):
    """An artifact is larger than `Limits.max_artifact_bytes`."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is full, or is read-only. Tasks that it has confirmed are not lost."""


class ClientError(AntiphonError):
    """A call that the client could not complete, for a reason other than an error of the server.

    The message is one printable line, even if it quotes the server.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class Unreachable(ClientError):
    """The client cannot connect to the server, or lost the connection before the response."""


class ProcessEnded(Unreachable):
    """The process of the server has exited."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        """The exit code, or `None` if it is unknown."""


class TimedOut(ClientError, TimeoutError):
    """The deadline passed before the response."""


class AuthorizationFailed(ClientError):
    """The client could not get an access token: a person has to log in, or the login or the issuer failed."""


class TaskCancelled(ClientError):
    """The task was cancelled, and has no result."""


class TaskLost(ClientError):
    """The server does not know the task: it has expired, belongs to another caller, or never existed."""


class BadAnswer(ClientError):
    """The server sent something that is not valid MCP."""
