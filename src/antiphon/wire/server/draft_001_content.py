"""`DRAFT-001-content`, as a server speaks it: content of type `elicitation` and `sampling` asks.

Answers have no keys: `inputResponses` of a call is a list, in the order of the questions, with null in place
of an answer that the caller does not have. The request state is where 2026-07-28 has it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.errors import InvalidParams
from antiphon.model.outcome import InputRequired
from antiphon.model.request import RequestId, RequestMeta
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.questions import ELICITATION
from antiphon.wire.server.dialect import Negotiated
from antiphon.wire.server.draft import KeylessDraft
from antiphon.wire.server.tasks import RELATED

__all__ = ["Draft001Content"]


class Draft001Content(KeylessDraft):
    """The second option of the draft: questions are content of a result."""

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request, with its answers; raises `InvalidParams`."""
        answers = frame.params.get("inputResponses", []) if isinstance(frame.params, dict) else []
        if not isinstance(answers, list) or not all(isinstance(each, dict | None) for each in answers):
            raise InvalidParams(
                f"In {self.version}, 'inputResponses' is a list of answers in the order of the questions: "
                "objects, and null for an answer that is not known yet."
            )
        return msgspec.structs.replace(super().request_meta(frame, negotiated), answers=tuple(answers))

    def _is_written_otherwise(self, frame: Frame) -> bool:
        """Return whether the params may have answers, or `stream` stands outside of them."""
        has_answers = isinstance(frame.params, dict) and "inputResponses" in frame.params
        return has_answers or super()._is_written_otherwise(frame)

    def _understood(self, frame: Frame, params: dict[str, Any]) -> dict[str, Any]:
        """Return the params of a request without its answers, which have no keys."""
        params = super()._understood(frame, params)
        if "inputResponses" not in params:
            return params
        return {name: value for name, value in params.items() if name != "inputResponses"}

    def asking(self, request_id: RequestId, stopped: InputRequired, task_id: str | None) -> bytes:
        """Return the response whose content asks."""
        content = [
            {"type": "elicitation" if method == ELICITATION else "sampling", **params}
            for method, params in self.writable(stopped, task_id)
        ]
        value: dict[str, Any] = {"content": content, "isError": False}
        if stopped.sealed is not None:
            value["requestState"] = stopped.sealed
        if task_id is not None:
            value["_meta"] = {RELATED: {"taskId": task_id}}
        return jsonrpc.response(request_id, value)
