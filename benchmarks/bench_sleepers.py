"""How much memory do a million sleeping tasks take, and do tasks beside them wake as quickly as beside few?

One task sleeps in a server, and copies of it are laid down straight by SQL, a thousand in one store and a
million in another. A server runs on the larger store, and a hundred tasks sleep and end in it. Then a hundred
tasks at a time wake in each store, in turn. On SQLite, or on the two schemas of PostgreSQL that
`--store` names.
"""

import argparse
import asyncio
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from report import Report, Table, facts

from antiphon import Client, Context, Limits, Server
from antiphon.store import open_store
from antiphon.store.contract import Record, Store

FEW = 1000
WOKEN = 100
COLUMNS = "principal, tool, phase, version, created, updated, expires, token, lease, format, server, tags"
COPY_TASKS = f"""
    INSERT INTO {{table}} (id, head, wakes, {COLUMNS})
    SELECT id || n, replace(head, id, id || n), wakes + n, {COLUMNS}
    FROM {{table}} CROSS JOIN numbers WHERE id = :id
"""
COPY_ENTRIES = """
    INSERT INTO entries (task, number, kind, at, format, data)
    SELECT copy.key, entries.number, kind, at, entries.format, data FROM {table} AS slept
    JOIN entries ON entries.task = slept.key JOIN {table} AS copy ON copy.key > slept.key
    WHERE slept.id = :id
"""
NAP_SECONDS = 8.0
LIMITS = Limits(max_waiting_tasks=10_000_000, drain_timeout=5.0)


@dataclass(frozen=True, slots=True)
class Wake:
    """Milliseconds that the store took to wake a hundred tasks, by the clock and of this process's CPU."""

    elapsed: float
    cpu: float


def bedroom(store: str) -> Server:
    """Return a server whose tasks sleep."""
    server = Server("bedroom", store=store, limits=LIMITS)

    @server.tool(task="required", task_ttl=3600.0)
    async def nap(until: float, ctx: Context) -> float:
        """Sleep, and return how many seconds too late the task woke."""
        await ctx.sleep_until(datetime.fromtimestamp(until, UTC))
        return time.time() - until

    return server


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """Open a store without a server."""
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def sleeper(url: str) -> str:
    """Return the id of a task that sleeps for a day."""
    server = bedroom(url)
    async with server.engine.running(), Client(server) as client, opened(url) as store:
        task = await client.submit("nap", {"until": time.time() + 86_400})
        async with store.watch(task.id) as watch:
            while (found := await store.get(task.id)) is None or found.phase != "waiting":
                await watch.wait(1)
        return task.id


async def fill(url: str, count: int) -> None:
    """Put copies of a sleeping task into a store, straight by SQL."""
    id = await sleeper(url)
    if url.startswith("sqlite:"):
        fill_sqlite(url.removeprefix("sqlite:///"), id, count)
    else:
        await fill_postgres(url, id, count)


def fill_sqlite(path: str, id: str, count: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    numbers = (
        f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count:d})"
    )
    connection.execute(f"{numbers} {COPY_TASKS.format(table='task_rows')}", {"id": id})
    connection.execute(COPY_ENTRIES.format(table="task_rows"), {"id": id})
    connection.execute("UPDATE counts SET tasks = tasks + ? WHERE phase = 'waiting'", (count,))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def fill_postgres(url: str, id: str, count: int) -> None:
    import asyncpg

    dsn, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(
        dsn, server_settings={"search_path": schema, "synchronous_commit": "off"}
    )
    numbers = f"WITH numbers (n) AS (SELECT generate_series(1, {count:d}))"
    for statement in (COPY_TASKS, COPY_ENTRIES):
        text = statement.format(table="tasks").replace(":id", "$1::text")
        await connection.execute(f"{numbers} {text}" if statement is COPY_TASKS else text, id)
    await connection.execute(
        "INSERT INTO counts AS current (slot, phase, tasks) VALUES (0, 'waiting', $1) "
        "ON CONFLICT (slot, phase) DO UPDATE SET tasks = current.tasks + excluded.tasks",
        count,
    )
    await connection.execute("VACUUM ANALYZE tasks, entries")
    await connection.close()


async def measure_wakes(urls: Sequence[str], rounds: int) -> tuple[list[Wake], list[Wake]]:
    """Wake tasks in each store in turn, without a worker."""
    taken: list[list[Wake]] = [[] for _ in urls]
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(url)) for url in urls]
        for _ in range(rounds):
            for store, each in zip(stores, taken, strict=True):
                each.append(await _wake(store))
            print(*(each[-1] for each in taken), flush=True)
    return taken[0], taken[1]


async def _wake(store: Store) -> Wake:
    now = int(time.time() * 1000)
    for n in range(WOKEN):
        record = Record(f"{now}-{n}", "x", "none", "waiting", 0, now, now, None, {}, "bedroom", wakes=now)
        await store.create(record, [])
    elapsed, cpu = time.perf_counter(), time.process_time()
    ids = await store.wake(("woken", {}), server="bedroom")
    wake = Wake((time.perf_counter() - elapsed) * 1000, (time.process_time() - cpu) * 1000)
    assert len(ids) == WOKEN, f"{len(ids)} tasks woke"
    return wake


async def measure_server(url: str) -> tuple[float, list[float]]:
    """Run a server on a store; return its resident megabytes, and how many seconds late its tasks woke."""
    server = bedroom(url)
    async with server.engine.running(), Client(server) as client:
        until = time.time() + NAP_SECONDS
        tasks = await asyncio.gather(*(client.submit("nap", {"until": until}) for _ in range(WOKEN)))
        results = await asyncio.gather(*(task.result(timeout=60) for task in tasks))
        return resident_megabytes(), [float(result.data) for result in results]


def resident_megabytes() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def fastest(rounds: Sequence[Wake]) -> float:
    """The milliseconds of the round that other programs delayed least."""
    return min(wake.elapsed for wake in rounds)


def row(name: str, rounds: Sequence[Wake]) -> list[str]:
    """The medians of some rounds as a row of the table."""
    return [
        name,
        f"{fastest(rounds):.1f}",
        f"{statistics.median(wake.elapsed for wake in rounds):.1f}",
        f"{statistics.median(wake.cpu for wake in rounds):.1f}",
    ]


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20,000 tasks instead of 1,000,000")
    parser.add_argument(
        "--store", action="append", help="the two PostgreSQL stores, in place of SQLite; given twice"
    )
    parser.add_argument("--fill", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        asyncio.run(fill(options.fill[0], int(options.fill[1])))
        return
    about, many = facts(), 20_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory(dir=".") as folder:
        stores = options.store or [f"sqlite:///{folder}/{name}.db" for name in ("few", "many")]
        for store, count in zip(stores, (FEW, many), strict=True):  # not here, because of the memory
            subprocess.run([sys.executable, __file__, "--fill", store, str(count)], check=True)
        megabytes, late = asyncio.run(measure_server(stores[1]))
        few_wakes, many_wakes = asyncio.run(measure_wakes(stores, 5 if options.quick else 31))
    ratio = fastest(many_wakes) / fastest(few_wakes)
    Report(
        "sleepers_postgres" if options.store else "sleepers",
        f"What do a million sleeping tasks cost{' on PostgreSQL' if options.store else ' on SQLite'}?",
        f"A server beside {many:,} sleeping tasks has {megabytes:.0f} MB resident, and waking {WOKEN} tasks "
        f"takes {ratio:.2f} × as long as beside {FEW:,}.",
        about,
        [
            Table(
                [f"{WOKEN} tasks wake beside", "fastest, ms", "median, ms", "CPU of the process, ms"],
                [row(f"{FEW:,} sleeping tasks", few_wakes), row(f"{many:,} sleeping tasks", many_wakes)],
            )
        ],
        [
            f"{WOKEN} tasks that slept {NAP_SECONDS:g} s at once beside {many:,} others went on "
            f"{statistics.median(late):.2f} s late, the last one {max(late):.2f} s.",
        ],
        {
            "ratio": ratio,
            "megabytes": megabytes,
            "late": late,
            "few": [*map(asdict, few_wakes)],
            "many": [*map(asdict, many_wakes)],
        },
    ).publish(keep=not options.quick)


if __name__ == "__main__":
    main()
