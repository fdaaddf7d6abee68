"""Requests of a client, and the metadata that comes with every request.

The field names are those of the wire, which all protocol versions share. The dialects know which version has
which method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from antiphon.model.base import Value
from antiphon.model.identity import Implementation, LogLevel
from antiphon.model.trace_context import TRACE_KEYS, valid_trace_context

__all__ = [
    "LISTENING_REQUESTS",
    "AnswerInbox",
    "AnswerQuestion",
    "AnswerTask",
    "CallTool",
    "Cancel",
    "CancelTask",
    "Complete",
    "CompletionArgument",
    "CompletionContext",
    "Discover",
    "GetPrompt",
    "GetTask",
    "Initialize",
    "ListInbox",
    "ListPrompts",
    "ListResources",
    "ListTasks",
    "ListTemplates",
    "ListTools",
    "Listen",
    "ListenInbox",
    "Ping",
    "PromptReference",
    "ReadResource",
    "RedeemTask",
    "Request",
    "RequestId",
    "RequestMeta",
    "ResourceReference",
    "SetLogLevel",
    "StreamTask",
    "Subscribe",
    "SubscriptionFilter",
    "TaskParams",
    "Unsubscribe",
]

RequestId: TypeAlias = str | int


class _MultiRoundRequest(Value, frozen=True, kw_only=True):
    """A request that may take several rounds."""

    input_responses: dict[str, Any] = {}
    """The answers to the questions of the previous round, by key. What was not asked can have any shape."""
    request_state: str | None = None
    """The request state that the previous round returned."""


class TaskParams(Value, frozen=True):
    """The options of a call that asks for a task."""

    ttl: int | None = None
    """How long the server should keep the task, in milliseconds."""
    response_modes: tuple[str, ...] | None = None
    """The response modes that the caller accepts; see `MODES`."""


class CallTool(_MultiRoundRequest, frozen=True):
    """Call a tool."""

    name: str
    arguments: dict[str, Any] = {}
    task: TaskParams | None = None
    stream: dict[str, Any] | None = None
    """If present, even empty: send the tool's output while the tool runs."""


class GetPrompt(_MultiRoundRequest, frozen=True):
    """Get the messages of a prompt."""

    name: str
    arguments: dict[str, str] = {}


class ReadResource(_MultiRoundRequest, frozen=True):
    """Read a resource."""

    uri: str


class _ListRequest(Value, frozen=True):
    """A request for one page of a list. Without a cursor, the first page."""

    cursor: str | None = None


class ListTools(_ListRequest, frozen=True):
    """List tools."""


class ListResources(_ListRequest, frozen=True):
    """List resources."""


class ListTemplates(_ListRequest, frozen=True):
    """List resource templates."""


class ListPrompts(_ListRequest, frozen=True):
    """List prompts."""


class PromptReference(msgspec.Struct, frozen=True, tag_field="type", tag="ref/prompt"):
    """Names the prompt whose argument to complete."""

    name: str


class ResourceReference(msgspec.Struct, frozen=True, tag_field="type", tag="ref/resource"):
    """Names the resource template whose variable to complete."""

    uri: str


class CompletionArgument(Value, frozen=True):
    """The argument to complete, and the text typed so far."""

    name: str
    value: str


class CompletionContext(Value, frozen=True):
    """The other arguments that are filled in already."""

    arguments: dict[str, str] = {}


class Complete(Value, frozen=True):
    """Suggest values for an argument."""

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext = CompletionContext()


class Initialize(Value, frozen=True):
    """Open a session, and negotiate a protocol version."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class Discover(Value, frozen=True):
    """Get the identity and the capabilities of the server."""


class Ping(Value, frozen=True):
    """Check that the server responds."""


class SetLogLevel(Value, frozen=True):
    """Set the lowest level of log messages that the server sends to this session."""

    level: LogLevel


class Subscribe(Value, frozen=True):
    """Notify this session when a resource changes."""

    uri: str


class Unsubscribe(Value, frozen=True):
    """Stop notifying this session when a resource changes."""

    uri: str


class SubscriptionFilter(Value, frozen=True):
    """The changes that a listener subscribes to."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


class GetTask(Value, frozen=True):
    """Get the status of a task."""

    task_id: str


class RedeemTask(Value, frozen=True):
    """Get the result of a task; wait until there is one."""

    task_id: str
    last_seq_nr: Annotated[int, msgspec.Meta(ge=1)] = 0
    """If present, and so above 0: return only the segments numbered above this."""
    stream: dict[str, Any] | None = None
    """If present, even empty: send the segments while the task runs."""
    input_responses: dict[str, Any] = {}
    """Answers to the questions of the task, by key, which are taken first."""


class StreamTask(Value, frozen=True):
    """Stream the segments of a task that are numbered above `after`, then the finished task."""

    task_id: str
    after: Annotated[int, msgspec.Meta(ge=0)] = 0


class ListTasks(_ListRequest, frozen=True):
    """List the tasks of the caller."""


class CancelTask(Value, frozen=True):
    """Cancel a task."""

    task_id: str


class AnswerTask(Value, frozen=True):
    """Answer questions of a task, by key."""

    task_id: str
    input_responses: dict[str, Any]


class AnswerQuestion(Value, frozen=True):
    """Answer an open question of a task: the one of the key, or the only one."""

    task_id: str
    response: dict[str, Any]
    key: str | None = None
    in_order: bool = False
    """Whether a response without a key answers the first of several open questions that it fits."""


class Listen(Value, frozen=True):
    """Send changes as they happen, until the caller disconnects."""

    notifications: SubscriptionFilter


class ListInbox(_ListRequest, frozen=True):
    """List the questions of other people's tasks that the caller can answer."""


class AnswerInbox(Value, frozen=True):
    """Answer a question of somebody else's task."""

    task_id: str
    key: str
    response: dict[str, Any]


class ListenInbox(Value, frozen=True):
    """Send the questions that the caller can answer as they are asked, until the caller disconnects."""


LISTENING_REQUESTS: frozenset[type[Any]] = frozenset((Listen, ListenInbox))
"""The requests whose streams have no end of their own."""


class Cancel(Value, frozen=True):
    """Cancel a running request."""

    request_id: RequestId
    reason: str | None = None


Request: TypeAlias = (
    CallTool
    | GetPrompt
    | ReadResource
    | ListTools
    | ListResources
    | ListTemplates
    | ListPrompts
    | Complete
    | Initialize
    | Discover
    | Ping
    | SetLogLevel
    | Subscribe
    | Unsubscribe
    | Listen
    | GetTask
    | RedeemTask
    | StreamTask
    | ListTasks
    | CancelTask
    | AnswerTask
    | AnswerQuestion
    | ListInbox
    | AnswerInbox
    | ListenInbox
)


class RequestMeta(msgspec.Struct, frozen=True):
    """The metadata of a request: the client, its capabilities, and the kinds of response it accepts."""

    client: Implementation | None = None
    capabilities: Mapping[str, Any] = {}
    log_level: LogLevel | None = None
    progress_token: RequestId | None = None
    accepts_tasks: bool = False
    """Whether the caller accepts a task in place of a result."""
    response_modes: tuple[str, ...] | None = None
    """The response modes that the caller accepts, or `None` if it does not say; see `MODES`."""
    wants_answer: bool = False
    """Whether a client that accepts tasks wants the result of this request itself, and no task."""
    wants_stream: bool = False
    """Whether the caller wants the tool's output while the tool runs."""
    inlines_results: bool = False
    """Whether the status of a task carries the result of the task."""
    answers: tuple[dict[str, Any] | None, ...] | None = None
    """Answers without keys, see `place_answers`; `None` if answers have keys."""
    returns_state: bool = True
    """Whether the caller sends a request state back with its answers."""
    keys_are_unique: bool = False
    """Whether the key of a task's question names that one alone, also if it is asked again."""
    raw: Mapping[str, Any] = {}
    """The `_meta` object, as it was sent."""

    @property
    def trace_context(self) -> dict[str, str]:
        """The W3C trace context of the request, without values that do not have W3C's form."""
        return {} if TRACE_KEYS.isdisjoint(self.raw) else valid_trace_context(self.raw)
