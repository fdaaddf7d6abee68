"""`DRAFT-001-content`, as a client speaks it: content of type `elicitation` and `sampling` asks."""

from __future__ import annotations

from typing import Any

from antiphon.wire.client.draft_keyless import Asked, ClientKeyless
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.questions import ELICITATION, SAMPLING

__all__ = ["ClientDraft001Content"]

_METHODS = {"elicitation": ELICITATION, "sampling": SAMPLING}


class ClientDraft001Content(ClientKeyless):
    """The second option of the draft: questions are content of a result, answered by position."""

    meta_is_within = True
    skips_answers = True

    def _asked(self, frame: Frame) -> Asked | None:
        content = frame.result.get("content") if isinstance(frame.result, dict) else None
        asked = [
            (_METHODS[block["type"]], {name: value for name, value in block.items() if name != "type"})
            for block in (content if isinstance(content, list) else ())
            if isinstance(block, dict) and block.get("type") in ("elicitation", "sampling")
        ]
        if not asked:
            return None
        meta = frame.result.get("_meta")
        return Asked(asked, meta if isinstance(meta, dict) else {}, frame.result.get("requestState"))

    def _answer(self, params: dict[str, Any], answers: list[Any], state: str | None) -> dict[str, Any]:
        if answers:
            params["inputResponses"] = answers
        if state is not None:
            params["requestState"] = state
        return {}
