"""The load generator: a process of its own that repeats its requests on some connections and counts.

It is given a job as JSON in its first argument and prints a measurement as JSON. It runs on uvloop,
pinned to its own core, with requests rendered beforehand, so that it costs far less than any server;
its own share of its core is part of the measurement, to show it. On a core of its own it polls: if it slept,
the server would wake it with every answer, and waking a virtual core can cost as much as a plain answer. The
clients of a real server are on other machines. It must not know any server.
"""

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import cycle, repeat

import uvloop
from connection import Answer, Connection
from job import Job, Measurement
from phases import OpenPhase, Phase
from processes import cpu_seconds, pin
from traffic import (
    SESSIONS,
    ask,
    ask_again,
    call,
    close_session,
    expected,
    expected_at_last,
    expected_question,
    initialize,
    initialized,
    read_question,
)

PATIENCE = 30.0
"""Seconds to wait for answers under way after the last request was sent."""

WINDOW_SECONDS = 0.2
MIN_WINDOW = 1000
"""How long a window is in which latencies are compared, and how many answers it has at least."""

POOL = 64
"""How many second rounds a connection repeats in turn, each with a state of its own."""

EXPECTED: dict[int | None, Callable[[int], bytes]] = {
    None: expected,
    1: expected_question,
    2: expected_at_last,
}
"""What a right answer contains, by the round it is given in."""


class Generator:
    """The connections of one job, and who listens to them at the moment."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.connections: list[Connection] = []
        self.sessions: list[str | None] = []
        self._phase: Phase | None = None
        self._waiting: asyncio.Future[Answer] | None = None

    def answered(self, connection: Connection, answer: Answer) -> None:
        if self._phase is not None:
            self._phase.answered(connection, answer)
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)

    def lost(self, connection: Connection) -> None:
        if self._phase is not None:
            self._phase.lost(connection)
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("closed by the server"))

    async def exchange(self, connection: Connection, request: bytes) -> Answer:
        """Send one request outside any phase and return its answer."""
        self._waiting = asyncio.get_running_loop().create_future()
        connection.send(request)
        return await asyncio.wait_for(self._waiting, PATIENCE)

    async def connect(self) -> None:
        """Open the connections, each with a session of its own where the version has sessions."""
        loop = asyncio.get_running_loop()
        job = self.job
        for number in range(job.connections):
            made = partial(Connection, number, self)
            _, connection = await loop.create_connection(made, "127.0.0.1", job.port)
            session = None
            if job.version == SESSIONS:
                answer = await self.exchange(connection, initialize(job.port))
                session = answer.header("mcp-session-id")
                if answer.status != 200:
                    raise RuntimeError(f"initialize: {answer.status} {answer.body[:500]!r}")
                await self.exchange(connection, initialized(job.port, session))
            connection.requests = await self.requests(connection, session)
            self.connections.append(connection)
            self.sessions.append(session)

    async def requests(self, connection: Connection, session: str | None) -> Iterator[bytes]:
        """What a connection sends, over and over; for second rounds it asks for their states now."""
        job, number = self.job, connection.number
        if job.round is None:
            return repeat(call(job.port, job.version, number, session, job.token))
        first = ask(job.port, job.tool, number)
        asked = [read_question((await self.exchange(connection, first)).body) for _ in range(POOL)]
        if job.round == 1:
            return repeat(first)
        return cycle([ask_again(job.port, job.tool, number, each) for each in asked])

    async def run(self, count: int, seconds: float, rate: float | None = None) -> Phase:
        """Send until `count` requests were sent or `seconds` have passed, and wait for the answers.

        Without a `rate`, every connection is kept busy.
        """
        expected = EXPECTED[self.job.round]
        polls = self.job.core is not None
        self._phase = phase = (
            Phase(count, expected, polls) if rate is None else OpenPhase(count, expected, rate=rate)
        )
        timer = asyncio.get_running_loop().call_later(seconds, setattr, phase, "left", 0)
        phase.start(self.connections)
        await asyncio.wait_for(phase.done.wait(), seconds + PATIENCE)
        timer.cancel()
        self._phase = None
        return phase

    async def close(self) -> None:
        """End the sessions and the connections."""
        for connection, session in zip(self.connections, self.sessions, strict=True):
            if session and not connection.closed:
                await self.exchange(connection, close_session(self.job.port, session))
        self._waiting = None
        for connection in self.connections:
            connection.close()


async def measure(job: Job) -> Measurement:
    """Do one job: connect, warm up (any wrong answer ends it here), then measure."""
    generator = Generator(job)
    await generator.connect()
    warm = await generator.run(job.warmup, seconds=60.0)
    if warm.errors:
        raise RuntimeError(f"{warm.errors} wrong answers while warming up, the first: {warm.first_error}")
    gc.freeze()
    gc.disable()  # a pause of the generator would be measured as one of the server
    server, own, begun = cpu_seconds(job.server), time.process_time(), time.perf_counter()
    phase = await generator.run(job.count, job.seconds, job.rate)
    seconds = time.perf_counter() - begun
    own, server = time.process_time() - own, cpu_seconds(job.server) - server
    await generator.close()
    typical_tail = _typical_tail(phase.latencies, max(MIN_WINDOW, int((job.rate or 0) * WINDOW_SECONDS)))
    latencies = sorted(phase.latencies)
    answers = len(latencies) - phase.errors
    return Measurement(
        answers=answers,
        errors=phase.errors,
        seconds=seconds,
        per_second=answers / seconds,
        median_ms=_percentile(latencies, 0.5),
        p99_ms=_percentile(latencies, 0.99),
        p999_ms=_percentile(latencies, 0.999),
        server_cpu_us=server / max(1, answers) * 1e6,
        generator_busy=(seconds - phase.idle_ns / 1e9) / seconds if phase.polls else own / seconds,
        answer_bytes=phase.answer_bytes,
        late_p99_ms=_percentile(sorted(phase.delays), 0.99),
        typical_tail=typical_tail,
    )


def _typical_tail(latencies: list[int], window: int) -> float:
    """p99 in multiples of p50, in the median of the windows of so many answers; 0 if there are too few."""
    windows = [sorted(latencies[at : at + window]) for at in range(0, len(latencies) - window + 1, window)]
    tails = [_percentile(each, 0.99) / _percentile(each, 0.5) for each in windows]
    return statistics.median(tails) if tails else 0.0


def _percentile(ordered: list[int], share: float) -> float:
    """The time that `share` of the ordered nanoseconds do not exceed, in milliseconds."""
    return ordered[int(len(ordered) * share)] / 1e6 if ordered else 0.0


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    pin(0, job.core)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(asdict(runner.run(measure(job)))))


if __name__ == "__main__":
    main()
