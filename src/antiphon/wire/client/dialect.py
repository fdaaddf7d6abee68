"""What all client dialects share: writing requests, and reading their results.

A client dialect speaks one protocol version. It turns a request into a `Message` that a channel sends as it
is, and turns the response into a value. It knows no channel, and never waits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from antiphon.errors import BadAnswer, HeaderMismatch, MethodNotFound, MissingCapability, UnsupportedVersion
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import Implementation
from antiphon.model.inbox import InboxNews
from antiphon.model.notification import Notification
from antiphon.model.outcome import Result
from antiphon.model.question import Question
from antiphon.model.request import (
    AnswerInbox,
    AnswerTask,
    CallTool,
    Cancel,
    CancelTask,
    Complete,
    Discover,
    GetPrompt,
    GetTask,
    Initialize,
    Listen,
    ListenInbox,
    ListInbox,
    ListPrompts,
    ListResources,
    ListTasks,
    ListTemplates,
    ListTools,
    Ping,
    ReadResource,
    RedeemTask,
    Request,
    RequestId,
    RequestMeta,
    SetLogLevel,
    StreamTask,
    Subscribe,
    Unsubscribe,
)
from antiphon.model.segment import StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.wire import jsonrpc
from antiphon.wire.client import inbox, results, segments, tasks
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored
from antiphon.wire.questions import read_questions
from antiphon.wire.server.inbox import INBOX_NEWS
from antiphon.wire.server.tasks import RELATED

__all__ = ["ClientDialect", "Message", "comes_from_stateless_server", "forwarded"]

Fields: TypeAlias = Mapping[str, Any]
Reader: TypeAlias = Callable[["ClientDialect", Fields], Any]


_OF_CONNECTION = ("io.modelcontextprotocol/", "antiphon/", "progressToken")
"""The beginnings of the keys in `_meta` that concern one connection."""


def _plain(reader: Callable[[Fields], Any]) -> Reader:
    """Return a reader for results that are the same in every version."""
    return lambda dialect, fields: reader(fields)


_READERS: Mapping[type[Any], Reader] = {
    CallTool: segments.call_outcome,
    GetTask: tasks.status,
    StreamTask: tasks.status,
    ListTasks: tasks.page,
    RedeemTask: segments.task_result,
    CancelTask: tasks.acknowledgement,
    AnswerTask: _plain(results.done),
    GetPrompt: _plain(results.prompt),
    ReadResource: _plain(results.resource),
    ListTools: _plain(results.listing("tools")),
    ListResources: _plain(results.listing("resources")),
    ListTemplates: _plain(results.listing("templates")),
    ListPrompts: _plain(results.listing("prompts")),
    Complete: _plain(results.completion),
    Initialize: _plain(results.initialization),
    Discover: _plain(results.discovery),
    Ping: _plain(results.done),
    SetLogLevel: _plain(results.done),
    Subscribe: _plain(results.done),
    Unsubscribe: _plain(results.done),
    Listen: _plain(results.done),
    ListInbox: _plain(inbox.page),
    AnswerInbox: _plain(results.done),
    ListenInbox: _plain(results.done),
}


class Message(msgspec.Struct, frozen=True):
    """One message to a server, ready to send; `headers` are for channels that have them."""

    body: bytes
    method: str
    id: RequestId | None = None
    headers: Mapping[str, str] = {}
    opens_session: bool = False
    """Whether the response may name a session, to which all later messages belong."""
    resumable: bool = False
    """Whether a broken stream of responses can be resumed after its last event id."""
    streams: bool = False
    """Whether several responses may come, of which all but the last are marked as partial."""
    listens: bool = False
    """Whether the stream of the response has no end of its own: only keep-alives show that it is alive."""
    answered_by: frozenset[str] = frozenset()
    """The methods of messages that take the place of the response, if they have the id of the request."""


class ClientDialect:
    """One protocol version, as one client speaks it."""

    methods: ClassVar[Mapping[type[Any], str]]
    """The method of each request that the version has."""
    has_sessions: ClassVar[bool]
    """Whether the server may send notifications outside of requests, and requests of its own."""
    closing_cancels: ClassVar[bool]
    """Whether closing the stream of a request cancels the request, on channels with such streams."""
    mirrors_arguments: ClassVar[bool]
    """Whether arguments are repeated in headers, for tools that declare it."""
    takes_task_params: ClassVar[bool] = False
    """Whether a caller says with the call that it wants a task."""
    status_has_details: ClassVar[bool] = False
    """Whether the status of a task carries its questions and its result."""
    answers_one_by_one: ClassVar[bool] = False
    """Whether the answers to a task go out as responses, one for each question, which nothing answers."""
    asks_in_task_result: ClassVar[bool] = False
    """Whether the request for a task's result always returns the questions that the task waits for."""
    task_notification: ClassVar[str]
    """The method of the notification that reports the status of a task."""

    def __init__(self, version: str, client: Implementation, capabilities: Mapping[str, Any]) -> None:
        self.version = version
        self.client = client
        self.capabilities = capabilities
        self.headers: Mapping[str, str] = {"mcp-protocol-version": version}
        self.is_bare = False
        """Whether each request is on its own, although the version has sessions: the server opens none."""

    def bare(self) -> Self:
        """Return the dialect for a server that opens no session, and so never says what it can do."""
        dialect = copy.copy(self)
        dialect.is_bare = True
        return dialect

    # Capabilities

    @property
    def sets_log_level(self) -> bool:
        """Whether the log level is set once for the session; if not, each request names it."""
        return SetLogLevel in self.methods

    @property
    def listens_with_filter(self) -> bool:
        """Whether one request subscribes to lists, resources and tasks."""
        return Listen in self.methods

    @property
    def answers_tasks_by_key(self) -> bool:
        """Whether a client answers the questions of a task by key, in a request of its own."""
        return self.status_has_details or self.asks_in_task_result

    def names_question(self, key: str) -> bool:
        """Return whether the key of a task's question is the server's, so that an answer may be repeated."""
        return True

    def in_order(self, responses: Mapping[str, Any]) -> list[str]:
        """Return the keys of responses in the order to send them; raises `ClientError` for a gap."""
        return list(responses)

    def ping(self) -> Request:
        """Return the request that shows whether the server responds."""
        return Ping() if Ping in self.methods else Discover()

    def greeting(self) -> Request:
        """Return the request with which a client introduces itself."""
        raise NotImplementedError

    def ready(self) -> Message | None:
        """Return the notification that follows the response to the greeting, if the version has one."""
        return None

    def stream_call(self, request: CallTool, request_meta: RequestMeta) -> tuple[CallTool, RequestMeta]:
        """Return the call and its metadata, so that the server sends segments while the tool runs."""
        raise NotImplementedError

    def stream_task(self, task_id: str, after: int) -> Request:
        """Return the request for a task's segments above the number `after`."""
        raise NotImplementedError

    def says_task_required(self, refusal: Exception | Result) -> bool:
        """Return whether an error, or a failed result, may mean that the tool has to be called as a task."""
        return False

    # Writing

    def request(
        self,
        request_id: RequestId,
        request: Request,
        request_meta: RequestMeta,
        mirrored: Mirrored | None = None,
    ) -> Message:
        """Write a request; raises `MethodNotFound` if the version has no such request."""
        method = self.methods.get(type(request))
        if method is None:
            raise MethodNotFound(f"Protocol version {self.version} has no {type(request).__name__} request.")
        params = _params(request)
        meta = self._meta(request_meta)
        if meta:
            params["_meta"] = meta
        return self._message(request_id, method, params, request, mirrored)

    def cancel(self, message: Message, reason: str) -> Message | None:
        """Return the notification that cancels a request; `None` if the request cannot be cancelled."""
        if message.id is None or message.opens_session:
            return None
        return self._notification("notifications/cancelled", _params(Cancel(message.id, reason)))

    def reply(self, asked: Frame, result: Mapping[str, Any]) -> Message:
        """Write the result of a request that the server made; it names the task that the request names.

        https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks#associating-task-related-messages
        """
        assert asked.request_id is not None
        beside = {}
        task_id = tasks.related(asked.meta) or tasks.related(asked.beside)
        if task_id is not None:
            related = {RELATED: {"taskId": task_id}}
            result = {**result, "_meta": {**(result.get("_meta") or {}), **related}}
            if tasks.related(asked.beside) is not None:  # such a server may look for it there
                beside = {"_meta": related}
        return Message(jsonrpc.response(asked.request_id, result, **beside), "", headers=self.headers)

    def refuse(self, request_id: RequestId, code: int, message: str) -> Message:
        """Write the error for a request that the server made."""
        return Message(jsonrpc.failure(request_id, code, message), "", headers=self.headers)

    # Reading

    def read(self, request: Request, frame: Frame) -> Any:
        """Return the value in a response; raises the error in it, or `BadAnswer`."""
        if frame.error is not msgspec.UNSET:
            raise results.error(frame.error)
        if not isinstance(frame.result, dict):
            raise BadAnswer(
                f"The server answered {self.methods[type(request)]} with a result that is not an object."
            )
        return self._read(request, frame.result)

    def read_capabilities(self, fields: Mapping[str, Any]) -> ServerCapabilities:
        """Return the capabilities of the server, from those that it declared."""
        return results.server_capabilities(fields)

    def read_questions(self, fields: Mapping[str, Any]) -> Mapping[str, Question]:
        """Return the questions by key that a result or a task carries; raises `BadAnswer`."""
        requests = fields.get("inputRequests")
        return read_questions({} if requests is None else requests)

    def notification(self, frame: Frame) -> Notification | Cancel | TaskStatus | None:
        """Return the notification in a frame; `None` if this client does not know it or cannot read it."""
        if frame.method != self.task_notification:
            return results.notification(frame)
        try:
            return tasks.status(self, results.params_of(frame))
        except BadAnswer:  # a caller that waits for the task polls it
            return None

    def subscription(self, frame: Frame) -> RequestId | None:
        """Return the id of the request that subscribed to a change, if the version sends it."""
        return None

    def part(self, frame: Frame) -> tuple[RequestId | None, StreamPart | InboxNews] | None:
        """Return the segments or the news of an inbox in a frame, and their request; `None` without.

        Raises `BadAnswer`.
        """
        return inbox.news(results.params_of(frame)) if frame.method == INBOX_NEWS else None

    def part_request_id(self, frame: Frame) -> RequestId | None:
        """Return the id of the request that an unreadable part belongs to, if the frame says it."""
        return frame.request_id

    # The points where versions differ

    def _read(self, request: Request, fields: Mapping[str, Any]) -> Any:
        # Servers of 2026-07-28 name the type of each result. One of an older session may do so too.
        kind = fields.get("resultType", "complete")
        if kind == "input_required" and self._can_answer(request):
            return segments.questions(self, fields)
        if kind != "complete" and not (kind == "task" and isinstance(request, CallTool)):
            raise BadAnswer(
                f"The server answered {self.methods[type(request)]} with a result of type {kind!r}, which "
                f"this client cannot take in protocol version {self.version}."
            )
        return _READERS[type(request)](self, fields)

    def _can_answer(self, request: Request) -> bool:
        """Return whether the client can answer questions that come as the result of a request."""
        return isinstance(request, CallTool | GetPrompt | ReadResource) or (
            AnswerTask in self.methods and isinstance(request, RedeemTask)
        )

    def _meta(self, request_meta: RequestMeta) -> dict[str, Any] | msgspec.Raw:
        """Return the `_meta` of a request, empty without any."""
        return self._own_meta(request_meta)

    def _own_meta(self, request_meta: RequestMeta) -> dict[str, Any]:
        """Return the metadata that one request has and others have not."""
        meta = dict(request_meta.raw)
        if request_meta.progress_token is not None:
            meta["progressToken"] = request_meta.progress_token
        return meta

    def _message(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any],
        request: Request,
        mirrored: Mirrored | None,
    ) -> Message:
        raise NotImplementedError

    def _notification(self, method: str, params: dict[str, Any]) -> Message:
        return Message(jsonrpc.notification(method, params), method, headers=self.headers)


def comes_from_stateless_server(error: Exception) -> bool:
    """Return whether only a server of a stateless version, 2026-07-28 or later, answers with this error.

    https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions
    """
    return isinstance(error, HeaderMismatch | MissingCapability | UnsupportedVersion)


def forwarded(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_meta` of a request for another server, without what concerns the caller's connection."""
    return {name: value for name, value in meta.items() if not name.startswith(_OF_CONNECTION)}


def _params(request: Any) -> dict[str, Any]:
    """Return the parameters by their names on the wire, without empty ones."""
    params = {}
    kind: Any = type(request)
    for name, wire in _names(kind):
        value = getattr(request, name)
        if value is not None and value != _EMPTY.get(wire):
            params[wire] = value
    return params


@cache
def _names(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """Return the names of a request's fields, each with its name on the wire."""
    return tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


_EMPTY: Mapping[str, Any] = {
    "context": Complete.__struct_defaults__[-1],
    "inputResponses": {},
    "lastSeqNr": 0,
}
