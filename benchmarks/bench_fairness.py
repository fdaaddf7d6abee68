"""Does one principal with a long queue delay the tasks of the others?

Ninety-nine principals submit ten tasks each, to a server whose queue is empty and to one in which another
principal has 100,000 tasks. Measured is how long their tasks wait before they begin. Both servers are in this
process, in turn, on SQLite or on the store that `--store` names.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from report import Report, Table, facts

from antiphon import Client, Context, Limits, Server

OTHERS = 99
TASKS_EACH = 10
ROUNDS = 3
TASK_SECONDS = 0.002
LIMITS = Limits(max_running_tasks=8, max_queued_tasks=10_000_000, principal_share=1.0, drain_timeout=5.0)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the tasks of the others waited, in milliseconds, and how many of the flood came between."""

    median: float
    largest: float
    between: int


class Shop:
    """A server, and when its tasks began."""

    def __init__(self, store: str, *, runs_tasks: bool = True) -> None:
        self.server = Server("shop", store=store, limits=LIMITS)
        self.server.configure(run_tasks=runs_tasks)
        self.begun: list[tuple[str, float, float]] = []
        """The principal of each task, when it was submitted and when it began."""
        self.has_begun = asyncio.Event()
        """Set when all tasks of the others have begun."""
        self._missing = OTHERS * TASKS_EACH

        @self.server.tool(task="required", task_ttl=60.0)
        async def work(submitted: float, ctx: Context) -> None:
            self.begun.append((ctx.principal.id, submitted, time.monotonic()))
            self._missing -= ctx.principal.id != "flood"
            if not self._missing:
                self.has_begun.set()
            await asyncio.sleep(TASK_SECONDS)

    async def submit(self, principal: str, count: int) -> None:
        async with Client(self.server, principal=principal) as client:
            for first in range(0, count, 500):
                number = min(500, count - first)
                await asyncio.gather(
                    *(client.submit("work", {"submitted": time.monotonic()}) for _ in range(number))
                )


async def measure(store: str) -> Waits:
    """Submit the tasks of the others while the worker runs, and wait until all of them have begun."""
    shop = Shop(store)
    async with shop.server.engine.running():
        await asyncio.sleep(0.5)  # the worker has claimed what it can
        start = len(shop.begun)
        for n in range(OTHERS):
            await shop.submit(f"other{n}", TASKS_EACH)
        await shop.has_begun.wait()
    places = [place for place, (name, _, _) in enumerate(shop.begun) if name != "flood"]
    waits = [begun - submitted for name, submitted, begun in shop.begun if name != "flood"]
    between = sum(name == "flood" for name, _, _ in shop.begun[start : places[-1]])
    return Waits(statistics.median(waits) * 1000, max(waits) * 1000, between)


async def run(empty: str, flooded: str, flood: int) -> tuple[list[Waits], list[Waits]]:
    """Measure both stores in turn, round by round."""
    filling = Shop(flooded, runs_tasks=False)
    async with filling.server.engine.running():
        await filling.submit("flood", flood)
    without, beside = [], []
    for _ in range(ROUNDS):
        without.append(await measure(empty))
        beside.append(await measure(flooded))
        print(without[-1], beside[-1], flush=True)
    return without, beside


def row(name: str, rounds: Sequence[Waits]) -> list[str]:
    """The medians of some rounds as a row of the table."""
    columns = zip(*((waits.median, waits.largest, waits.between) for waits in rounds), strict=True)
    return [name, *(f"{statistics.median(values):.0f}" for values in columns)]


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 queued tasks instead of 100,000")
    parser.add_argument("--store", action="append", help="the two stores, in place of SQLite; given twice")
    options = parser.parse_args()
    about, flood = facts(), 10_000 if options.quick else 100_000
    with tempfile.TemporaryDirectory(dir=".") as folder:
        stores = options.store or [f"sqlite:///{folder}/{name}.db" for name in ("empty", "flooded")]
        without, beside = asyncio.run(run(*stores, flood))
    rows = [row("an empty queue", without), row(f"{flood:,} queued tasks of one principal", beside)]
    ratio = statistics.median(
        flooded.median / empty.median for flooded, empty in zip(beside, without, strict=True)
    )
    Report(
        "fairness",
        "Does one principal with a long queue delay the tasks of the others?",
        f"Beside the long queue, the tasks of the others wait {ratio:.2f} × as long as with an empty queue.",
        about,
        [Table(["the others wait beside", "median, ms", "longest, ms", "tasks of the flood between"], rows)],
        [f"{OTHERS} principals submit {TASKS_EACH} tasks each, and {LIMITS.max_running_tasks} run at once."],
        {"ratio": ratio, "empty": [*map(asdict, without)], "flooded": [*map(asdict, beside)]},
    ).publish(keep=not options.quick)


if __name__ == "__main__":
    main()
