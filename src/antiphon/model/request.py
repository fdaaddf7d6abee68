"""What a caller can ask of a server, and what every request says besides its parameters.

The field names are those of the wire, which all protocol versions share; which version has which
method is the dialects' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from antiphon.model.base import Value
from antiphon.model.identity import Implementation, LogLevel

__all__ = [
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
    "ListPrompts",
    "ListResources",
    "ListTasks",
    "ListTemplates",
    "ListTools",
    "Listen",
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


class _Asking(Value, frozen=True, kw_only=True):
    """A request that may take several rounds: what the caller brings along from the round before."""

    input_responses: dict[str, dict[str, Any]] = {}
    request_state: str | None = None


class TaskParams(Value, frozen=True):
    """What a caller that wants a promise says about the task behind it."""

    ttl: int | None = None
    response_modes: tuple[str, ...] | None = None
    """The ways in which it takes the answer; see `MODES`."""


class CallTool(_Asking, frozen=True):
    """Run a tool."""

    name: str
    arguments: dict[str, Any] = {}
    task: TaskParams | None = None
    stream: dict[str, Any] | None = None
    """Given, even if empty: send what the tool emits as it comes."""


class GetPrompt(_Asking, frozen=True):
    """Fill in a prompt."""

    name: str
    arguments: dict[str, str] = {}


class ReadResource(_Asking, frozen=True):
    """Read a resource."""

    uri: str


class _Listing(Value, frozen=True):
    cursor: str | None = None


class ListTools(_Listing, frozen=True):
    """One page of the tools."""


class ListResources(_Listing, frozen=True):
    """One page of the resources."""


class ListTemplates(_Listing, frozen=True):
    """One page of the resource templates."""


class ListPrompts(_Listing, frozen=True):
    """One page of the prompts."""


class PromptReference(msgspec.Struct, frozen=True, tag_field="type", tag="ref/prompt"):
    """The prompt whose argument is being completed."""

    name: str


class ResourceReference(msgspec.Struct, frozen=True, tag_field="type", tag="ref/resource"):
    """The resource template whose variable is being completed."""

    uri: str


class CompletionArgument(Value, frozen=True):
    """What has been typed so far, and where."""

    name: str
    value: str


class CompletionContext(Value, frozen=True):
    """What has been filled in already."""

    arguments: dict[str, str] = {}


class Complete(Value, frozen=True):
    """Suggest values for an argument."""

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext = CompletionContext()


class Initialize(Value, frozen=True):
    """Open a session."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class Discover(Value, frozen=True):
    """Ask what the server is and can do."""


class Ping(Value, frozen=True):
    """Ask whether the server is there."""


class SetLogLevel(Value, frozen=True):
    """From now on, send log messages of this level and above."""

    level: LogLevel


class Subscribe(Value, frozen=True):
    """Tell this session when a resource changes."""

    uri: str


class Unsubscribe(Value, frozen=True):
    """Stop telling this session when a resource changes."""

    uri: str


class SubscriptionFilter(Value, frozen=True):
    """Which changes a listener wants to hear of."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


class GetTask(Value, frozen=True):
    """See how a task stands."""

    task_id: str


class RedeemTask(Value, frozen=True):
    """Get what a task gives, and wait for it if need be."""

    task_id: str
    last_seq_nr: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Given: only the segments after this number."""
    stream: dict[str, Any] | None = None
    """Given, even if empty: the segments as they come."""


class StreamTask(Value, frozen=True):
    """Get the segments of a task after a number, then each as it comes, and in the end the task."""

    task_id: str
    after: Annotated[int, msgspec.Meta(ge=0)] = 0


class ListTasks(_Listing, frozen=True):
    """One page of the caller's tasks."""


class CancelTask(Value, frozen=True):
    """Stop a task."""

    task_id: str


class AnswerTask(Value, frozen=True):
    """Answer questions that a task asks."""

    task_id: str
    input_responses: dict[str, dict[str, Any]]


class AnswerQuestion(Value, frozen=True):
    """Answer the one question that a task asks, without naming it."""

    task_id: str
    response: dict[str, Any]


class Listen(Value, frozen=True):
    """Send changes as they happen, until the caller goes away."""

    notifications: SubscriptionFilter


class Cancel(Value, frozen=True):
    """Stop working on an earlier request."""

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
)


class RequestMeta(msgspec.Struct, frozen=True):
    """What a request says besides its parameters: whose client it is, and what that can take."""

    client: Implementation | None = None
    capabilities: Mapping[str, Any] = {}
    log_level: LogLevel | None = None
    progress_token: RequestId | None = None
    accepts_tasks: bool = False
    """Whether the caller takes a promise in place of an answer."""
    response_modes: tuple[str, ...] | None = None
    """The ways in which the caller takes the answer of a task, where it says so; see `MODES`."""
    wants_stream: bool = False
    """Whether the caller wants what the tool emits as it comes."""
    raw: Mapping[str, Any] = {}
    """The `_meta` object itself."""

    @property
    def trace_context(self) -> dict[str, str]:
        """The W3C trace context that the caller sent along; empty without one."""
        return {key: self.raw[key] for key in _TRACE_KEYS if isinstance(self.raw.get(key), str)}


_TRACE_KEYS = ("traceparent", "tracestate", "baggage")
