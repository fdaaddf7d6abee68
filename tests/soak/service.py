"""The service under test, as a process: `python service.py PORT`. Each of its steps writes notes.

It runs on this library and on an older one, without the tools that the older one cannot have. Environment:
`SOAK_NOTES` is the folder of the notes. `SOAK_LIBRARY` is the name of the library in the notes, and
`SOAK_VERSION` that of the tools: `b` has one tool more than `a`, and in `c` steps and their results have
changed. `SOAK_CLOCK` is a file with the seconds by which the wall clock of this process is wrong, and while
the file `SOAK_FULL` exists, its SQLite file does not grow. `SOAK_UNFENCED=1` switches off the check of tokens
in the store, so that the judge has something to find.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.polling import pause, pause_thread


class _WrongClock:
    """The wall clock of this process, as wrong as the file says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._right = time.time
        self._offset = 0.0
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while True:
            try:
                self._offset = float(self._path.read_text())
            except (OSError, ValueError):
                pass
            pause_thread(0.02)

    def __call__(self) -> float:
        return self._right() + self._offset


class _Filling(sqlite3.Connection):
    """A connection whose file is full while the process has the file of that name."""

    _is_full = False

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE" and (full := os.path.exists(FULL)) != self._is_full:
            # No less than the pages that it has: it can only not grow.
            super().execute(f"PRAGMA max_page_count = {1 if full else 2**30}")
            self._is_full = full
        return super().execute(sql, *values)


FULL = os.environ.get("SOAK_FULL", "")
_connect = sqlite3.connect

# Both before the library is imported: it may keep a reference to the function.
if "SOAK_CLOCK" in os.environ:
    time.time = _WrongClock(Path(os.environ["SOAK_CLOCK"]))
if FULL:
    sqlite3.connect = lambda *values, **options: _connect(*values, factory=_Filling, **options)

from pydantic import BaseModel  # noqa: E402

from antiphon import Context, Limits, Server  # noqa: E402
from antiphon.store import rules  # noqa: E402
from tests.soak.notes import note, note_file  # noqa: E402

if os.environ.get("SOAK_UNFENCED"):
    rules.is_valid_token = lambda row, token: True

LEASE_SECONDS = float(os.environ.get("SOAK_LEASE", "1.0"))
NOTES = note_file(os.environ["SOAK_NOTES"]) if "SOAK_NOTES" in os.environ else os.devnull
VERSION = os.environ.get("SOAK_VERSION", "a")
BUILD = f"{os.environ.get('SOAK_LIBRARY', 'new')} {VERSION}"
KEEP_SECONDS = 100 * 3600.0
"""How long ended tasks and events are kept: longer than any clock of the soak jumps."""
OPTIONS: dict[str, Any] = {"task": "required", "poll_interval": 0.1, "task_ttl": KEEP_SECONDS}

server = Server(
    "soak",
    store=os.environ.get("ANTIPHON_STORE"),
    limits=Limits(lease_seconds=LEASE_SECONDS, drain_timeout=1.0, max_running_tasks=40),
    secrets=["a secret that all processes of the soak have"],
)


async def work(ctx: Context, number: int, step: str, seconds: float) -> str:
    """Do something outside that must not be done twice."""
    key, run = ctx.idempotency_key, uuid.uuid4().hex
    note(NOTES, "begin", number, step, key, run, BUILD)
    await pause(seconds)
    note(NOTES, "end", number, step, key, run, BUILD)
    return run


@server.tool(**OPTIONS)
async def chain(number: int, ctx: Context) -> str:
    """Do three things in a row."""
    for step in ("one", "two", "three"):
        await ctx.step(work, ctx, number, step, 0.02)
    return f"chain {number}"


@server.tool(**OPTIONS)
async def ask(number: int, ctx: Context) -> str:
    """Do something, ask, and do something else."""
    await ctx.step(work, ctx, number, "before", 0.02)
    name = await ctx.elicit("Who?", str, key="who")
    await ctx.step(work, ctx, number, "after", 0.02)
    return f"ask {number} {name}"


@server.tool(**OPTIONS)
async def long(number: int, ctx: Context, leases: float = 2.5) -> str:
    """Do something that takes longer than two leases."""
    await ctx.step(work, ctx, number, "long", leases * LEASE_SECONDS)
    return f"long {number}"


@server.tool(**OPTIONS)
async def overtaken(number: int, ctx: Context) -> str:
    """Do two things that take long enough for a paused process to come back between them."""
    await ctx.step(work, ctx, number, "first", 1.5 * LEASE_SECONDS)
    await ctx.step(work, ctx, number, "second", 3 * LEASE_SECONDS)
    return f"overtaken {number}"


@server.tool(**OPTIONS)
async def stream(number: int, ctx: Context) -> AsyncIterator[str]:
    """Send parts, and do something between them."""
    for part in range(6):
        run = await ctx.step(work, ctx, number, f"part {part}", 0.05)
        yield f"{part} {run}"


@server.tool(**OPTIONS)
async def stoppable(number: int, ctx: Context) -> str:
    """Do things in a row, for callers who stop it."""
    for part in range(6):
        await ctx.step(work, ctx, number, f"part {part}", 0.05)
    return f"stoppable {number}"


@server.tool(**OPTIONS, resume=False)
async def once(number: int, ctx: Context) -> str:
    """Do something that is never tried twice, after a question."""
    name = await ctx.elicit("Sure?", str, key="who")
    await ctx.step(work, ctx, number, "once", 0.05)
    return f"once {number} {name}"


def die(ctx: Context, number: int) -> None:
    """End this process."""
    note(NOTES, "begin", number, "deadly", ctx.idempotency_key, uuid.uuid4().hex, BUILD)
    os.kill(os.getpid(), signal.SIGKILL)


@server.tool(**OPTIONS)
async def deadly(number: int, ctx: Context) -> str:
    """End the process that runs this."""
    await ctx.step(die, ctx, number)
    return f"deadly {number}"


# Sleeps and events: the older library may not have them


if hasattr(Context, "sleep"):

    @server.tool(**OPTIONS)
    async def sleeper(number: int, ctx: Context) -> str:
        """Do something before and after a short and a long sleep."""
        await ctx.step(work, ctx, number, "awake", 0.02)
        await ctx.sleep(0.7)
        await ctx.step(work, ctx, number, "napped 0.7", 0.02)
        await ctx.sleep(2.5)
        await ctx.step(work, ctx, number, "napped 2.5", 0.02)
        return f"sleeper {number}"

    @server.tool(**OPTIONS)
    async def waiter(number: int, topic: str, count: int, ctx: Context) -> str:
        """Wait for events, and do something after each."""
        found = []
        for place in range(count):
            found.append(await ctx.event("news", key=topic, type=str))
            await ctx.step(work, ctx, number, f"event {place}", 0.02)
        return f"waiter {number} {' '.join(found)}"

    @server.tool(**OPTIONS)
    async def careful(number: int, topic: str, count: int, ctx: Context) -> str:
        """Wait for events and ask between steps, and undo what was done if anything raises."""
        try:
            await ctx.step(work, ctx, number, "reserve", 0.02)
            found = []
            for place in range(count):
                await pause(LEASE_SECONDS / 2)  # so that the store may be away at what comes next
                found.append(await ctx.event("news", key=topic, type=str))
                await ctx.step(work, ctx, number, f"event {place}", 0.02)
            await pause(LEASE_SECONDS / 2)
            found.append(await ctx.elicit("Send it?", str, key="who"))
            await ctx.step(work, ctx, number, "send", 0.02)
        except Exception as error:
            await ctx.step(work, ctx, number, "refund", 0.02, key="refund")
            return f"refunded {number} {error!r}"
        return f"careful {number} {' '.join(found)}"

    @server.tool
    async def tell(topic: str, text: str) -> bool:
        """Send an event to all tasks that wait for it."""
        return await server.send_event("news", topic, text, id=f"{topic} {text}", keep=KEEP_SECONDS)


if VERSION == "b":

    @server.tool(**OPTIONS)
    async def extra(number: int, ctx: Context, note: str = "") -> str:
        """Do something that version a does not know."""
        await ctx.step(work, ctx, number, "extra", 0.02)
        return f"extra {number}"


# Tools whose version c does not fit the tasks of version a. Each undoes what it did if something raises.


class Receipt(BaseModel):
    """What a payment returns."""

    id: str


class LaterReceipt(Receipt):
    """What it returns in version c."""

    currency: str


async def charge(ctx: Context, number: int) -> Receipt:
    """Pay, and return a receipt."""
    return Receipt(id=await work(ctx, number, "charge", 0.02))


async def bill(ctx: Context, number: int) -> Receipt:
    """Do the same in version c, by another name."""
    return await charge(ctx, number)


async def later_charge(ctx: Context, number: int) -> LaterReceipt:
    """Pay, and return a receipt of version c."""
    return LaterReceipt(id=await work(ctx, number, "charge", 0.02), currency="EUR")


async def later_number(ctx: Context, number: int, step: str, seconds: float) -> int:
    """Do something, and return a number where version a returns a text."""
    return len(await work(ctx, number, step, seconds))


async def order(ctx: Context, number: int) -> None:
    """Ask for an amount, which is a number in version c, and pay."""
    amount: Any = int if VERSION == "c" else str
    await ctx.elicit("How much?", amount, key="amount")
    await ctx.step(charge, ctx, number)


async def buy(number: int, ctx: Context, name: str, paying: Any) -> str:
    """Pay, ask, and send; pay back if something raises."""
    try:
        await paying
        who = await ctx.elicit("Send it?", str, key="who")
        await ctx.step(work, ctx, number, "send", 0.02)
    except Exception as error:
        await ctx.step(work, ctx, number, "refund", 0.02, key="refund")
        return f"refunded {number} {error!r}"
    return f"{name} {number} {who}"


@server.tool(**OPTIONS)
async def renamed(number: int, ctx: Context) -> str:
    """Buy: in version c, a step of another name pays."""
    return await buy(number, ctx, "renamed", ctx.step(bill if VERSION == "c" else charge, ctx, number))


@server.tool(**OPTIONS)
async def grown(number: int, ctx: Context) -> str:
    """Buy: in version c, the result of the payment has one more field, which is required."""
    paying: Any = later_charge if VERSION == "c" else charge
    return await buy(number, ctx, "grown", ctx.step(paying, ctx, number, key="charge"))


@server.tool(**OPTIONS)
async def retyped(number: int, ctx: Context) -> str:
    """Buy: in version c, the payment returns a number in place of a text."""
    paying: Any = later_number if VERSION == "c" else work
    return await buy(number, ctx, "retyped", ctx.step(paying, ctx, number, "charge", 0.02, key="charge"))


@server.tool(**OPTIONS)
async def reformed(number: int, ctx: Context) -> str:
    """Buy: in version c, an answer is a number in place of a text."""
    return await buy(number, ctx, "reformed", order(ctx, number))


if VERSION == "c":

    @server.tool(**OPTIONS)
    async def reargued(number: int, ctx: Context, currency: str) -> str:
        """Buy: in version c, there is one more argument, which is required."""
        return await buy(number, ctx, f"reargued {currency}", ctx.step(charge, ctx, number))

else:

    @server.tool(**OPTIONS)
    async def reargued(number: int, ctx: Context) -> str:
        """Buy."""
        return await buy(number, ctx, "reargued", ctx.step(charge, ctx, number))


if hasattr(Context, "event"):

    @server.tool(**OPTIONS)
    async def heard(number: int, ctx: Context) -> str:
        """Buy after an event, which is read as a number in version c."""
        price: Any = int if VERSION == "c" else str
        return await buy(number, ctx, "heard", ctx.event("news", key="prices", type=price))


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]))
