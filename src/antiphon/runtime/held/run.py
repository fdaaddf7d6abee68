"""One run of a function that waits in this process between the requests of its caller.

Owns the rounds of the run: which answers were applied, and which outcome each round had. A round ends when
the function ends or asks something. A request that comes twice gets the outcome of its round twice.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from antiphon.errors import Failure, InvalidParams
from antiphon.model.question import Question, place_answers, read_answer
from antiphon.model.segment import CallerMessage, Segments
from antiphon.runtime.carriers.process import ProcessCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import OutputStream, StreamedOutput
from antiphon.runtime.execution.supervisor import StopReason, Supervised
from antiphon.runtime.held.open_questions import OpenQuestions
from antiphon.runtime.limits import Limits

__all__ = ["Asked", "HeldRun", "Outcome", "Perform", "Returned"]

Perform: TypeAlias = Callable[[Call[Any]], Awaitable[Any]]
"""Runs the function of a call, and returns its outcome."""

CANCELLED = (
    "This call was cancelled, or its connection was lost, while its function ran. Make the call again."
)


class Asked:
    """The outcome of a round in which the function asked something."""

    __slots__ = ("next_round", "questions")

    def __init__(self, questions: Mapping[str, Question], next_round: int) -> None:
        self.questions = questions
        self.next_round = next_round
        """The number of the round that the answers begin."""


class Returned:
    """The outcome of the last round: the function returned a value, or raised an exception."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error

    def get(self) -> Any:
        """Return the value, or raise the exception."""
        if self.error is None:
            return self.value
        try:
            raise self.error.with_traceback(None)
        finally:
            del self  # the traceback refers to this frame


Outcome: TypeAlias = Asked | Returned


class _Round:
    """The time from the answers of a request to the next questions, or to the end of the function."""

    __slots__ = ("number", "outcome", "requests", "sent")

    def __init__(self, number: int, sent: int = 0) -> None:
        self.number = number
        self.sent = sent
        """How many segments the caller received in the rounds before."""
        self.outcome: Outcome | None = None
        self.requests: dict[asyncio.Future[None], Call[Any]] = {}
        """The requests that wait for the outcome. There are several if the caller has repeated one."""


class HeldRun:
    """A run that this process holds. `on_change` is called when it begins to wait, and when it has ended."""

    __slots__ = ("_caller", "_on_change", "_returned", "_round", "call", "id", "questions", "stopped")

    def __init__(self, call: Call[Any], perform: Perform, on_change: Callable[[HeldRun], None]) -> None:
        loop = asyncio.get_running_loop()
        self.id = ""
        """The name of the run, from its first question on. It cannot be guessed."""
        self.questions = OpenQuestions(self._pause)
        self._on_change = on_change
        self._round = _Round(0)
        self._returned: Returned | None = None
        self.stopped: str | None = None
        """Why the function was cancelled, for later requests; `None` if it was not."""
        self._caller = _HeldCaller(self)
        self._caller.headers = call.caller.headers
        work = Supervised()
        work.started = loop.time()
        self.call = call.derive(carrier=ProcessCarrier(self.questions.ask), caller=self._caller, work=work)
        """The call that the function serves. Its metadata is that of the last request."""
        work.task = loop.create_task(self._work(perform))

    @property
    def is_waiting(self) -> bool:
        """Whether the function waits for answers, and no request waits for the function."""
        return type(self._round.outcome) is Asked

    @property
    def has_ended(self) -> bool:
        """Whether the function has ended."""
        return self._returned is not None

    @property
    def is_delivered(self) -> bool:
        """Whether the function has ended, and a request has got its outcome."""
        return self._returned is not None and self._round.outcome is self._returned

    @property
    def value(self) -> Any:
        """The outcome of the function; `None` before it has returned."""
        return None if self._returned is None else self._returned.value

    @property
    def next_round(self) -> int:
        """The number of the round that the answers to the open questions begin."""
        return self._round.number + 1

    @property
    def sent(self) -> int:
        """How many segments the caller received in the rounds before this one."""
        return self._round.sent

    @property
    def request(self) -> Call[Any] | None:
        """The request that waits for the function and came last; `None` while none waits."""
        return next(reversed(self._round.requests.values()), None)

    # Requests

    def begin_round(self, number: int, call: Call[Any]) -> None:
        """Apply the answers of a request, unless an earlier request of the same round brought them.

        Raises `InvalidParams` if an answer does not fit its question, and if a later round has begun.
        """
        current = self._round
        if number == current.number:
            self.call.follow(call)
            return
        if number != current.number + 1 or current.outcome is None:
            raise InvalidParams(
                "The request state belongs to an earlier round of this call: continue with the state that "
                "came last, or make the call again, without it."
            )
        responses = call.request.input_responses
        if call.request_meta.answers and isinstance(current.outcome, Asked):
            # Not among what is open now: a question may have been withdrawn, and another one asked.
            responses = place_answers(current.outcome.questions, call.request_meta.answers)
        for key, question in self.questions.open.items():
            if key in responses:
                read_answer(question, key, responses[key])
        self.call.follow(call)
        output = self.call.output
        self._round = _Round(number, 0 if output is None else output.sent)
        self._round.outcome = self._returned
        if self._returned is None:
            self.questions.answer(responses)
            if self.questions.open:  # those without an answer are asked again
                self.questions.send_soon()

    async def outcome(self, call: Call[Any]) -> Outcome:
        """Wait, for a request, until the function ends or asks something.

        A request that is cancelled cancels the function, unless another request waits for it.
        """
        current = self._round
        output = self.call.output
        if output is not None:
            for earlier in current.requests.values():  # gets no further segments, but all with the result
                earlier.redirect_output(_sent_output(output.sent))
            output.sent = current.sent  # this connection has received nothing of this round
            call.redirect_output(output)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        current.requests[waiter] = call
        try:
            if output is not None:
                await output.flush()
            if current.outcome is None:
                await waiter
        except asyncio.CancelledError:
            if current.outcome is None and len(current.requests) == 1:
                await self.stop(call.work.stop_reason or "cancelled", CANCELLED)
            raise
        finally:
            current.requests.pop(waiter, None)
        assert current.outcome is not None
        return current.outcome

    # The function

    async def stop(self, reason: StopReason, message: str) -> None:
        """Cancel the function, and wait until it has cleaned up. Later requests fail with the message."""
        work = self.call.work
        self.stopped = self.stopped or message
        work.stop(reason)
        self.questions.close()
        if work.task is not None and not work.task.done():
            await asyncio.wait({work.task})

    async def _work(self, perform: Perform) -> None:
        self._returned = await _contained(perform(self.call))
        if self.stopped is not None:
            self._returned = Returned(error=Failure(self.stopped))
        self.questions.close()
        if self._round.outcome is None:
            self._end_round(self._returned)
        self._on_change(self)
        self._caller.close()

    def _pause(self) -> None:
        """End the round with the open questions, unless it has ended: then they wait for the next round."""
        if self._round.outcome is None:
            self.id = self.id or secrets.token_hex(16)
            self._end_round(Asked(dict(self.questions.open), self.next_round))
            self._on_change(self)

    def _end_round(self, outcome: Outcome) -> None:
        self._round.outcome = outcome
        waiters, self._round.requests = self._round.requests, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _sent_output(sent: int) -> OutputStream:
    """Return the output of a request that has received so many segments, and receives no more."""
    output = OutputStream(0)
    output.sent = sent
    return output


async def _contained(work: Awaitable[Any]) -> Returned:
    """Return what a function returned or raised. The request that waits raises the exception."""
    try:
        return Returned(await work)
    except BaseException as error:
        return Returned(error=error)


class _HeldCaller(Caller):
    """Reaches the caller through the request that waits. While none waits, messages are dropped."""

    def __init__(self, run: HeldRun) -> None:
        self._run: HeldRun | None = run

    def close(self) -> None:
        """Forget the run, which has ended. The two refer to each other, and would wait for the gc."""
        self._run = None

    @property
    def request(self) -> Call[Any] | None:
        """The request that waits for the function and came last; `None` while none waits."""
        return None if self._run is None else self._run.request

    @property
    def takes_streams(self) -> bool:  # type: ignore[override]
        """Whether the request that waits takes several messages."""
        return self.request is not None and self.request.caller.takes_streams

    async def notify(self, message: CallerMessage) -> None:
        """Send a message to the request that waits."""
        if (request := self.request) is not None:
            await request.caller.notify(message)

    async def close_stream(self) -> None:
        """Release the connection of the request that waits."""
        if (request := self.request) is not None:
            await request.caller.close_stream()

    def open_output(self, call: Call[Any], journal: Journal, limits: Limits) -> OutputStream:
        """Return where the segments of all rounds go."""
        output = _HeldOutput(limits.max_answer_bytes, self)
        if (request := self.request) is not None:
            request.redirect_output(output)
        return output


class _HeldOutput(StreamedOutput):
    """Sends segments while a request waits that wants them, and keeps the others for the next one."""

    def __init__(self, max_bytes: int, caller: _HeldCaller) -> None:
        async def send(first: int, blocks: Any) -> None:
            await caller.notify(Segments(first, blocks))

        super().__init__(max_bytes, send, sent=0)
        self._caller = caller

    async def flush(self) -> None:
        """Send the segments that wait to be sent, if a request waits that wants them."""
        request = self._caller.request
        if request is not None and request.wants_stream:
            await super().flush()
