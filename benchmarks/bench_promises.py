"""What does a promise cost, from its making to its redemption, beside the peer that has them?

Ours are durable on disk (SQLite, full synchronisation), the peer's are in memory, which is its quickest
store. Both servers run at once, each in its own environment, pinned to one core; they are measured one
after the other in rounds, with the same requests from the same generator on another core.
"""

import argparse
import json
import statistics
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from environments import ENVIRONMENTS, prepare, versions
from processes import cores, running
from report import Report, Table, facts, listed

HERE = Path(__file__).resolve().parent
CONNECTIONS = 32
SERVERS = {"antiphon": "antiphon_promises.py", "fastmcp-tasks": "fastmcp_promises.py"}
TITLES = {"antiphon": "antiphon, SQLite", "fastmcp-tasks": "fastmcp-tasks, in memory"}

NOTES = (
    "A task is made by `tools/call` and looked at by `tasks/get` until it has ended, five ms between two "
    "looks; its result is in the last one. 2026-07-28 with the tasks extension on both sides.",
    "Resumed: from the answer to a parked task (`tasks/update`) until its end is seen, one task at a time.",
    "A ratio is the median of the ratios within each round. The rounds are short and many, because the speed "
    "of a virtual machine changes within seconds.",
)


def drive(python: Path, **job: object) -> dict[str, float]:
    """One measurement, in a fresh process; raises RuntimeError with what went wrong."""
    command = [str(python), str(HERE / "promise_load.py"), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or "no word").splitlines()[-1])
    return dict(json.loads(done.stdout))


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args().quick
    rounds, seconds = (3, 2.0) if quick else (15, 2.0)
    server_core, load_core = cores()
    about = facts()
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    resumed: list[float] = []
    with ExitStack() as stack:
        python = prepare("echo").python
        places = {
            name: stack.enter_context(running(prepare(name).python, HERE / "servers" / script, server_core))
            for name, script in SERVERS.items()
        }
        for number in range(1, rounds + 1):
            for name, (pid, port) in places.items():
                common = {"port": port, "server": pid, "core": load_core, "polls": load_core is not None}
                one = drive(python, **common, seconds=seconds, connections=CONNECTIONS, what="redeem")
                taken[name].append(one)
                print(f"round {number}: {TITLES[name]}: {one['per_second']:,.0f}/s", flush=True)
            pid, port = places["antiphon"]
            alone = drive(
                python,
                port=port,
                server=pid,
                core=load_core,
                seconds=seconds / 2,
                connections=1,
                what="resume",
                polls=False,
            )
            resumed.append(alone["median_ms"])
        known = {name: versions(ENVIRONMENTS[name]) for name in SERVERS}
    _report(about, taken, resumed, known, rounds, seconds)


def _report(
    about: dict[str, Any],
    taken: dict[str, list[dict[str, float]]],
    resumed: list[float],
    known: dict[str, dict[str, str]],
    rounds: int,
    seconds: float,
) -> None:
    def middle(name: str, key: str) -> float:
        return statistics.median(one[key] for one in taken[name])

    rows = [
        [
            TITLES[name],
            f"{middle(name, 'per_second'):,.0f}",
            f"{middle(name, 'median_ms'):.1f}",
            f"{middle(name, 'cpu_us'):,.0f}",
        ]
        for name in SERVERS
    ]
    pairs = list(zip(taken["antiphon"], taken["fastmcp-tasks"], strict=True))
    ratio = statistics.median(ours["per_second"] / theirs["per_second"] for ours, theirs in pairs)
    by_cpu = statistics.median(theirs["cpu_us"] / ours["cpu_us"] for ours, theirs in pairs)
    parked = statistics.median(resumed)
    Report(
        "promises",
        "Promises, made to redeemed",
        f"{CONNECTIONS} connections, one worker; medians of {rounds} interleaved rounds of {seconds:g} s.",
        about,
        (
            Table(("server", "tasks/s", "median ms", "server CPU µs"), rows),
            Table(
                ("what", "measured", "aim"),
                [
                    ["antiphon on disk / fastmcp-tasks in memory, tasks/s", f"{ratio:.1f}", "at least 30"],
                    ["the same, by CPU time of the server", f"{by_cpu:.1f}", "–"],
                    [
                        "antiphon: a parked task answered, until its end is seen",
                        f"{parked:.1f} ms",
                        "at most 20 ms",
                    ],
                ],
            ),
        ),
        (*NOTES, *(f"{name}: {listed(shown)}" for name, shown in known.items())),
        {"taken": taken, "resumed_ms": resumed, "versions": known, "ratio": ratio, "by_cpu": by_cpu},
    ).publish()


if __name__ == "__main__":
    main()
