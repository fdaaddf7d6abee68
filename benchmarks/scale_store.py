"""What is measured of the PostgreSQL store itself, in a process of its own that has what it needs.

`python scale_store.py JOB`: prints what it measured as JSON, or what PostgreSQL has counted so far.
"""

import asyncio
import json
import statistics
import sys
import time
from typing import Any

import asyncpg

from antiphon.store.contract import Record
from antiphon.store.postgres import PostgresStore

HEAD = {"status": "input_required", "asks": {"name": {"message": "Which one?", "schema": {"type": "string"}}}}
SERVER = "bench"
"""Workers claim the tasks of their server, and so does the benchmark."""
LAID = """
    INSERT INTO tasks (
        id, principal, tool, phase, version, created, updated, expires, token, lease, format, head
    )
    SELECT 't' || n, 'user' || n % 1000, 'echo', 'ended', 2, $1 - n, $1, $1 + 86400000 + n, 1, 0, 1, $2
    FROM generate_series($3::bigint, $4::bigint) AS n
"""
LOGGED = """
    INSERT INTO entries (task, number, kind, at, format, data)
    SELECT key, number, 'said', created, 1, $1 FROM tasks, generate_series(1, 2) AS number
    WHERE key > $2
"""
PORTION = 100_000


async def counted(dsn: str) -> dict[str, float]:
    """Transactions of all kinds since the server was started; each statement of ours is one."""
    connection = await asyncpg.connect(dsn)
    row = await connection.fetchrow(
        "SELECT xact_commit + xact_rollback AS transactions FROM pg_stat_database WHERE datname = 'postgres'"
    )
    await connection.close()
    return {"transactions": row["transactions"]}


class Bench:
    """One store with so many finished tasks, and what is done to it."""

    def __init__(self, dsn: str, tasks: int) -> None:
        self.tasks = tasks
        self._dsn, self._schema = dsn, f"bench{tasks}"
        self.store = PostgresStore(f"{dsn}?schema={self._schema}")
        self._count = 0
        self._log = ("", 0)

    async def open(self) -> None:
        """Lay the tasks down."""
        await self.store.open()
        connection = await asyncpg.connect(
            self._dsn, server_settings={"search_path": self._schema, "synchronous_commit": "off"}
        )
        now, head = int(time.time() * 1000), json.dumps(HEAD)
        for first in range(0, self.tasks, PORTION):
            before = await connection.fetchval("SELECT coalesce(max(key), 0) FROM tasks")
            last = min(first + PORTION, self.tasks)
            await connection.execute(LAID, now, head, first + 1, last)
            await connection.execute(LOGGED, head, before)
        await connection.execute("VACUUM ANALYZE tasks, entries")
        await connection.execute("CHECKPOINT")
        await connection.close()
        self._log = (self._id(), 0)
        await self.store.create(self._record(self._log[0], "waiting"), [])

    def _id(self) -> str:
        self._count += 1
        return f"new{time.time_ns():x}{self._count}"

    def _record(self, id: str, phase: Any = "ready") -> Record:
        now = int(time.time() * 1000)
        return Record(id, "user1", "echo", phase, 0, now, now, now + 86_400_000, HEAD, SERVER)

    async def append(self) -> float:
        """One entry more on a log."""
        began = time.perf_counter()
        id, version = self._log
        version = await self.store.append(id, [("x", HEAD)], expect=version, phase="waiting", head=HEAD)
        self._log = (id, version)
        return time.perf_counter() - began

    async def read(self) -> float:
        """The log of one of all the tasks."""
        id = f"t{time.time_ns() % self.tasks + 1}"
        began = time.perf_counter()
        assert len(await self.store.read(id)) == 2
        return time.perf_counter() - began

    async def claim(self) -> float:
        """Claim the one task that is free; it is made before and ended after."""
        await self.store.create(self._record(self._id()), [])
        began = time.perf_counter()
        (claim,) = await self.store.claim("worker", lease=60, limit=10, tools=["echo"], server=SERVER)
        taken = time.perf_counter() - began
        await self.store.append(claim.record.id, [], expect=0, phase="ended", head=None, token=claim.token)
        return taken

    async def run_tasks(self, count: int) -> None:
        """Create, claim and end tasks, a hundred at a time. Each waits for an answer in between."""
        for _ in range(0, count, 100):
            ids = [self._id() for _ in range(100)]
            await asyncio.gather(*(self.store.create(self._record(id), []) for id in ids))
            for phase in ("waiting", "ended"):
                claims = await self.store.claim("worker", lease=60, limit=100, tools=["echo"], server=SERVER)
                assert len(claims) == 100
                await asyncio.gather(
                    *(
                        self.store.append(
                            claim.record.id, [], expect=0, phase=phase, head=None, token=claim.token
                        )
                        for claim in claims
                    )
                )
                if phase == "waiting":
                    await asyncio.gather(
                        *(self.store.append(id, [], expect=0, phase="ready", head=None) for id in ids)
                    )


async def held(dsn: str, tasks: int, rounds: int, times: int) -> list[float]:
    """Microseconds of a claim while another transaction has been open for so many tasks, after those without.

    The transaction keeps all dead rows, as the one of `pg_dump` does.
    """
    bench = Bench(dsn, 0)
    await bench.store.open()
    reader = await asyncpg.connect(dsn)
    taken: list[list[float]] = [[], []]
    for _ in range(rounds):
        await bench.run_tasks(100)
        taken[0].append(statistics.median([await bench.claim() for _ in range(times)]))
        async with reader.transaction(isolation="repeatable_read"):
            await reader.execute("SELECT 1")
            await bench.run_tasks(tasks)
            taken[1].append(statistics.median([await bench.claim() for _ in range(times)]))
        await reader.execute("VACUUM bench0.tasks")
    await reader.close()
    await bench.store.close()
    return [statistics.median(each) * 1e6 for each in taken]


async def flat(dsn: str, few: int, many: int, rounds: int, times: int) -> dict[str, list[float]]:
    """Microseconds of each operation with few tasks and with many, by turns."""
    benches = [Bench(dsn, count) for count in (few, many)]
    for bench in benches:
        await bench.open()
    found: dict[str, list[float]] = {}
    for name in ("claim", "append", "read"):
        taken: list[list[float]] = [[], []]
        for _ in range(rounds):
            for place, bench in enumerate(benches):
                taken[place].append(statistics.median([await getattr(bench, name)() for _ in range(times)]))
        found[name] = [statistics.median(each) * 1e6 for each in taken]
    for bench in benches:
        await bench.store.close()
    return found


async def news(dsn: str, times: int) -> dict[str, float]:
    """Milliseconds until a change, or a message, is known at another instance."""
    here, there = (PostgresStore(f"{dsn}?schema=news") for _ in range(2))
    await here.open()
    await there.open()
    now = int(time.time() * 1000)
    await here.create(Record("a", "ann", "echo", "waiting", 0, now, now, None, None), [])
    changed, heard = [], []
    async with there.watch("a") as watch, there.subscribe("news") as messages:
        for version in range(times):
            began = time.perf_counter()
            await asyncio.gather(
                here.append("a", [("x", 1)], expect=version, phase="waiting", head=None), watch.wait(5)
            )
            assert len(await there.read("a", after=version)) == 1
            changed.append(time.perf_counter() - began)
            began = time.perf_counter()
            await asyncio.gather(here.publish("news", version), anext(messages))
            heard.append(time.perf_counter() - began)
    await here.close()
    await there.close()
    return {"changed_ms": statistics.median(changed) * 1000, "heard_ms": statistics.median(heard) * 1000}


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    what = {"counted": counted, "flat": flat, "held": held, "news": news}[job.pop("what")]
    print(json.dumps(asyncio.run(what(**job))))
