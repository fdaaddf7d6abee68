"""What do promises cost on a store that many machines can share, beside the peer on its own?

Ours are in PostgreSQL with `synchronous_commit=on`, the peer's in Redis, in memory alone; both come from
wheels and run beside the servers. And does an operation stay as quick with a million tasks as with a
thousand, and a claim while another transaction is open for long? How soon does one instance know what another
has done?
"""

import argparse
import json
import os
import statistics
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench_promises import drive
from environments import ENVIRONMENTS, prepare, versions
from processes import cores, running
from report import Report, Table, facts, listed

HERE = Path(__file__).resolve().parent
CONNECTIONS = 64
FEW = 1000
NOTES = (
    "A task is made by `tools/call` and looked at by `tasks/get` until it has ended, five ms between two "
    "looks. One server process each; it serves, works and keeps the result.",
    "Statements are all that PostgreSQL counts as transactions, those that only read too: each statement of "
    "ours is one. Commits are those that wrote.",
    "The stored tasks have ended; a claim is of the one that is free.",
    "An open transaction, such as the one of `pg_dump`, keeps the dead rows of all tasks that ran since.",
    "News: two stores on one PostgreSQL; from the call of `append` until the other has read the entry, and "
    "from the call of `publish` until the other has heard it.",
)


def measure(**job: object) -> Any:
    """Something about the store, in a process that can reach it; raises RuntimeError."""
    command = [str(ENVIRONMENTS["antiphon-postgres"].python), str(HERE / "scale_store.py"), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or "no word").splitlines()[-1])
    return json.loads(done.stdout)


def commits(port: int) -> float:
    """How many commits a server of ours has made that wrote, as its metrics say."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith("antiphon_commit_operations_count")
    )


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and fewer tasks")
    quick = parser.parse_args().quick
    rounds, seconds, many = (2, 2.0, 20_000) if quick else (5, 6.0, 1_000_000)
    about = facts()
    server_core, load_core = cores()
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    with ExitStack() as stack:
        start = stack.enter_context
        _, database = start(
            running(prepare("postgres").python, HERE / "servers" / "postgres_server.py", None)
        )
        _, redis = start(running(prepare("redis").python, HERE / "servers" / "redis_server.py", None))
        dsn = f"postgresql://postgres@127.0.0.1:{database}/postgres"
        os.environ |= {"BENCH_STORE": dsn, "FASTMCP_DOCKET_URL": f"redis://127.0.0.1:{redis}/0"}
        python = prepare("echo").python
        home = HERE / "servers"
        mine = start(running(prepare("antiphon-postgres").python, home / "antiphon_scale.py", server_core))
        peer = start(running(prepare("fastmcp-tasks").python, home / "fastmcp_promises.py", server_core))
        common = {
            "core": load_core,
            "seconds": seconds,
            "connections": CONNECTIONS,
            "what": "redeem",
            "polls": False,  # the database needs the core too
        }
        for number in range(1, rounds + 1):
            before = (commits(mine[1]), measure(what="counted", dsn=dsn)["transactions"])
            one = drive(python, port=mine[1], server=mine[0], **common)
            tasks = one["per_second"] * seconds + CONNECTIONS
            one["commits"] = (commits(mine[1]) - before[0]) / tasks
            one["statements"] = (measure(what="counted", dsn=dsn)["transactions"] - before[1]) / tasks
            ours.append(one)
            theirs.append(drive(python, port=peer[1], server=peer[0], **common))
            print(
                f"round {number}: {one['per_second']:,.0f}/s, {theirs[-1]['per_second']:,.0f}/s", flush=True
            )
        news = measure(what="news", dsn=dsn, times=50 if quick else 300)
        flat = measure(what="flat", dsn=dsn, few=FEW, many=many, rounds=3 if quick else 9, times=50)
        during = 2000 if quick else 20_000
        held = measure(what="held", dsn=dsn, tasks=during, rounds=2 if quick else 5, times=50)
        known = {
            name: versions(ENVIRONMENTS[name]) for name in ("antiphon-postgres", "fastmcp-tasks", "redis")
        }
    _report(about, ours, theirs, news, flat, (during, held), known, many)


def _report(
    about: dict[str, Any],
    ours: list[dict[str, float]],
    theirs: list[dict[str, float]],
    news: dict[str, float],
    flat: dict[str, list[float]],
    held: tuple[int, list[float]],
    known: dict[str, dict[str, str]],
    many: int,
) -> None:
    def middle(taken: list[dict[str, float]], key: str) -> float:
        return statistics.median(one[key] for one in taken)

    ratio = statistics.median(
        one["per_second"] / two["per_second"] for one, two in zip(ours, theirs, strict=True)
    )
    Report(
        "scale",
        "Promises on a store for many machines",
        f"{CONNECTIONS} connections; medians of {len(ours)} interleaved rounds.",
        about,
        (
            Table(
                ("server", "tasks/s", "median ms", "server CPU µs"),
                [
                    [
                        name,
                        f"{middle(taken, 'per_second'):,.0f}",
                        f"{middle(taken, 'median_ms'):.1f}",
                        f"{middle(taken, 'cpu_us'):,.0f}",
                    ]
                    for name, taken in (("antiphon, PostgreSQL", ours), ("fastmcp-tasks, Redis", theirs))
                ],
            ),
            Table(
                ("what", "measured", "aim"),
                [
                    [
                        "antiphon on PostgreSQL / fastmcp-tasks on Redis, tasks/s",
                        f"{ratio:.1f}",
                        "at least 35",
                    ],
                    ["commits a task", f"{middle(ours, 'commits'):.2f}", "under 4"],
                    ["statements a task", f"{middle(ours, 'statements'):.2f}", "under 10"],
                    *(
                        [f"{name} with {many:,} tasks / with {FEW:,}", f"{two / one:.2f}", "at most 1.3"]
                        for name, (one, two) in flat.items()
                    ),
                    [
                        f"claim after {held[0]:,} tasks in an open transaction / without one",
                        f"{held[1][1] / held[1][0]:.2f}",
                        "at most 1.3",
                    ],
                    ["an entry is read at another instance", f"{news['changed_ms']:.1f} ms", "at most 30 ms"],
                    ["a message is heard at another instance", f"{news['heard_ms']:.1f} ms", "at most 30 ms"],
                ],
            ),
            Table(
                ("operation, µs", f"{FEW:,} tasks", f"{many:,} tasks"),
                [[name, f"{one:,.0f}", f"{two:,.0f}"] for name, (one, two) in flat.items()],
            ),
        ),
        (*NOTES, *(f"{name}: {listed(shown)}" for name, shown in known.items())),
        {
            "ours": ours,
            "theirs": theirs,
            "news": news,
            "flat": flat,
            "held": held[1],
            "versions": known,
            "ratio": ratio,
        },
    ).publish(keep=many >= 1_000_000)


if __name__ == "__main__":
    main()
