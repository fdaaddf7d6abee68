"""2026-07-28, as a server speaks it: stateless. Each request names its client and the client's capabilities.

https://modelcontextprotocol.io/specification/2026-07-28
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec

from antiphon.errors import (
    AlreadyAnswered,
    HeaderMismatch,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RequestError,
    TaskEnded,
    TaskNotWaiting,
    TaskRequired,
)
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import LOG_LEVELS, Implementation, LogLevel
from antiphon.model.inbox import InboxNews
from antiphon.model.notification import Acknowledged, ListChanged, ResourceUpdated
from antiphon.model.outcome import DONE, Discovery, InputRequired, Listened, Outcome, Page, ReadResult
from antiphon.model.request import (
    AnswerTask,
    CallTool,
    CancelTask,
    Discover,
    GetTask,
    Listen,
    Request,
    RequestId,
    RequestMeta,
    StreamTask,
)
from antiphon.model.segment import CallerMessage, Segments
from antiphon.model.task import Promise, TaskChanged, TaskView
from antiphon.wire import jsonrpc, mirrored_headers
from antiphon.wire.jsonrpc import Frame, PlainRequest
from antiphon.wire.mirrored_headers import NAMED, Mirrored, repeats_name
from antiphon.wire.server.dialect import (
    _NOTIFICATIONS,
    COMMON_METHODS,
    Dialect,
    Negotiated,
    PlainCall,
    TaskOutcome,
)
from antiphon.wire.server.inbox import INBOX, INBOX_METHODS
from antiphon.wire.server.segments import PARTIAL_RESULT, STREAMING, partial_result_params
from antiphon.wire.server.tasks import EXTENSION, extension_task

__all__ = ["CAPABILITIES", "CLIENT_INFO", "LOG_LEVEL", "PROTOCOL_VERSION", "SUBSCRIPTION_ID", "V2026"]

_KEY = "io.modelcontextprotocol/"
PROTOCOL_VERSION = _KEY + "protocolVersion"
CLIENT_INFO = _KEY + "clientInfo"
CAPABILITIES = _KEY + "clientCapabilities"
LOG_LEVEL = _KEY + "logLevel"
SERVER_INFO = _KEY + "serverInfo"
SUBSCRIPTION_ID = _KEY + "subscriptionId"

MAX_CACHED_METAS, MAX_CACHED_META_BYTES = 256, 4096
"""How many different `_meta` objects are cached, and the size of the largest."""


_METHOD_HEADERS: Mapping[Any, bytes] = {
    method: method.encode() for method in (*COMMON_METHODS, "server/discover", "subscriptions/listen", *NAMED)
}

NEEDS_TASKS: Mapping[str, Any] = {"extensions": {EXTENSION: {}}}
NEEDS_STREAMING: Mapping[str, Any] = {"extensions": {EXTENSION: {}, STREAMING: {}}}

_WITHOUT_RESULT = (CancelTask, AnswerTask)
_TYPES: Mapping[type[Any], str] = {InputRequired: "input_required", Promise: "task"}


# A request with any other field is read in full: the full path may refuse the field.
class _PlainParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    answers: dict[str, Any] = msgspec.field(default_factory=dict, name="inputResponses")
    state: str | None = msgspec.field(default=None, name="requestState")
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


class _PlainTaskParams(msgspec.Struct, forbid_unknown_fields=True):
    task_id: str = msgspec.field(name="taskId")
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


_plain_calls = msgspec.json.Decoder(PlainRequest[Literal["tools/call"], _PlainParams])
_plain_task_requests = msgspec.json.Decoder(PlainRequest[Literal["tasks/get"], _PlainTaskParams])


class V2026(Dialect):
    """The current specification."""

    methods = {
        **COMMON_METHODS,
        "server/discover": Discover,
        "subscriptions/listen": Listen,
        "tasks/get": GetTask,
        "tasks/update": AnswerTask,
        "tasks/cancel": CancelTask,
        "tasks/stream": StreamTask,
        **INBOX_METHODS,
    }
    rounds = True
    has_fast_path = True

    def __init__(self, version: str, server: Implementation, supported: Sequence[str]) -> None:
        super().__init__(version, server, supported)
        self._header = version.encode()
        self._cached_metas: dict[bytes, RequestMeta] = {}
        self._meta: dict[str, Any] = {SERVER_INFO: msgspec.Raw(jsonrpc.encode(server))}
        self._ending = b',"resultType":"complete","_meta":%b}}' % jsonrpc.encode(self._meta)

    def read_plain_call(self, body: bytes | bytearray, headers: Mapping[bytes, bytes]) -> PlainCall | None:
        """Read a call of a tool, in any round, or a request for a task's status.

        Only from a client whose `_meta` was read before. Returns `None` for every other request, and for a
        request with a mistake: both are read in full.
        """
        method = headers.get(b"mcp-method")
        if method == b"tasks/get":
            return self._read_plain_task_request(body, headers)
        if method != b"tools/call":
            return None
        frame = jsonrpc.decode_plain(_plain_calls, body)
        if frame is None:
            return None
        params, id = frame.params, frame.id
        request_meta = self._cached_metas.get(bytes(params.meta))
        if request_meta is None or not repeats_name(headers.get(b"mcp-name"), params.name.encode()):
            return None
        if params.answers or params.state is not None:  # a later round
            request = CallTool(
                name=params.name,
                arguments=params.arguments,
                input_responses=params.answers,
                request_state=params.state,
            )
            return self, id, request, request_meta
        return self, id, CallTool(name=params.name, arguments=params.arguments), request_meta

    def _read_plain_task_request(
        self, body: bytes | bytearray, headers: Mapping[bytes, bytes]
    ) -> PlainCall | None:
        frame = jsonrpc.decode_plain(_plain_task_requests, body)
        if frame is None:
            return None
        task_id = frame.params.task_id
        request_meta = self._cached_metas.get(bytes(frame.params.meta))
        name = headers.get(b"mcp-name")
        if (
            request_meta is None
            or not request_meta.accepts_tasks
            or (name is not None and not repeats_name(name, task_id.encode()))
        ):
            return None
        return self, frame.id, GetTask(task_id=task_id), request_meta

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request; raises `InvalidParams` if a required key is missing.

        A client repeats its `_meta` in every request, so the metadata is cached.
        """
        raw = frame.raw_meta
        known = self._cached_metas.get(raw)
        if known is not None:
            return known
        request_meta = self._read_request_meta(frame.meta)
        if (
            request_meta.progress_token is None
            and len(raw) <= MAX_CACHED_META_BYTES
            and b'"traceparent"' not in raw
        ):
            if len(self._cached_metas) >= MAX_CACHED_METAS:
                self._cached_metas.clear()
            self._cached_metas[raw] = request_meta
        return request_meta

    def _read_request_meta(self, meta: dict[str, Any]) -> RequestMeta:
        if PROTOCOL_VERSION not in meta or not isinstance(meta.get(CAPABILITIES), dict):
            missing = PROTOCOL_VERSION if PROTOCOL_VERSION not in meta else CAPABILITIES
            raise InvalidParams(f"Every request of {self.version} has {missing!r} in params._meta.")
        if meta[PROTOCOL_VERSION] != self.version:
            raise HeaderMismatch(
                f"Header mismatch: MCP-Protocol-Version is {self.version!r}, "
                f"and the body has {meta[PROTOCOL_VERSION]!r}."
            )
        level = meta.get(LOG_LEVEL)
        client = meta.get(CLIENT_INFO)
        token = meta.get("progressToken")
        try:
            # The cache shares it between calls, so it is read-only.
            return RequestMeta(
                client=None if client is None else msgspec.convert(client, Implementation),
                capabilities=MappingProxyType(meta[CAPABILITIES]),
                log_level=None if level is None else _log_level(level),
                progress_token=token if isinstance(token, str | int) else None,
                accepts_tasks=_declares(EXTENSION, meta[CAPABILITIES]),
                wants_stream=_declares(STREAMING, meta[CAPABILITIES]),
                inlines_results=True,
                keys_are_unique=True,
                raw=MappingProxyType(meta),
            )
        except msgspec.ValidationError as error:
            raise InvalidParams(f"{CLIENT_INFO} has a name and a version: {error}.") from None

    def parse(self, frame: Frame) -> Any:
        """Return the request in a frame; raises `MissingCapability` if its extension was not declared."""
        request = super().parse(frame)
        if type(request) is CallTool:
            # In this version only the server decides whether a call becomes a task.
            return request if request.task is None else msgspec.structs.replace(request, task=None)
        concerns_tasks = isinstance(request, GetTask | AnswerTask | CancelTask | StreamTask) or (
            isinstance(request, Listen) and request.notifications.task_ids
        )
        if not concerns_tasks:
            return request
        known = self._cached_metas.get(frame.raw_meta)
        declared = frame.meta.get(CAPABILITIES, {}) if known is None else known.capabilities
        if type(request) is StreamTask and not _declares(STREAMING, declared):
            raise MissingCapability("Missing required client capability", needs=NEEDS_STREAMING)
        if not _declares(EXTENSION, declared):
            raise MissingCapability("Missing required client capability", needs=NEEDS_TASKS)
        return request

    def check_headers(self, frame: Frame, request_meta: RequestMeta, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HeaderMismatch` unless the headers repeat the version and the method of the body."""
        if headers.get(b"mcp-protocol-version") != self._header:
            given = _required(headers, b"mcp-protocol-version", "MCP-Protocol-Version")
            value = request_meta.raw[PROTOCOL_VERSION]
            if given != value:
                raise HeaderMismatch(
                    f"Header mismatch: MCP-Protocol-Version is {given!r}, and the body has {value!r}."
                )
        if headers.get(b"mcp-method") != _METHOD_HEADERS.get(frame.method, b""):
            _required(headers, b"mcp-method", "Mcp-Method")
            super().check_headers(frame, request_meta, headers)

    def check_name(self, frame: Frame, request: Any, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HeaderMismatch` unless a header repeats the name of the tool, prompt, resource or task."""
        # That of a task is for routing requests to instances, and every instance serves every task.
        if NAMED.get(frame.method, "task_id") != "task_id":
            _required(headers, b"mcp-name", "Mcp-Name")
        super().check_name(frame, request, headers)

    def check_mirrored(self, mirrored: Mirrored, request: CallTool, headers: Mapping[bytes, bytes]) -> None:
        """Raise `HeaderMismatch` unless headers repeat the arguments that have an `x-mcp-header`."""
        mirrored_headers.check(mirrored, request.arguments, headers)

    def status(self, error: RequestError, *, understood: bool) -> int:
        """Return the HTTP status; a malformed request, a missing method or capability have their own."""
        if not understood or isinstance(error, MethodNotFound | MissingCapability | HeaderMismatch):
            return error.status
        return super().status(error, understood=understood)

    def result(self, request: Request, outcome: Outcome | TaskOutcome) -> dict[str, Any]:
        """Return the result object of an outcome, with its type and the name of the server."""
        if type(request) in _WITHOUT_RESULT:
            return {"resultType": "complete", "_meta": self._meta}
        if type(outcome) is Listened:
            return {"resultType": "complete", "_meta": {**self._meta, SUBSCRIPTION_ID: outcome.subscription}}
        value = super().result(request, outcome)
        value["resultType"] = _TYPES.get(type(outcome), "complete")
        meta = value.get("_meta")
        value["_meta"] = self._meta if meta is None else {**self._meta, **meta}
        return value

    def refusal(self, request: Request, request_id: RequestId, error: RequestError) -> bytes:
        """Return the frame of an error. Cancelling a task that has ended succeeds.

        Answers to questions that are not open are ignored:
        https://github.com/modelcontextprotocol/ext-tasks

        There, a server should ignore a second answer to a question too. If it says something else than the
        first one, it is refused: otherwise nobody would learn that it does not count.
        """
        is_ignored = isinstance(error, TaskEnded | TaskNotWaiting) and not isinstance(error, AlreadyAnswered)
        if is_ignored and isinstance(request, CancelTask | AnswerTask):
            return self.response(request, request_id, DONE)
        if isinstance(error, TaskRequired):
            error.needs = NEEDS_TASKS
        return super().refusal(request, request_id, error)

    def notification(self, notification: CallerMessage, request_id: RequestId | None) -> bytes:
        """Return the frame of a notification; changes name their subscription, and segments their request."""
        if isinstance(notification, Segments):
            return jsonrpc.notification(PARTIAL_RESULT, partial_result_params(notification, request_id))
        if isinstance(notification, InboxNews):
            return super().notification(notification, request_id)
        if isinstance(notification, TaskChanged):
            method, params = "notifications/tasks", extension_task(self, notification.task, detailed=True)
        else:
            method, params = _NOTIFICATIONS[type(notification)](notification)
        if isinstance(notification, ListChanged | ResourceUpdated | Acknowledged | TaskChanged):
            params["_meta"] = {**params.get("_meta", {}), SUBSCRIPTION_ID: request_id}
        return jsonrpc.notification(method, params)

    def _page(self, page: Page) -> dict[str, Any]:
        value = super()._page(page)
        value["ttlMs"] = page.ttl_ms
        value["cacheScope"] = "public" if page.shared else "private"
        return value

    def _resource(self, read: ReadResult) -> dict[str, Any]:
        scope = "public" if read.shared else "private"
        return {"contents": read.contents, "ttlMs": read.ttl_ms, "cacheScope": scope}

    def _promise(self, promise: Promise) -> dict[str, Any]:
        return extension_task(self, promise.task, detailed=False)

    def _task(self, shown: TaskView) -> dict[str, Any]:
        return extension_task(self, shown.task, detailed=True)

    def _discovery(self, discovery: Discovery) -> dict[str, Any]:
        value: dict[str, Any] = {
            "supportedVersions": self.supported,
            "capabilities": self._capabilities(discovery.capabilities),
            "ttlMs": discovery.ttl_ms,
            "cacheScope": "public",
        }
        if discovery.instructions is not None:
            value["instructions"] = discovery.instructions
        return value

    def _capabilities(self, offered: ServerCapabilities) -> dict[str, Any]:
        value = super()._capabilities(offered)
        extensions: dict[str, Any] = value.pop("extensions", {})
        if offered.tasks:
            extensions[EXTENSION] = {}
        if offered.streams:
            extensions[STREAMING] = {}
        if offered.inbox:
            extensions[INBOX] = {}
        return {**value, "extensions": extensions} if extensions else value


def _declares(extension: str, capabilities: Mapping[str, Any]) -> bool:
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and extension in extensions


def _log_level(value: Any) -> LogLevel:
    if isinstance(value, str) and value in LOG_LEVELS:
        return cast(LogLevel, value)
    raise InvalidParams(f"{value!r} is not a log level: use one of {', '.join(LOG_LEVELS)}.")


def _required(headers: Mapping[bytes, bytes], header: bytes, name: str) -> str:
    """Return the value of a header; raises `HeaderMismatch` if it is missing."""
    raw = headers.get(header)
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: the header {name} is missing.")
    return raw.decode("latin-1").strip(" \t")
