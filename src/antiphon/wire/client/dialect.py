"""The client's half of the dialects: how it writes requests, and how it reads their results.

A speaker speaks one protocol version. It turns a request into a `Message` that a channel can send as it
is, and the result that comes back into a value; which version has which method is in its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from antiphon.errors import BadAnswer, HeaderMismatch, MethodNotFound, MissingCapability, UnsupportedVersion
from antiphon.model.identity import Implementation
from antiphon.model.notification import Notification
from antiphon.model.request import (
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
from antiphon.model.segment import MODES, StreamPart
from antiphon.model.task_status import TaskStatus
from antiphon.wire import jsonrpc
from antiphon.wire.client import results as answers
from antiphon.wire.client import segments as parts
from antiphon.wire.client import tasks as statuses
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored, encode_value, mirror
from antiphon.wire.server.segments import PARTIAL_RESULT, STREAMING
from antiphon.wire.server.tasks import EXTENSION
from antiphon.wire.server.v2025_11_25 import LEGACY_VERSIONS, V2025, Before2025
from antiphon.wire.server.v2026_07_28 import (
    CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    MODERN_VERSION,
    PROTOCOL_VERSION,
    SUBSCRIPTION_ID,
    V2026,
)

__all__ = ["KNOWN_VERSIONS", "ClientDialect", "Legacy", "Message", "Modern", "is_modern", "newest"]

KNOWN_VERSIONS = (MODERN_VERSION, *LEGACY_VERSIONS)
"""What a client can speak, newest first."""

_READERS: Mapping[type[Any], Callable[[Mapping[str, Any]], Any]] = {
    CallTool: parts.called,
    GetTask: statuses.status,
    StreamTask: statuses.status,
    ListTasks: statuses.page,
    RedeemTask: parts.redeemed,
    CancelTask: statuses.acknowledged,
    AnswerTask: answers.done,
    GetPrompt: answers.prompted,
    ReadResource: answers.read,
    ListTools: answers.listing("tools"),
    ListResources: answers.listing("resources"),
    ListTemplates: answers.listing("templates"),
    ListPrompts: answers.listing("prompts"),
    Complete: answers.completion,
    Initialize: answers.initialized,
    Discover: answers.discovered,
    Ping: answers.done,
    SetLogLevel: answers.done,
    Subscribe: answers.done,
    Unsubscribe: answers.done,
    Listen: answers.done,
}


_BEFORE_2025 = {kind: method for method, kind in Before2025.methods.items()}


class Message(msgspec.Struct, frozen=True):
    """One message to a server, ready to send; `headers` are for channels that have them."""

    body: bytes
    method: str
    id: RequestId | None = None
    headers: Mapping[str, str] = {}
    opens_session: bool = False
    """Whether the answer may name a session, which everything after it belongs to."""
    resumable: bool = False
    """Whether the stream of answers can be taken up again after its last event id."""
    streams: bool = False
    """Whether several responses may come, of which all but the last say that they are not."""


class ClientDialect:
    """One protocol version, spoken by one client."""

    methods: Mapping[type[Any], str]
    closing_cancels: ClassVar[bool]
    """Whether closing the stream of a request cancels it, on channels where it has one."""
    has_sessions: ClassVar[bool]
    """Whether a server may say things outside of requests, and make requests that the client answers."""
    mirrors_arguments: ClassVar[bool]
    """Whether arguments stand in headers too, for tools that ask for it."""
    about_tasks: ClassVar[str]
    """The notification that tells how a task stands."""

    def __init__(self, version: str, client: Implementation, capabilities: Mapping[str, Any]) -> None:
        self.version = version
        self.client = client
        self.capabilities = capabilities
        self.headers: Mapping[str, str] = {"mcp-protocol-version": version}

    def request(
        self,
        request_id: RequestId,
        request: Request,
        request_meta: RequestMeta,
        mirrored: Mirrored | None = None,
    ) -> Message:
        """Write a request; raises `MethodNotFound` where this version has no such thing."""
        method = self.methods.get(type(request))
        if method is None:
            raise MethodNotFound(f"Protocol version {self.version} has no {type(request).__name__} request.")
        params = _params(request)
        meta = self._meta(request_meta)
        if meta:
            params["_meta"] = meta
        return self._message(request_id, method, params, request, mirrored)

    def cancel(self, message: Message, reason: str) -> Message | None:
        """The notification that cancels a request; `None` for one that may not be cancelled."""
        if message.id is None or message.opens_session:
            return None
        return self._notification("notifications/cancelled", _params(Cancel(message.id, reason)))

    def reply(self, request_id: RequestId, result: Any) -> Message:
        """The result of a request that the server made."""
        return Message(jsonrpc.response(request_id, result), "", headers=self.headers)

    def refuse(self, request_id: RequestId, code: int, message: str) -> Message:
        """The error for a request that the server made."""
        return Message(jsonrpc.failure(request_id, code, message), "", headers=self.headers)

    def read(self, request: Request, frame: Frame) -> Any:
        """The value in a response; raises the error in it, or `BadAnswer`."""
        if frame.error is not msgspec.UNSET:
            raise answers.error(frame.error)
        if not isinstance(frame.result, dict):
            raise BadAnswer(
                f"The server answered {self.methods[type(request)]} with a result that is no object."
            )
        return self._read(request, frame.result)

    def notification(self, frame: Frame) -> Notification | Cancel | TaskStatus | None:
        """The notification in a frame; `None` for what this client does not know or cannot read."""
        if frame.method != self.about_tasks:
            return answers.notification(frame)
        try:
            return statuses.status(answers.params_of(frame))
        except BadAnswer:  # whoever waits for it looks again
            return None

    def subscription(self, frame: Frame) -> RequestId | None:
        """Which request a change was sent for, where the version says it."""
        return None

    def part(self, frame: Frame) -> tuple[RequestId | None, StreamPart] | None:
        """What a frame brings of a stream, and for which request; raises `BadAnswer`."""
        raise NotImplementedError

    def _read(self, request: Request, fields: Mapping[str, Any]) -> Any:
        return _READERS[type(request)](fields)

    def _meta(self, request_meta: RequestMeta) -> dict[str, Any]:
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


class Legacy(ClientDialect):
    """2025-11-25 and before: a session is opened first, and its streams can be taken up again."""

    methods = {kind: method for method, kind in V2025.methods.items()}
    closing_cancels = False
    has_sessions = True
    mirrors_arguments = False
    about_tasks = "notifications/tasks/status"

    def __init__(self, version: str, client: Implementation, capabilities: Mapping[str, Any]) -> None:
        if version == LEGACY_VERSIONS[0]:
            # Whatever else it can do, this client takes the answer of a task in whichever way it comes.
            capabilities = {**capabilities, "tasks": {"responses": {"modes": MODES}, **_tasks(capabilities)}}
        else:
            self.methods = _BEFORE_2025
        super().__init__(version, client, capabilities)

    def hello(self) -> Initialize:
        """The request that opens a session."""
        return Initialize(self.version, dict(self.capabilities), self.client)

    def ready(self) -> Message:
        """The notification that the session is open."""
        return Message(
            jsonrpc.notification("notifications/initialized"),
            "notifications/initialized",
            headers=self.headers,
        )

    def _message(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any],
        request: Request,
        mirrored: Mirrored | None,
    ) -> Message:
        body = jsonrpc.request(request_id, method, params)
        if isinstance(request, Initialize):
            return Message(body, method, request_id, opens_session=True)
        streams = isinstance(request, CallTool | RedeemTask) and _streams(request)
        return Message(body, method, request_id, self.headers, resumable=not streams, streams=streams)

    def part(self, frame: Frame) -> tuple[RequestId | None, StreamPart] | None:
        """A response that is not the last one to its request."""
        if not isinstance(frame.result, dict):
            return None
        return frame.request_id, parts.part(frame.result)


class Modern(ClientDialect):
    """2026-07-28: each request says by itself whose it is, in its `_meta` and in headers."""

    methods = {kind: method for method, kind in V2026.methods.items()}
    closing_cancels = True
    has_sessions = False
    mirrors_arguments = True
    about_tasks = "notifications/tasks"

    def __init__(self, version: str, client: Implementation, capabilities: Mapping[str, Any]) -> None:
        # Whatever else it can do, this client takes a promise in place of an answer.
        extensions = {EXTENSION: {}, **capabilities.get("extensions", {})}
        capabilities = {**capabilities, "extensions": extensions}
        super().__init__(version, client, capabilities)
        self._common = {
            PROTOCOL_VERSION: version,
            CLIENT_INFO: msgspec.Raw(jsonrpc.encode(client)),
            CAPABILITIES: msgspec.Raw(jsonrpc.encode(capabilities)),
        }
        # Segments come where a request says that they are wanted, and nowhere else.
        streaming = {**capabilities, "extensions": {**extensions, STREAMING: {}}}
        self._streaming = {**self._common, CAPABILITIES: msgspec.Raw(jsonrpc.encode(streaming))}

    def subscription(self, frame: Frame) -> RequestId | None:
        """Which `subscriptions/listen` a change was sent for."""
        found = frame.meta.get(SUBSCRIPTION_ID)
        return found if isinstance(found, str | int) else None

    def part(self, frame: Frame) -> tuple[RequestId | None, StreamPart] | None:
        """A notification that brings segments."""
        return parts.notified(answers.params_of(frame)) if frame.method == PARTIAL_RESULT else None

    def _read(self, request: Request, fields: Mapping[str, Any]) -> Any:
        kind = fields.get("resultType", "complete")
        if kind == "input_required" and isinstance(request, CallTool | GetPrompt | ReadResource):
            return answers.input_required(fields)
        if kind != "complete" and not (kind == "task" and isinstance(request, CallTool)):
            raise BadAnswer(
                f"The server answered with a result of type {kind!r}, which this client cannot take."
            )
        return super()._read(request, fields)

    def _meta(self, request_meta: RequestMeta) -> dict[str, Any]:
        meta = {
            **super()._meta(request_meta),
            **(self._streaming if request_meta.wants_stream else self._common),
        }
        if request_meta.log_level is not None:
            meta[LOG_LEVEL] = request_meta.log_level
        return meta

    def _message(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any],
        request: Request,
        mirrored: Mirrored | None,
    ) -> Message:
        headers = {**self.headers, "mcp-method": method}
        if isinstance(request, CallTool | GetPrompt):
            headers["mcp-name"] = encode_value(request.name)
        elif isinstance(request, ReadResource):
            headers["mcp-name"] = encode_value(request.uri)
        elif isinstance(request, GetTask | AnswerTask | CancelTask | StreamTask):
            headers["mcp-name"] = encode_value(request.task_id)
        if mirrored and isinstance(request, CallTool):
            headers.update(mirror(mirrored, request.arguments))
        return Message(jsonrpc.request(request_id, method, params), method, request_id, headers)

    def _notification(self, method: str, params: dict[str, Any]) -> Message:
        params["_meta"] = self._common
        headers = {**self.headers, "mcp-method": method}
        return Message(jsonrpc.notification(method, params), method, headers=headers)


def _tasks(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    declared = capabilities.get("tasks")
    return declared if isinstance(declared, Mapping) else {}


def _streams(request: CallTool | RedeemTask) -> bool:
    if request.stream is not None:
        return True
    wish = request.task if isinstance(request, CallTool) else None
    return wish is not None and "streaming" in (wish.response_modes or ())


def newest(offered: Iterable[Any]) -> str | None:
    """The newest version that both sides speak, `None` where there is none."""
    wanted = {version for version in offered if isinstance(version, str)}
    return next((version for version in KNOWN_VERSIONS if version in wanted), None)


def is_modern(error: Exception) -> bool:
    """Whether only a server of 2026-07-28 or later answers with this error.

    https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#backward-compatibility-with-initialization-based-versions
    """
    return isinstance(error, HeaderMismatch | MissingCapability | UnsupportedVersion)


def _params(request: Any) -> dict[str, Any]:
    """The parameters by their names on the wire, without those that say nothing."""
    names = zip(request.__struct_fields__, request.__struct_encode_fields__, strict=True)
    values = {wire: getattr(request, name) for name, wire in names}
    return {key: value for key, value in values.items() if value is not None and value != _NOTHING.get(key)}


_NOTHING: Mapping[str, Any] = {"context": Complete.__struct_defaults__[-1], "inputResponses": {}}
