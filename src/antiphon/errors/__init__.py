"""All errors of the library, in one tree.

Every error that a server sends has a JSON-RPC code and an HTTP status. Every message says what to do about
the error.

    AntiphonError
    ├── Failure               a tool ran and failed: the caller gets a result with isError
    │   ├── CommandFailed     a program that the tool ran exited with a code other than 0
    │   ├── Declined          a person declined to answer a question
    │   ├── Unanswered        nobody answered a question, or no event came, in time
    │   ├── RetriesExhausted  a step failed as often as it may
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
    │   │   │   └── AlreadyAnswered      the question has another answer already
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
    │   ├── TooLate           the time to answer a question is over
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

from antiphon.errors.base import (
    AntiphonError,
    DefinitionError,
    ReplayMismatch,
    SealError,
)
from antiphon.errors.clients import (
    AuthorizationFailed,
    BadAnswer,
    ClientError,
    ProcessEnded,
    TaskCancelled,
    TaskLost,
    TimedOut,
    Unreachable,
)
from antiphon.errors.failures import (
    CommandFailed,
    Declined,
    Failure,
    RetriesExhausted,
    Unanswered,
    UnknownArtifact,
)
from antiphon.errors.requests import (
    AlreadyAnswered,
    BadMediaType,
    BadOrigin,
    BodyTooLarge,
    Busy,
    Forbidden,
    HeaderMismatch,
    HeadTooLarge,
    InsufficientScope,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    MissingCapability,
    NoEndpoint,
    NotAcceptable,
    NotFound,
    ParseError,
    RateLimited,
    RequestError,
    ResourceNotFound,
    SessionLost,
    StreamGone,
    TaskEnded,
    TaskForbidden,
    TaskNotFound,
    TaskNotWaiting,
    TaskRequired,
    Unauthorized,
    UnsupportedVersion,
)
from antiphon.errors.stores import (
    LeaseLost,
    NoTask,
    Stale,
    StoreError,
    StoreUnavailable,
    TooLarge,
    TooLate,
)

__all__ = [
    "AlreadyAnswered",
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
    "RetriesExhausted",
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
    "TooLate",
    "Unanswered",
    "Unauthorized",
    "UnknownArtifact",
    "Unreachable",
    "UnsupportedVersion",
]
