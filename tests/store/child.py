"""A child process for the tests of several processes: `python child.py COMMAND STORE`, a path or a URL.

It prints lines of JSON. The store has acknowledged every write before the child prints it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  (imported lazily by asyncio, which a user without rights cannot)
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from antiphon.errors import Stale, StoreUnavailable
from antiphon.store.contract import Record, Store
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from antiphon.store.urls import parse_store_url

PATIENCE = 600.0
"""The seconds that a store may wait for a busy disk or another process."""
LEASE = 3600.0
"""A lease that does not end while processes compete, however slow they are."""


def patient_store(url: str) -> PostgresStore | SQLiteStore:
    """Return the store of a URL: it waits on a slow machine, and in PostgreSQL only notifications tell it."""
    place = parse_store_url(url)
    if place.scheme == "sqlite":
        return SQLiteStore(place.location, busy_timeout=PATIENCE)
    return PostgresStore(url, timeout=PATIENCE, poll_interval=1e6)


async def next_input() -> str:
    """Return the next line of input, empty at its end."""
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def report(*values: Any) -> None:
    print(json.dumps(values), flush=True)


def record(id: str) -> Record:
    now = int(time.time() * 1000)
    return Record(id, "ann", "echo", "ready", 0, now, now, None, None)


async def work(store: Store) -> None:
    """Claim and end tasks until none is left. Go on after the first claim when a line of input comes."""
    has_begun = False
    while await store.count("ready"):
        claims = await store.claim(str(os.getpid()), lease=LEASE, limit=5)
        if not has_begun:
            report("claimed", len(claims))
            await next_input()
            has_begun = True
        for claim in claims:
            task = claim.record
            await store.append(
                task.id,
                [("done", os.getpid())],
                expect=task.version,
                phase="ended",
                head=None,
                token=claim.token,
            )
            report(task.id, claim.token)


async def write(store: Store) -> None:
    """Append to eight logs until the process is killed."""

    async def one(id: str) -> None:
        while True:
            current = await store.get(id)
            assert current is not None
            version = current.version
            try:
                while True:
                    entry = ("x", f"{os.getpid()}/{version + 1}")
                    version = await store.append(id, [entry], expect=version, phase="ready", head=version)
                    report(id, version, entry[1])
            except Stale:  # a write of a process that was killed arrived only now
                continue

    await asyncio.gather(*(one(f"t{n}") for n in range(8)))


async def echo(store: Store) -> None:
    """Append once for each line of input, and print when the store acknowledged it."""
    report("ready")
    while line := await next_input():
        version = int(line)
        await store.append("a", [("x", version)], expect=version, phase="ready", head=None)
        report(version)


async def claim(store: Store) -> None:
    """Try to claim a task once for each line of input, and print how many tasks were claimed."""
    report("ready")
    while await next_input():
        report(len(await store.claim(str(os.getpid()), lease=LEASE, limit=1)))


async def wake(store: Store) -> None:
    """Wake tasks until none waits, by time and by tag."""
    while await store.count("waiting"):
        for ids in (
            await store.wake(("woken", os.getpid()), limit=7),
            await store.wake_tagged(["x"], ("woken", os.getpid()), limit=7),
        ):
            report(*ids)


async def send_events(store: Store) -> None:
    """Add events to two topics until the process is killed."""
    number = 0
    while True:
        number += 1
        id = f"{os.getpid()}/{number}"
        await store.add_event(f"t{number % 2}", id, number, until=2**60)
        report(f"t{number % 2}", id)


async def fill(store: SQLiteStore) -> None:
    """Create tasks until the file size limit is reached, raise the limit, and create another."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    acknowledged = 0
    try:
        while True:
            await store.create(record(f"t{acknowledged}"), [("x", "y" * 2000)])
            acknowledged += 1
    except StoreUnavailable as error:
        report("full", acknowledged, str(error))
    try:
        await store.probe()
    except StoreUnavailable as error:
        report("probe", str(error))
    report("read", (await store.read(f"t{acknowledged - 1}"))[0].data == "y" * 2000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.create(record("later"), [("x", 1)])
    await store.probe()
    report("again", await store.count("ready"))


async def unprivileged(path: str) -> None:
    """Open a file as a user who may not write to it."""
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        await SQLiteStore(path, busy_timeout=1.0).open()
    except StoreUnavailable as error:
        report(str(error))
    else:
        report("opened")


async def main(command: str, path: str) -> None:
    if command == "unprivileged":
        return await unprivileged(path)
    store: Any = patient_store(path if "://" in path else f"sqlite:///{path}")
    await store.open()
    commands: dict[str, Callable[[Any], Awaitable[None]]] = {
        "work": work,
        "write": write,
        "echo": echo,
        "claim": claim,
        "wake": wake,
        "send_events": send_events,
        "fill": fill,
    }
    await commands[command](store)
    await store.close()
    return None


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
