"""2025-11-25 and the versions before it, as a server speaks them: with sessions.

https://modelcontextprotocol.io/specification/2025-11-25
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from antiphon.errors import InvalidParams, MissingCapability, RequestError, ResourceNotFound, TaskRequired
from antiphon.model.capabilities import ServerCapabilities
from antiphon.model.catalog import ToolDefinition
from antiphon.model.content import Block, ResourceLink, Text
from antiphon.model.outcome import Discovery, InputRequired, Page, Result
from antiphon.model.question import OpenUrl, Question
from antiphon.model.request import (
    AnswerQuestion,
    CallTool,
    CancelTask,
    GetTask,
    Initialize,
    ListTasks,
    Ping,
    RedeemTask,
    Request,
    RequestId,
    RequestMeta,
    SetLogLevel,
    Subscribe,
    Unsubscribe,
)
from antiphon.model.segment import MODES, CallerMessage, SegmentPage, Segments, StreamEnd
from antiphon.model.task import Promise, TaskResult
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame, PlainRequest
from antiphon.wire.server.dialect import COMMON_METHODS, Dialect, Negotiated
from antiphon.wire.server.segments import (
    FALLBACK,
    NO_SEGMENTS,
    declared_modes,
    last_response,
    partial_response,
    segment_page,
)
from antiphon.wire.server.tasks import QUESTION, one_task, related_task

__all__ = ["V2025", "WithoutStructuredContent", "WithoutTasks"]


# A request with any other field is read in full: the full path may refuse the field.
class _PlainParams(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}


_plain_calls = msgspec.json.Decoder(PlainRequest[Literal["tools/call"], _PlainParams])


class V2025(Dialect):
    """2025-11-25, which has tasks in the core, and streams that can be resumed."""

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
    _ending: bytes | None = b"}}"
    has_tasks: ClassVar[bool] = True
    """Whether calls can become tasks."""
    answers_in_order: ClassVar[bool] = False
    """Whether a response without a key is for the first open question that it fits."""

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request; the client introduced itself when it opened the session."""
        raw = frame.raw_params
        meta = frame.meta if b"_meta" in raw else {}
        token = meta.get("progressToken")
        task = _task_params(frame) if b'"task"' in raw else None
        capabilities = negotiated.capabilities if negotiated else {}
        modes, streams = None, False
        if task is not None or b'"stream"' in raw or isinstance(frame.stream, dict):
            modes = self._offered(task, negotiated)
            params = self._understood(frame, frame.params) if isinstance(frame.params, dict) else {}
            streams = params.get("stream") is not None
        return RequestMeta(
            client=negotiated.client if negotiated else None,
            capabilities=capabilities,
            log_level="debug",
            progress_token=token if isinstance(token, str | int) else None,
            accepts_tasks=task is not None,
            response_modes=modes,
            # Response modes are more precise than `stream`, so they decide.
            wants_stream=streams and not modes and "streaming" in self._takes(negotiated),
            raw=meta,
        )

    def parse(self, frame: Frame) -> Any:
        """Return the request in a frame; raises `MethodNotFound` or `InvalidParams`."""
        if self._is_written_otherwise(frame) and isinstance(frame.params, dict):
            params = self._understood(frame, frame.params)
            if params is not frame.params:
                frame.raw = msgspec.Raw(jsonrpc.encode(params))
        return super().parse(frame)

    def _is_written_otherwise(self, frame: Frame) -> bool:
        """Return whether `_understood` may change the params of a request: others are not read twice."""
        return isinstance(frame.stream, dict)

    def _understood(self, frame: Frame, params: dict[str, Any]) -> dict[str, Any]:
        """Return the params of a request, with what may stand beside them in place of in them."""
        if isinstance(frame.stream, dict) and "stream" not in params:
            return {**params, "stream": frame.stream}
        return params

    def answered(self, frame: Frame) -> Any:
        """Return the answer in a response that names a task: it answers an open question of the task.

        Raises `InvalidParams` if the response names two tasks.
        """
        if not self.has_tasks or not isinstance(frame.result, dict):
            return None
        meta = frame.result.get("_meta")
        task_id = one_task(related_task(meta), related_task(frame.beside))
        if not isinstance(task_id, str):
            return None
        response = {key: value for key, value in frame.result.items() if key != "_meta"}
        return AnswerQuestion(task_id, response, _key(meta) or _key(frame.beside), self.answers_in_order)

    def read_session_call(self, body: bytes | bytearray) -> tuple[RequestId, CallTool] | None:
        """Read the usual call of a tool: it has a name and arguments, and nothing else."""
        frame = jsonrpc.decode_plain(_plain_calls, body)
        if frame is None:
            return None
        return frame.id, CallTool(name=frame.params.name, arguments=frame.params.arguments)

    def session_meta(self, negotiated: Negotiated) -> RequestMeta:
        """Return the metadata of calls that have none of their own."""
        return RequestMeta(client=negotiated.client, capabilities=negotiated.capabilities, log_level="debug")

    def _takes(self, negotiated: Negotiated | None) -> Sequence[Any]:
        """Return the response modes that a client declared."""
        return () if negotiated is None else declared_modes(negotiated.capabilities)

    def _offered(self, task: Any, negotiated: Negotiated | None) -> tuple[Any, ...] | None:
        """Return the modes that a request offers and its client declared; `None` if either names none."""
        modes = task.get("responseModes") if isinstance(task, dict) else None
        known = self._takes(negotiated)
        if not isinstance(modes, list) or not known:
            return None
        return tuple(mode for mode in modes if mode in known or mode not in MODES)

    def refusal(self, request: Request, request_id: RequestId, error: RequestError) -> bytes:
        """Return the frame of an error.

        These versions have no code for a missing capability: a tool fails, and other requests are invalid.
        """
        if type(error) is not MissingCapability:
            return super().refusal(request, request_id, error)
        failed = Result(error.message, is_error=True)
        if isinstance(request, CallTool):
            return self.response(request, request_id, failed)
        if isinstance(request, RedeemTask):
            return self.response(request, request_id, TaskResult(failed, request.task_id))
        data = error.data if error.needs is None else self.missing_capabilities(error.needs)
        return super().refusal(request, request_id, InvalidParams(error.message, data=data))

    def notification(self, notification: CallerMessage, request_id: RequestId | None) -> bytes:
        """Return the frame of a notification; segments are partial responses."""
        if isinstance(notification, Segments):
            assert request_id is not None
            return jsonrpc.response(request_id, self._partial_response(notification))
        return super().notification(notification, request_id)

    def ask(
        self, question: Question, task_id: str | None = None, *, question_id: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Return the method and the parameters of a question; one with an address has an id of its own."""
        method, params = super().ask(question, task_id)
        if isinstance(question, OpenUrl):
            params["elicitationId"] = question_id or hashlib.sha256(question.url.encode()).hexdigest()[:32]
        return method, params

    def code(self, error: RequestError) -> int:
        """Return the code of an error. A missing resource, and a tool that needs a task, have other codes."""
        if isinstance(error, ResourceNotFound):
            return -32002
        return -32601 if isinstance(error, TaskRequired) else error.code

    def _structured(self, result: Result) -> Any:
        """Return the structured content, which is always an object."""
        return {"result": result.data} if result.boxed else result.data

    def _page(self, page: Page) -> dict[str, Any]:
        value = super()._page(page)
        if page.kind == "tools":
            value["tools"] = [boxed(tool) for tool in page.items if isinstance(tool, ToolDefinition)]
        return value

    def _discovery(self, discovery: Discovery) -> dict[str, Any]:
        value: dict[str, Any] = {
            "protocolVersion": self.version,
            "capabilities": self._capabilities(discovery.capabilities),
            "serverInfo": discovery.server,
        }
        if discovery.instructions is not None:
            value["instructions"] = discovery.instructions
        return value

    def _partial_response(self, segments: Segments) -> dict[str, Any]:
        return partial_response(segments)

    def _stream_end(self, end: StreamEnd) -> dict[str, Any]:
        return last_response(end, self.tool_result(end.result))

    def _input_required(self, stopped: InputRequired) -> dict[str, Any]:
        """Return the result object of questions; on a stream of segments, it says that the stream goes on."""
        value = super()._input_required(stopped)
        return {**value, **NO_SEGMENTS} if stopped.streamed else value

    def _segment_page(self, page: SegmentPage) -> dict[str, Any]:
        if page.stopped is not None:
            outcome = self._input_required(page.stopped)
        else:
            outcome = {} if page.end is None else self.tool_result(page.end)
        return segment_page(page, outcome)

    def _promise(self, promise: Promise) -> dict[str, Any]:
        value = super()._promise(promise)
        return {**value, "_meta": FALLBACK} if promise.fell_back else value

    def _capabilities(self, offered: ServerCapabilities) -> dict[str, Any]:
        value = super()._capabilities(offered)
        if offered.tasks and self.has_tasks:
            tasks: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
            value["tasks"] = {**tasks, "responses": {"modes": MODES}}
            if offered.task_list:
                value["tasks"] = {"list": {}, **value["tasks"]}
        return value


class WithoutTasks(V2025):
    """2025-06-18, which has no tasks: the parameters of a task are ignored."""

    methods = {method: kind for method, kind in V2025.methods.items() if not method.startswith("tasks/")}
    has_tasks = False

    def parse(self, frame: Frame) -> Any:
        """Return the request in a frame, without the parameters of a task."""
        request = super().parse(frame)
        if isinstance(request, CallTool) and request.task is not None:
            return msgspec.structs.replace(request, task=None)
        return request

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request, without tasks and segments."""
        request_meta = super().request_meta(frame, negotiated)
        return msgspec.structs.replace(
            request_meta, accepts_tasks=False, response_modes=None, wants_stream=False
        )


class WithoutStructuredContent(WithoutTasks):
    """2025-03-26 and 2024-11-05, which have neither structured content nor links to resources.

    Their clients get the data of a tool as text. Most results have the data in their text, as the later
    versions recommend; otherwise, a text block is added:
    https://modelcontextprotocol.io/specification/2025-06-18/server/tools#structured-content
    """

    _ending = None

    def tool_result(self, result: Result) -> dict[str, Any]:
        """Return the result object of a tool's result; its data becomes text, unless the text has it."""
        value = super().tool_result(result)
        content = [_readable(block) for block in result.content]
        if result.structured:
            data = value.pop("structuredContent")
            if not _has_text_of(content, data):
                content.append(Text(jsonrpc.encode(data).decode()))
        value["content"] = content
        return value

    def _page(self, page: Page) -> dict[str, Any]:
        value = super()._page(page)
        if page.kind == "tools":
            value["tools"] = [msgspec.structs.replace(tool, output_schema=None) for tool in value["tools"]]
        return value


def _readable(block: Block) -> Block:
    return Text(f"{block.title or block.name}: {block.uri}") if isinstance(block, ResourceLink) else block


def _has_text_of(content: Sequence[Block], data: Any) -> bool:
    """Return whether text blocks say the data: one block all of it, or one block each item of a list.

    A value that is no object may be wrapped in an object.
    """
    texts = [block.text for block in content if isinstance(block, Text)]
    is_wrapped = isinstance(data, dict) and data.keys() == {"result"}
    for value in (data, data["result"]) if is_wrapped else (data,):
        if any(_says(text, value) for text in texts):
            return True
        if isinstance(value, list) and value and len(value) == len(texts) and all(map(_says, texts, value)):
            return True
    return False


def _says(text: str, value: Any) -> bool:
    """Return whether a text is a string, or the JSON of a value in any notation."""
    if text == value:
        return True
    written = jsonrpc.encode(value)
    if text.encode(errors="replace") == written:
        return True
    try:
        read = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return False
    return _in_order(read) == _in_order(msgspec.json.decode(written))


def _in_order(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _key(meta: Any) -> str | None:
    """Return the key of the question that metadata names, if it names one."""
    key = meta.get(QUESTION) if isinstance(meta, dict) else None
    return key if isinstance(key, str) else None


def _task_params(frame: Frame) -> Any:
    return frame.params.get("task") if isinstance(frame.params, dict) else None


def boxed(tool: ToolDefinition) -> ToolDefinition:
    """Return the tool with an output schema that is an object, which versions before 2026-07-28 require."""
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
    """Return whether a schema only allows objects."""
    return schema.get("type") == "object"
