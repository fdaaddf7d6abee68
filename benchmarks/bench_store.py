"""Does a store stay as quick with a million tasks as with a thousand, and what do commits cost when shared?

SQLite with full synchronisation, in one process, on the disk of the working directory. The tasks of
others are laid down straight by SQL; what is measured goes through the store.
"""

import argparse
import asyncio
import random
import secrets
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from report import Report, Table, facts

from antiphon.store.log import Record
from antiphon.store.sqlite import SQLiteStore

HEAD = {"status": "input_required", "asks": {"name": {"message": "Which one?", "schema": {"type": "string"}}}}
WRITERS = 64


@dataclass(frozen=True, slots=True)
class Costs:
    """Median microseconds of one operation alone, and operations a second of many callers at once."""

    tasks: int
    create: float
    append: float
    get: float
    read: float
    claim: float
    list: float
    whole: float
    wholes_a_second: float
    appends_a_second: float
    gets_a_second: float


def identifier() -> str:
    return secrets.token_urlsafe(16)


def record(id: str, phase: str = "waiting") -> Record:
    now = int(time.time() * 1000)
    return Record(id, f"user{secrets.randbelow(PRINCIPALS)}", "echo", phase, 0, now, now, now + 86_400_000, HEAD)  # type: ignore[arg-type]


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
            (key, id, f"user{random.randrange(1000)}", now - count + key, now, now + 86_400_000 + key, head)
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


async def alone(action: Callable[[int], Awaitable[object]], times: int) -> float:
    """The median of one call after another, in microseconds."""
    taken = []
    for number in range(times):
        began = time.perf_counter()
        await action(number)
        taken.append(time.perf_counter() - began)
    return round(statistics.median(taken) * 1e6, 1)


async def together(action: Callable[[int], Awaitable[object]], times: int) -> float:
    """Calls a second of many callers, each one call after another."""

    async def caller() -> None:
        for number in range(times):
            await action(number)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(WRITERS)))
    return round(WRITERS * times / (time.perf_counter() - began))


async def measure(path: Path, count: int, times: int) -> Costs:
    """Lay down so many tasks, and use the store beside them."""
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    old = await asyncio.to_thread(lay_down, path, count)
    await store.open()
    ids = [identifier() for _ in range(times)]

    async def whole(_: int) -> None:
        id = identifier()
        await store.create(record(id), [("begun", HEAD)])
        await store.append(id, [("answer", HEAD)], expect=1, phase="ended", head=HEAD)
        assert await store.get(id)

    async def ready_and_claim(number: int) -> None:
        await store.create(record(identifier(), "ready"), [("begun", HEAD)])
        (claim,) = await store.claim("worker", lease=60, limit=1)
        await store.append(claim.record.id, [], expect=1, phase="ended", head=HEAD, token=claim.token)

    logs = {id: 0 for id in (identifier() for _ in range(WRITERS))}
    for id in logs:
        await store.create(record(id), [])
    free = [*logs]

    async def append(_: int) -> None:
        id = free.pop()
        logs[id] = await store.append(id, [("segment", HEAD)], expect=logs[id], phase="waiting", head=HEAD)
        free.append(id)

    costs = Costs(
        tasks=count,
        create=await alone(lambda n: store.create(record(ids[n]), [("begun", HEAD)]), times),
        append=await alone(
            lambda n: store.append(ids[n], [("x", HEAD)], expect=1, phase="waiting", head=HEAD), times
        ),
        get=await alone(lambda n: store.get(old[n % len(old)]), times * 2),
        read=await alone(lambda n: store.read(old[n % len(old)]), times * 2),
        claim=await alone(ready_and_claim, times // 2),
        list=await alone(lambda n: store.list(f"user{n % 1000}", limit=50), times // 2),
        whole=await alone(whole, times),
        wholes_a_second=await together(whole, times // 10),
        appends_a_second=await together(append, times // 2),
        gets_a_second=await together(lambda n: store.get(random.choice(old)), times),
    )
    await store.close()
    return costs


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundred thousand tasks instead of a million")
    quick = parser.parse_args().quick
    about, rows = facts(), []
    for count in (1_000, 100_000 if quick else 1_000_000):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            rows.append(asyncio.run(measure(Path(folder) / "store.db", count, 200 if quick else 500)))
        print(rows[-1], flush=True)
    few, many = (asdict(row) for row in rows)
    names = [name for name in few if name != "tasks"]

    def ratio(name: str) -> float:
        """How much dearer it is with many: time for time, or speed for speed."""
        return few[name] / many[name] if name.endswith("a_second") else many[name] / few[name]

    Report(
        "store",
        "A store with many tasks",
        "SQLite, full synchronisation. Median microseconds of one operation alone, and operations a second of "
        f"{WRITERS} callers; `whole` is to create a task, append to it and get it, `claim` to create, claim and end one.",
        about,
        [
            Table(
                ("operation", *(f"{row.tasks:,} tasks" for row in rows), "dearer by"),
                [
                    (name.replace("_", " "), f"{few[name]:,}", f"{many[name]:,}", f"{ratio(name):.2f} ×")
                    for name in names
                ],
            )
        ],
        ["What is measured first warms the file for what comes after."],
        {"rows": [few, many]},
    ).publish(keep=not quick)


if __name__ == "__main__":
    main()
