"""The way from `mcp` 2.x back to the caller of a request, for adopted servers and for tasks inside theirs.

It must not know how a request enters the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import REQUEST_TIMEOUT

from antiphon.adoption.exchange import Exchange
from antiphon.adoption.http_request import http_request
from antiphon.errors import RequestError

__all__ = ["Dispatch"]

_TRANSPORT = TransportContext(kind="antiphon", can_send_request=True)


class Dispatch:
    """The way from the SDK back to the caller of one request. Implements `DispatchContext` of `mcp`."""

    __slots__ = (
        "_exchange",
        "can_send_request",
        "cancel_requested",
        "message_metadata",
        "request_id",
        "transport",
    )

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.can_send_request = exchange.can_ask
        self.request_id = 0 if exchange.call is None else exchange.call.id
        self.transport = _TRANSPORT
        self.message_metadata = ServerMessageMetadata(request_context=http_request(exchange))
        self.cancel_requested = anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Ask the caller; raises `MCPError`."""
        try:
            async with asyncio.timeout((opts or {}).get("timeout")):
                return await self._exchange.ask(method, params)
        except RequestError as error:
            raise MCPError(code=error.code, message=error.message, data=error.data) from error
        except TimeoutError:
            raise MCPError(code=REQUEST_TIMEOUT, message=f"Nobody answered {method!r} in time.") from None

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: Mapping[str, Any] | None = None
    ) -> None:
        """Pass a notification on to the caller."""
        await self._exchange.notify(method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller."""
        await self._exchange.progress(progress, total, message)
