"""Serves requests with a server of `mcp` 1.x: a low-level `Server`, or a `FastMCP` of mcp or fastmcp 2 and 3.

Requests enter at the handlers of the low-level server. This is the only module that knows the interfaces of
`mcp` 1.x.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
from mcp import types
from mcp.server.lowlevel.server import request_ctx
from mcp.server.session import ServerSession
from mcp.shared.context import RequestContext
from mcp.shared.exceptions import McpError
from pydantic import ValidationError

from antiphon.adoption.exchange import Changes, Exchange
from antiphon.adoption.http_request import http_request
from antiphon.adoption.seam import LifespanTask, Seam, dumped, plain_result
from antiphon.errors import InvalidParams, MethodNotFound, RequestError
from antiphon.model.identity import Implementation
from antiphon.model.outcome import Result
from antiphon.wire.client import results

__all__ = ["Mcp1Seam"]

_REQUEST_TIMEOUT = 408
"""The code that the SDK uses when a request to the client takes too long."""
_REQUESTS: Mapping[str, Any] = {
    "tools/list": types.ListToolsRequest,
    "tools/call": types.CallToolRequest,
    "resources/list": types.ListResourcesRequest,
    "resources/templates/list": types.ListResourceTemplatesRequest,
    "resources/read": types.ReadResourceRequest,
    "resources/subscribe": types.SubscribeRequest,
    "resources/unsubscribe": types.UnsubscribeRequest,
    "prompts/list": types.ListPromptsRequest,
    "prompts/get": types.GetPromptRequest,
    "completion/complete": types.CompleteRequest,
}
_UNNAMED = {"name": "unknown", "version": "unknown"}
"""The client, if it reports no name."""
_CONTEXT_FIELDS = {field.name for field in dataclasses.fields(RequestContext)}

_current: contextvars.ContextVar[Exchange | None] = contextvars.ContextVar("antiphon_exchange", default=None)
"""The exchange of the request that is served. The SDK has one object for all requests of a session."""


class Mcp1Seam(Seam[Any]):
    """A low-level server of `mcp` 1.x. A session is a `ServerSession` without streams."""

    def __init__(self, server: Any, fastmcp: Any = None) -> None:
        super().__init__()
        self._server = server
        self._fastmcp = fastmcp
        self._lifespan = LifespanTask()
        self._lifespan_value: Any = None
        self._outside: Exchange | None = None
        """Takes the notifications that the server sends while it serves no request."""
        self._options = server.create_initialization_options()
        self._session_class = _session_class(fastmcp)
        self.instructions = self._options.instructions
        icons = [dumped(icon) for icon in getattr(self._options, "icons", None) or ()]
        self.info = msgspec.convert(
            {
                "name": self._options.server_name,
                "version": self._options.server_version,
                "websiteUrl": getattr(self._options, "website_url", None),
                "icons": icons or None,
            },
            Implementation,
        )

    def handles(self, method: str) -> bool:
        """Return whether the server has a handler for a method."""
        return _REQUESTS[method] in self._server.request_handlers

    @asynccontextmanager
    async def running(self, changes: Changes) -> AsyncIterator[None]:
        """Enter the lifespan of the server, and before it the one of FastMCP."""
        self._outside = Exchange(None, changes)
        async with self._lifespan.running(self._lifespans()) as value:
            self._lifespan_value = value
            yield

    @asynccontextmanager
    async def _lifespans(self) -> AsyncIterator[Any]:
        if self._fastmcp is None:
            async with self._server.lifespan(self._server) as value:
                yield value
        else:
            async with self._fastmcp._lifespan_manager(), self._server.lifespan(self._server) as value:
                yield value

    def new_session(self) -> Any:
        """Create a session whose messages go to the caller of the current request."""
        before = () if self._fastmcp is None else (self._fastmcp,)
        session = self._session_class(*before, self._options)
        session.outside = self._outside
        return session

    # Serving

    async def request(self, method: str, params: dict[str, Any], exchange: Exchange) -> Mapping[str, Any]:
        """Return the result of a request; raises `RequestError` with the error of the server."""
        return dumped(await self._serve(method, params, exchange))

    async def call_tool(self, name: str, arguments: dict[str, Any], exchange: Exchange) -> Result:
        """Call a tool, and return its result as the server made it; raises `RequestError`."""
        served = await self._serve("tools/call", {"name": name, "arguments": arguments}, exchange)
        if not isinstance(served, types.CallToolResult):
            return results.result(dumped(served))
        data = getattr(served, "structuredContent", None)
        plain = plain_result(served.content, data, served.meta, is_error=served.isError)
        return results.result(dumped(served)) if plain is None else plain

    async def _serve(self, method: str, params: dict[str, Any], exchange: Exchange) -> Any:
        self._lifespan.check()
        kind = _REQUESTS[method]
        handler = self._server.request_handlers.get(kind)
        if handler is None:
            raise MethodNotFound(f"The adopted server has no {method}.")
        meta = None if exchange.call is None else exchange.call.request_meta.raw
        try:
            request = kind.model_validate(
                {"method": method, "params": {**params, "_meta": meta} if meta else params}
            )
        except ValidationError as error:
            raise InvalidParams("Invalid request parameters") from error
        tokens: list[tuple[contextvars.ContextVar[Any], Any]] = [
            (name, name.set(value)) for name, value in self._lifespan.variables.items()
        ]
        tokens.append((_current, _current.set(exchange)))
        tokens.append((request_ctx, request_ctx.set(self._context(request, exchange))))
        try:
            served = await handler(request)
        except McpError as error:
            raise results.error(dumped(error.error)) from error
        except RequestError:
            raise
        except Exception as error:
            # The SDK answers with this code, whatever was raised.
            raise results.error({"code": 0, "message": str(error)}) from error
        finally:
            for name, token in reversed(tokens):
                name.reset(token)
        return served.root

    def _context(self, request: Any, exchange: Exchange) -> Any:
        session = self.session(exchange)
        fields: dict[str, Any] = {
            "request_id": 0 if exchange.call is None else exchange.call.id,
            "meta": None if request.params is None else request.params.meta,
            "session": session,
            "lifespan_context": self._lifespan_value,
        }
        if "experimental" in _CONTEXT_FIELDS:
            from mcp.server.experimental.request_context import Experimental

            fields["experimental"] = Experimental(
                task_metadata=None, _client_capabilities=None, _session=session, _task_support=None
            )
        if "request" in _CONTEXT_FIELDS:
            fields["request"] = http_request(exchange)
        return RequestContext(**fields)


def _session_class(fastmcp: Any) -> Any:
    """Return the class of the sessions: the SDK's, or the one of FastMCP, with other ways in and out."""
    base: Any = ServerSession
    if fastmcp is not None:
        from fastmcp.server.low_level import MiddlewareServerSession

        base = MiddlewareServerSession

    class AdoptedSession(base):  # type: ignore[misc]
        """A session that sends its messages to the caller of the current request."""

        outside: Exchange | None = None

        def __init__(self, *arguments: Any) -> None:
            *before, options = arguments
            super().__init__(*before, None, None, options, stateless=True)
            self._incoming_message_stream_writer.close()
            self._incoming_message_stream_reader.close()

        @property
        def _client_params(self) -> Any:
            exchange = _current.get()
            if exchange is None:
                return None
            return types.InitializeRequestParams.model_validate(
                {
                    "protocolVersion": types.LATEST_PROTOCOL_VERSION,
                    "capabilities": exchange.capabilities,
                    "clientInfo": exchange.client or _UNNAMED,
                }
            )

        async def send_request(
            self,
            request: Any,
            result_type: Any,
            request_read_timeout_seconds: timedelta | None = None,
            metadata: Any = None,
            progress_callback: Any = None,
        ) -> Any:
            plain = dumped(request)
            wait = request_read_timeout_seconds
            try:
                async with asyncio.timeout(None if wait is None else wait.total_seconds()):
                    answer = await _exchange().ask(plain["method"], plain.get("params"))
            except RequestError as error:
                raise McpError(
                    types.ErrorData(code=error.code, message=error.message, data=error.data)
                ) from error
            except TimeoutError:
                message = f"No response to {plain['method']} in time."
                raise McpError(types.ErrorData(code=_REQUEST_TIMEOUT, message=message)) from None
            return result_type.model_validate(answer)

        async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
            exchange = _current.get() or self.outside
            if exchange is not None:
                plain = dumped(notification)
                await exchange.notify(plain["method"], plain.get("params"))

    return AdoptedSession


def _exchange() -> Exchange:
    exchange = _current.get()
    if exchange is None:
        raise RuntimeError("Only code that serves a request can ask its caller.")
    return exchange
