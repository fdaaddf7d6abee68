"""Serves requests with a server of `mcp` 2.x: its low-level `Server`, `MCPServer`, or `FastMCP` of fastmcp 4.

Requests enter at the runner of the SDK, below its transports. With `mcp2_dispatch`, this is the only module
that knows the interfaces of `mcp` 2.x.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import msgspec
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary
from mcp.server.runner import serve_one
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_to_notification
from mcp_types import ErrorData
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import BaseModel, ValidationError

from antiphon.adoption.exchange import Changes, Exchange
from antiphon.adoption.mcp2_dispatch import Dispatch
from antiphon.adoption.seam import LifespanTask, Seam, dumped, plain_result
from antiphon.errors import InternalError, InvalidParams, RequestError
from antiphon.model.identity import Implementation
from antiphon.model.notification import ListChanged, ResourceUpdated
from antiphon.model.outcome import Result
from antiphon.wire.client import results
from antiphon.wire.questions import read_questions

__all__ = ["Mcp2Seam"]

logger = logging.getLogger("antiphon")

_HANDSHAKE: str = LATEST_HANDSHAKE_VERSION
_MODERN: str = LATEST_MODERN_VERSION
_MAX_ROUNDS = 100
"""How often one request may return `InputRequiredResult`."""
_REFUSED = "InputRequiredResult"
"""Part of the error by which FastMCP refuses to return questions to a caller of an earlier version."""
_MAX_REMEMBERED = 1000
"""How many functions that return questions are remembered. URIs of resources come from callers."""
_MULTI_ROUND = frozenset({"tools/call", "resources/read", "prompts/get"})
_HANDSHAKE_METHODS = frozenset({"resources/subscribe", "resources/unsubscribe"})
"""The methods that 2026-07-28 does not have."""
_META = "io.modelcontextprotocol/"
_SDK_MIDDLEWARE = frozenset({OpenTelemetryMiddleware, RequestStateBoundary})
_FASTMCP_MIDDLEWARE = "fastmcp.server.low_level"
_TRACING_SDK = "opentelemetry.sdk"


class Mcp2Seam(Seam[dict[str, Any]]):
    """A low-level server of `mcp` 2.x. A session is the state that the SDK keeps for a connection."""

    def __init__(self, server: Any, *, is_fastmcp: bool = False) -> None:
        super().__init__()
        self._server = server
        self._is_fastmcp = is_fastmcp
        # FastMCP refuses `ctx.elicit` to callers of 2026-07-28. Here every caller can be asked.
        self._version = _HANDSHAKE if is_fastmcp else _MODERN
        self._returns_questions: set[str] = set()
        """The requests to FastMCP whose functions return questions, and do not ask them."""
        self._lifespan = LifespanTask()
        self._lifespan_value: Any = None
        options = server.create_initialization_options()
        self.instructions = options.instructions
        self.info = msgspec.convert(dumped(server.server_info), Implementation)

    def handles(self, method: str) -> bool:
        """Return whether the server has a handler for a method."""
        return self._server.get_request_handler(method) is not None

    @asynccontextmanager
    async def running(self, changes: Changes) -> AsyncIterator[None]:
        """Enter the lifespan of the server, which is the one of FastMCP too, and report what it publishes."""
        lifespan: AbstractAsyncContextManager[Any] = self._server.lifespan(self._server)
        async with self._lifespan.running(lifespan) as value:
            self._lifespan_value = value
            with self._listening(changes):
                yield

    @contextmanager
    def _listening(self, changes: Changes) -> Iterator[None]:
        """Report the changes that the server publishes to callers of 2026-07-28."""
        entry = self._server.get_request_handler("subscriptions/listen")
        if entry is None or not isinstance(entry.handler, ListenHandler):
            yield
            return

        def publish(event: Any) -> None:
            message = dumped(event_to_notification(event, {}))
            change = results.read_notification(message["method"], message.get("params", {}))
            if isinstance(change, ListChanged | ResourceUpdated):
                changes(change)

        stop = entry.handler._bus.subscribe(publish)
        try:
            yield
        finally:
            stop()

    def new_session(self) -> dict[str, Any]:
        """Create the state of a connection."""
        return {}

    # Serving

    async def request(self, method: str, params: dict[str, Any], exchange: Exchange) -> Mapping[str, Any]:
        """Return the result of a request; raises `RequestError` with the error of the server."""
        served = await self._serve(method, params, exchange)
        return served if isinstance(served, Mapping) else dumped(served)

    async def call_tool(self, name: str, arguments: dict[str, Any], exchange: Exchange) -> Result:
        """Call a tool, and return its result as the server made it; raises `RequestError`."""
        served = await self._serve("tools/call", {"name": name, "arguments": arguments}, exchange)
        if isinstance(served, Mapping):
            return results.result(served)
        plain = plain_result(served.content, served.structured_content, served.meta, is_error=served.is_error)
        return results.result(dumped(served)) if plain is None else plain

    async def _serve(self, method: str, params: dict[str, Any], exchange: Exchange) -> Any:
        """Return the result of a request, after all rounds of questions that it returned."""
        self._lifespan.check()
        key = f"{method} {params.get('name') or params.get('uri')}"
        is_direct = method in _MULTI_ROUND and self._is_direct
        tokens = [(name, name.set(value)) for name, value in self._lifespan.variables.items()]
        try:
            for _ in range(_MAX_ROUNDS):
                serve = self._serve_directly if is_direct else self._serve_in_runner
                try:
                    served = await serve(method, params, exchange, self._version_for(method, key))
                except MCPError as error:
                    if (
                        not self._is_fastmcp
                        or _REFUSED not in error.message
                        or key in self._returns_questions
                    ):
                        raise
                    # Such a function is written to be called again, so the round can be repeated.
                    if len(self._returns_questions) >= _MAX_REMEMBERED:
                        self._returns_questions.clear()
                    self._returns_questions.add(key)
                    continue
                if (asked := _questions(served)) is None:
                    return served
                params = {**params, **await _ask(asked, exchange)}
        except MCPError as error:
            raise _request_error(error) from error
        except ValidationError as error:
            raise InvalidParams("Invalid request parameters") from error
        except RequestError:
            raise
        except Exception:
            # The SDK says no more than this to callers of 2026-07-28, whatever was raised.
            logger.exception("The adopted server %r raised an error in %s.", self.info.name, method)
            raise InternalError("Internal server error") from None
        finally:
            for name, token in reversed(tokens):
                name.reset(token)
        raise InternalError(f"The server returned questions {_MAX_ROUNDS} times for one request.")

    def _version_for(self, method: str, key: str) -> str:
        """Return the version that the server sees in a request."""
        if method in _HANDSHAKE_METHODS:
            return _HANDSHAKE
        return _MODERN if key in self._returns_questions else self._version

    @property
    def _is_direct(self) -> bool:
        """Whether handlers can be called without the runner: only middleware of the SDK lies in between.

        Its tracing does nothing unless a tracing SDK is loaded. Its request states stay in this process. The
        middleware of FastMCP binds a context that the handlers bind too, and calls the author's from within.
        """
        return _TRACING_SDK not in sys.modules and all(
            type(each) in _SDK_MIDDLEWARE or type(each).__module__ == _FASTMCP_MIDDLEWARE
            for each in self._server.middleware
        )

    async def _serve_in_runner(
        self, method: str, params: dict[str, Any], exchange: Exchange, version: str
    ) -> Any:
        dispatch = Dispatch(exchange)
        enveloped = {**params, "_meta": self._envelope(exchange, version)}
        connection = self._connection(exchange, dispatch, version)
        return await serve_one(
            self._server,
            dispatch,
            method,
            enveloped,
            connection=connection,
            lifespan_state=self._lifespan_value,
        )

    async def _serve_directly(
        self, method: str, params: dict[str, Any], exchange: Exchange, version: str
    ) -> Any:
        entry = self._server.get_request_handler(method)
        dispatch = Dispatch(exchange)
        meta = self._envelope(exchange, version)
        connection = self._connection(exchange, dispatch, version)
        token = meta.get("progressToken")
        lifted: Any = meta if token is None else {**meta, "progress_token": token}
        context = ServerRequestContext(
            session=ServerSession(dispatch, connection, request_meta=lifted),
            lifespan_context=self._lifespan_value,
            method=method,
            params={**params, "_meta": meta},
            request_id=dispatch.request_id,
            meta=lifted,
            protocol_version=version,
            request=dispatch.message_metadata.request_context,
        )
        try:
            served = await entry.handler(
                context, entry.params_type.model_validate(context.params, by_name=False)
            )
        finally:
            await connection.exit_stack.aclose()
        if isinstance(served, ErrorData):
            raise MCPError.from_error_data(served)
        return {} if served is None else served

    def _connection(self, exchange: Exchange, dispatch: Dispatch, version: str) -> Connection:
        connection = Connection.from_envelope(
            version, exchange.client, exchange.capabilities, outbound=dispatch
        )
        connection.state = self.session(exchange)
        return connection

    def _envelope(self, exchange: Exchange, version: str) -> dict[str, Any]:
        """Return the `_meta` of a request of this library to the server."""
        given = {} if exchange.call is None else exchange.call.request_meta.raw
        meta = {name: value for name, value in given.items() if not name.startswith(_META)}
        if version == _MODERN:
            meta[f"{_META}protocolVersion"] = version
            if exchange.client is not None:
                meta[f"{_META}clientInfo"] = exchange.client
            meta[f"{_META}clientCapabilities"] = dict(exchange.capabilities)
            if exchange.log_level is not None:
                meta[f"{_META}logLevel"] = exchange.log_level
        return meta


def _questions(served: Any) -> Mapping[str, Any] | None:
    """Return a result that has questions as plain data; `None` for another result."""
    if isinstance(served, BaseModel):
        served = dumped(served) if getattr(served, "result_type", None) == "input_required" else {}
    return served if served.get("resultType") == "input_required" else None


async def _ask(asked: Mapping[str, Any], exchange: Exchange) -> dict[str, Any]:
    """Ask the questions that a function returned, and return the params of its next round."""
    requests = asked.get("inputRequests") or {}
    read_questions(requests)
    answers = await asyncio.gather(
        *(exchange.ask(request["method"], request.get("params")) for request in requests.values())
    )
    again: dict[str, Any] = {"inputResponses": dict(zip(requests, answers, strict=True))}
    if asked.get("requestState") is not None:
        again["requestState"] = asked["requestState"]
    return again


def _request_error(error: MCPError) -> RequestError:
    data = error.error
    return results.error({"code": data.code, "message": data.message, "data": data.data})
