"""2025-11-25 and the versions before it, which differ only by what they lack.

https://modelcontextprotocol.io/specification/2025-11-25
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.errors import MissingCapability, RequestError, ResourceNotFound, TaskRequired
from antiphon.model.ask import Ask, OpenUrl
from antiphon.model.catalog import ToolDefinition
from antiphon.model.outcome import Discovery, Page, Result
from antiphon.model.request import (
    CallTool,
    CancelTask,
    GetTask,
    Initialize,
    ListTasks,
    Ping,
    RedeemTask,
    Request,
    RequestId,
    SetLogLevel,
    Subscribe,
    Terms,
    Unsubscribe,
)
from antiphon.wire.dialect import COMMON_METHODS, Dialect, Negotiated
from antiphon.wire.jsonrpc import Frame

__all__ = ["LEGACY_VERSIONS", "V2025", "Before2025"]

LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


class V2025(Dialect):
    """The version with sessions, whose streams can be taken up again."""

    methods = {
        **COMMON_METHODS,
        "initialize": Initialize,
        "ping": Ping,
        "logging/setLevel": SetLogLevel,
        "resources/subscribe": Subscribe,
        "resources/unsubscribe": Unsubscribe,
        "tasks/get": GetTask,
        "tasks/result": RedeemTask,
        "tasks/list": ListTasks,
        "tasks/cancel": CancelTask,
    }
    closing_cancels = False
    resumable = True

    def terms(self, frame: Frame, negotiated: Negotiated | None) -> Terms:
        """Who the client is was said once, in `initialize`."""
        meta = frame.meta if b"_meta" in frame.raw_params else {}
        token = meta.get("progressToken")
        return Terms(
            client=negotiated.client if negotiated else None,
            capabilities=negotiated.capabilities if negotiated else {},
            log_level="debug",
            progress_token=token if isinstance(token, str | int) else None,
            promises=b'"task"' in frame.raw_params
            and isinstance(frame.params, dict)
            and "task" in frame.params,
            meta=meta,
        )

    def refusal(self, request: Request, request_id: RequestId, error: RequestError) -> bytes:
        """There was no error for a capability that is missing: a tool that needs it fails."""
        if type(error) is MissingCapability and isinstance(request, CallTool):
            return self.response(request, request_id, Result(error.message, is_error=True))
        return super().refusal(request, request_id, error)

    def ask(self, ask: Ask, task_id: str | None = None) -> tuple[str, dict[str, Any]]:
        """An address that a person is sent to had an id, for a notice that was to come later."""
        method, params = super().ask(ask, task_id)
        if isinstance(ask, OpenUrl):
            params["elicitationId"] = hashlib.sha256(ask.url.encode()).hexdigest()[:32]
        return method, params

    def code(self, error: RequestError) -> int:
        """A missing resource had a code of its own, and a missing wish for a task was a missing method."""
        if isinstance(error, ResourceNotFound):
            return -32002
        return -32601 if isinstance(error, TaskRequired) else error.code

    def _structured(self, result: Result) -> Any:
        """Structured content was an object, whatever the tool's type."""
        return {"result": result.data} if result.boxed else result.data

    def _page(self, page: Page) -> dict[str, Any]:
        value = super()._page(page)
        if page.kind == "tools":
            value["tools"] = [boxed(tool) for tool in page.items if isinstance(tool, ToolDefinition)]
        return value

    def _discovery(self, discovery: Discovery) -> dict[str, Any]:
        value: dict[str, Any] = {
            "protocolVersion": self.version,
            "capabilities": self._capabilities(discovery),
            "serverInfo": discovery.server,
        }
        if discovery.instructions is not None:
            value["instructions"] = discovery.instructions
        return value

    def _capabilities(self, discovery: Discovery) -> dict[str, Any]:
        if not discovery.tasks:
            return dict(discovery.capabilities)
        offered: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return {**discovery.capabilities, "tasks": offered}


class Before2025(V2025):
    """The versions before 2025-11-25, which had no tasks: a wish for one means nothing."""

    methods = {method: kind for method, kind in V2025.methods.items() if not method.startswith("tasks/")}

    def parse(self, frame: Frame) -> Any:
        """The request in a frame."""
        request = super().parse(frame)
        if isinstance(request, CallTool) and request.task is not None:
            return msgspec.structs.replace(request, task=None)
        return request

    def terms(self, frame: Frame, negotiated: Negotiated | None) -> Terms:
        """What the request says besides its parameters."""
        return msgspec.structs.replace(super().terms(frame, negotiated), promises=False)

    def _capabilities(self, discovery: Discovery) -> dict[str, Any]:
        return dict(discovery.capabilities)


def boxed(tool: ToolDefinition) -> ToolDefinition:
    """The tool with an output schema that is an object, as versions before 2026-07-28 want it."""
    schema = tool.output_schema
    if schema is None or is_object(schema):
        return tool
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    if definitions:
        outer["$defs"] = definitions
    return msgspec.structs.replace(tool, output_schema=outer)


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether whatever fits the schema is an object."""
    return schema.get("type") == "object"
