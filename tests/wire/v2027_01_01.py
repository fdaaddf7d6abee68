"""A made-up protocol version: 2026-07-28 with another name for questions, and without completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.model.question import Question
from antiphon.wire.client.v2026_07_28 import ClientV2026
from antiphon.wire.questions import read_questions
from antiphon.wire.server.v2026_07_28 import V2026


class V2027(V2026):
    """The server's side."""

    methods = {method: kind for method, kind in V2026.methods.items() if method != "completion/complete"}

    def open_questions(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Return the questions under their new name."""
        return {"questions": super().open_questions(questions)["inputRequests"]}


class ClientV2027(ClientV2026):
    """The client's side."""

    methods = {kind: method for method, kind in V2027.methods.items()}

    def read_questions(self, fields: Mapping[str, Any]) -> Mapping[str, Question]:
        """Return the questions that stand under their new name."""
        return read_questions(fields.get("questions", {}))
