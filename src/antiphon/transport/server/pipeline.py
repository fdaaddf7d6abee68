"""The path from a frame to a call, and from its outcome to the frame that answers it, for every transport.

A transport reads frames and writes frames. The pipeline chooses the dialect, builds the call, serves it, and
turns its outcome or its error into bytes. It must not know HTTP or streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from antiphon.errors import Busy, InternalError, RequestError
from antiphon.model.identity import ANONYMOUS, Principal
from antiphon.model.request import RequestId, RequestMeta
from antiphon.runtime.engine import Engine
from antiphon.runtime.execution.call import Call, Caller, SessionState
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Dialect, Negotiated
from antiphon.wire.versions import VERSIONS, Dialects

__all__ = ["Pipeline", "stopped_by_shutdown"]

logger = logging.getLogger("antiphon")


class Pipeline:
    """Serves the frames of one server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._client_carrier = engine.client_carrier
        self._connection_carrier = engine.connection_carrier
        self._max_calls = engine.limits.max_calls
        versions = VERSIONS if engine.protocols is None else VERSIONS.only(engine.protocols)
        self.dialects = Dialects(engine.info, versions)

    # From a frame to a call

    def read(
        self,
        frame: Frame,
        dialect: Dialect,
        negotiated: Negotiated | None,
        headers: Mapping[bytes, bytes] | None,
    ) -> tuple[Any, RequestMeta]:
        """Return the request in a frame, and its metadata; raises `RequestError`.

        `headers` are those of the HTTP request that brought the frame, which some versions check.
        """
        if headers is None:
            return dialect.parse(frame), dialect.request_meta(frame, negotiated)
        return dialect.understand(frame, negotiated, headers)

    def check_room(self, calls: int) -> None:
        """Raise `Busy` if the server is at its limit of calls."""
        if calls >= self._max_calls:
            raise Busy("The server is at its limit of calls: try again.")

    def call(
        self,
        dialect: Dialect,
        request: Any,
        request_meta: RequestMeta,
        id: RequestId,
        caller: Caller,
        work: Supervised,
        principal: Principal = ANONYMOUS,
        session_state: SessionState | None = None,
    ) -> Call[Any]:
        """Build the call of a request."""
        carrier = self._client_carrier if dialect.rounds else self._connection_carrier
        return Call(request, carrier, caller, work, id, request_meta, principal, session_state)

    # From a call to a frame

    async def serve(self, dialect: Dialect, call: Call[Any]) -> bytes:
        """Serve a call, and return the frame that answers it. Pass any exception to `refuse`."""
        try:
            outcome = await self._engine.handle(call)
        except asyncio.CancelledError:
            if call.work.stop_reason != "deadline":
                raise
            call.work.uncancel()
            call.work.stop_reason = None
            return await self.overdue(dialect, call)
        return self.response(dialect, call, outcome)

    async def overdue(self, dialect: Dialect, call: Call[Any]) -> bytes:
        """Return the frame that answers a call which took too long; raises `RequestError`."""
        return self.response(dialect, call, await self._engine.overdue(call))

    def response(self, dialect: Dialect, call: Call[Any], outcome: Any) -> bytes:
        """Return the frame of an outcome.

        Raises `InternalError` if JSON cannot express the outcome, and `RequestError` if the version cannot.
        """
        try:
            return dialect.response(call.request, call.id, outcome)
        except RequestError:
            raise
        except Exception:
            logger.exception("The outcome of request %r cannot be written as JSON.", call.id)
            raise InternalError(
                f"The server cannot write its answer as JSON. Its log says why, under request {call.id!r}."
            ) from None

    def refuse(
        self,
        raised: BaseException,
        dialect: Dialect | None,
        call: Call[Any] | None,
        request_id: RequestId | None = None,
    ) -> tuple[RequestError, bytes]:
        """Return the error that answers an exception, and its frame.

        `dialect` and `call` are `None` if the exception came before they were known.
        """
        error = self._engine.error_of(call.id if call is not None else request_id, raised)
        if request_id is None:
            request_id = error.request_id
        try:
            return error, _refusal(dialect, call, request_id, error)
        except Exception:
            logger.exception("The error data of request %r cannot be written as JSON.", request_id)
            error.data = None
            return error, _refusal(dialect, call, request_id, error)


def stopped_by_shutdown() -> RequestError:
    """Return the error of a call that the server stopped because it shuts down."""
    return Busy(
        "The server shut down before it finished this request. "
        "Parts of the request may be done: check that, then try again."
    )


def _refusal(
    dialect: Dialect | None, call: Call[Any] | None, request_id: RequestId | None, error: RequestError
) -> bytes:
    if dialect is None:
        return jsonrpc.failure(request_id, error.code, error.message, error.data)
    if call is None:
        return dialect.error(request_id, error)
    return dialect.refusal(call.request, call.id, error)
