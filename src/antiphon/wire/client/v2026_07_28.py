"""2026-07-28, as a client speaks it: each request names its client, in `_meta` and in headers.

https://modelcontextprotocol.io/specification/2026-07-28
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import Implementation
from antiphon.model.inbox import InboxNews
from antiphon.model.request import (
    LISTENING_REQUESTS,
    AnswerTask,
    CallTool,
    CancelTask,
    Discover,
    GetPrompt,
    GetTask,
    ReadResource,
    Request,
    RequestId,
    RequestMeta,
    StreamTask,
)
from antiphon.model.segment import StreamPart
from antiphon.wire import jsonrpc
from antiphon.wire.client import results, segments
from antiphon.wire.client.dialect import ClientDialect, Message
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored, encode_value, mirror
from antiphon.wire.server.inbox import INBOX
from antiphon.wire.server.segments import PARTIAL_RESULT, STREAMING
from antiphon.wire.server.tasks import EXTENSION
from antiphon.wire.server.v2026_07_28 import (
    CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SUBSCRIPTION_ID,
    V2026,
)

__all__ = ["ClientV2026"]

_NO_META = RequestMeta()


class ClientV2026(ClientDialect):
    """The current specification."""

    methods = {kind: method for method, kind in V2026.methods.items()}
    has_sessions = False
    closing_cancels = True
    mirrors_arguments = True
    status_has_details = True
    task_notification = "notifications/tasks"

    def __init__(self, version: str, client: Implementation, capabilities: Mapping[str, Any]) -> None:
        # This client accepts a task in place of a result, so it always declares the extension.
        extensions = {EXTENSION: {}, **capabilities.get("extensions", {})}
        capabilities = {**capabilities, "extensions": extensions}
        super().__init__(version, client, capabilities)
        self._common = {
            PROTOCOL_VERSION: version,
            CLIENT_INFO: msgspec.Raw(jsonrpc.encode(client)),
            CAPABILITIES: msgspec.Raw(jsonrpc.encode(capabilities)),
        }
        # A server sends segments only for requests that declare the extension.
        streaming = {**capabilities, "extensions": {**extensions, STREAMING: {}}}
        self._streaming = {**self._common, CAPABILITIES: msgspec.Raw(jsonrpc.encode(streaming))}
        self._encoded_common = msgspec.Raw(jsonrpc.encode(self._common))

    def greeting(self) -> Request:
        """Return the request that asks which versions and capabilities the server has."""
        return Discover()

    def stream_call(self, request: CallTool, request_meta: RequestMeta) -> tuple[CallTool, RequestMeta]:
        """Return the call with metadata that asks for segments."""
        return request, msgspec.structs.replace(request_meta, wants_stream=True)

    def stream_task(self, task_id: str, after: int) -> Request:
        """Return the request for a task's segments."""
        return StreamTask(task_id, after)

    def subscription(self, frame: Frame) -> RequestId | None:
        """Return the id of the `subscriptions/listen` request that a change was sent for."""
        found = frame.meta.get(SUBSCRIPTION_ID)
        return found if isinstance(found, str | int) else None

    def part(self, frame: Frame) -> tuple[RequestId | None, StreamPart | InboxNews] | None:
        """Return the segments or the news in a notification."""
        if frame.method == PARTIAL_RESULT:
            return segments.notification_part(results.params_of(frame))
        return super().part(frame)

    def part_request_id(self, frame: Frame) -> RequestId | None:
        """Return the id of the request that unreadable segments belong to, if the frame says it."""
        found = results.params_of(frame).get("requestId") if frame.request_id is None else frame.request_id
        return found if isinstance(found, str | int) else None

    def read_capabilities(self, fields: Mapping[str, Any]) -> ServerCapabilities:
        """Return the capabilities of the server; tasks and segments are extensions."""
        extensions = fields.get("extensions")
        declared = extensions if isinstance(extensions, Mapping) else {}
        return msgspec.structs.replace(
            super().read_capabilities(fields),
            tasks=EXTENSION in declared,
            streams=STREAMING in declared,
            inbox=INBOX in declared,
        )

    def _meta(self, request_meta: RequestMeta) -> dict[str, Any] | msgspec.Raw:
        if request_meta == _NO_META:
            return self._encoded_common
        common = self._streaming if request_meta.wants_stream else self._common
        meta = {**self._own_meta(request_meta), **common}
        if request_meta.log_level is not None:
            meta[LOG_LEVEL] = request_meta.log_level
        if request_meta.capabilities:  # those of the caller on whose behalf a gateway sends the request
            extensions = {EXTENSION: {}, **request_meta.capabilities.get("extensions", {})}
            meta[CAPABILITIES] = {**request_meta.capabilities, "extensions": extensions}
        elif request_meta.wants_answer:  # a server makes no task for a caller that does not know tasks
            declared = self.capabilities["extensions"]
            extensions = {name: value for name, value in declared.items() if name != EXTENSION}
            meta[CAPABILITIES] = {**self.capabilities, "extensions": extensions}
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
        body = jsonrpc.request(request_id, method, params)
        return Message(body, method, request_id, headers, listens=type(request) in LISTENING_REQUESTS)

    def _notification(self, method: str, params: dict[str, Any]) -> Message:
        params["_meta"] = self._common
        headers = {**self.headers, "mcp-method": method}
        return Message(jsonrpc.notification(method, params), method, headers=headers)
