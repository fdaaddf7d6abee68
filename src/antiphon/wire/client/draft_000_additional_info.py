"""`DRAFT-000-additional-info`, as a client speaks it: a result with `AdditionalInfoRequested` asks."""

from __future__ import annotations

from typing import Any

from antiphon.errors import BadAnswer
from antiphon.wire.client.draft_000_messages import ClientDraft000
from antiphon.wire.client.draft_keyless import Asked
from antiphon.wire.jsonrpc import Frame, excerpt
from antiphon.wire.questions import ELICITATION, SAMPLING
from antiphon.wire.server.draft_000_messages import STATE

__all__ = ["ClientDraft000AdditionalInfo"]


class ClientDraft000AdditionalInfo(ClientDraft000):
    """The second option: a result that asks for several answers at once."""

    def _asked(self, frame: Frame) -> Asked | None:
        if not isinstance(frame.result, dict) or "AdditionalInfoRequested" not in frame.result:
            return None
        lists, meta = frame.result["AdditionalInfoRequested"], frame.result.get("_meta")
        asked = [
            (method, question.get("params") if isinstance(question, dict) else None)
            for name, method in (("elicitation", ELICITATION), ("sampling", SAMPLING))
            for question in _list(lists, name)
        ]
        if not asked:
            raise BadAnswer(f"The server asks for additional information, and not which: {excerpt(lists)}.")
        found = meta if isinstance(meta, dict) else {}
        return Asked(asked, found, found.get(STATE))


def _list(lists: Any, name: str) -> list[Any]:
    found = lists.get(name, []) if isinstance(lists, dict) else None
    if not isinstance(found, list):
        raise BadAnswer(f"The server asks for additional information in another form: {excerpt(lists)}.")
    return found
