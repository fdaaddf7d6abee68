"""How fast do segments come, beside the official SDK's progress notifications and a bare event stream?

Segments a second on one connection, without a task and with one on SQLite; the time from `emit` to the
client's loop; a thousand streams at once; and whether 100,000 segments in one task leave memory flat.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from environments import prepare, versions
from processes import cores, pin, resident_mb, running
from report import Report, Table, facts, listed
from streams import Stream, call, draft_stream, task_stream

HERE = Path(__file__).resolve().parent
SERVERS = HERE / "servers"
OURS, TASK, PEER = "antiphon, an answer", "antiphon, a task on SQLite", "mcp, progress notifications"

Read = Callable[[int], Awaitable[Stream]]


def rates(ports: dict[str, tuple[int, int]], count: int, rounds: int) -> dict[str, list[float]]:
    """Items a second on one connection, a number for each round."""
    reads: dict[str, tuple[str, Read]] = {
        OURS: ("antiphon", lambda port: call(port, "count", {"n": count})),
        TASK: ("antiphon", lambda port: task_stream(port, "count_in_a_task", {"n": count})),
        PEER: ("mcp", lambda port: call(port, "count", {"n": count})),
    }
    taken: dict[str, list[float]] = {name: [] for name in reads}
    for number in range(rounds + 1):
        for name, (server, read) in reads.items():
            stream = asyncio.run(read(ports[server][1]))  # type: ignore[arg-type]
            if stream.items != count or not stream.whole or "result" not in stream.end:
                raise RuntimeError(f"{name}: {stream.items} of {count} came, {stream.end}")
            if number:  # the first warms up
                taken[name].append(count / stream.seconds)
                print(f"{name}: {count / stream.seconds:,.0f} a second", flush=True)
    return taken


def delays(ports: dict[str, tuple[int, int]], count: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from a server's event to a reader's loop, a median for each round."""
    taken: dict[str, list[float]] = {name: [] for name in ("raw", "raw bare", "client", "client bare")}
    python = prepare("antiphon").python
    for _ in range(rounds):
        for name, server in (("raw", "antiphon"), ("raw bare", "echo")):
            dripped = asyncio.run(call(ports[server][1], "drip", {"n": count, "pause": 0.005}, stamped=True))
            taken[name].append(statistics.median(dripped.delays_ms))
        arguments = [str(ports["antiphon"][1]), str(ports["echo"][1]), str(count), "0.005"]
        done = subprocess.run(
            [python, HERE / "drips.py", *arguments], capture_output=True, text=True, timeout=120, check=True
        )
        found = json.loads(done.stdout)
        taken["client"].append(found["ours"])
        taken["client bare"].append(found["bare"])
    return taken


async def crowd(port: int, streams: int, each: int) -> dict[str, Any]:
    """Many streams at once, each of which says something now and then."""
    began = time.perf_counter()
    arguments = {"n": each, "pause": 0.5}
    read = await asyncio.gather(*(call(port, "drip", arguments, stamped=True) for _ in range(streams)))
    whole = sum(one.items == each and one.whole for one in read)
    worst = statistics.median(delay for one in read for delay in one.delays_ms)
    return {"streams": streams, "whole": whole, "seconds": time.perf_counter() - began, "median_ms": worst}


@contextmanager
def watched(pid: int, found: list[float]) -> Iterator[None]:
    """Take note of a process's resident memory, as long as the context lasts."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            found.append(resident_mb(pid))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def flat(pid: int, port: int, count: int) -> dict[str, float]:
    """Resident memory of the server while one task emits very much: before, and at its highest.

    In the draft, whose streams end without saying everything again; and with such an end, beside it.
    """
    tool = "count_in_a_task"
    asyncio.run(draft_stream(port, tool, {"n": count // 10}))
    measured = {"before": resident_mb(pid)}
    found: list[float] = []
    with watched(pid, found):
        items = asyncio.run(draft_stream(port, tool, {"n": count}))
    measured["during"] = max(found)
    with watched(pid, found):
        stream = asyncio.run(task_stream(port, tool, {"n": count}))
    measured["peak"] = max(found)
    if items != count or stream.items != count or not stream.whole:
        raise RuntimeError(f"{items} and {stream.items} of {count} segments came")
    return measured


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer segments and rounds")
    quick = parser.parse_args().quick
    count, rounds, streams, many = (5_000, 1, 100, 20_000) if quick else (20_000, 7, 1_000, 100_000)
    known = {name: versions(prepare(name)) for name in ("antiphon", "mcp", "echo")}
    about, (core, load_core) = facts(), cores()
    pin(0, load_core)
    with ExitStack() as stack:
        ports = {
            name: stack.enter_context(running(prepare(name).python, SERVERS / f"{name}_streaming.py", core))
            for name in ("antiphon", "mcp", "echo")
        }
        taken = rates(ports, count, rounds)
        late = delays(ports, 200 if not quick else 50, rounds)
        pid, port = ports["antiphon"]
        together = asyncio.run(crowd(port, streams, 10))
        print(together, flush=True)
        memory = flat(pid, port, many)
        print(memory, flush=True)
    publish(
        about, known, taken, late, together, memory, {"count": count, "rounds": rounds, "many": many}, quick
    )


def publish(
    about: dict[str, Any],
    known: dict[str, dict[str, str]],
    taken: dict[str, list[float]],
    late: dict[str, list[float]],
    together: dict[str, Any],
    memory: dict[str, float],
    settings: dict[str, Any],
    quick: bool,
) -> None:
    """Print and write the result."""

    def times(name: str) -> float:
        return statistics.median(a / b for a, b in zip(taken[name], taken[PEER], strict=True))

    def slower(name: str) -> float:
        return statistics.median(a / b for a, b in zip(late[name], late[f"{name} bare"], strict=True))

    ratios = [
        {"name": f"{OURS} / {PEER}", "rate": round(times(OURS), 2), "aim": "at least 5"},
        {"name": f"{TASK} / {PEER}", "rate": round(times(TASK), 2), "aim": "at least 3"},
        {
            "name": "emit to a raw reader / a bare event",
            "rate": round(slower("raw"), 2),
            "aim": "at most 1.5",
        },
        {
            "name": "emit to our client's loop / a bare event to aiohttp's",
            "rate": round(slower("client"), 2),
            "aim": "at most 1.5",
        },
    ]
    rows = [
        [name, f"{statistics.median(some):,.0f}", f"{min(some):,.0f}–{max(some):,.0f}"]
        for name, some in taken.items()
    ]
    waits = [[name, f"{statistics.median(some):.3f}"] for name, some in late.items()]
    grown, peak = memory["during"] - memory["before"], memory["peak"] - memory["before"]
    Report(
        "streaming",
        "Segments",
        f"{settings['count']:,} on one connection in each of {settings['rounds']} rounds; what is compared "
        "is the ratio within a round.",
        about,
        [
            Table(("items a second", "median", "spread"), rows),
            Table(("from event to reader", "ms"), waits),
            Table(("ratio", "times", "aim"), [[r["name"], str(r["rate"]), r["aim"]] for r in ratios]),
            Table(
                ("at once, and much", "measured", "aim"),
                [
                    [
                        f"{together['streams']:,} streams at once",
                        f"{together['whole']:,} whole, median delay {together['median_ms']:.1f} ms",
                        "all whole",
                    ],
                    [
                        f"{settings['many']:,} segments in one task",
                        f"{grown:+.1f} MB, {peak:+.1f} MB with an end that says it all",
                        "flat",
                    ],
                ],
            ),
        ],
        [f"{name}: {listed(shown)}" for name, shown in known.items()],
        {
            "settings": settings,
            "versions": known,
            "rates": taken,
            "delays_ms": late,
            "ratios": ratios,
            "together": together,
            "memory": memory,
        },
    ).publish(keep=not quick)


if __name__ == "__main__":
    main()
