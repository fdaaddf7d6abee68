"""The contract of middleware: an async callable around every request that a server handles.

Middleware sees a request as the model has it, whichever protocol version and transport it came by. It can
refuse the request by raising a `RequestError`, return an outcome of its own, or look at the outcome of the
handler.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from antiphon.model.identity import Implementation, Principal
from antiphon.model.request import Request, RequestId
from antiphon.runtime.execution.call import Call

__all__ = ["CallNext", "Handle", "IncomingRequest", "Middleware", "run_through", "wrap"]


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """One request, as middleware sees it."""

    request: Request
    """The request itself: a `CallTool`, a `ReadResource`, a `ListTools`, …"""
    principal: Principal
    """The caller. The id is empty on a server without authentication."""
    id: RequestId
    """The id of the request, as it appears in the server's log."""
    client: Implementation | None
    """The name and version that the client reports, or `None` if it reports none."""
    meta: Mapping[str, Any]
    """The `_meta` of the request."""


CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs the next middleware, or the handler, and returns the outcome. Raises `RequestError`."""

Middleware: TypeAlias = Callable[[IncomingRequest, CallNext], Awaitable[Any]]
"""Handles a request around `call_next`, and returns the outcome."""

Handle: TypeAlias = Callable[[Call[Any]], Awaitable[Any]]
"""Serves a call: returns what to await for its outcome. Both may raise."""


def wrap(handle: Handle, middleware: Sequence[Middleware], *, timeout: float) -> Handle:
    """Return `handle` with middleware around it, the first one outermost.

    `timeout` is how many seconds the middleware before the handler may take; the handler sets its own.
    """

    async def serve(call: Call[Any]) -> Any:
        call.work.deadline = call.work.started + timeout
        incoming = IncomingRequest(
            call.request, call.principal, call.id, call.request_meta.client, call.request_meta.raw
        )

        async def last() -> Any:
            return await handle(call)

        return await run_through(middleware, incoming, last)

    return serve


def run_through(
    middleware: Sequence[Middleware], incoming: IncomingRequest, last: CallNext
) -> Awaitable[Any]:
    """Run a handler with middleware around it, and return an awaitable for the outcome."""
    call_next: CallNext = last
    for each in reversed(middleware):
        call_next = functools.partial(each, incoming, call_next)
    return call_next()
