"""2025-11-25 and the versions before it, as a client speaks them: a session is opened first.

https://modelcontextprotocol.io/specification/2025-11-25
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from antiphon.errors import InvalidRequest, MethodNotFound
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.identity import Implementation
from antiphon.model.inbox import InboxNews
from antiphon.model.outcome import Result
from antiphon.model.request import (
    LISTENING_REQUESTS,
    AnswerTask,
    CallTool,
    Initialize,
    RedeemTask,
    Request,
    RequestId,
    RequestMeta,
)
from antiphon.model.segment import MODES, StreamPart
from antiphon.wire import jsonrpc
from antiphon.wire.client import segments
from antiphon.wire.client.dialect import ClientDialect, Message
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.mirrored_headers import Mirrored
from antiphon.wire.server.segments import declared_modes
from antiphon.wire.server.tasks import RELATED
from antiphon.wire.server.v2025_11_25 import V2025, WithoutTasks

__all__ = ["ClientV2025", "ClientWithoutTasks"]

_ANSWER_TASK = "tasks/input_response"
_ASSUMED: Mapping[str, Any] = {
    "tools": {},
    "tasks": {"requests": {"tools": {"call": {}}}, "responses": {"modes": MODES}},
}
"""The capabilities of a server that does not say which it has: it may be asked for everything."""
_ERROR_IN_A_RESULT = f"MCP error {MethodNotFound.code}: "


class _WithSessions(ClientDialect):
    """A version with sessions, whose streams can be resumed."""

    has_sessions = True
    closing_cancels = False
    mirrors_arguments = False
    task_notification = "notifications/tasks/status"
    resumes_streams: ClassVar[bool] = True
    """Whether the server sends ids of events, after which a broken stream is resumed."""

    def greeting(self) -> Request:
        """Return the request that opens a session."""
        return Initialize(self.version, dict(self.capabilities), self.client)

    def ready(self) -> Message | None:
        """Return the notification that the session is open."""
        method = "notifications/initialized"
        return Message(jsonrpc.notification(method), method, headers=self.headers)

    def part(self, frame: Frame) -> tuple[RequestId | None, StreamPart | InboxNews] | None:
        """Return the segments in a response that is not the last one to its request, or news."""
        if not isinstance(frame.result, dict):
            return super().part(frame)
        return frame.request_id, segments.response_part(self, frame.result)

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
        resumable = self.resumes_streams and not streams
        listens = type(request) in LISTENING_REQUESTS
        return Message(
            body, method, request_id, self.headers, resumable=resumable, streams=streams, listens=listens
        )


class ClientV2025(_WithSessions):
    """2025-11-25, which has tasks in the core.

    A server may ask about a task in the manner of SEP-2322 all the same: in place of the task's result.
    """

    methods = {**{kind: method for method, kind in V2025.methods.items()}, AnswerTask: _ANSWER_TASK}
    takes_task_params = True

    def __init__(self, version: str, client: Implementation, capabilities: Mapping[str, Any]) -> None:
        # This client accepts every response mode of a task, so it always declares all of them.
        declared = capabilities.get("tasks")
        tasks = {"responses": {"modes": MODES}, **(declared if isinstance(declared, Mapping) else {})}
        super().__init__(version, client, {**capabilities, "tasks": tasks})

    def stream_call(self, request: CallTool, request_meta: RequestMeta) -> tuple[CallTool, RequestMeta]:
        """Return the call with a parameter that asks for segments."""
        return msgspec.structs.replace(request, stream={}), request_meta

    def stream_task(self, task_id: str, after: int) -> Request:
        """Return the request for the result, with parameters that ask for segments."""
        return RedeemTask(task_id, last_seq_nr=after, stream={})

    def says_task_required(self, refusal: Exception | Result) -> bool:
        """Return whether the error is one of those for a tool that has to be called as a task.

        https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks#tool-level-negotiation
        """
        if isinstance(refusal, Result):
            # The TypeScript SDK 1 sends the error as the text of a failed result.
            return refusal.is_error and refusal.text.startswith(_ERROR_IN_A_RESULT)
        if not isinstance(refusal, MethodNotFound | InvalidRequest):
            return False
        return refusal.code in (MethodNotFound.code, InvalidRequest.code)

    def _message(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any],
        request: Request,
        mirrored: Mirrored | None,
    ) -> Message:
        if isinstance(request, AnswerTask):  # the metadata names the task
            related = {RELATED: {"taskId": params.pop("taskId")}}
            params = {**params, "_meta": {**params.get("_meta", {}), **related}}
        return super()._message(request_id, method, params, request, mirrored)

    def read_capabilities(self, fields: Mapping[str, Any]) -> ServerCapabilities:
        """Return the capabilities of the server; tasks and their response modes are in the core."""
        if self.is_bare:
            fields = _ASSUMED
        tasks: Any = fields
        for key in ("tasks", "requests", "tools", "call"):
            tasks = tasks.get(key) if isinstance(tasks, Mapping) else None
        modes = [mode for mode in MODES if mode in declared_modes(fields)]
        return msgspec.structs.replace(
            super().read_capabilities(fields),
            tasks=tasks is not None or bool(modes),
            streams="streaming" in modes,
            response_modes=bool(modes),
        )


class ClientWithoutTasks(_WithSessions):
    """The versions before 2025-11-25, which have no tasks and no segments."""

    methods = {kind: method for method, kind in WithoutTasks.methods.items()}


def _streams(request: CallTool | RedeemTask) -> bool:
    if request.stream is not None:
        return True
    task = request.task if isinstance(request, CallTool) else None
    return task is not None and "streaming" in (task.response_modes or ())
