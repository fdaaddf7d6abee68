"""Counts every call; times, logs and traces calls if that is enabled.

Owns the counters of one server. If neither logging nor tracing is enabled, a call costs one addition. It logs
arguments only if the author asks for that. It must not know a metrics library; `tracing` knows OpenTelemetry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from antiphon.errors import RequestError
from antiphon.instrumentation import find_instruments, flush
from antiphon.instrumentation.facts import MessageFacts
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.segment import SegmentPage
from antiphon.model.task import Promise

if TYPE_CHECKING:
    from antiphon.runtime.observability.tracing import ServerTracing

__all__ = [
    "CallKey",
    "CallOutcome",
    "Response",
    "Telemetry",
    "Timing",
    "ToolCounters",
    "call_log",
    "classify",
]

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
        self.log_arguments = log_arguments
        """Whether the log of calls has their arguments."""
        self._is_timed = False
        self.tracing: ServerTracing | None = None
        """Creates spans and records durations, if the program has configured OpenTelemetry."""
        self.flushes = False
        """Whether `stop` waits until spans and metrics are exported: the process may end after it."""
        self.observes = False
        """Whether calls are timed or traced, so that they have to go through `observe`."""

    def start(self, offers: Callable[[Any], bool]) -> None:
        """Enable tracing if the program has configured OpenTelemetry by now.

        `offers` returns whether the server has the tool or the prompt that a request names. Callers could
        make up any number of other names.
        """
        instruments = find_instruments("server")
        self.tracing = None
        if instruments is not None:
            from antiphon.runtime.observability.tracing import ServerTracing

            self.tracing = ServerTracing(instruments, offers)
        self.observes = self._is_timed or self.tracing is not None

    async def stop(self) -> None:
        """Export what was recorded, if the process may end after this."""
        if self.flushes and self.tracing is not None:
            await asyncio.to_thread(flush)

    def counters_of(self, tool: str) -> ToolCounters:
        """Return the counters of a tool."""
        counters = self._tools.get(tool)
        if counters is None:
            counters = self._tools[tool] = ToolCounters()
        return counters

    def forget(self, tools: Iterable[str]) -> None:
        """Forget the counters of tools that the server no longer has. A tool of such a name begins anew."""
        for tool in tools:
            self._tools.pop(tool, None)

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
        if self.tracing is None or (call.task_id is None and call.convert is None):
            return await self._timed_call(call, counters, perform, None)
        with self.tracing.running(call) as span:
            return await self._timed_call(call, counters, perform, span)

    def record_session(self, seconds: float, facts: MessageFacts) -> None:
        """Record how long a session lasted."""
        if self.tracing is not None:
            self.tracing.record_session(seconds, facts)

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
        if self.tracing is not None and span is not None:
            self.tracing.describe(span, call, response, ended, outcome)

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
        if self.log_arguments:
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
