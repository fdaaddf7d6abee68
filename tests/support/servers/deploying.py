"""A shop in one of two versions: `python deploying.py PORT`, its version from the environment.

In the first version, `charge` returns a receipt, and `count` a text. The second one has other types.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from pydantic import BaseModel

from antiphon import Context, Limits, Server
from antiphon.runtime.tasks import worker

worker.CLAIM_INTERVAL_SECONDS = 0.1  # so that a task that was given back is taken up soon

NOTES = Path(os.environ["NOTES"])
IS_NEW = os.environ["VERSION"] == "2"


class Receipt(BaseModel):
    """What the first version returns."""

    id: str


class DatedReceipt(Receipt):
    """What the second version returns."""

    date: str


Paid: Any = DatedReceipt if IS_NEW else Receipt
Number: Any = int if IS_NEW else str


def note(line: str) -> None:
    """Note an effect, in one line that survives a kill."""
    with NOTES.open("a") as notes:
        notes.write(f"{line}\n")


def charge(order: str) -> Paid:
    """Take the money."""
    note(f"charge {order}")
    return DatedReceipt(id=order, date="2026-11-18") if IS_NEW else Receipt(id=order)


def count(order: str) -> Number:
    """Count the things."""
    return 7 if IS_NEW else f"seven of {order}"


def refund(order: str) -> None:
    """Give the money back."""
    note(f"refund {order}")


server = Server(
    "deploying",
    store=os.environ["ANTIPHON_STORE"],
    limits=Limits(drain_timeout=2.0),
    secrets=["a secret of both versions"],
)


@server.tool(task="required", poll_interval=0.05)
async def buy(order: str, ctx: Context) -> str:
    """Charge, ask, and give the money back if anything fails."""
    try:
        paid = await ctx.step(charge, order)
        number = await ctx.step(count, order, key="count")
        await ctx.elicit("Sure?", bool, key="sure")
    except Exception:
        await ctx.step(refund, order)
        return "refunded"
    return f"{type(paid).__name__} {paid.id} {number}"


if __name__ == "__main__":
    uvicorn.run(server.asgi(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
