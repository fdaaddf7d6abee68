"""Does memory stay flat: how much does a server grow between its ten thousandth call and 110,000 more?

Ours without sessions, ours within sessions, and the official SDK for comparison, each in a fresh
process that answers the benchmark's call.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

from environments import prepare, versions
from job import Job, drive
from processes import cores, resident_mb, running
from report import Report, Table, facts, listed
from traffic import MODERN, SESSIONS

SERVERS = Path(__file__).resolve().parent / "servers"
ROWS = (("antiphon", MODERN), ("antiphon", SESSIONS), ("mcp", MODERN))
LONGEST = 300.0
"""Seconds after which a server that is too slow is not waited for; the calls it made are reported."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident megabytes of one server, and the calls they were taken after."""

    server: str
    version: str
    idle_mb: float
    first_calls: int
    first_mb: float
    more_calls: int
    last_mb: float
    errors: int

    @property
    def grown_mb(self) -> float:
        return self.last_mb - self.first_mb


def grow(server: str, version: str, first: int, more: int) -> Growth:
    """Start one server, call it, look, call it more, look again."""
    server_core, load_core = cores()
    with running(prepare(server).python, SERVERS / f"{server}_server.py", server_core) as (pid, port):
        idle = resident_mb(pid)
        before = drive(Job(port, pid, version, load_core, first, LONGEST))
        early = resident_mb(pid)
        after = drive(Job(port, pid, version, load_core, more, LONGEST))
        return Growth(
            server,
            version,
            round(idle, 1),
            before.answers,
            round(early, 1),
            after.answers,
            round(resident_mb(pid), 1),
            before.errors + after.errors,
        )


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 and 20,000 calls")
    first, more = (2_000, 20_000) if parser.parse_args().quick else (10_000, 110_000)
    prepare("echo")
    known = {name: versions(prepare(name)) for name, _ in ROWS}
    about = facts()
    grown = []
    for server, version in ROWS:
        grown.append(grow(server, version, first, more))
        print(f"{server}, {version}: {grown[-1].grown_mb:+.1f} MB", flush=True)
    Report(
        "memory",
        "Resident memory under calls",
        f"Resident megabytes of one process when idle, after {first:,} calls, and after {more:,} more.",
        about,
        [
            Table(
                ("server", "idle", "after the first", "after all", "growth", "per 1,000 calls", "errors"),
                [
                    [
                        f"{one.server}, {one.version}",
                        f"{one.idle_mb:.1f} MB",
                        f"{one.first_mb:.1f} MB",
                        f"{one.last_mb:.1f} MB",
                        f"{one.grown_mb:+.1f} MB",
                        f"{one.grown_mb / max(1, one.more_calls) * 1e6:+.1f} kB",
                        str(one.errors),
                    ]
                    for one in grown
                ],
            )
        ],
        [f"{name}: {listed(shown)}" for name, shown in known.items()],
        {
            "settings": {"first": first, "more": more},
            "versions": known,
            "rows": [{**asdict(one), "grown_mb": round(one.grown_mb, 1)} for one in grown],
        },
    ).publish()


if __name__ == "__main__":
    main()
