"""Sends tool calls, and sends them once more where the server says what the first one lacked.

A call may lack headers that mirror its arguments, or the wish for a task. Which tools want which is known
from their list, which is only read where it is needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon.client.catalog_cache import CatalogCache
from antiphon.client.connection import Callback, Connection, Sink
from antiphon.client.streaming.segment_tracker import settled
from antiphon.errors import HeaderMismatch, InvalidRequest, MethodNotFound
from antiphon.model.request import CallTool, RequestMeta, TaskParams
from antiphon.model.segment import StreamPart

__all__ = ["ToolCalls"]

_WATCHING = ("streaming", "task")
"""How someone who watches takes the answer: not at once, which would mean that nothing is seen until then."""


class ToolCalls:
    """The tool calls of one client. `relist` reads the list of tools anew."""

    def __init__(
        self,
        connection: Connection,
        lists: CatalogCache,
        relist: Callable[[], Awaitable[object]],
        max_message: int,
    ) -> None:
        self._connection = connection
        self._lists = lists
        self._relist = relist
        self._max_message = max_message

    async def wishing(self, request: CallTool, ttl: float | None) -> CallTool:
        """The call with a wish for a task, where that is the caller's to say and the tool takes it."""
        if not await self._takes_wishes(request.name):
            return request
        return _wishing(request, ttl)

    async def streaming(self, request: CallTool, request_meta: RequestMeta) -> tuple[CallTool, RequestMeta]:
        """The call and its terms, with the wish for what it emits as it comes, where a server sends that."""
        if not self._connection.offers.streams:
            return request, request_meta
        request, request_meta = self._connection.dialect.stream_call(request, request_meta)
        return _wishing(request) if await self._takes_wishes(request.name) else request, request_meta

    async def send(
        self,
        request: CallTool,
        request_meta: RequestMeta,
        *,
        timeout: float | None,
        on_progress: Callback | None,
        sink: Sink | None = None,
    ) -> Any:
        """Send one call: a result, what it asks, or the task that it has become.

        With a sink, into which what it emits goes, it may also be the last part of that.
        """
        name = request.name
        if request.task is None and self._has_wishes and self._lists.task_support(name) == "required":
            request = _wishing(request)
        try:
            return await self._send(request, request_meta, timeout, on_progress, sink)
        except HeaderMismatch:
            # https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#client-behavior
            self._lists.forget("tools")
            await self._relist()
            if self._lists.mirrored(name) is None:
                raise
        except (MethodNotFound, InvalidRequest) as error:
            required = self._connection.dialect.says_task_required(error)
            if request.task is not None or not required or not self._has_wishes:
                raise
            await self._relist()
            if self._lists.task_support(name) != "required":
                raise
            request = _wishing(request)
        return await self._send(request, request_meta, timeout, on_progress, sink)

    async def _send(
        self,
        request: CallTool,
        request_meta: RequestMeta,
        timeout: float | None,
        on_progress: Callback | None,
        sink: Sink | None,
    ) -> Any:
        mirrored = self._lists.mirrored(request.name)
        outcome = await self._connection.ask(
            request, request_meta, timeout=timeout, on_progress=on_progress, mirrored=mirrored, sink=sink
        )
        return (
            settled(outcome, self._max_message)
            if sink is None and isinstance(outcome, StreamPart)
            else outcome
        )

    async def _takes_wishes(self, tool: str) -> bool:
        """Whether a tool makes a task for a caller that wishes for one."""
        if not self._has_wishes:
            return False
        if self._lists.task_support(tool) is None:
            await self._relist()
        return self._lists.task_support(tool) in ("optional", "required")

    @property
    def _has_wishes(self) -> bool:
        """Whether a caller says that it wants a task, and the server makes some."""
        return self._connection.dialect.takes_task_params and self._connection.offers.tasks


def _wishing(request: CallTool, ttl: float | None = None) -> CallTool:
    modes = None if request.stream is None else _WATCHING
    wish = TaskParams(None if ttl is None else int(ttl * 1000), modes)
    return msgspec.structs.replace(request, task=wish, stream=None)
