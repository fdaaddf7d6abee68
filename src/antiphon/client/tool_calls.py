"""Sends tool calls, and repeats a call if the server says what the first attempt lacked.

A call may lack headers that mirror its arguments, or the parameters of a task. The list of tools says which
tool needs which; it is read only if it is needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.client.catalog_cache import CatalogCache
from antiphon.client.connection import Callback, Connection, Sink
from antiphon.client.input_rounds import responses
from antiphon.client.streaming.segment_tracker import whole_outcome
from antiphon.errors import BadAnswer, HeaderMismatch, InvalidRequest, MethodNotFound, Unreachable
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool, RequestMeta, TaskParams
from antiphon.model.segment import ResponseMode, StreamPart

__all__ = ["ToolCalls", "tool_call"]

_TASK: tuple[ResponseMode, ...] = ("task",)


class ToolCalls:
    """The tool calls of one client. `list_tools` reads the list of tools into the cache."""

    def __init__(
        self,
        connection: Connection,
        catalog: CatalogCache,
        list_tools: Callable[[], Awaitable[object]],
        max_message: int,
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._list_tools = list_tools
        self._max_message = max_message

    async def as_task(self, request: CallTool, ttl: float | None, modes: Sequence[ResponseMode]) -> CallTool:
        """Return the call with the parameters of a task, if the version has them and the tool takes them."""
        if not await self._takes_task_params(request.name):
            return request
        return self._with_task_params(request, ttl, modes)

    async def as_stream(
        self, request: CallTool, request_meta: RequestMeta, modes: Sequence[ResponseMode]
    ) -> tuple[CallTool, RequestMeta]:
        """Return the call and its metadata, asking for segments if the server sends them."""
        if not self._connection.offers.streams:
            return request, request_meta
        request, request_meta = self._connection.dialect.stream_call(request, request_meta)
        if await self._takes_task_params(request.name):
            request = self._with_task_params(request, modes=modes)
        return request, request_meta

    async def send(
        self,
        request: CallTool,
        request_meta: RequestMeta,
        *,
        timeout: float | None,
        on_progress: Callback | None,
        sink: Sink | None = None,
    ) -> Any:
        """Send one round of a call: returns its result, its questions, or the task that it has become.

        With a sink, which receives the segments, it may also return the last part of the stream.
        """
        name = request.name
        is_required = self._has_task_params and self._catalog.task_support(name) == "required"
        if request.task is None and is_required and not request_meta.wants_answer:
            request = self._with_task_params(request)
        try:
            outcome = await self._send(request, request_meta, timeout, on_progress, sink)
        except HeaderMismatch:
            # https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#client-behavior
            self._catalog.evict("tools")
            await self._list_tools()
            if self._catalog.mirrored(name) is None:
                raise
        except (MethodNotFound, InvalidRequest) as error:
            if request_meta.wants_answer or not await self._requires_task(request, error):
                raise
            request = self._with_task_params(request)
        else:
            has_failed = isinstance(outcome, Result) and outcome.is_error
            if not has_failed or request_meta.wants_answer:
                return outcome
            if not await self._requires_task(request, outcome):
                return outcome
            request = self._with_task_params(request)
        return await self._send(request, request_meta, timeout, on_progress, sink)

    async def _send(
        self,
        request: CallTool,
        request_meta: RequestMeta,
        timeout: float | None,
        on_progress: Callback | None,
        sink: Sink | None,
    ) -> Any:
        mirrored = self._catalog.mirrored(request.name)
        outcome = await self._connection.ask(
            request, request_meta, timeout=timeout, on_progress=on_progress, mirrored=mirrored, sink=sink
        )
        if sink is None and isinstance(outcome, StreamPart):
            return whole_outcome(outcome, self._max_message)
        return outcome

    async def _requires_task(self, request: CallTool, refusal: Exception | Result) -> bool:
        """Return whether a call was refused because the tool has to be called as a task."""
        if request.task is not None or not self._has_task_params:
            return False
        if not self._connection.dialect.says_task_required(refusal):
            return False
        await self._list_tools()
        return self._catalog.task_support(request.name) == "required"

    async def _takes_task_params(self, tool: str) -> bool:
        """Return whether a tool makes a task for a caller that asks for one."""
        if not self._has_task_params:
            return False
        if self._catalog.task_support(tool) is None:
            try:
                await self._list_tools()
            except (MethodNotFound, BadAnswer, Unreachable) as error:
                if not (isinstance(error, MethodNotFound) or self._connection.dialect.is_bare):
                    raise
                return True  # a server without a list leaves it to the caller
        return self._catalog.task_support(tool) in ("optional", "required")

    @property
    def _has_task_params(self) -> bool:
        """Whether a caller can ask for a task, in this version and of this server."""
        return self._connection.dialect.takes_task_params and self._connection.offers.tasks

    def _with_task_params(
        self, request: CallTool, ttl: float | None = None, modes: Sequence[ResponseMode] = _TASK
    ) -> CallTool:
        """Return the call as a task. A server that has response modes is told which of them are accepted."""
        accepted = tuple(modes) if self._connection.offers.response_modes else None
        params = TaskParams(None if ttl is None else int(ttl * 1000), accepted)
        return msgspec.structs.replace(request, task=params, stream=None)


def tool_call(
    name: str, arguments: dict[str, Any], resume: InputRequired | None, answers: Mapping[str, Any] | None
) -> CallTool:
    """Return the request of a call: the first round, or the one that follows `resume`."""
    questions, state = (resume.questions, resume.sealed) if resume is not None else ({}, None)
    given = responses(questions, answers or {})
    return CallTool(name=name, arguments=arguments, input_responses=given, request_state=state)
