"""Counts every call; times, logs and traces calls if that is enabled.

Owns the counters of one server. If neither logging nor tracing is enabled, a call costs one addition. It logs
arguments only if the author asks for that. It must not know a metrics library.

The names of spans and attributes follow OpenTelemetry's conventions for MCP. The trace context comes in the
`_meta` of a request, under the names of the W3C headers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeAlias

from antiphon.errors import RequestError
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.segment import SegmentPage
from antiphon.model.task import Promise

__all__ = ["CallKey", "Response", "Telemetry", "Timing", "ToolCounters", "call_log", "classify"]

call_log = logging.getLogger("antiphon.calls")
"""The logger that gets one line for each call, at the level `INFO`."""

Response: TypeAlias = Literal["answer", "promise", "input_required", "stream"]
CallOutcome: TypeAlias = Literal["complete", "failed", "error", "cancelled", "open"]
"""`failed` is a result with `isError`, `error` a JSON-RPC error, `open` a call that continues later."""

_BUCKET_COUNT = 40


class CallKey(NamedTuple):
    """The labels by which calls are counted."""

    tool: str
    response: Response
    outcome: CallOutcome


class Timing(NamedTuple):
    """A histogram of call durations: the number of calls up to each bound in seconds, and their sum."""

    buckets: tuple[tuple[float, int], ...]
    calls: int
    total: float


class ToolCounters:
    """The counters of one tool."""

    __slots__ = ("answers", "counts", "questions", "times", "total")

    def __init__(self) -> None:
        self.answers = 0
        """Calls that returned a complete result. Most calls do, so they have a counter of their own."""
        self.questions = 0
        """Requests that ended with a question; the caller makes the request again with the answer."""
        self.counts: dict[tuple[Response, CallOutcome], int] = {}
        self.times = [0] * _BUCKET_COUNT
        self.total = 0.0

    def add(self, response: Response, outcome: CallOutcome, seconds: float | None) -> None:
        """Count a call, with its duration if it was timed."""
        key = (response, outcome)
        self.counts[key] = self.counts.get(key, 0) + 1
        if seconds is not None and outcome != "open":
            self.times[min(int(seconds * 1e6).bit_length(), _BUCKET_COUNT - 1)] += 1
            self.total += seconds


class Telemetry:
    """Counts, times, logs and traces the calls of one server."""

    def __init__(self, *, log_arguments: bool = False) -> None:
        self._tools: dict[str, ToolCounters] = {}
        self._log_arguments = log_arguments
        self._is_timed = False
        self._tracer: Any = None
        self.observes = False
        """Whether calls are timed or traced, so that they have to go through `observe`."""

    def start(self) -> None:
        """Enable tracing if the program has configured an OpenTelemetry provider by now."""
        trace = sys.modules.get("opentelemetry.trace")
        provider = None if trace is None else trace.get_tracer_provider()
        if trace is not None and type(provider).__name__ not in ("ProxyTracerProvider", "NoOpTracerProvider"):
            self._tracer = trace.get_tracer("antiphon")
        self.observes = self._is_timed or self._tracer is not None

    def counters_of(self, tool: str) -> ToolCounters:
        """Return the counters of a tool."""
        return self._tools.setdefault(tool, ToolCounters())

    @property
    def counters(self) -> Mapping[CallKey, int]:
        """How many calls there were, by tool, kind of response and outcome."""
        found: dict[CallKey, int] = {}
        for tool, counters in self._tools.items():
            for (response, outcome), count in counters.counts.items():
                found[CallKey(tool, response, outcome)] = count
            if counters.answers:
                key = CallKey(tool, "answer", "complete")
                found[key] = found.get(key, 0) + counters.answers
            if counters.questions:
                key = CallKey(tool, "input_required", "open")
                found[key] = found.get(key, 0) + counters.questions
        return found

    @property
    def timings(self) -> Mapping[str, Timing]:
        """The durations of calls, by tool. Timing starts at the first access."""
        self._is_timed = self.observes = True
        return {tool: _timing(counters) for tool, counters in self._tools.items() if any(counters.times)}

    # Calls

    async def observe(self, call: Any, counters: ToolCounters, perform: Callable[[], Awaitable[Any]]) -> Any:
        """Run a call, and record how it ended."""
        if self._tracer is None:
            return await self._timed_call(call, counters, perform, None)
        from opentelemetry import trace
        from opentelemetry.propagate import extract

        name = call.request.name
        carrier = call.request_meta.trace_context
        attributes = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "jsonrpc.request.id": str(call.id),
        }
        with self._tracer.start_as_current_span(
            f"tools/call {name}",
            context=extract(carrier) if carrier else None,
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            return await self._timed_call(call, counters, perform, span)

    async def _timed_call(
        self, call: Any, counters: ToolCounters, perform: Callable[[], Awaitable[Any]], span: Any
    ) -> Any:
        started = perf_counter()
        try:
            outcome = await perform()
        except BaseException as error:
            self._record(call, counters, *classify(call, error), perf_counter() - started, span, error)
            raise
        self._record(call, counters, *classify(call, outcome), perf_counter() - started, span, outcome)
        return outcome

    def record_task(self, call: Any, counters: ToolCounters, outcome: Any) -> None:
        """Record that a call continues as a task."""
        response, ended = classify(call, outcome)
        task = outcome.task.id if isinstance(outcome, Promise) else outcome.task_id
        self._record(call, counters, response, ended, None, None, outcome, task)

    def record_unknown_tool(self, call: Any) -> None:
        """Log a call of an unknown tool. It is not counted: callers could invent any number of names."""
        if call_log.isEnabledFor(logging.INFO):
            self._log(call, "answer", "error", None, {"error": "NotFound"}, None)

    def record_refusal(self, call: Any, counters: ToolCounters, error: RequestError) -> None:
        """Count and log a call that was refused before the tool ran."""
        response, outcome = classify(call, error)
        counters.add(response, outcome, None)
        if call_log.isEnabledFor(logging.INFO):
            self._log(call, response, outcome, None, {"error": type(error).__name__}, None)

    def _record(
        self,
        call: Any,
        counters: ToolCounters,
        response: Response,
        ended: CallOutcome,
        seconds: float | None,
        span: Any,
        outcome: Any,
        task: str | None = None,
    ) -> None:
        counters.add(response, ended, seconds if self._is_timed else None)
        details: dict[str, Any] = {}
        if ended == "error":
            details["error"] = type(outcome).__name__
        if isinstance(outcome, Result) and outcome.meta and "artifact_id" in outcome.meta:
            details["artifact"] = outcome.meta["artifact_id"]
        if call_log.isEnabledFor(logging.INFO):
            self._log(call, response, ended, seconds, details, task or call.task_id)
        if span is not None:
            _describe(span, call, response, ended, outcome)

    def _log(
        self,
        call: Any,
        response: Response,
        ended: CallOutcome,
        seconds: float | None,
        details: dict[str, Any],
        task: str | None,
    ) -> None:
        fields: dict[str, Any] = {
            "tool": call.request.name,
            "response": response,
            "outcome": ended,
            "seconds": None if seconds is None else round(seconds, 6),
            "request": call.id if task != call.id else None,
            "task": task,
            "principal": call.principal.id or None,
            **details,
        }
        if self._log_arguments:
            fields["arguments"] = call.request.arguments
        logged = {key: value for key, value in fields.items() if value is not None}
        line = " ".join(f"{key}={_quoted(value)}" for key, value in logged.items())
        call_log.info("%s", line, extra={"call": logged})


def classify(call: Any, outcome: Any) -> tuple[Response, CallOutcome]:
    """Return the kind of response of a call, and its outcome."""
    response: Response = (
        "promise" if call.task_id is not None else "stream" if call.wants_stream else "answer"
    )
    if isinstance(outcome, Result):
        return response, "failed" if outcome.is_error else "complete"
    if isinstance(outcome, InputRequired):
        return "input_required", "open"
    if isinstance(outcome, Promise):
        return "promise", "open"
    if isinstance(outcome, SegmentPage):
        return "stream", "open" if not outcome.is_complete else "failed" if outcome.is_error else "complete"
    if isinstance(outcome, RequestError | Exception):
        return response, "error"
    # A call that missed its deadline is answered with a failure. In the other cases the caller is gone.
    return response, "failed" if call.work.stop_reason == "deadline" else "cancelled"


def _describe(span: Any, call: Any, response: Response, ended: CallOutcome, outcome: Any) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("antiphon.response", response)
    span.set_attribute("antiphon.outcome", ended)
    if call.task_id is not None:
        span.set_attribute("antiphon.task.id", call.task_id)
    if ended in ("failed", "error"):
        code = outcome.code if isinstance(outcome, RequestError) else None
        span.set_attribute("error.type", "tool_error" if code is None else str(code))
        span.set_status(Status(StatusCode.ERROR))
        if code is not None:
            span.set_attribute("rpc.response.status_code", str(code))


def _timing(counters: ToolCounters) -> Timing:
    reached, buckets = 0, []
    for number, count in enumerate(counters.times):
        reached += count
        if count:
            buckets.append((2**number / 1e6, reached))
    return Timing(tuple(buckets), reached, counters.total)


def _quoted(value: Any) -> str:
    text = str(value)
    return repr(text) if not text or any(mark in text for mark in " \"'\n=") else text
