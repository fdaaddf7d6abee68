"""What does a call of an adopted server cost, beside the same server served by its own library?

All servers run at once, in the environment of their library, pinned to one core; they are measured one after
the other in rounds, with the same request from the same generator on another core. What is compared is the
server's CPU time for one answer, within a round.
"""

import argparse
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from environments import ENVIRONMENTS, prepare, versions
from job import Job, Measurement, drive
from medians import COLUMNS, described, line
from processes import cores, running
from report import Report, Table, facts, listed
from traffic import MODERN, SESSIONS

SERVERS = Path(__file__).resolve().parent / "servers"
CONNECTIONS = 16
UNBOUNDED = 10_000_000
"""More answers than any server gives in a round: time ends it."""
AIMS = {"mcp": "at most 0.8", "fastmcp": "at most 0.5"}
"""The cost of an adopted server, by library."""
VERSIONS = (MODERN, SESSIONS)


@dataclass(frozen=True, slots=True)
class Row:
    """One server on one protocol version, adopted or not."""

    library: str
    version: str
    is_adopted: bool

    @property
    def name(self) -> str:
        served = "adopted" if self.is_adopted else "by itself"
        return f"{self.library} {served}, {self.version}"


NOTES = (
    "Both serve the same file in the same environment, one worker on uvicorn with uvloop and httptools, "
    "without access log. By itself: `json_response=True`, FastMCP without sessions. Adopted: `antiphon run`.",
    "Every answer was checked: status 200 and the right sum. Anything else is counted as an error.",
    "A ratio is the median of the ratios within each round, of the server's CPU time for one answer.",
)


def measure(libraries: list[str], rounds: int, seconds: float) -> dict[Row, list[Measurement]]:
    """Start the servers, then measure every row in every round."""
    taken: dict[Row, list[Measurement]] = {
        Row(library, version, is_adopted): []
        for library in libraries
        for version in VERSIONS
        for is_adopted in (False, True)
    }
    server_core, load_core = cores()
    with ExitStack() as stack:
        servers = {}
        for library in libraries:
            python = ENVIRONMENTS[f"adopted-{library}"].python
            for is_adopted in (False, True):
                script = SERVERS / f"{'adopted_' if is_adopted else ''}{library}_server.py"
                servers[library, is_adopted] = stack.enter_context(running(python, script, server_core))
        for number in range(rounds):
            for row, measured in taken.items():
                pid, port = servers[row.library, row.is_adopted]
                job = Job(port, pid, row.version, load_core, UNBOUNDED, seconds, connections=CONNECTIONS)
                measured.append(drive(job))
                print(f"round {number + 1}: {row.name}: {measured[-1].server_cpu_us:,.0f} µs", flush=True)
    return taken


def costs(taken: dict[Row, list[Measurement]]) -> list[dict[str, str | float]]:
    """How much of the CPU time of a server by itself the adopted one needs."""
    found: list[dict[str, str | float]] = []
    for row, adopted in taken.items():
        if row.is_adopted:
            alone = taken[Row(row.library, row.version, is_adopted=False)]
            pairs = zip(adopted, alone, strict=True)
            cost = statistics.median(mine.server_cpu_us / other.server_cpu_us for mine, other in pairs)
            name = f"{row.library} adopted / by itself, {row.version}"
            found.append({"name": name, "cost": round(cost, 3), "aim": AIMS[row.library]})
    return found


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s instead of 7 of 3 s")
    parser.add_argument("--libraries", default=",".join(AIMS), help="measure only these, and write nothing")
    options = parser.parse_args()
    libraries: list[str] = options.libraries.split(",")
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    prepare("echo")
    known = {library: versions(prepare(f"adopted-{library}")) for library in libraries}
    about = facts()
    taken = measure(libraries, rounds, seconds)
    found = costs(taken)
    Report(
        "adopt",
        "Adopted servers",
        described(CONNECTIONS, rounds, seconds),
        about,
        [
            Table(
                ("server", "answers/s", *COLUMNS),
                [line(row.name, measured) for row, measured in taken.items()],
            ),
            Table(
                ("cost", "CPU", "aim"), [[str(r["name"]), f"{r['cost']:.2f}", str(r["aim"])] for r in found]
            ),
        ],
        [*NOTES, *(f"{library}: {listed(shown)}" for library, shown in known.items())],
        {
            "settings": {"connections": CONNECTIONS, "rounds": rounds, "seconds": seconds},
            "versions": known,
            "rows": [
                {**asdict(row), "name": row.name, "rounds": [asdict(one) for one in measured]}
                for row, measured in taken.items()
            ],
            "costs": found,
        },
    ).publish(keep=not options.quick and len(libraries) == len(AIMS))


if __name__ == "__main__":
    main()
