"""Does the throughput of `antiphon run --workers N` grow with N, and do workers get in each other's way?

The load generator needs CPU time too. On a machine with two cores, two workers and the generator share them,
so answers a second cannot double. A bound says what the cores allow, and CPU time whether an answer costs the
same with two workers as with one. Connections stay with the worker that accepted them, so it is measured too
how evenly the workers are busy.
"""

import argparse
import os
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from environments import ENVIRONMENTS, prepare, versions
from job import Job, Measurement, drive
from processes import child_ids, cpu_seconds, running
from report import Report, Table, facts, listed
from traffic import MODERN

SCRIPT = Path(__file__).resolve().parent / "servers" / "run_workers.py"
WORKERS = (1, 2)
CONNECTIONS = 32
UNBOUNDED = 10_000_000
"""More answers than any server gives in a round: time ends it."""
NOTES = (
    "`antiphon run` with its defaults, not pinned to a core; the generator has no core of its own either.",
    "CPU of an answer: of the worker processes and of their supervisor. The generator's is its own.",
    "The bound is what the cores allow: all cores for the server and the generator together, but no more "
    "than one core for each worker, and one for the generator.",
    "The idlest worker: the CPU time of the worker that did least, of an equal part of all.",
)


@dataclass(frozen=True, slots=True)
class Taken:
    """One round with so many workers."""

    measured: Measurement
    least_share: float
    """The CPU time of the worker that did least, of an equal part of all."""
    bound: float
    """Answers a second that the cores would allow."""


def measure(pid: int, port: int, workers: int, seconds: float) -> Taken:
    """Measure one round, and what each worker did in it."""
    ids = child_ids(pid) if workers > 1 else [pid]
    before = [cpu_seconds(id) for id in ids]
    one = drive(Job(port, pid, MODERN, None, UNBOUNDED, seconds, connections=CONNECTIONS))
    used = [cpu_seconds(id) - start for id, start in zip(ids, before, strict=True)]
    busiest = sorted(used)[-workers:]  # Python starts a process of its own beside the workers
    generator = one.generator_busy / one.per_second
    server = one.server_cpu_us / 1e6
    bound = min((os.cpu_count() or 1) / (server + generator), workers / server, 1 / generator)
    return Taken(one, min(busiest) * workers / max(sum(busiest), 0.01), bound)


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s instead of 7 of 3 s")
    rounds, seconds = (3, 1.0) if parser.parse_args().quick else (7, 3.0)
    prepare("echo")
    known = versions(prepare("antiphon"))
    about = facts()
    taken: dict[int, list[Taken]] = {workers: [] for workers in WORKERS}
    with ExitStack() as stack:
        places = {}
        for workers in WORKERS:
            os.environ["ANTIPHON_WORKERS"] = str(workers)
            places[workers] = stack.enter_context(running(ENVIRONMENTS["antiphon"].python, SCRIPT, None))
        for number in range(1, rounds + 1):
            for workers, (pid, port) in places.items():
                taken[workers].append(measure(pid, port, workers, seconds))
                rate = taken[workers][-1].measured.per_second
                print(f"round {number}: {workers} workers: {rate:,.0f}/s", flush=True)
    Report(
        "workers",
        "Plain answers of several workers",
        f"{CONNECTIONS} keep-alive connections; medians of {rounds} interleaved rounds of {seconds:g} s.",
        about,
        (
            Table(
                (
                    "workers",
                    "answers/s",
                    "CPU µs",
                    "generator's CPU µs",
                    "of the bound",
                    "idlest worker",
                    "errors",
                ),
                [_row(workers, measured) for workers, measured in taken.items()],
            ),
            Table(("what", "measured", "aim"), _ratios(taken)),
        ),
        (*NOTES, f"antiphon: {listed(known)}"),
        {"rounds": {workers: [asdict(one) for one in measured] for workers, measured in taken.items()}},
    ).publish()


def _row(workers: int, taken: list[Taken]) -> list[str]:
    measured = [one.measured for one in taken]
    return [
        str(workers),
        f"{statistics.median(one.per_second for one in measured):,.0f}",
        f"{statistics.median(one.server_cpu_us for one in measured):.0f}",
        f"{statistics.median(one.generator_busy / one.per_second * 1e6 for one in measured):.0f}",
        f"{statistics.median(one.measured.per_second / one.bound for one in taken):.0%}",
        f"{statistics.median(one.least_share for one in taken):.0%}",
        str(sum(one.errors for one in measured)),
    ]


def _ratios(taken: dict[int, list[Taken]]) -> list[list[str]]:
    pairs = list(zip(taken[WORKERS[-1]], taken[WORKERS[0]], strict=True))
    rate = statistics.median(many.measured.per_second / one.measured.per_second for many, one in pairs)
    cpu = statistics.median(many.measured.server_cpu_us / one.measured.server_cpu_us for many, one in pairs)
    allowed = statistics.median(many.bound / one.bound for many, one in pairs)
    return [
        ["2 workers / 1, answers/s", f"{rate:.2f}", f"as the cores allow, {allowed:.2f}"],
        ["2 workers / 1, CPU of an answer", f"{cpu:.2f}", "at most 1.15"],
    ]


if __name__ == "__main__":
    main()
