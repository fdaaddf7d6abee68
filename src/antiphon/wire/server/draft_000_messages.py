"""`DRAFT-000-messages`, as a server speaks it: a request is answered by the message that asks.

The message has the id of the request. The caller repeats its call with `elicitation` or `sampling` beside the
params; the answer to a task is a response that names the task. `Draft000` is what both options of this draft
share.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.errors import InvalidParams
from antiphon.model.outcome import InputRequired
from antiphon.model.request import CallTool, GetPrompt, ReadResource, RequestId, RequestMeta
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.server.dialect import Negotiated
from antiphon.wire.server.draft import KeylessDraft
from antiphon.wire.server.tasks import RELATED

__all__ = ["STATE", "Draft000", "Draft000Messages"]

STATE = "dev.antiphon/request-state"
"""The key of the request state in `_meta`: beside a question, and in the params of the call that answers it.

The draft has no place for it. A caller that sends it back says so in its first call, in which it is null.
"""


class Draft000(KeylessDraft):
    """What both options of the draft share: answers stand beside the params."""

    def session_meta(self, negotiated: Negotiated) -> RequestMeta:
        """Return the metadata of calls that have none of their own: they return no request state."""
        return msgspec.structs.replace(super().session_meta(negotiated), returns_state=False)

    def request_meta(self, frame: Frame, negotiated: Negotiated | None) -> RequestMeta:
        """Return the metadata of a request, with its answers; raises `InvalidParams`."""
        answers = (*_answers(frame.elicitation, "elicitation"), *_answers(frame.sampling, "sampling"))
        return msgspec.structs.replace(
            super().request_meta(frame, negotiated), answers=answers, returns_state=STATE in frame.meta
        )

    def parse(self, frame: Frame) -> Any:
        """Return the request in a frame; the request state is in its metadata."""
        request = super().parse(frame)
        if isinstance(request, CallTool | GetPrompt | ReadResource):
            state = frame.meta.get(STATE)
            if not isinstance(state, str | None):
                raise InvalidParams(f"The request state, {STATE!r} in `_meta`, is a string or null.")
            return msgspec.structs.replace(request, request_state=state)
        return request

    def meta_of(self, stopped: InputRequired, task_id: str | None) -> dict[str, Any]:
        """Return the metadata of what a call or a task asks."""
        if task_id is not None:
            return {RELATED: {"taskId": task_id}}
        return {} if stopped.sealed is None else {STATE: stopped.sealed}


class Draft000Messages(Draft000):
    """The first option: a message that asks, in place of the response, for one answer at a time."""

    def asking(self, request_id: RequestId, stopped: InputRequired, task_id: str | None) -> bytes:
        """Return the message that asks the first question."""
        method, params = self.writable(stopped, task_id)[0]
        frame = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        # A task's message has all of its metadata beside the params, as the drafts print it.
        meta = {**self.meta_of(stopped, task_id), **(params.pop("_meta", {}) if task_id is not None else {})}
        return jsonrpc.encode({**frame, "_meta": meta} if meta else frame)


def _answers(value: Any, where: str) -> tuple[dict[str, Any], ...]:
    if value is UNSET:
        return ()
    answers = value if isinstance(value, list) else [value]
    if not all(isinstance(answer, dict) for answer in answers):
        raise InvalidParams(f"The {where!r} beside the params is an answer, or a list of answers: objects.")
    return tuple(answers)
