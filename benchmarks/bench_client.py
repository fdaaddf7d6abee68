"""How many calls a second does a client make over HTTP, beside the official client and FastMCP's?

All clients call the same server of ours, one after the other in rounds, each in a process and an environment
of its own, pinned to one core; the server has another. What is compared is the ratio within a round: of calls
a second, and of the client's own CPU time for one call.
"""

import argparse
import json
import statistics
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from environments import ENVIRONMENTS, prepare, versions
from processes import cores, pin, running
from report import Report, Table, facts, listed

HERE = Path(__file__).resolve().parent
LIBRARIES = ("antiphon", "antiphon-httpx2", "mcp", "fastmcp")


@dataclass(frozen=True, slots=True)
class Row:
    """One client at one kind of work."""

    library: str
    at_once: int
    work: str = "calls"

    @property
    def name(self) -> str:
        library = self.library.replace("-httpx2", " with httpx2")
        return f"{library}, {self.work}, {self.at_once} at once"


@dataclass(frozen=True, slots=True)
class Taken:
    """What one client did in one round."""

    per_second: float
    cpu_us: float
    errors: int


Rounds: TypeAlias = dict[Row, list[Taken]]

ROWS = (
    *(Row(library, at_once) for at_once in (1, 16) for library in LIBRARIES),
    *(Row(library, 1, "segments") for library in ("antiphon", "antiphon-httpx2")),
)

RATIOS = (
    ("antiphon / mcp, 16 at once", Row("antiphon", 16), Row("mcp", 16), "at least 5"),
    ("antiphon / mcp, one after the other", Row("antiphon", 1), Row("mcp", 1), "at least 3"),
    ("antiphon / fastmcp, 16 at once", Row("antiphon", 16), Row("fastmcp", 16), "–"),
    ("antiphon / fastmcp, one after the other", Row("antiphon", 1), Row("fastmcp", 1), "–"),
    ("antiphon / antiphon with httpx2, 16 at once", Row("antiphon", 16), Row("antiphon-httpx2", 16), "–"),
    (
        "antiphon / antiphon with httpx2, segments",
        Row("antiphon", 1, "segments"),
        Row("antiphon-httpx2", 1, "segments"),
        "at least 1",
    ),
)

NOTES = (
    "Every client calls `add(a: int, b: int) -> str` of the same server, in protocol version 2026-07-28, "
    "over its own connections, and checks the result. Each client is used as its documentation shows it.",
    "The event loop is asyncio's own, as in most programs that use a client.",
    "By CPU: the ratio of the client's CPU time for one call, which other work on the machine disturbs less.",
    "Segments are read with `client.stream`; the official SDK has nothing to compare them with.",
)


def measure(rounds: int, seconds: float) -> Rounds:
    """Start the server, and let every client call it in every round."""
    taken: Rounds = {row: [] for row in ROWS}
    server_core, load_core = cores()
    pin(0, load_core)  # the clients inherit it
    script = HERE / "servers" / "antiphon_client.py"
    with running(ENVIRONMENTS["antiphon"].python, script, server_core) as (_, port):
        for number in range(rounds):
            for row, measured in taken.items():
                measured.append(_run(row, port, seconds))
                print(f"round {number + 1}: {row.name}: {measured[-1].per_second:,.0f}/s", flush=True)
    return taken


def ratios(taken: Rounds) -> list[dict[str, str | float]]:
    """How many times as much ours does, a second and for its CPU time: medians of the ratios in a round."""
    found: list[dict[str, str | float]] = []
    for name, ours, theirs, aim in RATIOS:
        pairs = list(zip(taken[ours], taken[theirs], strict=True))
        rate = statistics.median(mine.per_second / other.per_second for mine, other in pairs)
        cpu = statistics.median(other.cpu_us / mine.cpu_us for mine, other in pairs)
        found.append({"name": name, "rate": round(rate, 2), "cpu": round(cpu, 2), "aim": aim})
    return found


def _run(row: Row, port: int, seconds: float) -> Taken:
    python = ENVIRONMENTS[row.library].python
    command = [
        python,
        HERE / "client_load.py",
        row.library,
        row.work,
        str(port),
        str(row.at_once),
        str(seconds),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
    if done.returncode:
        raise RuntimeError(f"{row.name}: {(done.stderr.strip() or 'no word').splitlines()[-1]}")
    return Taken(**json.loads(done.stdout))


def _line(row: Row, measured: list[Taken]) -> list[str]:
    rates = [one.per_second for one in measured]
    return [
        row.name,
        f"{statistics.median(rates):,.0f}",
        f"{min(rates):,.0f}–{max(rates):,.0f}",
        f"{statistics.median(one.cpu_us for one in measured):,.1f}",
        str(sum(one.errors for one in measured)),
    ]


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 rounds of 0.5 s instead of 7 of 2 s")
    quick = parser.parse_args().quick
    rounds, seconds = (2, 0.5) if quick else (7, 2.0)
    known = {name: versions(prepare(name)) for name in LIBRARIES}
    about = facts()
    taken = measure(rounds, seconds)
    found = ratios(taken)
    data: dict[str, Any] = {
        "settings": {"rounds": rounds, "seconds": seconds},
        "versions": known,
        "rows": [
            {**asdict(row), "name": row.name, "rounds": [asdict(one) for one in measured]}
            for row, measured in taken.items()
        ],
        "ratios": found,
    }
    Report(
        "client",
        "Clients over HTTP",
        f"Medians of {rounds} interleaved rounds of {seconds:g} s.",
        about,
        [
            Table(
                ("client", "a second", "spread", "client CPU µs", "errors"),
                [_line(row, measured) for row, measured in taken.items()],
            ),
            Table(
                ("ratio", "a second", "by CPU", "aim"),
                [[str(r["name"]), f"{r['rate']:.2f}", f"{r['cpu']:.2f}", str(r["aim"])] for r in found],
            ),
        ],
        [*NOTES, *(f"{name}: {listed(shown)}" for name, shown in known.items())],
        data,
    ).publish(keep=not quick)


if __name__ == "__main__":
    main()
