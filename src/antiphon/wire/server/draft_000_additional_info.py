"""`DRAFT-000-additional-info`, as a server speaks it: a result with `AdditionalInfoRequested` asks.

It has all questions, in a list for persons and a list for models, and so does the reply.
"""

from __future__ import annotations

from typing import Any

from antiphon.model.outcome import InputRequired
from antiphon.model.request import RequestId
from antiphon.wire import jsonrpc
from antiphon.wire.questions import ELICITATION
from antiphon.wire.server.draft_000_messages import Draft000

__all__ = ["Draft000AdditionalInfo"]


class Draft000AdditionalInfo(Draft000):
    """The second option: a result that asks for several answers at once."""

    def asking(self, request_id: RequestId, stopped: InputRequired, task_id: str | None) -> bytes:
        """Return the response with the lists of questions."""
        lists: dict[str, list[Any]] = {}
        for method, params in self.writable(stopped, task_id):
            lists.setdefault("elicitation" if method == ELICITATION else "sampling", []).append(
                {"params": params}
            )
        value: dict[str, Any] = {"AdditionalInfoRequested": lists, "isError": False}
        if meta := self.meta_of(stopped, task_id):
            value["_meta"] = meta
        return jsonrpc.response(request_id, value)
