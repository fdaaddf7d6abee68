"""The runs that this process holds while their callers are asked, by name.

Finds the run that a request continues, here or in another process, and seals where a run waits. A caller
whose run was lost, evicted or stopped gets a failure that says so.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import msgspec

from antiphon.errors import Failure
from antiphon.model.outcome import InputRequired, Result
from antiphon.runtime.budget import decoded_size
from antiphon.runtime.carriers.client import ClientCarrier
from antiphon.runtime.execution.call import Call
from antiphon.runtime.held.bounds import BoundReason, HeldBounds, HeldItem
from antiphon.runtime.held.relay import LOST, HeldRelay
from antiphon.runtime.held.run import Asked, HeldRun, Perform
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import Relay

__all__ = ["RUN_BYTES", "HeldRuns"]

_EVICTED = (
    "This call was ended while it waited for the answer, because too many calls wait on the server. Make the "
    "call again."
)
_EXPIRED = "This call was ended: nobody answered its question in time. Make the call again."
_FORGOTTEN = (
    "This call has ended, and its result is no longer kept. Make the call again if you did not get it."
)
_STOPPED = "The server was stopped while this call waited for the answer. Make the call again."

_KEEP_OUTCOME_SECONDS = 60.0
"""How long the outcome of a call is kept for a caller that repeats its last request.

Not a setting: a client that lost its connection repeats a request within seconds.
"""
_UNWIND_SECONDS = 5.0
"""How long a shutdown waits for functions that were cancelled."""
MAX_ENDED_RUNS = 10_000
"""How many runs that have ended a process remembers, to say why they did."""
RUN_BYTES = 16 * 1024
"""The memory of a run beside its arguments and its output, about."""


class HeldRuns:
    """The held runs of one process."""

    def __init__(self, carrier: ClientCarrier, limits: Limits, relay: Relay) -> None:
        self._carrier = carrier
        self._lifetime = limits.state_lifetime
        self._process = secrets.token_hex(8)
        self._relay = HeldRelay(relay, self._process, limits, self._continue)
        self.runs: dict[str, _HeldCall] = {}
        """All runs that have asked, also while their functions run, and those whose outcomes are kept."""
        self._ended: dict[str, str] = {}  # why the runs ended that ended last
        self._stopping: set[asyncio.Task[None]] = set()
        self.bounds = HeldBounds(limits)
        """The runs that wait in this process. Tasks that wait in it are among them."""

    async def serve(self, call: Call[Any], perform: Perform) -> Any:
        """Run the function of a call, or continue its run with the answers of this request.

        Returns the outcome of the function, or its questions. Raises `Failure` if the run is lost, and
        `InvalidParams` for a request state that is not valid.
        """
        if call.request.request_state is None:
            run = HeldRun(call, perform, self._on_change)
            process, outcome, id = self._process, await run.outcome(call), run.id
            del run  # the traceback of an exception refers to this frame, and would wait for the gc
        else:
            process, id, number = place = await self._carrier.open_place(call)
            if process == self._process:
                outcome = await self._continue(id, number, call).outcome(call)
            else:
                outcome = await self._relay.forward(call, place)
        if isinstance(outcome, Asked):
            if id in self._ended:
                raise Failure(self._ended[id])
            state = self._carrier.seal_place(call, (process, id, outcome.next_round))
            return InputRequired(outcome.questions, sealed=state)
        try:
            return outcome.get()
        finally:
            del outcome

    def _continue(self, id: str, number: int, call: Call[Any] | None) -> HeldRun:
        """Return a run, and begin its round with the answers of a request, if there is a request.

        Raises `Failure` if the run is lost, and `InvalidParams` as `HeldRun.begin_round` does.
        """
        held = self.runs.get(id)
        if held is None:
            raise Failure(self._ended.get(id, LOST))
        if call is not None:
            held.run.begin_round(number, call)
            if held.run.has_ended:
                self._hold(held)
            elif not held.run.is_waiting:
                self.bounds.remove(held)
        return held.run

    async def close(self) -> None:
        """End the runs that wait, because the server stops; give their functions some time to clean up."""
        await self._relay.close()
        for held in tuple(self.runs.values()):
            self.bounds.remove(held)
            if held.run.is_waiting or held.run.has_ended:
                self.end(held, _STOPPED)
        if self._stopping:
            await asyncio.wait(tuple(self._stopping), timeout=_UNWIND_SECONDS)
        self.bounds.close()

    def _on_change(self, run: HeldRun) -> None:
        """Hold a run that begins to wait, and keep the outcome of one that has ended after a question."""
        if not run.id:
            return
        held = self.runs.get(run.id)
        if held is None:
            held = self.runs[run.id] = _HeldCall(run, self)
        if run.stopped is not None:
            self.bounds.remove(held)
            self.end(held, run.stopped)
        else:
            self._hold(held)

    def _hold(self, held: _HeldCall) -> None:
        """Hold a run for its next request, or for one that the caller repeats."""
        self.bounds.remove(held)
        lifetime = _KEEP_OUTCOME_SECONDS if held.run.is_delivered else self._lifetime
        held.expires = asyncio.get_running_loop().time() + lifetime
        held.measure()
        self.bounds.add(held)

    def end(self, held: _HeldCall, message: str) -> None:
        """Forget a run, and cancel its function; later requests fail with the message."""
        run = held.run
        self.runs.pop(run.id, None)
        self._ended[run.id] = message
        while len(self._ended) > MAX_ENDED_RUNS:
            del self._ended[next(iter(self._ended))]
        if not run.has_ended:
            stopping = asyncio.get_running_loop().create_task(run.stop("shutdown", message))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)


class _HeldCall(HeldItem):
    """The run of a call that has asked something."""

    __slots__ = ("_request_bytes", "_runs", "run")

    def __init__(self, run: HeldRun, runs: HeldRuns) -> None:
        super().__init__(f"request {run.call.id!r}", run.call.principal.share)
        self.run = run
        self._runs = runs
        self._request_bytes = decoded_size(msgspec.json.encode(run.call.request))

    @property
    def is_waiting(self) -> bool:
        """Whether the function waits for an answer."""
        return not self.run.has_ended

    def measure(self) -> None:
        """Estimate the memory that the run keeps now."""
        output = self.run.call.output
        self.size = RUN_BYTES + self._request_bytes + (0 if output is None else output.size)
        if self.run.has_ended:
            self.size += _outcome_size(self.run.value)

    def end(self, reason: BoundReason) -> None:
        """End the run. A later request of its caller fails, and says why."""
        message = _EVICTED if reason == "evicted" else _EXPIRED
        self._runs.end(self, _FORGOTTEN if self.run.has_ended else message)


def _outcome_size(value: Any) -> int:
    """Return the size of the outcome of a function, about; 0 if it is not JSON, and cannot be sent."""
    fields = (value.content, value.data, value.meta) if isinstance(value, Result) else value
    try:
        return len(msgspec.json.encode(fields))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return 0
