"""An audit log: one line for each request, with its caller and its outcome.

The lines are JSON, on the logger `antiphon.audit`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from antiphon.errors import RequestError
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool, Discover, Initialize, Ping
from antiphon.model.segment import SegmentPage, StreamEnd
from antiphon.model.task import Promise, TaskResult
from antiphon.printable import printable_json
from antiphon.runtime.middleware import CallNext, IncomingRequest

__all__ = ["AuditLog"]

logger = logging.getLogger("antiphon")

_encode = msgspec.json.Encoder(enc_hook=repr).encode


class AuditLog:
    """Logs every request at the level `INFO`: time, principal, request, target, outcome and duration.

    - `arguments`: log the arguments of tool calls too. They may contain secrets.
    - `leave_out`: the classes of requests that are not logged.
    - `logger`: the logger to use. Default: `antiphon.audit`.
    """

    def __init__(
        self,
        *,
        arguments: bool = False,
        leave_out: Collection[type[Any]] = (Ping, Initialize, Discover),
        logger: logging.Logger | None = None,
    ) -> None:
        self._arguments = arguments
        self._leave_out = tuple(leave_out)
        self._logger = logger or logging.getLogger("antiphon.audit")

    async def __call__(self, incoming: IncomingRequest, call_next: CallNext) -> Any:
        """Handle a request, and log it."""
        if isinstance(incoming.request, self._leave_out) or not self._logger.isEnabledFor(logging.INFO):
            return await call_next()
        started = time.monotonic()
        entry: dict[str, Any] = {"outcome": "failed"}
        try:
            outcome = await call_next()
            entry = _outcome(outcome)
            return outcome
        except RequestError as error:
            entry = {"outcome": "error", "code": error.code, "message": error.message}
            raise
        except asyncio.CancelledError:
            entry = {"outcome": "cancelled"}
            raise
        finally:
            self._write(incoming, entry, time.monotonic() - started)

    def _write(self, incoming: IncomingRequest, entry: Mapping[str, Any], seconds: float) -> None:
        request = incoming.request
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "principal": incoming.principal.id,
            "client": None if incoming.client is None else incoming.client.name,
            "request": type(request).__name__,
            "target": _target(request),
            "id": incoming.id,
            **entry,
            "seconds": round(seconds, 6),
        }
        if self._arguments and isinstance(request, CallTool):
            line["arguments"] = request.arguments
        try:
            self._logger.info("%s", printable_json(_encode(line).decode()), extra={"audit": line})
        except Exception:  # a line that cannot be written must not change how the request ends
            logger.exception("The audit line of request %r cannot be written.", incoming.id)


def _target(request: Any) -> str | None:
    """Return the target of a request: the name of a tool or prompt, a URI, or the id of a task."""
    for name in ("name", "uri", "task_id"):
        found = getattr(request, name, None)
        if isinstance(found, str):
            return found
    return None


def _outcome(outcome: Any) -> dict[str, Any]:
    if isinstance(outcome, StreamEnd):
        outcome = outcome.result
    elif isinstance(outcome, TaskResult):
        outcome = outcome.outcome
    if isinstance(outcome, SegmentPage):
        state = "failed" if outcome.is_error else "complete" if outcome.is_complete else "open"
        return {"outcome": state, "task": outcome.task_id}
    if isinstance(outcome, Result):
        return {"outcome": "failed" if outcome.is_error else "complete"}
    if isinstance(outcome, InputRequired):
        return {"outcome": "input_required", "questions": list(outcome.questions)}
    if isinstance(outcome, Promise):
        return {"outcome": "task", "task": outcome.task.id}
    return {"outcome": "complete"}
