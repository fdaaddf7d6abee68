"""A process with a task that waits in every way, and with the people who answer it. It can kill itself.

`python -m tests.waiting.journey WRITES STORE EFFECTS …`: creates the task if the store has none, drives it to
its end, and prints the result. More stores are driven side by side. It kills itself after so many writes to a
store, 0 for never. The steps write to the file EFFECTS, outside of the store. EFFECTS.searches has when each
search for tasks to wake began and ended, and EFFECTS.writes how many writes there were.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon import Client, Context, Limits, Principal, Retry, Server, Unanswered
from antiphon.errors import TaskNotFound
from antiphon.runtime.execution import waiting
from antiphon.store import open_store
from tests.support.leases import LONG_LEASE_SECONDS
from tests.support.polling import until
from tests.waiting.support import accept, inbox

WRITES = ("create", "append", "wake", "wake_tagged", "add_event", "release")
BOSSES = [Principal(name, scopes=frozenset({"boss"})) for name in ("bob", "eve")]
NAP = 0.2


def count_writes(store: Any, most: int) -> Callable[[], int]:
    """Kill this process after so many writes that changed something; return how many there were."""
    count = 0

    def counted(write: Any) -> Any:
        async def writing(*values: Any, **options: Any) -> Any:
            nonlocal count
            done = await write(*values, **options)
            is_change = bool(done) or write.__name__ in ("create", "append", "release")
            count += is_change
            if is_change and count == most:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return writing

    for name in WRITES:
        setattr(store, name, counted(getattr(store, name)))
    return lambda: count


def note_searches(store: Any, searches: Path) -> None:
    """Write down when each search for tasks whose time has come began and ended, in milliseconds."""
    wake = store.wake

    async def noted(*values: Any, **options: Any) -> Any:
        began = time.time_ns() // 1_000_000
        found = await wake(*values, **options)
        with searches.open("a") as file:
            file.write(f"{began} {time.time_ns() // 1_000_000}\n")
        return found

    store.wake = noted


def build(store: Any, effects: Path) -> Server:
    """Return a server with the task."""
    server = Server("journey", store=store, limits=Limits(lease_seconds=LONG_LEASE_SECONDS))

    def happened(name: str) -> int:
        return effects.read_text().split().count(name) if effects.exists() else 0

    @server.tool(task="required", poll_interval=0.02)
    async def journey(ctx: Context) -> str:
        async def effect(name: str) -> str:
            with effects.open("a") as file:
                file.write(f"{name} {ctx.idempotency_key}\n")
                file.flush()
                os.fsync(file.fileno())
            return name

        async def unstable() -> str:
            if not happened("failed"):
                await effect("failed")
                raise OSError("away")
            return await effect("stable")

        await ctx.step(effect, "start")
        await ctx.sleep(NAP)
        await ctx.step(effect, "slept")

        async def approve() -> list[bool]:
            values = await ctx.elicit("Go?", bool, to="boss", approvals=2, key="go", remind=NAP)
            await ctx.step(effect, "approved")
            return values

        async def pay() -> int:
            paid: int = await ctx.event("payment", key="1")
            await ctx.step(effect, "paid")
            return paid

        async def nap() -> None:
            await ctx.step(effect, "tired")
            await ctx.sleep(2 * NAP)
            await ctx.step(effect, "napped")

        values, paid, _ = await asyncio.gather(approve(), pay(), nap())
        await ctx.step(unstable, retry=Retry(first=NAP))
        await ctx.map(effect, ["a", "b", "c"])
        try:
            await ctx.elicit("Anybody?", bool, to="nobody", within=NAP, key="nobody")
        except Unanswered:
            await ctx.step(effect, "given-up")
        people = ",".join(sorted(each.id for each in ctx.approved_by("go")))
        return f"{values} {people} {paid}"

    return server


async def answer(server: Server, message: str) -> None:
    """Answer the questions, each boss once and after a reminder, and send the payment when it is due."""
    for boss in BOSSES:
        for item in (await inbox(server).list(boss)).items:
            if not item.reminded:
                continue
            try:
                await inbox(server).answer(boss, item.task_id, item.key, accept(value=True))
            except TaskNotFound:
                pass  # the task went on meanwhile
    if "payment" in message:
        await server.send_event("payment", "1", 12, id="e1")


async def drive(url: str, effects: Path, writes: int) -> None:
    """Drive the task of a store to its end, and print the result."""
    store = open_store(url)
    note_searches(store, effects.with_suffix(".searches"))
    count = count_writes(store, writes)
    server = build(store, effects)
    async with Client(server, principal=Principal("ada")) as client:
        known = (await store.list(None)).records
        handle = client.task(known[0].id) if known else await client.submit("journey")

        async def has_ended() -> bool:
            if (status := await handle.status()).status != "working":
                return True
            await answer(server, status.message or "")
            return False

        await until(has_ended, within=600)
        print((await handle.result()).text)
    effects.with_suffix(".writes").write_text(str(count()))


async def main(writes: int, places: Sequence[str]) -> None:
    waiting.LONGEST_PAUSE_MS = 50  # so that short waits park the task
    pairs = zip(places[::2], places[1::2], strict=True)
    await asyncio.gather(*(drive(url, Path(effects), writes) for url, effects in pairs))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
