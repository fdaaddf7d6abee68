"""A process of its own, for the tests that need several: `python child.py COMMAND PLACE`, a path or a URL.

It says what it did in lines of JSON. What it has said was acknowledged by the store before.
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


def say(*words: Any) -> None:
    print(json.dumps(words), flush=True)


def record(id: str) -> Record:
    now = int(time.time() * 1000)
    return Record(id, "ann", "echo", "ready", 0, now, now, None, None)


async def work(store: Store) -> None:
    """Claim and end tasks until there is none left."""
    while await store.count("ready"):
        for claim in await stubbornly(lambda: store.claim(str(os.getpid()), lease=60, limit=5)):
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
            await stubbornly(end)
            say(task.id, claim.token)


async def stubbornly(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: a disk may stand still for longer than a store waits for others."""
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            await asyncio.sleep(0.1)


async def write(store: Store) -> None:
    """Append to eight logs, until killed."""

    async def one(id: str) -> None:
        current = await store.get(id)
        assert current is not None
        version = current.version
        while True:
            data = f"{os.getpid()}/{version + 1}"
            version = await store.append(id, [("x", data)], expect=version, phase="ready", head=version)
            say(id, version, data)

    await asyncio.gather(*(one(f"t{n}") for n in range(8)))


async def echo(store: Store) -> None:
    """Append when told to, and say when that was acknowledged."""
    loop = asyncio.get_running_loop()
    say("ready")
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        version = int(line)
        await store.append("a", [("x", version)], expect=version, phase="ready", head=None)
        say(time.monotonic())


async def fill(store: SQLiteStore) -> None:
    """Create tasks while files may not grow, then let them grow, and go on."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    acknowledged = 0
    try:
        while True:
            await store.create(record(f"t{acknowledged}"), [("x", "y" * 2000)])
            acknowledged += 1
    except StoreUnavailable as error:
        say("full", acknowledged, str(error))
    say("read", (await store.read(f"t{acknowledged - 1}"))[0].data == "y" * 2000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.create(record("later"), [("x", 1)])
    say("again", await store.count("ready"))


async def powerless(path: str) -> None:
    """Open a file as somebody who may not write to it."""
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        await SQLiteStore(path, busy_timeout=1.0).open()
    except StoreUnavailable as error:
        say(str(error))
    else:
        say("opened")


async def main(command: str, path: str) -> None:
    if command == "powerless":
        return await powerless(path)
    store: Any = open_store(path) if "://" in path else SQLiteStore(path)
    await store.open()
    await {"work": work, "write": write, "echo": echo, "fill": fill}[command](store)
    await store.close()
    return None


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
