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
from functools import partial
from typing import Any, TypeVar

from antiphon.errors import StoreUnavailable
from antiphon.store import open_store
from antiphon.store.contract import Record, Store
from antiphon.store.sqlite import SQLiteStore

T = TypeVar("T")


def report(*values: Any) -> None:
    print(json.dumps(values), flush=True)


def record(id: str) -> Record:
    now = int(time.time() * 1000)
    return Record(id, "ann", "echo", "ready", 0, now, now, None, None)


async def work(store: Store) -> None:
    """Claim and end tasks until none is left."""
    while await store.count("ready"):
        for claim in await retry_until_available(lambda: store.claim(str(os.getpid()), lease=60, limit=5)):
            task = claim.record
            end = partial(
                store.append,
                task.id,
                [("done", os.getpid())],
                expect=task.version,
                phase="ended",
                head=None,
                token=claim.token,
            )
            await retry_until_available(end)
            report(task.id, claim.token)


async def retry_until_available(action: Callable[[], Awaitable[T]]) -> T:
    """Retry until the store is available: a disk may stall for longer than the store's timeout."""
    while True:
        try:
            return await action()
        except StoreUnavailable:
            await asyncio.sleep(0.1)


async def write(store: Store) -> None:
    """Append to eight logs until the process is killed."""

    async def one(id: str) -> None:
        current = await store.get(id)
        assert current is not None
        version = current.version
        while True:
            data = f"{os.getpid()}/{version + 1}"
            version = await store.append(id, [("x", data)], expect=version, phase="ready", head=version)
            report(id, version, data)

    await asyncio.gather(*(one(f"t{n}") for n in range(8)))


async def echo(store: Store) -> None:
    """Append once for each line of input, and print when the store acknowledged it."""
    loop = asyncio.get_running_loop()
    report("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        version = int(line)
        await store.append("a", [("x", version)], expect=version, phase="ready", head=None)
        report(time.monotonic())


async def claim(store: Store) -> None:
    """Try to claim a task once for each line of input, and print how many tasks were claimed."""
    loop = asyncio.get_running_loop()
    report("ready")
    while await loop.run_in_executor(None, sys.stdin.readline):
        report(len(await store.claim(str(os.getpid()), lease=60, limit=1)))


async def wake(store: Store) -> None:
    """Wake tasks until none waits, by time and by tag."""
    while await store.count("waiting"):
        for ids in (
            await retry_until_available(lambda: store.wake(("woken", os.getpid()), limit=7)),
            await retry_until_available(lambda: store.wake_tagged(["x"], ("woken", os.getpid()), limit=7)),
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
    store: Any = open_store(path) if "://" in path else SQLiteStore(path)
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
