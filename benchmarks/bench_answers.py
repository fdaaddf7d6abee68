"""How many plain answers a second over HTTP, beside the official SDK, FastMCP and a bare echo?

All servers run at once, each in its own environment, pinned to one core; they are measured one after
the other in rounds, with the same request from the same generator on another core. What is compared
is the ratio within a round, so that a machine that slows down slows down both sides.
"""

import argparse
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from environments import ENVIRONMENTS, prepare, versions
from job import Job, Measurement, drive
from medians import COLUMNS, described, line, ratio, ratio_table
from processes import cores, running
from report import Report, Table, facts, listed
from traffic import MODERN, SESSIONS

SERVERS = Path(__file__).resolve().parent / "servers"
CONNECTIONS = 16
UNBOUNDED = 10_000_000
"""More answers than any server gives in a round: time ends it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One server on one protocol version."""

    server: str
    version: str

    @property
    def name(self) -> str:
        if self.server == "echo":
            return "bare ASGI echo"
        if self.server == "antiphon-asgi":
            return f"antiphon as an ASGI app, {self.version}"
        return f"{self.server}, {self.version}" + (" in a session" if self.version == SESSIONS else "")


Taken: TypeAlias = dict[Row, list[Measurement]]

SERVED = ("antiphon", "antiphon-asgi", "mcp", "fastmcp", "echo")
"""The servers that give plain answers."""

OURS, OURS_ASGI, MCP, FASTMCP, ECHO = (Row(name, MODERN) for name in SERVED)
OURS_SESSION, MCP_SESSION = Row("antiphon", SESSIONS), Row("mcp", SESSIONS)
ROWS = (OURS, OURS_ASGI, MCP, FASTMCP, ECHO, OURS_SESSION, MCP_SESSION)

RATIOS = (
    ("antiphon / mcp, 2026-07-28", OURS, MCP, "at least 14"),
    ("antiphon / fastmcp, 2026-07-28", OURS, FASTMCP, "–"),
    ("antiphon / bare ASGI echo", OURS, ECHO, "at least 1.4"),
    ("antiphon as an ASGI app / bare ASGI echo", OURS_ASGI, ECHO, "–"),
    ("antiphon / mcp, 2025-11-25 in a session", OURS_SESSION, MCP_SESSION, "at least 11"),
)

NOTES = (
    "Every server runs on uvicorn with uvloop and httptools, without access log, in its own virtual "
    "environment, pinned to one core; the generator has another, and polls: a server does not pay for waking "
    "it. Ours is started by `antiphon run`, which hands plain requests from uvicorn's protocol to the "
    "endpoint; as an ASGI app it is under uvicorn alone.",
    "All answer as plain JSON: the peers with `json_response=True`, FastMCP without sessions "
    "(`stateless_http=True`). The tool is declared in each as its documentation declares one; the peers "
    "answer a string as structured content too, which is their default.",
    "Every answer was checked: status 200 and the right sum. Anything else is counted as an error.",
    "A ratio is the median of the ratios within each round. By CPU: the same of the server's CPU time for "
    "one answer, which other work on the machine disturbs less.",
)


def measure(names: list[str], rounds: int, seconds: float) -> Taken:
    """Start the servers, then measure every row in every round."""
    taken: Taken = {row: [] for row in ROWS if row.server in names}
    server_core, load_core = cores()
    with ExitStack() as stack:
        servers = {}
        for name in names:
            script = SERVERS / f"{name.replace('-', '_')}_server.py"
            python = ENVIRONMENTS[_environment(name)].python
            servers[name] = stack.enter_context(running(python, script, server_core))
        for number in range(rounds):
            for row, measured in taken.items():
                pid, port = servers[row.server]
                job = Job(port, pid, row.version, load_core, UNBOUNDED, seconds, connections=CONNECTIONS)
                measured.append(drive(job))
                print(f"round {number + 1}: {row.name}: {measured[-1].per_second:,.0f}/s", flush=True)
    return taken


def _environment(name: str) -> str:
    return name.removesuffix("-asgi")


def ratios(taken: Taken) -> list[dict[str, str | float]]:
    """Each ratio that can be had from what was taken: of answers a second, and of CPU time."""
    return [
        ratio(name, taken[ours], taken[theirs], aim)
        for name, ours, theirs, aim in RATIOS
        if ours in taken and theirs in taken
    ]


def main() -> None:
    """Measure, print, and write the result if every server was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s instead of 7 of 3 s")
    parser.add_argument("--servers", default=",".join(SERVED), help="measure only these, and write nothing")
    options = parser.parse_args()
    names: list[str] = options.servers.split(",")
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    prepare("echo")
    known = {name: versions(prepare(name)) for name in dict.fromkeys(map(_environment, names))}
    about = facts()
    taken = measure(names, rounds, seconds)
    found = ratios(taken)
    Report(
        "answers",
        "Plain answers over HTTP",
        described(CONNECTIONS, rounds, seconds),
        about,
        [
            Table(
                ("server", "answers/s", *COLUMNS),
                [line(row.name, measured) for row, measured in taken.items()],
            ),
            ratio_table(found),
        ],
        [*NOTES, *(f"{name}: {listed(shown)}" for name, shown in known.items())],
        {
            "settings": {"connections": CONNECTIONS, "rounds": rounds, "seconds": seconds},
            "versions": known,
            "rows": [
                {**asdict(row), "name": row.name, "rounds": [asdict(one) for one in measured]}
                for row, measured in taken.items()
            ],
            "ratios": found,
        },
    ).publish(keep=len(taken) == len(ROWS))


if __name__ == "__main__":
    main()
