"""What all server dialects share: reading requests, and writing responses.

A dialect speaks one protocol version. It reads requests, and writes outcomes, notifications, questions and
errors. A method that is not in its `methods` table does not exist in the version. It knows no transport.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET

from antiphon.errors import (
    Busy,
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    ParseError,
    RequestError,
    UnsupportedVersion,
)
from antiphon.model.capabilities import PROTECTED, ServerCapabilities
from antiphon.model.identity import Implementation
from antiphon.model.inbox import InboxNews, InboxPage
from antiphon.model.notification import (
    Acknowledged,
    ListChanged,
    Log,
    Progress,
    ResourceUpdated,
)
from antiphon.model.outcome import (
    Completion,
    Discovery,
    Done,
    InputRequired,
    Outcome,
    Page,
    PromptResult,
    ReadResult,
    Result,
)
from antiphon.model.question import Question
from antiphon.model.request import (
    CallTool,
    Cancel,
    Complete,
    GetPrompt,
    GetTask,
    ListPrompts,
    ListResources,
    ListTemplates,
    ListTools,
    ReadResource,
    Request,
    RequestId,
    RequestMeta,
)
from antiphon.model.segment import CallerMessage, SegmentPage, StreamEnd
from antiphon.model.task import Promise, TaskChanged, TaskPage, TaskResult, TaskView
from antiphon.model.ui import UI_EXTENSION, UI_QUESTIONS
from antiphon.wire import jsonrpc, mirrored_headers
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import NAMED, Mirrored
from antiphon.wire.questions import write_question
from antiphon.wire.server.inbox import INBOX_NEWS, inbox_page, news_params
from antiphon.wire.server.tasks import RELATED, core_task

__all__ = ["COMMON_METHODS", "Dialect", "Negotiated", "PlainCall", "TaskOutcome", "read_cancellation"]

COMMON_METHODS: Mapping[str, type[Any]] = {
    "tools/call": CallTool,
    "tools/list": ListTools,
    "resources/list": ListResources,
    "resources/templates/list": ListTemplates,
    "resources/read": ReadResource,
    "prompts/list": ListPrompts,
    "prompts/get": GetPrompt,
    "completion/complete": Complete,
}

TaskOutcome: TypeAlias = Promise | TaskView | TaskPage | TaskResult | SegmentPage | StreamEnd | InboxPage

_LISTS = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}


_ENVELOPE_ERRORS = (ParseError, InvalidRequest, Busy, UnsupportedVersion, HeaderMismatch)


class Negotiated(msgspec.Struct, frozen=True):
    """What a client and a server agreed on when they opened a session."""

    version: str
    capabilities: Mapping[str, Any] = {}
    client: Implementation | None = None


PlainCall: TypeAlias = tuple["Dialect", RequestId, CallTool | GetTask, RequestMeta]
"""A usual request, about a tool or a task: its dialect, its id, the request and the metadata."""


def read_cancellation(frame: Frame) -> Cancel | None:
    """Return the cancellation in a notification; `None` for every other notification."""
    if frame.method != "notifications/cancelled":
        return None
    try:
        return msgspec.convert(frame.params, Cancel)
    except msgspec.ValidationError:
        return None


def _decoders(methods: Mapping[str, type[Any]]) -> Mapping[Any, msgspec.json.Decoder[Any]]:
    """Return a decoder for the parameters of each method. Dialects share the decoder of a request type."""
    for kind in methods.values():
        if kind not in _DECODERS:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
    return {method: _DECODERS[kind] for method, kind in methods.items()}


_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}


class Dialect:
    """One protocol version, as one server speaks it."""

    methods: ClassVar[Mapping[str, type[Any]]] = COMMON_METHODS
    has_fast_path: ClassVar[bool] = False
    """Whether `read_plain_call` understands the usual call of a tool in one step."""
    closing_cancels: ClassVar[bool] = True
    """Whether a caller cancels its call by closing the connection."""
    rounds: ClassVar[bool] = False
    """Whether a call can end with questions; the caller then repeats the call with the answers."""
    resumable: ClassVar[bool] = False
    """Whether a caller can resume a broken stream after its last event id."""
    numbers_events: ClassVar[bool] = False
    """Whether the events of a stream have ids although the stream cannot be resumed."""
    _ending: bytes | None = None
    """How the frame of a result with nothing but content ends; `None` if such frames have no fixed shape."""

    def __init__(self, version: str, server: Implementation, supported: Sequence[str]) -> None:
        self.version = version
        self.server = server
        self.supported = supported
        """The names of the versions that the server advertises, newest first."""
        self._decoders: Mapping[Any, msgspec.json.Decoder[Any]] = _decoders(self.methods)

    def method_of(self, request: Request) -> str | None:
        """Return the method of a request, or `None` if it came in another way, such as in a response."""
        kind = type(request)
        return next((method for method, found in self.methods.items() if found is kind), None)

    # Reading

    def parse(self, frame: Frame) -> Any:
        """Return the request in a frame; raises `MethodNotFound` or `InvalidParams`."""
        decoder = self._decoders.get(frame.method)
        if decoder is None:
            raise MethodNotFound(f"Protocol version {self.version} has no method {frame.method!r}.")
        try:
            return decoder.decode(b"{}" if frame.raw is UNSET else frame.raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidParams(f"Invalid params for {frame.method}: {error}.") from None

    def read_plain_call(self, body: bytes | bytearray, headers: Mapping[bytes, bytes]) -> PlainCall | None:
        """Read the usual call of a tool in one step; `None` for a request that has to be read in full.

        Only for dialects with `has_fast_path`. The caller has compared the version in the headers.
        """
        raise NotImplementedError

    def read_session_call(self, body: bytes | bytearray) -> tuple[RequestId, CallTool] | None:
        """Read the usual call of a tool in a session; `None` for a request that has to be read in full."""
        return None

    def session_meta(self, negotiated: Negotiated) -> RequestMeta:
        """Return the metadata of the usual calls in a session, which is the same for all."""
        raise NotImplementedError

    def understand(
        self, frame: Frame, negotiated: Negotiated | None, headers: Mapping[bytes, bytes]
    ) -> tuple[Any, RequestMeta]:
        """Return the request in a frame that came over HTTP, and its metadata; raises `RequestError`."""
        request_meta = self.request_meta(frame, negotiated)
        self.check_headers(frame, request_meta, headers)
        request = self.parse(frame)
        self.check_name(frame, request, headers)
        return request, request_meta

    def answered(self, frame: Frame) -> Any:
        """Return the request that a response stands for; `None` if the version has no such responses."""
        return None

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request; raises `RequestError`."""
        raise NotImplementedError

    def check_headers(self, frame: Frame, request_meta: RequestMeta, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HeaderMismatch` if headers that mirror the body differ, or if the version requires them."""
        mirrored_headers.check_method(str(frame.method), headers)

    def check_name(self, frame: Frame, request: Any, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HeaderMismatch` if the header that names the tool, prompt, resource or task differs."""
        if b"mcp-name" in headers:
            key = NAMED.get(frame.method)
            mirrored_headers.check_name(None if key is None else getattr(request, key), headers)

    def check_mirrored(self, mirrored: Mirrored, request: CallTool, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HeaderMismatch` if headers that mirror arguments differ, or if the version requires them."""
        mirrored_headers.check(mirrored, request.arguments, headers, required=False)

    def check_message(self, frame: Frame, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HeaderMismatch` if headers contradict a notification or a response, which names nothing."""
        mirrored_headers.check_method(None if frame.method is UNSET else frame.method, headers)
        mirrored_headers.check_name(None, headers)

    # Writing

    def response(self, request: Request, request_id: RequestId, outcome: Outcome | TaskOutcome) -> bytes:
        """Return the frame of the response to a request."""
        if type(outcome) is Result and not (outcome.structured or outcome.meta) and self._ending is not None:
            # Most calls end with content alone. The rest of their frames is always the same.
            return b'{"jsonrpc":"2.0","id":%b,"result":{"content":%b,"isError":%b%b' % (
                jsonrpc.encode(request_id),
                jsonrpc.encode(outcome.content),
                b"true" if outcome.is_error else b"false",
                self._ending,
            )
        return jsonrpc.response(request_id, self.result(request, outcome))

    def result(self, request: Request, outcome: Outcome | TaskOutcome) -> dict[str, Any]:
        """Return the result object of an outcome."""
        if type(outcome) is Result:
            return self.tool_result(outcome)
        value: dict[str, Any] = _RESULTS[type(outcome)](self, outcome)
        return value

    def refusal(self, request: Request, request_id: RequestId, error: RequestError) -> bytes:
        """Return the frame of an error that occurred after the request was read."""
        return self.error(request_id, error)

    def ask(
        self, question: Question, task_id: str | None = None, *, question_id: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Return the method and the parameters of a question.

        `task_id` names the task that asks. `question_id` is an id that no other question of the server has,
        for versions that send one.
        """
        method, params = write_question(question)
        if task_id is not None:
            params["_meta"] = {RELATED: {"taskId": task_id}}
        return method, params

    def add_meta(self, params: dict[str, Any], meta: Mapping[str, str]) -> None:
        """Add metadata to the parameters of a question."""
        params["_meta"] = {**params.get("_meta", {}), **meta}

    def open_questions(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return the fields with which a result, or a task, carries questions by key."""
        requests: dict[str, Any] = {}
        for key, question in questions.items():
            method, params = self.ask(question)
            requests[key] = {"method": method, "params": params}
        return {"inputRequests": requests}

    def error(self, request_id: RequestId | None, error: RequestError) -> bytes:
        """Return the frame of an error; `request_id` is `None` if it could not be read."""
        data = error.data
        if isinstance(error, MissingCapability) and error.needs is not None:
            data = self.missing_capabilities(error.needs)
        return jsonrpc.failure(request_id, self.code(error), error.message, data)

    def missing_capabilities(self, needs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of an error for missing client capabilities."""
        return {"requiredCapabilities": needs}

    def code(self, error: RequestError) -> int:
        """Return the code of an error in this version."""
        return error.code

    def status(self, error: RequestError, *, understood: bool) -> int:
        """Return the HTTP status of an error; `understood` says whether the request was read before it.

        Clients read the code in the body. A status other than 200 is for errors of the HTTP request.
        """
        if understood and type(error) is InvalidRequest:  # a tool raised it
            return 200
        return error.status if isinstance(error, _ENVELOPE_ERRORS) else 200

    def notification(self, notification: CallerMessage, request_id: RequestId | None) -> bytes:
        """Return the frame of a notification for a request or a session."""
        if isinstance(notification, InboxNews):
            return jsonrpc.notification(INBOX_NEWS, news_params(self, notification, request_id))
        method, params = _NOTIFICATIONS[type(notification)](notification)
        return jsonrpc.notification(method, params)

    # The points where versions differ

    def tool_result(self, result: Result) -> dict[str, Any]:
        """Return the result object of a tool's result."""
        value: dict[str, Any] = {"content": result.content}
        if result.structured:
            value["structuredContent"] = self._structured(result)
        value["isError"] = result.is_error
        if result.meta:
            value["_meta"] = result.meta
        return value

    def _structured(self, result: Result) -> Any:
        return result.data

    def _input_required(self, stopped: InputRequired) -> dict[str, Any]:
        value = self.open_questions(stopped.questions) if stopped.questions else {}
        if stopped.sealed is not None:
            value["requestState"] = stopped.sealed
        return value

    def _page(self, page: Page) -> dict[str, Any]:
        value: dict[str, Any] = {_LISTS[page.kind]: page.items}
        if page.next_cursor is not None:
            value["nextCursor"] = page.next_cursor
        return value

    def _resource(self, read: ReadResult) -> dict[str, Any]:
        return {"contents": read.contents}

    def _prompt(self, prompt: PromptResult) -> dict[str, Any]:
        if prompt.description is None:
            return {"messages": prompt.messages}
        return {"description": prompt.description, "messages": prompt.messages}

    def _completion(self, completion: Completion) -> dict[str, Any]:
        value: dict[str, Any] = {"values": completion.values}
        if completion.total is not None:
            value["total"] = completion.total
        if completion.has_more is not None:
            value["hasMore"] = completion.has_more
        return {"completion": value}

    def _discovery(self, discovery: Discovery) -> dict[str, Any]:
        raise NotImplementedError

    def _capabilities(self, offered: ServerCapabilities) -> dict[str, Any]:
        value: dict[str, Any] = {"logging": {}} if offered.logging else {}
        for kind in ("tools", "resources", "prompts"):
            if getattr(offered, kind):
                value[kind] = {"listChanged": True} if kind in offered.list_changes else {}
        if offered.resources and offered.resource_subscriptions:
            value["resources"]["subscribe"] = True
        if offered.completions and "completion/complete" in self.methods:
            value["completions"] = {}
        if offered.protected:
            value["experimental"] = {PROTECTED: {}}
        if offered.apps:
            value["extensions"] = {UI_EXTENSION: UI_QUESTIONS}
        return value

    def _promise(self, promise: Promise) -> dict[str, Any]:
        return {"task": core_task(promise.task)}

    def _task(self, shown: TaskView) -> dict[str, Any]:
        return core_task(shown.task)

    def _task_page(self, page: TaskPage) -> dict[str, Any]:
        value: dict[str, Any] = {"tasks": [core_task(task) for task in page.tasks]}
        if page.next_cursor is not None:
            value["nextCursor"] = page.next_cursor
        return value

    def _task_result(self, task_result: TaskResult) -> dict[str, Any]:
        inner = task_result.outcome
        value = self._input_required(inner) if isinstance(inner, InputRequired) else self.tool_result(inner)
        value["_meta"] = {**value.get("_meta", {}), RELATED: {"taskId": task_result.task_id}}
        return value

    def _stream_end(self, end: StreamEnd) -> dict[str, Any]:
        return self.tool_result(end.result)

    def _segment_page(self, page: SegmentPage) -> dict[str, Any]:
        raise NotImplementedError

    def _done(self, done: Done) -> dict[str, Any]:
        return {}


_RESULTS: Mapping[type[Any], Any] = {
    Result: lambda dialect, outcome: dialect.tool_result(outcome),
    InputRequired: lambda dialect, outcome: dialect._input_required(outcome),
    Page: lambda dialect, outcome: dialect._page(outcome),
    ReadResult: lambda dialect, outcome: dialect._resource(outcome),
    PromptResult: lambda dialect, outcome: dialect._prompt(outcome),
    Completion: lambda dialect, outcome: dialect._completion(outcome),
    Discovery: lambda dialect, outcome: dialect._discovery(outcome),
    Done: lambda dialect, outcome: dialect._done(outcome),
    Promise: lambda dialect, outcome: dialect._promise(outcome),
    TaskView: lambda dialect, outcome: dialect._task(outcome),
    TaskPage: lambda dialect, outcome: dialect._task_page(outcome),
    TaskResult: lambda dialect, outcome: dialect._task_result(outcome),
    StreamEnd: lambda dialect, outcome: dialect._stream_end(outcome),
    SegmentPage: lambda dialect, outcome: dialect._segment_page(outcome),
    InboxPage: inbox_page,
}


def _progress(progress: Progress) -> tuple[str, dict[str, Any]]:
    params: dict[str, Any] = {"progressToken": progress.token, "progress": progress.progress}
    if progress.total is not None:
        params["total"] = progress.total
    if progress.message is not None:
        params["message"] = progress.message
    return "notifications/progress", params


def _log(log: Log) -> tuple[str, dict[str, Any]]:
    params: dict[str, Any] = {"level": log.level, "data": log.data}
    if log.logger is not None:
        params["logger"] = log.logger
    return "notifications/message", params


_NOTIFICATIONS: Mapping[type[Any], Any] = {
    Progress: _progress,
    Log: _log,
    TaskChanged: lambda change: ("notifications/tasks/status", core_task(change.task)),
    ListChanged: lambda change: (f"notifications/{change.kind}/list_changed", {}),
    ResourceUpdated: lambda change: ("notifications/resources/updated", {"uri": change.uri}),
    Acknowledged: lambda ack: (
        "notifications/subscriptions/acknowledged",
        {"notifications": ack.interests},
    ),
}
