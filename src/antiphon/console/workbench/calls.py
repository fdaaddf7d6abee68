"""The calls that a person makes at the workbench: tools, resources and prompts, until they end.

A call runs on when the page is closed, within bounds. Its segments, its progress and its result are kept for
the page that opens again.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from antiphon.client import Client, TaskHandle
from antiphon.client.streaming.stream import Stream
from antiphon.console.routes import Problem
from antiphon.console.workbench.catalog import expand
from antiphon.console.workbench.questions import CURRENT_CALL
from antiphon.console.workbench.views import error_view, outcome_view, shown_view
from antiphon.errors import AntiphonError
from antiphon.model.notification import Log, Progress
from antiphon.model.outcome import PromptResult, ReadResult, Result

__all__ = ["KINDS", "BenchCall", "Calls"]

logger = logging.getLogger("antiphon")

KINDS = ("tool", "resource", "prompt")
MAX_CALLS = 50
"""How many calls are kept. Finished ones are dropped first."""
MAX_RUNNING = 16
MAX_KEPT_SEGMENTS = 500
"""How many segments of a running call are kept for a page that opens later."""
MAX_SEGMENT_BYTES = 2 * 1024 * 1024
"""How many bytes of segments of a call are kept."""
MAX_OUTCOME_BYTES = 24 * 1024 * 1024
"""How large a result is kept, as JSON."""
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""How many bytes the calls of a connection keep. Finished calls are dropped, the oldest first."""
MAX_LOGS = 200
MAX_TEXT_CHARACTERS = 10_000
"""How much of a log message, and of the message of a progress, is kept."""
CALL_SECONDS = 3600.0
"""How long a call may take, the person's answers included."""


def _encoded(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


_NULL = _encoded(None)


class BenchCall:
    """One call, and what came of it so far."""

    def __init__(self, id: str, kind: str, name: str, arguments: Mapping[str, Any], as_task: bool) -> None:
        self.id = id
        self.kind = kind
        self.name = name
        self.arguments = arguments
        self.as_task = as_task
        self.started = time.time()
        self.ended: float | None = None
        self.status = "running"
        self.progress: dict[str, Any] | None = None
        self.segments: list[msgspec.Raw] = []
        self.dropped_segments = 0
        self._segment_bytes = 0
        self.logs: list[Any] = []
        self.handle: TaskHandle | None = None
        self.task_id: str | None = None
        # As JSON, which is smaller than what it describes, and of a known size.
        self._outcome = self._error = _NULL
        self._shown = _encoded({})
        self._arguments = _encoded(arguments)
        self.runner: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """How many bytes the call keeps, about."""
        kept = (self._arguments, self._outcome, self._shown, self._error)
        texts = sum(len(each["text"]) for each in self.logs)
        return sum(map(len, kept)) + self._segment_bytes + texts

    def succeed(self, outcome: Result | ReadResult | PromptResult) -> None:
        """Keep the outcome, unless it is too large."""
        self.status = "failed" if isinstance(outcome, Result) and outcome.is_error else "done"
        self._outcome, self._shown = _encoded(outcome_view(outcome)), _encoded(shown_view(outcome))
        size = len(self._outcome) + len(self._shown)
        if size > MAX_OUTCOME_BYTES:
            self._outcome, self._shown = _NULL, _encoded({})
            self._error = _encoded({"message": f"The result has {size:,} bytes: it is too large to show."})

    def fail(self, error: Exception) -> None:
        """Keep why the call failed."""
        self.status, self._error = "failed", _encoded(error_view(error))
        if len(self._error) > MAX_OUTCOME_BYTES:
            self._error = _encoded({"message": str(error)[:MAX_TEXT_CHARACTERS]})

    def add_segment(self, block: msgspec.Raw) -> None:
        """Keep a segment. The oldest ones are dropped if there are too many."""
        self.segments.append(block)
        self._segment_bytes += len(block)
        while len(self.segments) > MAX_KEPT_SEGMENTS or self._segment_bytes > MAX_SEGMENT_BYTES:
            self._segment_bytes -= len(self.segments.pop(0))
            self.dropped_segments += 1

    def summary(self) -> dict[str, Any]:
        """Return the fields that a list shows."""
        return {
            "id": self.id,
            "kind": self.kind,
            "name": self.name,
            "status": self.status,
            "mark": ["working" if self.status == "running" else self.status, self.status.capitalize()],
            "facts": self._facts(),
            "startedAt": round(self.started * 1000),
            "ms": None if self.ended is None else round((self.ended - self.started) * 1000, 1),
            "taskId": self.task_id,
            "progress": self.progress,
        }

    def _facts(self) -> list[Any]:
        """Return the cells beside the status: the task, and how far the call is."""
        facts: list[Any] = [["Task ", {"code": self.task_id}]] if self.task_id else []
        if self.progress is not None and self.status == "running":
            done, total = self.progress["progress"], self.progress["total"]
            facts += [{"progress": [done, total]}] if total else []
            facts += [self.progress["message"]] if self.progress["message"] else []
        return facts

    def view(self) -> dict[str, Any]:
        """Return everything about the call."""
        return {
            **self.summary(),
            "arguments": self._arguments,
            "asTask": self.as_task,
            "segments": self.segments,
            "droppedSegments": self.dropped_segments,
            "logs": self.logs,
            "outcome": self._outcome,
            "shown": self._shown,
            "error": self._error,
        }


class Calls:
    """The calls of one connection. `publish` tells the pages; `on_kept` gets the size of each that ended."""

    def __init__(self, publish: Callable[..., None], on_kept: Callable[[int], None]) -> None:
        self._publish = publish
        self._on_kept = on_kept
        self._calls: dict[str, BenchCall] = {}
        self._ids = itertools.count(1)

    @property
    def running(self) -> int:
        """How many calls have not ended."""
        return sum(call.ended is None for call in self._calls.values())

    @property
    def size(self) -> int:
        """How many bytes the calls keep, about."""
        return sum(call.size for call in self._calls.values())

    def summaries(self) -> list[dict[str, Any]]:
        """Return the calls that are kept, the oldest first."""
        return [call.summary() for call in self._calls.values()]

    def find(self, id: str) -> BenchCall:
        """Return a call; raises `Problem` if it is not kept."""
        if id not in self._calls:
            raise Problem(404, "The workbench does not keep this call any more.")
        return self._calls[id]

    def start(
        self, client: Client, kind: str, name: str, arguments: Mapping[str, Any], as_task: bool
    ) -> BenchCall:
        """Start a call; raises `Problem` if too many run."""
        if self.running >= MAX_RUNNING:
            raise Problem(429, f"{MAX_RUNNING} calls are running: wait for one, or cancel one.")
        for id in self._ended()[: max(0, len(self._calls) - MAX_CALLS + 1)]:
            del self._calls[id]
        call = BenchCall(f"c{next(self._ids)}", kind, name, arguments, as_task)
        self._calls[call.id] = call
        call.runner = asyncio.create_task(self._run(client, call))
        self._publish("call", call.summary())
        return call

    def forget(self) -> None:
        """Drop all finished calls."""
        for id in self._ended():
            del self._calls[id]

    def _ended(self) -> list[str]:
        return [call.id for call in self._calls.values() if call.ended is not None]

    def _drop_oldest(self) -> None:
        """Drop finished calls, but the last one, if all together keep too many bytes."""
        excess = self.size - MAX_KEPT_BYTES
        for id in self._ended()[:-1]:
            if excess <= 0:
                return
            excess -= self._calls.pop(id).size

    async def cancel(self, id: str) -> None:
        """Cancel a call, and its task at the server."""
        call = self.find(id)
        if call.runner is None or call.ended is not None:
            return
        if call.handle is not None:
            await call.handle.cancel()
        call.runner.cancel()
        await asyncio.wait({call.runner})

    def add_log(self, log: Log) -> None:
        """Keep a log message of the server with the call that it belongs to, if that is known."""
        text = log.data if isinstance(log.data, str) else msgspec.json.encode(log.data).decode()
        text = text[:MAX_TEXT_CHARACTERS]
        view = {
            "level": log.level,
            "logger": log.logger,
            "text": f"{log.logger}: {text}" if log.logger else text,
            "at": round(time.time() * 1000),
        }
        call = self._calls.get(CURRENT_CALL.get() or "")
        if call is not None and len(call.logs) < MAX_LOGS:
            call.logs.append(view)
        self._publish("log", {**view, "call": None if call is None else call.id})

    async def close(self) -> None:
        """Stop all calls."""
        running = {call.runner for call in self._calls.values() if call.runner and not call.runner.done()}
        for runner in running:
            runner.cancel()
        if running:
            await asyncio.wait(running)

    async def _run(self, client: Client, call: BenchCall) -> None:
        CURRENT_CALL.set(call.id)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                outcome = await self._outcome(client, call)
            call.succeed(outcome)
        except asyncio.CancelledError:
            call.status = "cancelled"  # by the person, or because the connection closes
        except (AntiphonError, TimeoutError, ValueError) as error:
            call.fail(error)
        except Exception as error:
            logger.exception("A call of the workbench failed.")
            call.fail(error)
        finally:
            call.ended, call.arguments = time.time(), {}
            self._drop_oldest()
            self._on_kept(call.size)
            self._publish("call", call.summary())

    async def _outcome(self, client: Client, call: BenchCall) -> Result | ReadResult | PromptResult:
        if call.kind == "resource":
            return await client.read(expand(call.name, call.arguments), timeout=CALL_SECONDS)
        if call.kind == "prompt":
            arguments = {name: str(value) for name, value in call.arguments.items()}
            return await client.prompt(call.name, arguments, timeout=CALL_SECONDS)

        def on_progress(progress: Progress) -> None:
            call.progress = {
                "progress": progress.progress,
                "total": progress.total,
                "message": progress.message and progress.message[:MAX_TEXT_CHARACTERS],
            }
            self._publish("call", call.summary())

        if call.as_task:
            handle = await client.submit(call.name, call.arguments, on_progress=on_progress)
            self._found_task(call, handle)
            return await self._read(call, handle.stream(check=False))
        if client.offers.streams:
            stream = client.stream(
                call.name, call.arguments, on_progress=on_progress, check=False, timeout=CALL_SECONDS
            )
            return await self._read(call, stream)
        return await client.call(
            call.name,
            call.arguments,
            on_progress=on_progress,
            on_task=lambda handle: self._found_task(call, handle),
            check=False,
            timeout=CALL_SECONDS,
        )

    def _found_task(self, call: BenchCall, handle: TaskHandle) -> None:
        if handle.id is not None:
            call.handle, call.task_id = handle, handle.id
            self._publish("call", call.summary())

    async def _read(self, call: BenchCall, stream: Stream) -> Result:
        """Read a stream to its end, and return the whole result."""
        async with stream:
            async for segment in stream:
                if call.task_id is None and stream.task_id is not None:
                    call.task_id = stream.task_id
                    self._publish("call", call.summary())
                block = _encoded(segment.block)
                call.add_segment(block)
                event = {"call": call.id, "number": segment.number, "block": block}
                self._publish("segment", event, size=len(block))
            call.task_id = stream.task_id or call.task_id
            return stream.result
