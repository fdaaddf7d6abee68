"""Continues runs that another process holds: sends it the answers, and brings the outcome back.

Owns the exchanges between processes. Messages may be lost, so the process that waits repeats its request
until it gets a reply. The answers are applied once, because they name the round that they begin. A process
that is silent for `Limits.lease_seconds` is lost.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.errors import Failure, InternalError, RequestError
from antiphon.model.notification import Progress
from antiphon.model.segment import CallerMessage, Segments
from antiphon.runtime.budget import SMALL_MESSAGE_BYTES
from antiphon.runtime.carriers.client import HeldPlace
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.output_stream import OutputStream
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.held.messages import (
    Reply,
    Request,
    dump_note,
    dump_outcome,
    load_note,
    load_outcome,
)
from antiphon.runtime.held.run import HeldRun, Outcome, Returned
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import Relay

__all__ = ["LOST", "HeldRelay"]

logger = logging.getLogger("antiphon")

LOST = (
    "This call cannot go on: the process that ran it was lost or restarted while the call waited for the "
    "answer. Make the call again."
)
_PINGS_PER_LEASE = 3
"""How often a process that waits asks whether the other one lives, before it gives up."""
_NOTES_SECONDS = 0.1
"""How long messages for the caller are collected: each message between processes is a write to the store."""
_MAX_NOTES_BYTES = 256 * 1024
"""How many bytes of messages for the caller are collected at most."""


class HeldRelay:
    """The exchanges of one process. `find` continues a run of this process with the answers of a request."""

    def __init__(
        self,
        relay: Relay,
        process: str,
        limits: Limits,
        find: Callable[[str, int, Call[Any] | None], HeldRun],
    ) -> None:
        self._relay = relay
        self._process = process
        self._lease = limits.lease_seconds
        self._max_bytes = limits.max_body_bytes
        self._find = find
        self._replies: dict[str, asyncio.Queue[Reply]] = {}
        self._served: dict[str, _Served] = {}
        relay.subscribe(_topic(process), self._receive)

    # The process that got the request

    async def forward(self, call: Call[Any], place: HeldPlace) -> Outcome:
        """Continue a run of another process, and return the outcome of the round.

        Raises `Failure` if the other process is lost.
        """
        process, run, number = place
        if not self._relay.is_open:
            logger.warning(
                "Request %r continues a call that waits in another process, and this one cannot reach it. "
                "Give all processes the same store, with ANTIPHON_STORE or Server(store=…).",
                call.id,
            )
            raise Failure(LOST)
        ping, meta = Request(secrets.token_hex(8), self._process, run, number), call.request_meta
        request = msgspec.structs.replace(
            ping,
            request_id=call.id,
            answers=call.request.input_responses,
            # Clients that sent the same metadata before share it, as mappings that are not JSON.
            meta=msgspec.structs.replace(meta, capabilities=dict(meta.capabilities), raw=dict(meta.raw)),
        )
        replies = self._replies[ping.exchange] = asyncio.Queue()
        try:
            return await self._exchange(call, process, request, ping, replies)
        except BaseException:
            call.output = None  # the message of a failure is the whole content
            cancellation = msgspec.structs.replace(ping, cancels=True)
            self._relay.publish_soon(_topic(process), msgspec.to_builtins(cancellation))
            raise
        finally:
            del self._replies[ping.exchange]

    async def _exchange(
        self, call: Call[Any], process: str, request: Request, ping: Request, replies: asyncio.Queue[Reply]
    ) -> Outcome:
        loop, receiver = asyncio.get_running_loop(), _Receiver(call)
        is_small = len(msgspec.json.encode(request.answers)) <= SMALL_MESSAGE_BYTES
        # Large answers are sent to a process that lives, and has asked for them.
        await self._send(process, request if is_small else ping)
        heard = loop.time()
        while True:
            try:
                async with asyncio.timeout(self._lease / _PINGS_PER_LEASE):
                    reply = await replies.get()
            except TimeoutError:
                if loop.time() - heard >= self._lease:
                    raise Failure(LOST) from None
                await self._send(process, ping)
                continue
            heard = loop.time()
            if reply.wants_answers:
                await self._send(process, request)
            await receiver.receive(reply)
            if reply.outcome is not None:
                return load_outcome(reply.outcome)

    # The process that holds the run

    def _receive(self, data: Any) -> None:
        message = msgspec.convert(data, Request | Reply)
        if isinstance(message, Reply):
            if (replies := self._replies.get(message.exchange)) is not None:
                replies.put_nowait(message)
            return
        served = self._served.get(message.exchange)
        if served is not None:
            if message.cancels:
                served.call.work.stop("disconnected")
            else:
                served.touch()
                self._send_soon(message.origin, Reply(message.exchange, sent=served.sent))
        elif not message.cancels:
            self._begin(message)

    def _begin(self, request: Request) -> None:
        """Serve a request, unless its answers were lost on the way."""
        try:
            run = self._find(request.run, request.round, None)
            if request.answers is None and request.round == run.next_round:
                self._send_soon(request.origin, Reply(request.exchange, wants_answers=True))
                return
        except (Failure, RequestError) as error:
            self._send_soon(request.origin, self._outcome_reply(request, Returned(error=error)))
            return
        served = self._served[request.exchange] = _Served(self, request, run, timeout=2 * self._lease)
        served.task.add_done_callback(lambda _: self._served.pop(request.exchange, None))

    async def serve(self, served: _Served, request: Request) -> None:
        """Continue the run, and send the outcome of the round."""
        call = served.call
        try:
            run = self._find(request.run, request.round, call)
            served.sent = run.sent
            self._send_soon(request.origin, Reply(request.exchange, sent=served.sent))
            outcome: Outcome = await run.outcome(call)
        except (Failure, RequestError) as error:
            outcome = Returned(error=error)
        except asyncio.CancelledError:
            if call.work.stop_reason != "shutdown":
                raise
            outcome = Returned(error=Failure(LOST))
        reply = self._outcome_reply(request, outcome, served.sent)
        await self._send(request.origin, msgspec.structs.replace(reply, notes=await served.caller.finish()))

    def _outcome_reply(self, request: Request, outcome: Outcome, sent: int = 0) -> Reply:
        try:
            dumped = dump_outcome(outcome, request.request_id)
            size = len(msgspec.json.encode(dumped))
            problem = f"it has {size} bytes, and at most {self._max_bytes} are sent."
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            size, problem = sys.maxsize, f"it is not JSON: {error}"
        if size > self._max_bytes:
            logger.error(
                "Cannot send the outcome of request %r to another process: %s", request.request_id, problem
            )
            refusal = InternalError(
                "The outcome of this call cannot be sent from the process that ran it to the one that you "
                "reached. Let the tool return less, or call it as a task."
            )
            dumped = dump_outcome(Returned(error=refusal), request.request_id)
        return Reply(request.exchange, sent=sent, outcome=dumped)

    async def close(self) -> None:
        """Stop serving the requests of other processes, and tell them."""
        tasks = [served.task for served in self._served.values()]
        for served in tuple(self._served.values()):
            served.call.work.stop("shutdown")
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _send(self, process: str, message: Request | Reply) -> None:
        await self._relay.publish(_topic(process), msgspec.to_builtins(message))

    def _send_soon(self, process: str, message: Reply) -> None:
        self._relay.publish_soon(_topic(process), msgspec.to_builtins(message))

    async def send_notes(self, request: Request, sent: int, notes: list[Any]) -> None:
        """Send messages for the caller to the process that the caller is connected to."""
        await self._send(request.origin, Reply(request.exchange, sent=sent, notes=notes))


class _Served:
    """A request that reached another process, while this one serves it."""

    def __init__(self, relay: HeldRelay, request: Request, run: HeldRun, *, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        own = run.call
        self.sent = 0
        """How many segments the caller received in the rounds before."""
        self.caller = _RemoteCaller(relay, self, request)
        work = Supervised()
        self.call: Call[Any] = Call(
            msgspec.structs.replace(own.request, input_responses=dict(request.answers or {})),
            own.carrier,
            self.caller,
            work,
            request.request_id,
            own.request_meta if request.meta is None else request.meta,
            own.principal,
            own.session_state,
        )
        self.task = work.task = loop.create_task(relay.serve(self, request))
        self._timeout = timeout
        self._timer = loop.call_later(timeout, work.stop, "disconnected")
        self.task.add_done_callback(lambda _: self._timer.cancel())

    def touch(self) -> None:
        """Note that the process that waits lives."""
        self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout, self.call.work.stop, "disconnected")


class _RemoteCaller(Caller):
    """The caller of a request that reached another process. Messages for it are collected for a moment."""

    def __init__(self, relay: HeldRelay, served: _Served, request: Request) -> None:
        self._relay = relay
        self._served = served
        self._request = request
        self._notes: list[Any] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def notify(self, message: CallerMessage) -> None:
        """Send a message soon; wait if many messages were not sent yet."""
        note = dump_note(message)
        if note is None:
            return
        if isinstance(message, Progress) and self._notes and self._notes[-1][0] == note[0]:
            self._notes[-1] = note  # the later report says more
        else:
            self._notes.append(note)
            self._bytes += len(msgspec.json.encode(note))
        if self._bytes > _MAX_NOTES_BYTES:
            await self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_NOTES_SECONDS, self._on_timer)

    async def finish(self) -> list[Any]:
        """Return the messages that were not sent yet, once the others are sent."""
        async with self._lock:
            return self._take()

    def _take(self) -> list[Any]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        notes, self._notes, self._bytes = self._notes, [], 0
        return notes

    def _on_timer(self) -> None:
        self._timer = None
        self._sending = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        async with self._lock:  # in order
            if notes := self._take():
                await self._relay.send_notes(self._request, self._served.sent, notes)


class _Receiver:
    """Hands the messages of another process to the caller. Segments that arrive with a gap are left out."""

    def __init__(self, call: Call[Any]) -> None:
        self._call = call
        self._output: OutputStream | None = None

    async def receive(self, reply: Reply) -> None:
        """Send the messages of a reply to the caller. The final response has the missing segments."""
        if self._output is None and (reply.notes or reply.outcome is not None):
            self._output = OutputStream(0)
            self._output.sent = reply.sent
            self._call.redirect_output(self._output)
        for note in reply.notes:
            message = load_note(note)
            if isinstance(message, Segments):
                await self._send(message)
            else:
                await self._call.caller.notify(message)

    async def _send(self, segments: Segments) -> None:
        assert self._output is not None
        known = self._output.sent + 1 - segments.first
        new = segments.blocks[known:] if known >= 0 else ()
        if new:
            self._output.sent += len(new)
            await self._call.caller.notify(Segments(segments.first + known, new))


def _topic(process: str) -> str:
    """Return the topic of the messages to a process."""
    return f"held/{process}"
