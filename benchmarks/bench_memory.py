"""Does memory stay flat: over 110,000 calls, and with a million tasks that wait for an answer?

Calls: ours without sessions, ours within sessions, and the official SDK for comparison, each in a fresh
process that answers the benchmark's call. Tasks: ours alone, in a SQLite file.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from environments import prepare, versions
from job import Job, drive
from processes import cores, resident_mb, running
from report import Report, Table, facts, listed
from traffic import MODERN, SESSIONS

from waiting import Waiting, measure

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
    parser.add_argument("--quick", action="store_true", help="2,000 and 20,000 calls, and 20,000 tasks")
    quick = parser.parse_args().quick
    first, more = (2_000, 20_000) if quick else (10_000, 110_000)
    numbers, answered = ((1_000, 20_000), 500) if quick else ((1_000, 1_000_000), 2_000)
    answered = min(answered, numbers[0] // 2)
    prepare("echo")
    known = {name: versions(prepare(name)) for name, _ in ROWS}
    about = facts()
    grown = []
    for server, version in ROWS:
        grown.append(grow(server, version, first, more))
        print(f"{server}, {version}: {grown[-1].grown_mb:+.1f} MB", flush=True)
    waiting = []
    for tasks in numbers:
        waiting.append(measure(tasks, answered))
        print(f"{tasks:,} tasks waiting: {waiting[-1].last_mb:.1f} MB", flush=True)
    Report(
        "memory",
        "Resident memory",
        f"Resident megabytes of one process when idle, after {first:,} calls, and after {more:,} more; then "
        "with tasks that wait for an answer, after some of them were looked at, answered and redeemed. The "
        "aim is under 200 MB with a million.",
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
            ),
            _table(waiting),
        ],
        [f"{name}: {listed(shown)}" for name, shown in known.items()],
        {
            "settings": {"first": first, "more": more},
            "versions": known,
            "rows": [{**asdict(one), "grown_mb": round(one.grown_mb, 1)} for one in grown],
            "waiting": [asdict(one) for one in waiting],
        },
    ).publish()


def _table(waiting: Sequence[Waiting]) -> Table:
    return Table(
        ("tasks waiting", "file", "first look after", "idle", "answered", "after that", "at most"),
        [
            [
                f"{one.tasks:,}",
                f"{one.file_mb:,.0f} MB",
                f"{one.started_s:.2f} s",
                f"{one.idle_mb:.1f} MB",
                f"{one.answered:,}",
                f"{one.last_mb:.1f} MB",
                f"{one.peak_mb:.1f} MB",
            ]
            for one in waiting
        ],
    )


if __name__ == "__main__":
    main()
