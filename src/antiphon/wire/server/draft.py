"""The draft, as a server speaks it: 2025-11-25 with SEP-2322 and SEP-1905, and without sessions.

Bare requests get it: requests that name no version and belong to no session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.errors import InvalidParams
from antiphon.model.capabilities import ANSWERS_EVERYTHING, ServerCapabilities
from antiphon.model.outcome import InputRequired, Outcome
from antiphon.model.request import AnswerQuestion, AnswerTask, Request, RequestMeta
from antiphon.model.segment import MODES, SegmentPage, Segments
from antiphon.model.task import TaskResult
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame, excerpt
from antiphon.wire.server.dialect import Negotiated, TaskOutcome
from antiphon.wire.server.inbox import INBOX, INBOX_METHODS
from antiphon.wire.server.tasks import RELATED
from antiphon.wire.server.v2025_11_25 import V2025

__all__ = ["Draft"]


class Draft(V2025):
    """The draft, in which every result names its type."""

    methods = {**V2025.methods, "tasks/input_response": AnswerTask, **INBOX_METHODS}
    closing_cancels = True
    rounds = True
    resumable = False
    _ending = None

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request.

        A bare request cannot declare capabilities: its client is taken to answer every question, and to want
        no log messages.
        """
        request_meta = super().request_meta(frame, negotiated)
        if (
            isinstance(frame.stream, dict)
            and not request_meta.response_modes
            and "streaming" in self._takes(negotiated)
        ):
            request_meta = msgspec.structs.replace(request_meta, wants_stream=True)
        if negotiated is not None:
            return request_meta
        return msgspec.structs.replace(request_meta, log_level=None, capabilities=ANSWERS_EVERYTHING)

    def _takes(self, negotiated: Negotiated | None) -> Sequence[Any]:
        """Return the response modes of the client; a bare request accepts all of them."""
        return MODES if negotiated is None else super()._takes(negotiated)

    def parse(self, frame: Frame) -> Any:
        """Return the request in a frame; the task and `stream` may stand outside the params."""
        if frame.stream is not UNSET and isinstance(frame.params, dict) and "stream" not in frame.params:
            frame.raw = msgspec.Raw(jsonrpc.encode({**frame.params, "stream": frame.stream}))
        if frame.method == "tasks/input_response" and isinstance(frame.params, dict):
            task_id = _one_task(
                frame.params.get("taskId", UNSET), _related(frame.meta), _related(frame.beside)
            )
            if task_id is not UNSET:
                frame.raw = msgspec.Raw(jsonrpc.encode({**frame.params, "taskId": task_id}))
        return super().parse(frame)

    def answered(self, frame: Frame) -> Any:
        """Return the answer in a response that names a task: it answers the task's open question.

        Raises `InvalidParams` if the response names two tasks.
        """
        if not isinstance(frame.result, dict):
            return None
        task_id = _one_task(_related(frame.result.get("_meta")), _related(frame.beside))
        if not isinstance(task_id, str):
            return None
        return AnswerQuestion(task_id, {key: value for key, value in frame.result.items() if key != "_meta"})

    def _partial_response(self, segments: Segments) -> dict[str, Any]:
        return {**super()._partial_response(segments), "resultType": "complete"}

    def result(self, request: Request, outcome: Outcome | TaskOutcome) -> dict[str, Any]:
        """Return the result object of an outcome, with its type."""
        value = super().result(request, outcome)
        inner: Any = outcome.outcome if isinstance(outcome, TaskResult) else outcome
        if isinstance(outcome, SegmentPage):
            inner = outcome.stopped
        if isinstance(request, AnswerTask):
            return {"_meta": {RELATED: {"taskId": request.task_id}}, "resultType": "complete"}
        value["resultType"] = "input_required" if type(inner) is InputRequired else "complete"
        return value

    def _capabilities(self, offered: ServerCapabilities) -> dict[str, Any]:
        value = super()._capabilities(offered)
        return {**value, "extensions": {**value.get("extensions", {}), INBOX: {}}} if offered.inbox else value


def _related(meta: Any) -> Any:
    """Return the id of the task that metadata names; `UNSET` if they name none."""
    related = meta.get(RELATED) if isinstance(meta, dict) else None
    return related.get("taskId", UNSET) if isinstance(related, dict) else UNSET


def _one_task(*ids: Any) -> Any:
    """Return the id that is in all places that name a task; raises `InvalidParams` if they disagree."""
    named = [id for id in ids if id is not UNSET]
    if any(id != named[0] for id in named):
        raise InvalidParams(f"The message names two tasks, {excerpt(named[0])} and {excerpt(named[1])}.")
    return named[0] if named else UNSET
