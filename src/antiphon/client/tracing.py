"""Sends the trace that a request belongs to along with it, where the program around the client keeps one."""

from __future__ import annotations

import sys

import msgspec

from antiphon.model.request import RequestMeta

__all__ = ["traced"]


def traced(request_meta: RequestMeta) -> RequestMeta:
    """The terms with the current trace context in `_meta`; as they are where there is none."""
    trace = sys.modules.get("opentelemetry.trace")  # a program without it has nothing to tell
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return request_meta
    from opentelemetry.propagate import inject

    carrier: dict[str, str] = {}
    inject(carrier)
    return msgspec.structs.replace(request_meta, raw={**carrier, **request_meta.raw})
