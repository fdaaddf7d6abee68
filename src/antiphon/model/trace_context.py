"""The W3C trace context of a request: which values of a caller are used.

OpenTelemetry logs values that do not have W3C's form, as long as they are and with their line breaks. So such
values are dropped here, before OpenTelemetry reads them. The module must not know OpenTelemetry.
https://www.w3.org/TR/trace-context/ and https://www.w3.org/TR/baggage/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["TRACEPARENT", "TRACE_KEYS", "valid_trace_context"]

TRACE_KEYS = frozenset(("traceparent", "tracestate", "baggage"))
"""The names of the values in `_meta`, and of the HTTP headers."""

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""The form of a span. https://www.w3.org/TR/trace-context/#traceparent-header"""

_MAX_TRACESTATE_CHARACTERS = 512
_MAX_TRACESTATE_MEMBERS = 32
_MAX_BAGGAGE_CHARACTERS = 8192
_MAX_BAGGAGE_MEMBERS = 180
_MAX_BAGGAGE_MEMBER_CHARACTERS = 4096

_STATE_KEY = r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_STATE_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_STATE_MEMBER = re.compile(f"{_STATE_KEY}={_STATE_VALUE}")
_BAGGAGE_KEY = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAGGAGE_VALUE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")
_BLANKS = " \t"


def valid_trace_context(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a trace context that have W3C's form; the others are left out."""
    found: dict[str, str] = {}
    parent, state, baggage = (values.get(key) for key in ("traceparent", "tracestate", "baggage"))
    if isinstance(parent, str) and TRACEPARENT.fullmatch(parent):
        found["traceparent"] = parent
        if isinstance(state, str) and _is_state(state):
            found["tracestate"] = state
    if isinstance(baggage, str) and (members := _baggage_members(baggage)):
        found["baggage"] = ",".join(members)
    return found


def _is_state(value: str) -> bool:
    if len(value) > _MAX_TRACESTATE_CHARACTERS:
        return False
    members = [stripped for member in value.split(",") if (stripped := member.strip(_BLANKS))]
    return 0 < len(members) <= _MAX_TRACESTATE_MEMBERS and all(map(_STATE_MEMBER.fullmatch, members))


def _baggage_members(value: str) -> list[str]:
    """Return the members of a baggage that have W3C's form."""
    if len(value) > _MAX_BAGGAGE_CHARACTERS:
        return []
    members = (member.strip(_BLANKS) for member in value.split(","))
    return [member for member in members if _is_baggage_member(member)][:_MAX_BAGGAGE_MEMBERS]


def _is_baggage_member(member: str) -> bool:
    pair, *properties = member.split(";")
    if len(member) > _MAX_BAGGAGE_MEMBER_CHARACTERS or "=" not in pair:
        return False
    return all(map(_is_baggage_pair, (pair, *properties)))


def _is_baggage_pair(pair: str) -> bool:
    key, _, value = pair.partition("=")
    return bool(_BAGGAGE_KEY.fullmatch(key.strip(_BLANKS)) and _BAGGAGE_VALUE.fullmatch(value.strip(_BLANKS)))
