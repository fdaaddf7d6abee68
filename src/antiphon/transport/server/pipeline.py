"""From how a call ended to the frame that says so, also where that turns out not to be writable.

What an author returns may hold things that JSON cannot; their caller gets an answer all the same.
"""

from __future__ import annotations

import logging

from antiphon.errors import InternalError, RequestError
from antiphon.model.outcome import Outcome
from antiphon.model.request import Request, RequestId
from antiphon.wire.server.dialect import Dialect

__all__ = ["refusal", "response"]

logger = logging.getLogger("antiphon")


def response(dialect: Dialect, request: Request, request_id: RequestId, outcome: Outcome) -> bytes:
    """The frame that answers a request; raises `InternalError` for an outcome that cannot be written."""
    try:
        return dialect.response(request, request_id, outcome)
    except Exception:
        logger.exception("The outcome of request %r cannot be written as JSON.", request_id)
        raise InternalError(
            f"The server cannot write down its answer. Its log has the details, under request {request_id!r}."
        ) from None


def refusal(dialect: Dialect, request: Request, request_id: RequestId, error: RequestError) -> bytes:
    """The frame that refuses a request; without the error's data where that cannot be written."""
    try:
        return dialect.refusal(request, request_id, error)
    except Exception:
        logger.exception("The error of request %r cannot be written as JSON.", request_id)
        error.data = None
        return dialect.refusal(request, request_id, error)
