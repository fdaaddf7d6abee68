"""How long does a caller wait while a server is half busy, and does throughput hold with 4,096 connections?

Every round takes the highest throughput of each server with 1, 16, 256 and 4,096 connections that are kept
busy. Then it sends half of the best of these, at random times that do not wait for answers, and measures
from the planned times: a server that stalls is not spared the requests that would have come meanwhile.
"""

import argparse
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from environments import ENVIRONMENTS, prepare, versions
from job import Job, Measurement, drive
from processes import cores, paused, raise_descriptor_limit, running
from report import Report, Table, facts, listed
from traffic import MODERN

SERVERS = Path(__file__).resolve().parent / "servers"
CONNECTIONS = (1, 16, 256, 4096)
FEW, MOST = 16, 4096
"""The two numbers of connections whose throughput is compared."""
OPEN_CONNECTIONS = 64
"""Connections over which the planned requests are sent; half of a server's throughput needs few of them."""
LONGER = 3
"""How many times as long half load lasts, so that the last thousandth is more than a few requests."""
DESCRIPTORS = 8192
UNBOUNDED = 100_000_000
"""More answers than any server gives in a round: time ends it."""

NAMES = {
    "antiphon": "antiphon",
    "mcp": "mcp",
    "fastmcp": "fastmcp",
    "echo": "bare ASGI echo",
    "constant": "20 µs for every answer",
}

NOTES = (
    "Every server runs as in the benchmark of plain answers: one worker on uvicorn with uvloop and "
    "httptools, on one core, plain JSON; the others are stopped meanwhile. All may open 8,192 files. "
    "antiphon has `Limits(max_connections=8192, max_connections_per_address=8192)`, as one would set behind "
    "a load balancer; the peers have no such limits.",
    "Half load: half of the server's best throughput of the round, sent at random times (a Poisson process) "
    f"whether or not earlier requests are answered, over {OPEN_CONNECTIONS} connections. Latency counts from "
    "the planned time of a request, and includes waiting behind other requests: if every answer took equally "
    "long, p99 would be about 4 × p50.",
    "20 µs for every answer: a server that does nothing but spend this time and write the sum. Its p99 is "
    "what the machine does to a server without variance: a virtual machine is stopped now and then, for "
    "milliseconds, and all requests of that time wait. In a typical 0.2 s: the median over windows of this "
    "length, most of which have no such stop.",
    "Generator late: how late the generator noticed that a request was due, for 99 % of them at most. Where "
    "this comes near to p99, the generator is measured more than the server.",
    "By CPU: the server's CPU time for an answer with 16 connections, divided by that with 4,096.",
    "Every answer was checked: status 200 and the right sum. Anything else is counted as an error.",
)


@dataclass(slots=True)
class Taken:
    """The rounds of one server: by the number of busy connections, and under half load."""

    busy: dict[int, list[Measurement]] = field(default_factory=lambda: {count: [] for count in CONNECTIONS})
    under_load: list[Measurement] = field(default_factory=list)

    @property
    def holds(self) -> float:
        """Throughput with the most connections, as a share of that with few."""
        return self._compare("per_second", MOST, FEW)

    @property
    def holds_by_cpu(self) -> float:
        return self._compare("server_cpu_us", FEW, MOST)

    @property
    def errors(self) -> int:
        return sum(one.errors for measured in self.busy.values() for one in measured)

    @property
    def tail(self) -> float:
        """p99 under half load, in multiples of p50."""
        return statistics.median(one.p99_ms / one.median_ms for one in self.under_load)

    @property
    def typical_tail(self) -> float:
        """The same in a typical window."""
        return statistics.median(one.typical_tail for one in self.under_load)

    def _compare(self, attribute: str, above: int, below: int) -> float:
        pairs = zip(self.busy[above], self.busy[below], strict=True)
        return statistics.median(
            float(getattr(one, attribute)) / float(getattr(other, attribute)) for one, other in pairs
        )


def measure(names: list[str], rounds: int, seconds: float) -> dict[str, Taken]:
    """Start the servers, then measure every one in every round."""
    taken = {name: Taken() for name in names}
    server_core, load_core = cores()
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                running(ENVIRONMENTS[_environment(name)].python, SERVERS / f"{name}_server.py", server_core)
            )
            for name in names
        }
        for number in range(rounds):
            for name in names:
                pid, port = servers[name]
                others = [other for other, _ in servers.values() if other != pid]
                with paused(others):
                    for count in CONNECTIONS:
                        job = Job(port, pid, MODERN, load_core, UNBOUNDED, seconds, max(400, count), count)
                        taken[name].busy[count].append(drive(job))
                    best = max(measured[-1].per_second for measured in taken[name].busy.values())
                    job = Job(
                        port,
                        pid,
                        MODERN,
                        load_core,
                        UNBOUNDED,
                        seconds * LONGER,
                        connections=OPEN_CONNECTIONS,
                        rate=best / 2,
                    )
                    one = drive(job)
                    taken[name].under_load.append(one)
                print(
                    f"round {number + 1}: {name}: at most {best:,.0f}/s; at {one.per_second:,.0f}/s "
                    f"p50 {one.median_ms:.2f} ms, p99 {one.p99_ms:.2f} ms",
                    flush=True,
                )
    return taken


def _environment(name: str) -> str:
    """The environment that a server runs in."""
    return "echo" if name == "constant" else name


def connections_row(name: str, taken: Taken) -> list[str]:
    """Throughput by the number of connections, and how it holds."""
    rates = [
        statistics.median(one.per_second for one in taken.busy[connections]) for connections in CONNECTIONS
    ]
    return [
        NAMES[name],
        *(f"{rate:,.0f}" for rate in rates),
        f"{taken.holds:.2f}",
        f"{taken.holds_by_cpu:.2f}",
        str(taken.errors),
    ]


def load_row(name: str, taken: Taken) -> list[str]:
    """Latencies under half load; medians over the rounds."""

    def middle(attribute: str) -> float:
        return statistics.median(float(getattr(one, attribute)) for one in taken.under_load)

    return [
        NAMES[name],
        f"{middle('per_second'):,.0f}",
        f"{middle('median_ms'):.2f}",
        f"{middle('p99_ms'):.2f}",
        f"{middle('p999_ms'):.2f}",
        f"{taken.tail:.1f}",
        f"{taken.typical_tail:.1f}",
        f"{middle('late_p99_ms'):.2f}",
        str(sum(one.errors for one in taken.under_load)),
    ]


def main() -> None:
    """Measure, print, and write the result if every server was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s instead of 5 of 2 s")
    parser.add_argument("--servers", default=",".join(NAMES), help="measure only these, and write nothing")
    options = parser.parse_args()
    names: list[str] = options.servers.split(",")
    rounds, seconds = (1, 1.0) if options.quick else (5, 2.0)
    raise_descriptor_limit(DESCRIPTORS)
    prepare("echo")
    known = {name: versions(prepare(name)) for name in names if _environment(name) == name}
    about = facts()
    taken = measure(names, rounds, seconds)
    Report(
        "latency",
        "Latency under load, and many connections",
        f"`tools/call` of `add(a: int, b: int) -> str` on {MODERN}; medians of {rounds} interleaved rounds "
        f"of {seconds:g} s for each number of connections, and {seconds * LONGER:g} s under half load. Aims "
        f"for antiphon: with {MOST:,} connections at least 0.8 of the answers with {FEW}; p99 at most "
        "5 × p50.",
        about,
        [
            Table(
                (
                    "answers/s with connections",
                    *(f"{connections:,}" for connections in CONNECTIONS),
                    f"{MOST:,} / {FEW}",
                    "by CPU",
                    "errors",
                ),
                [connections_row(name, one) for name, one in taken.items()],
            ),
            Table(
                (
                    "half load",
                    "sent/s",
                    "p50 ms",
                    "p99 ms",
                    "p99.9 ms",
                    "p99 / p50",
                    "in a typical 0.2 s",
                    "generator late ms",
                    "errors",
                ),
                [load_row(name, one) for name, one in taken.items()],
            ),
        ],
        [*NOTES, *(f"{name}: {listed(shown)}" for name, shown in known.items())],
        {
            "settings": {"connections": CONNECTIONS, "rounds": rounds, "seconds": seconds},
            "versions": known,
            "rows": {name: asdict(one) for name, one in taken.items()},
            "holds": {name: round(one.holds, 3) for name, one in taken.items()},
            "p99_to_p50": {name: round(one.tail, 2) for name, one in taken.items()},
            "typical_p99_to_p50": {name: round(one.typical_tail, 2) for name, one in taken.items()},
        },
    ).publish(keep=set(names) == set(NAMES))


if __name__ == "__main__":
    main()
