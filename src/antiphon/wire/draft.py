"""The draft: 2025-11-25 with SEP-2322 and SEP-1905 on top, and stateless.

It is what a bare request gets, one that names no version and belongs to no session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.model.outcome import InputRequired, Outcome
from antiphon.model.request import Request, Terms
from antiphon.wire.dialect import Negotiated
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.v2025_11_25 import V2025

__all__ = ["DRAFT_VERSION", "Draft"]

DRAFT_VERSION = "DRAFT-2026-v1"

_EVERYTHING: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Draft(V2025):
    """Every result says of which type it is."""

    closing_cancels = True
    rounds = True
    resumable = False

    def terms(self, frame: Frame, negotiated: Negotiated | None) -> Terms:
        """A bare request had no occasion to say what its client can do, or wants to hear of.

        It is taken to be able to answer every question, and to want no log messages.
        """
        terms = super().terms(frame, negotiated)
        if negotiated is not None:
            return terms
        return msgspec.structs.replace(terms, log_level=None, capabilities=_EVERYTHING)

    def result(self, request: Request, outcome: Outcome) -> dict[str, Any]:
        """The result object of an outcome."""
        value = super().result(request, outcome)
        value["resultType"] = "input_required" if type(outcome) is InputRequired else "complete"
        return value
