"""2026-07-28: stateless; each request says by itself whose it is and what the client can do.

https://modelcontextprotocol.io/specification/2026-07-28
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.errors import (
    HeaderMismatch,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RequestError,
    TaskEnded,
    TaskRequired,
)
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import LOG_LEVELS, Implementation, LogLevel
from antiphon.model.notification import Acknowledged, ListChanged, ResourceUpdated
from antiphon.model.outcome import DONE, Discovery, InputRequired, Listened, Outcome, Page, ReadResult, Result
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
from antiphon.wire import jsonrpc
from antiphon.wire import mirrored_headers as mirroring
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored
from antiphon.wire.server.dialect import (
    _NOTIFICATIONS,
    COMMON_METHODS,
    Dialect,
    Negotiated,
    PlainCall,
    TaskOutcome,
)
from antiphon.wire.server.segments import PARTIAL_RESULT, STREAMING, partial_result
from antiphon.wire.server.tasks import EXTENSION, extension_task

__all__ = ["CAPABILITIES", "CLIENT_INFO", "LOG_LEVEL", "PROTOCOL_VERSION", "SUBSCRIPTION_ID", "V2026"]

_KEY = "io.modelcontextprotocol/"
PROTOCOL_VERSION = _KEY + "protocolVersion"
CLIENT_INFO = _KEY + "clientInfo"
CAPABILITIES = _KEY + "clientCapabilities"
LOG_LEVEL = _KEY + "logLevel"
SERVER_INFO = _KEY + "serverInfo"
SUBSCRIPTION_ID = _KEY + "subscriptionId"

_NAMED: Mapping[Any, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "task_id",
    "tasks/update": "task_id",
    "tasks/cancel": "task_id",
    "tasks/stream": "task_id",
}
_KEPT, _KEPT_BYTES = 256, 4096
"""How many different terms are kept, and of which size at the most."""


_METHOD_HEADERS: Mapping[Any, bytes] = {
    method: method.encode()
    for method in (*COMMON_METHODS, "server/discover", "subscriptions/listen", *_NAMED)
}

NEEDS_TASKS: Mapping[str, Any] = {"extensions": {EXTENSION: {}}}
NEEDS_STREAMING: Mapping[str, Any] = {"extensions": {EXTENSION: {}, STREAMING: {}}}

_TYPES: Mapping[type[Any], str] = {InputRequired: "input_required", Promise: "task"}


class _PlainParams(msgspec.Struct):
    name: str
    arguments: dict[str, Any] = {}
    answers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict, name="inputResponses")
    state: str | None = msgspec.field(default=None, name="requestState")
    task: msgspec.Raw | UnsetType = UNSET
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


class _PlainCall(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: str | int
    method: Literal["tools/call"]
    params: _PlainParams


_plain_calls = msgspec.json.Decoder(_PlainCall)


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
    }
    rounds = True
    has_fast_path = True

    def __init__(self, version: str, server: Implementation, supported: Sequence[str]) -> None:
        super().__init__(version, server, supported)
        self._header = version.encode()
        self._known: dict[bytes, RequestMeta] = {}
        self._meta: dict[str, Any] = {SERVER_INFO: msgspec.Raw(jsonrpc.encode(server))}

    def read_plain_call(self, body: bytes | bytearray, headers: Mapping[bytes, bytes]) -> PlainCall | None:
        """Read a call of a tool, in any round, from a client whose `_meta` was read before.

        Returns `None` for every other request, and for a request with a mistake: both are read in full.
        """
        if headers.get(b"mcp-method") != b"tools/call":
            return None
        try:
            frame = _plain_calls.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        params, id = frame.params, frame.id
        request_meta = self._known.get(bytes(params.meta))
        name = params.name.encode()
        if (
            request_meta is None
            or headers.get(b"mcp-name") != name
            or name[:2] == b"=?"
            or params.task is not UNSET
            or (type(id) is int and not -(2**63) <= id < 2**63)
        ):
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

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Read the required `_meta`; raises `InvalidParams` where something is missing.

        A client says the same with every request, so what was read once is kept for a while.
        """
        raw = frame.raw_meta
        known = self._known.get(raw)
        if known is not None:
            return known
        request_meta = self._read_request_meta(frame.meta)
        if request_meta.progress_token is None and len(raw) <= _KEPT_BYTES and b'"traceparent"' not in raw:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[raw] = request_meta
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
            # It may serve many calls, so nobody may change it.
            return RequestMeta(
                client=None if client is None else msgspec.convert(client, Implementation),
                capabilities=MappingProxyType(meta[CAPABILITIES]),
                log_level=None if level is None else _log_level(level),
                progress_token=token if isinstance(token, str | int) else None,
                accepts_tasks=_declares(EXTENSION, meta[CAPABILITIES]),
                wants_stream=_declares(STREAMING, meta[CAPABILITIES]),
                raw=MappingProxyType(meta),
            )
        except msgspec.ValidationError as error:
            raise InvalidParams(f"{CLIENT_INFO} has a name and a version: {error}.") from None

    def parse(self, frame: Frame) -> Any:
        """Tasks are an extension: a caller that did not declare it is refused before any is looked up."""
        request = super().parse(frame)
        if type(request) is CallTool:
            # Whether there is a task is for the server alone to say; a wish for one means nothing here.
            return request if request.task is None else msgspec.structs.replace(request, task=None)
        about_tasks = isinstance(request, GetTask | AnswerTask | CancelTask | StreamTask) or (
            isinstance(request, Listen) and request.notifications.task_ids
        )
        if not about_tasks:
            return request
        declared = frame.meta.get(CAPABILITIES, {})
        if type(request) is StreamTask and not _declares(STREAMING, declared):
            raise MissingCapability("Missing required client capability", needs=NEEDS_STREAMING)
        if not _declares(EXTENSION, declared):
            raise MissingCapability("Missing required client capability", needs=NEEDS_TASKS)
        return request

    def check_headers(self, frame: Frame, request_meta: RequestMeta, headers: Mapping[bytes, bytes]) -> None:
        """The version and the method stand in headers too, and agree."""
        if headers.get(b"mcp-protocol-version") != self._header:
            _agree(
                headers, b"mcp-protocol-version", "MCP-Protocol-Version", request_meta.raw[PROTOCOL_VERSION]
            )
        if headers.get(b"mcp-method") != _METHOD_HEADERS.get(frame.method, b""):
            _agree(headers, b"mcp-method", "Mcp-Method", frame.method)

    def check_name(self, frame: Frame, request: Any, headers: Mapping[bytes, bytes]) -> None:
        """The name of the tool or prompt, the address or the task stands in a header too, and agrees."""
        key = _NAMED.get(frame.method)
        if key is None:
            return
        name = getattr(request, key)
        raw = headers.get(b"mcp-name")
        if raw is None and key == "task_id":
            return  # it helps to route a request to where its task is, and any instance has every task
        if raw is None or raw != name.encode() or raw[:2] == b"=?":
            _agree(headers, b"mcp-name", "Mcp-Name", name)

    def check_mirrored(self, mirrored: Mirrored, request: CallTool, headers: Mapping[bytes, bytes]) -> None:
        """The arguments that a tool marks with `x-mcp-header` stand in headers too, and agree."""
        mirroring.check(mirrored, request.arguments, headers)

    def status(self, error: RequestError, *, understood: bool) -> int:
        """A malformed request, a missing method and a missing capability have statuses of their own."""
        if not understood or isinstance(error, MethodNotFound | MissingCapability | HeaderMismatch):
            return error.status
        return super().status(error, understood=understood)

    def response(self, request: Request, request_id: RequestId, outcome: Outcome | TaskOutcome) -> bytes:
        """The frame that answers a request."""
        if type(outcome) is not Result or outcome.structured or outcome.meta:
            return super().response(request, request_id, outcome)
        # What most calls end with, without the detours that the others need.
        result = {
            "content": outcome.content,
            "isError": outcome.is_error,
            "resultType": "complete",
            "_meta": self._meta,
        }
        return jsonrpc.encode({"jsonrpc": "2.0", "id": request_id, "result": result})

    def result(self, request: Request, outcome: Outcome | TaskOutcome) -> dict[str, Any]:
        """The result object of an outcome: with its type, and with who made it."""
        if isinstance(request, CancelTask | AnswerTask):
            return {"resultType": "complete", "_meta": self._meta}
        if type(outcome) is Listened:
            return {"resultType": "complete", "_meta": {**self._meta, SUBSCRIPTION_ID: outcome.subscription}}
        value = super().result(request, outcome)
        value["resultType"] = _TYPES.get(type(outcome), "complete")
        meta = value.get("_meta")
        value["_meta"] = self._meta if meta is None else {**self._meta, **meta}
        return value

    def refusal(self, request: Request, request_id: RequestId, error: RequestError) -> bytes:
        """A task that has ended already is as good as cancelled."""
        if isinstance(error, TaskEnded) and isinstance(request, CancelTask):
            return self.response(request, request_id, DONE)
        if isinstance(error, TaskRequired):
            error.needs = NEEDS_TASKS
        return super().refusal(request, request_id, error)

    def notification(self, notification: CallerMessage, request_id: RequestId | None) -> bytes:
        """Changes name the subscription that they are sent for, and segments their request."""
        if isinstance(notification, Segments):
            return jsonrpc.notification(PARTIAL_RESULT, partial_result(notification, request_id))
        if isinstance(notification, TaskChanged):
            method, params = "notifications/tasks", extension_task(self, notification.task, detailed=True)
        else:
            method, params = _NOTIFICATIONS[type(notification)](notification)
        if isinstance(notification, ListChanged | ResourceUpdated | Acknowledged | TaskChanged):
            params["_meta"] = {SUBSCRIPTION_ID: request_id}
        return jsonrpc.notification(method, params)

    def _page(self, page: Page) -> dict[str, Any]:
        value = super()._page(page)
        value["ttlMs"] = page.ttl_ms
        value["cacheScope"] = "public" if page.shared else "private"
        return value

    def _read(self, read: ReadResult) -> dict[str, Any]:
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
        extensions: dict[str, Any] = {EXTENSION: {}} if offered.tasks else {}
        if offered.streams:
            extensions[STREAMING] = {}
        return {**value, "extensions": extensions} if extensions else value


def _declares(extension: str, capabilities: Mapping[str, Any]) -> bool:
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and extension in extensions


def _log_level(value: Any) -> LogLevel:
    if isinstance(value, str) and value in LOG_LEVELS:
        return cast(LogLevel, value)
    raise InvalidParams(f"{value!r} is no log level: use one of {', '.join(LOG_LEVELS)}.")


def _agree(headers: Mapping[bytes, bytes], header: bytes, name: str, value: Any) -> None:
    raw = headers.get(header)
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: the header {name} is missing.")
    given = mirroring.decode_value(raw.decode("latin-1"))
    if given != value:
        raise HeaderMismatch(f"Header mismatch: {name} is {given!r}, and the body has {value!r}.")
