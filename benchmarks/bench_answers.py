"""How many plain answers a second over HTTP, beside the official SDK, FastMCP and a bare echo?

All servers run at once, each in its own environment, pinned to one core; they are measured one after
the other in rounds, with the same request from the same generator on another core. What is compared
is the ratio within a round, so that a machine that slows down slows down both sides.
"""

import argparse
import json
import statistics
import subprocess
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from environments import ENVIRONMENTS, prepare, versions
from processes import cores, running
from report import Report, Table, facts
from traffic import MODERN, SESSIONS

HERE = Path(__file__).resolve().parent
CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Row:
    """One server on one protocol version."""

    server: str
    version: str

    @property
    def name(self) -> str:
        if self.server == "echo":
            return "bare ASGI echo"
        return f"{self.server}, {self.version}" + (" in a session" if self.version == SESSIONS else "")


ROWS = (
    Row("antiphon", MODERN),
    Row("mcp", MODERN),
    Row("fastmcp", MODERN),
    Row("echo", MODERN),
    Row("antiphon", SESSIONS),
    Row("mcp", SESSIONS),
)

RATIOS = (
    ("antiphon / mcp, 2026-07-28", ROWS[0], ROWS[1], "at least 6"),
    ("antiphon / fastmcp, 2026-07-28", ROWS[0], ROWS[2], "–"),
    ("antiphon / bare echo", ROWS[0], ROWS[3], "at least 0.55"),
    ("antiphon / mcp, 2025-11-25 in a session", ROWS[4], ROWS[5], "–"),
)

COLUMNS = (
    "server",
    "answers/s",
    "spread",
    "median ms",
    "p99 ms",
    "server CPU µs",
    "errors",
    "generator busy",
)

NOTES = (
    "Every server runs on uvicorn with uvloop and httptools, without access log, in its own virtual "
    "environment, pinned to one core; the generator has another.",
    "The peers answer plain JSON (`json_response=True`), FastMCP without sessions (`stateless_http=True`).",
    "Every answer was checked: status 200 and the right sum. Anything else is counted as an error.",
    "A ratio is the median of the ratios within each round.",
)


def once(row: Row, pid: int, port: int, warmup: int, count: int, seconds: float) -> dict[str, Any]:
    """One round of one row, by a fresh generator process."""
    job = {
        "port": port,
        "server": pid,
        "version": row.version,
        "connections": CONNECTIONS,
        "warmup": warmup,
        "count": count,
        "seconds": seconds,
        "core": cores()[1],
    }
    command = [ENVIRONMENTS["echo"].python, HERE / "load.py", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 180)
    if done.returncode:
        raise RuntimeError(f"{row.name}: {done.stderr.strip().splitlines()[-1]}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def rounds(
    names: list[str], count: int, seconds: float
) -> tuple[dict[Row, list[dict[str, Any]]], dict[str, Any]]:
    """Start the servers, then measure every row in every round."""
    taken: dict[Row, list[dict[str, Any]]] = {row: [] for row in ROWS if row.server in names}
    prepare("echo")
    known = {name: versions(prepare(name)) for name in names}
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                running(ENVIRONMENTS[name].python, HERE / "servers" / f"{name}_server.py", cores()[0])
            )
            for name in names
        }
        for number in range(count):
            for row, measured in taken.items():
                warmup = 400 if number == 0 else 100
                measured.append(once(row, *servers[row.server], warmup, 10_000_000, seconds))
                print(f"round {number + 1}: {row.name}: {measured[-1]['per_second']:,.0f}/s", flush=True)
    return taken, known


def middle(measured: list[dict[str, Any]], key: str) -> float:
    """The median of one number over the rounds."""
    return statistics.median(one[key] for one in measured)


def ratio(taken: dict[Row, list[dict[str, Any]]], ours: Row, theirs: Row) -> float:
    """The median over the rounds of the ratio within a round."""
    pairs = zip(taken[ours], taken[theirs], strict=True)
    return statistics.median(mine["per_second"] / other["per_second"] for mine, other in pairs)


def report(
    taken: dict[Row, list[dict[str, Any]]], known: dict[str, Any], about: dict[str, Any], seconds: float
) -> None:
    """Print the table and the ratios, and write both where all servers were measured."""
    lines = []
    for row, measured in taken.items():
        rates = [one["per_second"] for one in measured]
        lines.append(
            [
                row.name,
                f"{middle(measured, 'per_second'):,.0f}",
                f"{min(rates):,.0f}–{max(rates):,.0f}",
                f"{middle(measured, 'median_ms'):.2f}",
                f"{middle(measured, 'p99_ms'):.2f}",
                f"{middle(measured, 'server_cpu_us'):.0f}",
                str(sum(one["errors"] for one in measured)),
                f"{middle(measured, 'generator_busy'):.0%}",
            ]
        )
    found = {
        name: (round(ratio(taken, ours, theirs), 3), wanted)
        for name, ours, theirs, wanted in RATIOS
        if ours in taken and theirs in taken
    }
    count = len(next(iter(taken.values())))
    Report(
        "answers",
        "Plain answers over HTTP",
        f"`tools/call` of `add(a: int, b: int) -> str`, {CONNECTIONS} keep-alive connections, one worker; "
        f"medians of {count} interleaved rounds of {seconds:g} s.",
        about,
        [
            Table(COLUMNS, lines),
            Table(
                ["ratio of answers/s", "measured", "aim"], [[n, f"{r:.2f}", w] for n, (r, w) in found.items()]
            ),
        ],
        [
            *NOTES,
            *(f"{name}: " + ", ".join(f"{p} {v}" for p, v in shown.items()) for name, shown in known.items()),
        ],
        {
            "settings": {"connections": CONNECTIONS, "rounds": count, "seconds": seconds},
            "versions": known,
            "rows": [
                {**asdict(row), "name": row.name, "rounds": measured} for row, measured in taken.items()
            ],
            "ratios": {name: measured for name, (measured, _) in found.items()},
        },
    ).publish(keep=len(taken) == len(ROWS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s instead of 7 of 3 s")
    parser.add_argument("--servers", default=",".join(ENVIRONMENTS), help="measure only these, by name")
    options = parser.parse_args()
    about = facts()
    count, seconds = (3, 1.0) if options.quick else (7, 3.0)
    taken, known = rounds(options.servers.split(","), count, seconds)
    report(taken, known, about, seconds)


if __name__ == "__main__":
    main()
