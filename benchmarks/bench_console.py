"""Does every call of a console's page stay as quick with a million tasks as with a thousand?

The tasks are laid down straight by SQL: ten tools, fifty principals and one who has half of all tasks,
and of eleven tasks one failed, one cancelled, one waiting and the others done. Of the newest thousand tasks
this one has nine in ten, a quarter of each kind, so that every page is full in both stores. One task has a
log of 100,000 entries. The tasks are of the last twelve hours in both stores. Each call is made on both
stores in turn. On SQLite, or on the two schemas of PostgreSQL that `--store` names.
"""

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from console_pages import PAGES
from report import Report, Table, facts

from antiphon.model.question import Elicit
from antiphon.model.task import dump_questions
from antiphon.store import open_store
from antiphon.store.contract import Record, Store, TaskFilter

FEW = 1000
PAGE = 5
LONG_LOG = 100_000
HOUR = 3_600_000
PERIOD = 12 * HOUR
TOOLS = 10
ASKED = msgspec.json.encode(dump_questions({"go": Elicit("Go on?", {"type": "object", "properties": {}})}))
NUMBERED = """
    SELECT n, CASE WHEN is_first OR n % 2 = 0 THEN 'most' ELSE 'user' || n % 100 END AS principal,
        CASE WHEN is_first THEN n % 4
            WHEN n % 11 = 3 THEN 0 WHEN n % 11 = 7 THEN 1 WHEN n % 11 = 9 THEN 2 ELSE 3 END AS kind
    FROM (SELECT n, n <= 1000 AND n % 10 <> 7 AS is_first FROM numbers) AS parted
"""
"""The principal and the kind of each task: 0 waits, 1 failed, 2 was cancelled, 3 is done."""
HEAD = f"""'{{"id":"t' || n || '","tool":"tool' || (n / 3 % {TOOLS}) || '","created":' || (:now - n * :apart)
    || ',"updated":' || (:now - n * :apart + 5) || ',' || CASE kind
        WHEN 0 THEN '"state":"waiting","asks":{ASKED.decode()}'
        WHEN 1 THEN '"state":"faulted","fault":{{"code":-32603,"message":"It broke."}}'
        WHEN 2 THEN '"state":"cancelled"'
        ELSE '"state":"done","result":{{"content":[],"is_error":false}}'
    END || '}}'"""
LAY_TASKS = f"""
    INSERT INTO TASKS (
        id, principal, tool, phase, version, created, updated, expires, token, lease, format, head, server
    )
    SELECT 't' || n, principal, 'tool' || n / 3 % {TOOLS}, CASE kind WHEN 0 THEN 'waiting' ELSE 'ended' END,
        0, :now - n * :apart, :now - n * :apart + 5,
        CASE kind WHEN 0 THEN NULL ELSE :now + 86400000000 + n END, 1, 0, 1, {HEAD}, 'bench'
    FROM ({NUMBERED}) AS numbered
"""
LAY_ENTRIES = """
    INSERT INTO entries (task, number, kind, at, format, data)
    SELECT TASKS.key, n, 'emitted', :now, 1, '{"blocks":[{"type":"text","text":"a line of a log"}]}'
    FROM TASKS CROSS JOIN numbers WHERE id = 'long'
"""
Call = Callable[[Store], Awaitable[Any]]


def listing(principal: str | None = None, *, oldest_first: bool = False, **fields: Any) -> Call:
    """Return the call for the first page of a list."""
    wanted = TaskFilter(**fields)
    return lambda store: store.list(principal, limit=PAGE, filter=wanted, oldest_first=oldest_first)


def counting(principal: str | None = None, **fields: Any) -> Call:
    """Return the call for the number of tasks of a list."""
    wanted = TaskFilter(**fields)
    return lambda store: store.count_listed(principal, filter=wanted, most=PAGE)


CALLS: Mapping[str, Call] = {
    "tallies": lambda store: store.tallies(),
    "tallies by hour": lambda store: store.hourly_tallies(since=int(time.time() * 1000) - PERIOD),
    "leases": lambda store: store.leases(),
    "oldest ready": lambda store: store.oldest_ready(),
    "list": listing(),
    "list, oldest first": listing(oldest_first=True),
    "list of failed": listing(outcome="failed"),
    "list of a tool": listing(tool="tool3"),
    "list of failed of a tool": listing(outcome="failed", tool="tool3"),
    "list of done of a tool": listing(outcome="done", tool="tool3"),
    "list of waiting, oldest first": listing(phase="waiting", oldest_first=True),
    "list of waiting of a tool, oldest first": listing(phase="waiting", tool="tool3", oldest_first=True),
    "list of waiting of a tool without any": listing(phase="waiting", tool="none", oldest_first=True),
    "list of a principal": listing("user7"),
    "list of a principal with half of all tasks": listing("most"),
    "list of that principal's failed": listing("most", outcome="failed"),
    "count of failed": counting(outcome="failed"),
    "count of a principal with half of all tasks": counting("most"),
    "count of tasks of the last hours": counting(created_since=int(time.time() * 1000) - PERIOD // 2),
    "record": lambda store: store.get("t500"),
    "end of a long log": lambda store: store.read("long", after=LONG_LOG - 200, limit=200),
    **PAGES,
}


async def lay(url: str, count: int) -> None:
    """Fill a store straight by SQL, unless it is filled already."""
    store = open_store(url)
    await store.open()
    now = int(time.time() * 1000)
    if (await store.tallies()).count() >= count:
        await store.close()
        return
    head = {"id": "long", "tool": "tool3", "created": now, "updated": now, "state": "waiting"}
    await store.create(Record("long", "user7", "tool3", "waiting", 0, now, now, None, head, "bench"), [])
    await store.close()
    if url.startswith("sqlite:"):
        lay_in_sqlite(url.removeprefix("sqlite:///"), count, now)
    else:
        await lay_in_postgres(url, count, now)


def lay_in_sqlite(path: str, count: int, now: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    values = {"now": now, "apart": PERIOD // count}
    numbers = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)"
    for statement, rows in ((LAY_TASKS, count), (LAY_ENTRIES, LONG_LOG)):
        connection.execute(f"{numbers} {statement.replace('TASKS', 'task_rows')}", values | {"count": rows})
    connection.execute("UPDATE task_rows SET version = ? WHERE id = 'long'", (LONG_LOG,))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


async def lay_in_postgres(url: str, count: int, now: int) -> None:
    import asyncpg

    dsn, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(
        dsn, server_settings={"search_path": schema, "synchronous_commit": "off"}
    )
    for statement, rows in ((LAY_TASKS, count), (LAY_ENTRIES, LONG_LOG)):
        text = statement.replace("TASKS", "tasks").replace(":now", f"{now}::bigint")
        text = text.replace(":apart", f"{PERIOD // count}::bigint")
        await connection.execute(f"WITH numbers (n) AS (SELECT generate_series(1, {rows:d})) {text}")
    await connection.execute("UPDATE tasks SET version = $1 WHERE id = 'long'", LONG_LOG)
    await connection.execute("VACUUM ANALYZE tasks, entries, tallies")
    await connection.close()


async def measure(urls: Sequence[str], rounds: int) -> dict[str, list[list[float]]]:
    """Make each call on each store in turn; return the milliseconds by call and store."""
    stores = [open_store(url) for url in urls]
    for store in stores:
        await store.open()
    taken: dict[str, list[list[float]]] = {}
    for name, call in CALLS.items():
        each = taken[name] = [[] for _ in stores]
        for number in range(rounds):
            pairs = list(zip(stores, each, strict=True))
            for store, times in pairs if number % 2 else reversed(pairs):
                began = time.perf_counter()
                await call(store)
                times.append((time.perf_counter() - began) * 1000)
        print(name, *(f"{min(times):.2f} ms" for times in each), flush=True)
    for store in stores:
        await store.close()
    return taken


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20,000 tasks instead of 1,000,000")
    parser.add_argument(
        "--store", action="append", help="the two PostgreSQL stores, in place of SQLite; given twice"
    )
    options = parser.parse_args()
    about, many = facts(), 20_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory(dir=".") as folder:
        stores = options.store or [f"sqlite:///{folder}/{name}.db" for name in ("few", "many")]
        for store, count in zip(stores, (FEW, many), strict=True):
            asyncio.run(lay(store, count))
        taken = asyncio.run(measure(stores, 15 if options.quick else 301))
    ratios = {
        name: statistics.median(later / earlier for earlier, later in zip(one, two, strict=True))
        for name, (one, two) in taken.items()
    }
    slowest_page, slowest_call = (
        max((name for name in ratios if (name in PAGES) is is_page), key=lambda name: ratios[name])
        for is_page in (True, False)
    )
    Report(
        "console_postgres" if options.store else "console",
        f"What a console asks of a store{' on PostgreSQL' if options.store else ' on SQLite'}",
        f"With {many:,} tasks each page takes at most {ratios[slowest_page]:.2f} × as long as with {FEW:,} "
        f"({slowest_page.removeprefix('page: ')}), and each call of the store at most "
        f"{ratios[slowest_call]:.2f} × ({slowest_call}). A list of the store has {PAGE} tasks, because there "
        f"are no more of some kinds among {FEW:,}; a page of the console has up to 100.",
        about,
        [
            Table(
                ["call", f"{FEW:,} tasks, ms", f"{many:,} tasks, ms", "median, ms", "ratio"],
                [
                    [
                        name,
                        f"{min(one):.2f}",
                        f"{min(two):.2f}",
                        f"{statistics.median(two):.2f}",
                        f"{ratios[name]:.2f}",
                    ]
                    for name, (one, two) in taken.items()
                ],
            )
        ],
        [
            "The first two columns are the rounds that other programs delayed least. The ratio is the median "
            "of the ratios of all rounds."
        ],
        {"ratios": ratios, "fastest": {name: [min(one), min(two)] for name, (one, two) in taken.items()}},
    ).publish(keep=not options.quick)


if __name__ == "__main__":
    main()
