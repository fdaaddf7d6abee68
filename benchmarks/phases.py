"""When requests are sent: as soon as a connection is free, or at planned times; and what came back.

A phase owns counting, checking and timing, and knows neither the server nor the bytes of a request.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from connection import Answer, Connection

__all__ = ["OpenPhase", "Phase"]

SEED = 20260728
"""The planned times are random, and the same in every run."""


@dataclass(slots=True)
class Phase:
    """Requests sent until a count or a time is reached, and what came back."""

    left: int
    expected: Callable[[int], bytes]
    polls: bool = False
    """Whether the generator looks for answers all the time, and does not sleep until one arrives."""
    idle_ns: int = 0
    """How long a generator that polls had nothing to do."""
    under_way: int = 0
    errors: int = 0
    first_error: str = ""
    answer_bytes: int = 0
    latencies: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, connections: Sequence[Connection]) -> None:
        """Send the first request of every connection."""
        for connection in connections:
            self.begin(connection)
        if self.polls:
            self._poll(len(self.latencies), time.perf_counter_ns())

    def _poll(self, answers: int, before: int) -> None:
        """Keep the generator awake: the loop does not wait for input while it has something to call."""
        now = time.perf_counter_ns()
        if len(self.latencies) == answers:
            self.idle_ns += now - before
        if not self.done.is_set():
            asyncio.get_running_loop().call_soon(self._poll, len(self.latencies), now)

    def begin(self, connection: Connection) -> None:
        """Send this connection's next request, if any are left to send."""
        if self.left <= 0 or connection.closed:
            if self.under_way == 0:
                self.done.set()
            return
        self.left -= 1
        self.under_way += 1
        connection.sent_at = time.perf_counter_ns()
        connection.send(next(connection.requests))

    def answered(self, connection: Connection, answer: Answer) -> None:
        self.latencies.append(time.perf_counter_ns() - connection.sent_at)
        self.under_way -= 1
        if answer.status != 200 or self.expected(connection.number) not in answer.body:
            self.fail(f"{answer.status} {answer.body[:500]!r}")
        self.answer_bytes = len(answer.body)
        self.begin(connection)

    def fail(self, why: str) -> None:
        """Count an answer that is not the right one."""
        self.errors += 1
        self.first_error = self.first_error or why

    def lost(self, connection: Connection) -> None:
        """A connection that ends while a phase runs is an error, and the phase goes on without it."""
        self.fail("connection closed by the server")
        self.under_way = max(0, self.under_way - 1)
        if self.under_way == 0:
            self.done.set()


@dataclass(slots=True, kw_only=True)
class OpenPhase(Phase):
    """Requests sent at random times, `rate` a second on average, as independent callers send them.

    A request whose time has come is sent whether or not earlier ones are answered; if every connection waits
    for an answer, on the first that becomes free. Its latency counts from the planned time, so that a server
    that stalls delays all requests of that time, and not only those that a connection could send.
    """

    rate: float
    _planned: int = 0
    _due: deque[int] = field(default_factory=deque)
    _free: deque[Connection] = field(default_factory=deque)
    random_times: random.Random = field(default_factory=lambda: random.Random(SEED))

    def start(self, connections: Sequence[Connection]) -> None:
        self._free.extend(connections)
        self._planned = time.perf_counter_ns()
        self._look()

    def _look(self) -> None:
        """Send what is due, and look again in the next turn of the loop: timers of loops are too coarse."""
        now = time.perf_counter_ns()
        while self.left > 0 and self._planned <= now:
            self.left -= 1
            self._due.append(self._planned)
            self.delays.append(now - self._planned)
            self._planned += int(self.random_times.expovariate(self.rate) * 1e9)
        self._send_due()
        if self.left > 0:
            asyncio.get_running_loop().call_soon(self._look)
        else:
            self._end_if_idle()

    def _send_due(self) -> None:
        while self._due and self._free:
            connection = self._free.popleft()
            if connection.closed:
                continue
            self.under_way += 1
            connection.sent_at = self._due.popleft()
            connection.send(next(connection.requests))

    def begin(self, connection: Connection) -> None:
        """Use a connection again, which has its answer."""
        self._free.append(connection)
        self._send_due()
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self.left <= 0 and not self._due and self.under_way == 0:
            self.done.set()

    def lost(self, connection: Connection) -> None:
        """Count an error, and go on with the other connections."""
        self.fail("connection closed by the server")
        if connection not in self._free:
            self.under_way -= 1
        self._end_if_idle()
