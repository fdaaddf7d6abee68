"""The draft: 2025-11-25 with SEP-2322 and SEP-1905 on top, and stateless.

It is what a bare request gets, one that names no version and belongs to no session.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.model.outcome import Outcome
from antiphon.model.request import Request, Terms
from antiphon.wire.dialect import Negotiated
from antiphon.wire.jsonrpc import Frame
from antiphon.wire.v2025_11_25 import V2025

__all__ = ["DRAFT_VERSION", "Draft"]

DRAFT_VERSION = "DRAFT-2026-v1"


class Draft(V2025):
    """Every result says of which type it is."""

    closing_cancels = True
    resumable = False

    def terms(self, frame: Frame, negotiated: Negotiated | None) -> Terms:
        """A bare request hears no log messages: it had no occasion to ask for them."""
        terms = super().terms(frame, negotiated)
        return terms if negotiated is not None else msgspec.structs.replace(terms, log_level=None)

    def result(self, request: Request, outcome: Outcome) -> dict[str, Any]:
        """The result object of an outcome."""
        value = super().result(request, outcome)
        value["resultType"] = "complete"
        return value
