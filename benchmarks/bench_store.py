"""Does a store stay as quick with a million tasks as with a thousand, and what do commits cost when shared?

SQLite with full synchronisation, in one process, on the disk of the working directory. The tasks of
others are laid down straight by SQL; what is measured goes through the store.
"""

import argparse
import asyncio
import os
import random
import secrets
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from report import Report, Table, facts

from antiphon.store.contract import Record
from antiphon.store.sqlite import SQLiteStore

HEAD = {"status": "input_required", "asks": {"name": {"message": "Which one?", "schema": {"type": "string"}}}}
WRITERS = 64
PRINCIPALS = 1000
FEW = 1000
OPERATIONS = ("create", "append", "get", "read", "list", "count", "claim", "whole")
SHARED = ("create", "append", "get", "whole")


@dataclass(frozen=True, slots=True)
class Row:
    """One operation: microseconds with few tasks stored and with many."""

    name: str
    few: float
    many: float


def identifier() -> str:
    """An id that cannot be guessed and begins with the time, so that new ones lie side by side on disk."""
    return f"{int(time.time() * 1000):011x}{secrets.token_urlsafe(16)}"


def record(id: str, phase: str = "waiting") -> Record:
    now = int(time.time() * 1000)
    return Record(
        id, f"user{secrets.randbelow(PRINCIPALS)}", "echo", phase, 0, now, now, now + 86_400_000, HEAD
    )  # type: ignore[arg-type]


def lay_down(path: Path, count: int) -> list[str]:
    """Put tasks that wait for an answer into a file, two entries each; returns some of their ids."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    head = '{"status":"input_required","asks":{"name":{"message":"Which one?","schema":{"type":"string"}}}}'
    now = int(time.time() * 1000)
    ids = [identifier() for _ in range(count)]
    connection.executemany(
        "INSERT INTO tasks VALUES (?, ?, ?, 'echo', 'waiting', 2, ?, ?, ?, 1, NULL, 0, 1, ?)",
        (
            (
                key,
                id,
                f"user{random.randrange(PRINCIPALS)}",
                now - count + key,
                now,
                now + 86_400_000 + key,
                head,
            )
            for key, id in enumerate(ids, 1)
        ),
    )
    connection.executemany(
        "INSERT INTO entries VALUES (?, ?, 'ask', ?, 1, ?)",
        ((key, number, now, head) for key in range(1, count + 1) for number in (1, 2)),
    )
    connection.execute("UPDATE counts SET tasks = tasks + ? WHERE phase = 'waiting'", (count,))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return random.sample(ids, min(count, 1000))


class Bench:
    """One store with so many tasks, and what is done to it."""

    def __init__(self, path: Path, tasks: int) -> None:
        self.tasks = tasks
        self.path = path
        self.store = SQLiteStore(path)
        self.old: list[str] = []
        self.made: list[str] = []
        self.logs: list[tuple[str, int]] = []

    async def open(self) -> None:
        await self.store.open()
        self.old = await asyncio.to_thread(lay_down, self.path, self.tasks)
        for _ in range(WRITERS):
            self.logs.append((identifier(), 0))
            await self.store.create(record(self.logs[-1][0]), [])

    async def create(self) -> None:
        self.made.append(identifier())
        await self.store.create(record(self.made[-1]), [("begun", HEAD)])

    async def append(self) -> None:
        id, version = self.logs.pop()
        self.logs.insert(0, (id, await self._append(id, version)))

    async def get(self) -> None:
        assert await self.store.get(random.choice(self.old))

    async def read(self) -> None:
        assert await self.store.read(random.choice(self.old))

    async def list(self) -> None:
        assert (await self.store.list(None, limit=50)).cursor

    async def count(self) -> None:
        assert await self.store.count("waiting")

    async def claim(self) -> None:
        """Create a task, claim it and end it."""
        await self.store.create(record(identifier(), "ready"), [("begun", HEAD)])
        for claim in await self.store.claim("worker", lease=60, limit=1):
            await self.store.append(
                claim.record.id, [], expect=1, phase="ended", head=HEAD, token=claim.token
            )

    async def whole(self) -> None:
        """Create a task, append to it and get it."""
        id = identifier()
        await self.store.create(record(id), [("begun", HEAD)])
        await self._append(id, 1)
        assert await self.store.get(id)

    async def _append(self, id: str, version: int) -> int:
        return await self.store.append(id, [("segment", HEAD)], expect=version, phase="waiting", head=HEAD)


async def alone(action: Callable[[], Awaitable[object]], times: int) -> float:
    """The median of one call after another, in microseconds."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await action()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


async def together(action: Callable[[], Awaitable[object]], times: int) -> float:
    """Microseconds a call, of many callers, each one call after another."""

    async def caller() -> None:
        for _ in range(times):
            await action()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(WRITERS)))
    return (time.perf_counter() - began) / (WRITERS * times) * 1e6


async def compare(benches: Sequence[Bench], rounds: int, times: int) -> list[Row]:
    """Every operation on both stores in turn, round by round, so that both have the same weather."""
    rows = []
    ways = [("alone", alone, times, OPERATIONS), (f"{WRITERS} callers", together, max(times // 4, 1), SHARED)]
    for way, measure, number, names in ways:
        for name in names:
            taken: list[list[float]] = [[] for _ in benches]
            for _ in range(rounds):
                for place, bench in enumerate(benches):
                    taken[place].append(await measure(getattr(bench, name), number))
            rows.append(Row(f"{name}, {way}", *(round(statistics.median(each), 1) for each in taken)))
            print(rows[-1], flush=True)
    return rows


async def run(many: int, rounds: int, times: int) -> list[Row]:
    """Lay down both stores and compare them."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        benches = [Bench(Path(folder) / f"{count}.db", count) for count in (FEW, many)]
        for bench in benches:
            await bench.open()
        await asyncio.to_thread(os.sync)
        rows = await compare(benches, rounds, times)
        for bench in benches:
            await bench.store.close()
    return rows


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundred thousand tasks instead of a million")
    quick = parser.parse_args().quick
    about, many = facts(), 100_000 if quick else 1_000_000
    rows = asyncio.run(run(many, 3 if quick else 9, 50))
    Report(
        "store",
        "A store with many tasks",
        "SQLite, full synchronisation: median microseconds of an operation, one after another, and "
        f"microseconds an operation of {WRITERS} callers at once, who share commits. `claim` is to create, "
        "claim and end a task, `whole` to create one, append to it and get it.",
        about,
        [
            Table(
                ("operation", f"{FEW:,} tasks", f"{many:,} tasks", "dearer by", "a second"),
                [
                    (
                        row.name,
                        f"{row.few:,}",
                        f"{row.many:,}",
                        f"{row.many / row.few:.2f} ×",
                        f"{1e6 / row.many:,.0f}",
                    )
                    for row in rows
                ],
            )
        ],
        ["Ids begin with the time. With ids that are random throughout, callers at once share fewer pages."],
        {"rows": [asdict(row) for row in rows]},
    ).publish(keep=not quick)


if __name__ == "__main__":
    main()
