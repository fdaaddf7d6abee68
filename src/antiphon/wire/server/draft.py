"""The draft, as a server speaks it: 2025-11-25 with SEP-2322 and SEP-1905, and without sessions.

Bare requests get it: requests that name no version and belong to no session. `DraftBase` is what it has in
common with earlier drafts, which ask in other ways; `KeylessDraft` is what those share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.errors import InvalidRequest
from antiphon.model.capabilities import ANSWERS_EVERYTHING, ServerCapabilities
from antiphon.model.outcome import InputRequired, Outcome
from antiphon.model.question import ListRoots
from antiphon.model.request import AnswerTask, Request, RequestId, RequestMeta
from antiphon.model.segment import MODES, SegmentPage, Segments
from antiphon.model.task import TaskResult
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Negotiated, TaskOutcome
from antiphon.wire.server.inbox import INBOX, INBOX_METHODS
from antiphon.wire.server.tasks import QUESTION, RELATED, one_task, related_task
from antiphon.wire.server.v2025_11_25 import V2025

__all__ = ["QUESTION", "Draft", "DraftBase", "KeylessDraft"]


class DraftBase(V2025):
    """What all drafts share: questions end a request, and bare requests are taken."""

    methods = {**V2025.methods, **INBOX_METHODS}
    closing_cancels = True
    rounds = True
    resumable = False
    numbers_events = True

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request.

        A bare request cannot declare capabilities: its client is taken to answer every question, and to want
        no log messages.
        """
        request_meta = super().request_meta(frame, negotiated)
        if negotiated is not None:
            return request_meta
        return msgspec.structs.replace(request_meta, log_level=None, capabilities=ANSWERS_EVERYTHING)

    def _takes(self, negotiated: Negotiated | None) -> Sequence[Any]:
        """Return the response modes of the client; a bare request accepts all of them."""
        return MODES if negotiated is None else super()._takes(negotiated)

    def _capabilities(self, offered: ServerCapabilities) -> dict[str, Any]:
        value = super()._capabilities(offered)
        return {**value, "extensions": {**value.get("extensions", {}), INBOX: {}}} if offered.inbox else value


class Draft(DraftBase):
    """The draft, in which every result names its type."""

    methods = {**DraftBase.methods, "tasks/input_response": AnswerTask}
    _ending = None

    def _is_written_otherwise(self, frame: Frame) -> bool:
        """Return whether the task or `stream` may stand outside the params."""
        return frame.method == "tasks/input_response" or super()._is_written_otherwise(frame)

    def _understood(self, frame: Frame, params: dict[str, Any]) -> dict[str, Any]:
        """Return the params of a request; the metadata may name the task that an answer is for."""
        params = super()._understood(frame, params)
        if frame.method == "tasks/input_response":
            task_id = one_task(
                params.get("taskId", UNSET), related_task(frame.meta), related_task(frame.beside)
            )
            if task_id is not UNSET:
                return {**params, "taskId": task_id}
        return params

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


class KeylessDraft(DraftBase):
    """What the drafts share whose questions have no keys.

    The answer to a task's question is a response that names the task. Each question of a task has its key in
    `_meta`, so that a caller that sends it back can repeat its answer.
    """

    answers_in_order = True

    def session_meta(self, negotiated: Negotiated) -> RequestMeta:
        """Return the metadata of calls that have none of their own, and no answers."""
        return msgspec.structs.replace(super().session_meta(negotiated), answers=())

    def response(self, request: Request, request_id: RequestId, outcome: Outcome | TaskOutcome) -> bytes:
        """Return the frame that answers a request: a response, or what the call or the task asks.

        A task's segments that the caller does not have come first: the next request gets the questions.
        """
        if type(outcome) is InputRequired:
            return self.asking(request_id, outcome, None)
        if isinstance(outcome, TaskResult) and isinstance(outcome.outcome, InputRequired):
            return self.asking(request_id, outcome.outcome, outcome.task_id)
        if isinstance(outcome, SegmentPage) and outcome.stopped is not None:
            if not outcome.blocks:
                return self.asking(request_id, outcome.stopped, outcome.task_id)
            outcome = msgspec.structs.replace(outcome, stopped=None)
        return super().response(request, request_id, outcome)

    def asking(self, request_id: RequestId, stopped: InputRequired, task_id: str | None) -> bytes:
        """Return the frame of questions; raises `InvalidRequest` if the draft cannot write them."""
        raise NotImplementedError

    def writable(self, stopped: InputRequired, task_id: str | None) -> list[tuple[str, dict[str, Any]]]:
        """Return the method and the parameters of each question that the draft can write.

        Raises `InvalidRequest` if there is none.
        """
        asked = []
        for key, question in stopped.questions.items():
            if not isinstance(question, ListRoots):
                method, params = self.ask(question)
                if task_id is not None:
                    self.add_meta(params, {QUESTION: key})
                asked.append((method, params))
        if not asked:
            what = "root folders" if stopped.questions else "nothing, except that the call is made again"
            raise InvalidRequest(
                f"The server asks for {what}, and {self.version} cannot say so. Use another protocol "
                f"version, such as {self.supported[0]}."
            )
        return asked
