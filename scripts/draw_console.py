"""Draws docs/assets/console/*.png: each page of the console in Chromium, with the tasks of a made-up shop.

`make screenshots` does it. It needs the packages of the tests and Chromium.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.console.browser import browsing, open_tab  # noqa: E402
from tests.console.support import RunningConsole, serving_app  # noqa: E402

from antiphon import Client, Context, Failure, Server  # noqa: E402
from antiphon.console.mount import console_of  # noqa: E402
from antiphon.console.sign_in import SignIn  # noqa: E402

FOLDER = ROOT / "docs" / "assets" / "console"
DESKTOP = {"viewport": {"width": 1200, "height": 750}}
SETTLE_MS = 1500
"""How long a page gets until it shows everything."""
PHONE = {"viewport": {"width": 390, "height": 750}, "has_touch": True}

server = Server("shop")


class Delivery(BaseModel):
    """How an order is sent."""

    way: Literal["post", "courier", "pick-up"] = Field(title="How do we send it?")
    insured: bool = Field(default=True, title="Insure the parcel")
    note: str = Field(default="", title="Note for the packers", max_length=500)


class Refund(BaseModel):
    """What the support adds to a refund."""

    reason: str = Field(title="Reason", description="The customer reads it.")


@server.tool(task="required")
async def send_order(ctx: Context, order: int, customer: str) -> str:
    """Pack an order and hand it over."""
    await ctx.step(reserve, order)
    delivery = await ctx.elicit(f"Order {order} of {customer} is packed. How do we send it?", Delivery)
    return f"Sent order {order} by {delivery.way}."


@server.tool(task="required")
async def refund(ctx: Context, order: int, amount: float) -> str:
    """Pay money back, after somebody in support agrees."""
    await ctx.elicit(
        f"Refund {amount:.2f} € for order {order}?", Refund, to="support", within=timedelta(hours=8)
    )
    return f"Refunded {amount:.2f} €."


@server.tool(task="required")
async def report(ctx: Context, month: str) -> str:
    """Write the report of a month."""
    for part in ("orders", "returns", "stock"):
        await ctx.step(read, part)
    return f"## {month}\n\n| | orders | returns |\n|---|---|---|\n| books | 412 | 9 |\n| games | 188 | 14 |\n"


@server.tool(task="required")
async def charge(order: int, card: str) -> str:
    """Charge a card."""
    if card.endswith("7"):
        raise Failure(f"The bank refused the card of order {order}: it has expired.")
    return f"Charged order {order}."


async def reserve(order: int) -> None:
    """Reserve the goods of an order."""
    await asyncio.sleep(0.15)


async def read(part: str) -> None:
    """Read a part of the month."""
    await asyncio.sleep(0.1 + len(part) / 40)


async def fill(client: Client) -> str:
    """Start the tasks that the pictures show; return the id of the report."""
    for number, last in enumerate("1223579"):
        await client.submit("charge", {"order": 4700 + number, "card": f"•••• {last * 4}"})
    for order, customer in ((4711, "Ada Lovelace"), (4712, "Grace Hopper"), (4713, "Alan Turing")):
        await client.submit("send_order", {"order": order, "customer": customer})
    await client.submit("refund", {"order": 4698, "amount": 79.9})
    task = await client.submit("report", {"month": "October"})
    await task.result()
    return task.id


async def draw(console: RunningConsole, report: str) -> None:
    """Open each page, and save what it shows."""
    pages = {
        "inbox": "/inbox",
        "tasks": "/tasks",
        "task": f"/tasks/own/{report}",
        "workers": "/workers",
        "workbench": "/workbench/own",
    }
    shots: list[tuple[str, str, dict[str, Any]]] = [(name, path, DESKTOP) for name, path in pages.items()]
    shots.append(("inbox-dark", pages["inbox"], {**DESKTOP, "color_scheme": "dark"}))
    shots.append(("inbox-phone", pages["inbox"], PHONE))
    async with browsing() as browser:
        for file, path, options in shots:
            tab = await open_tab(browser, console, path, **options)
            await tab.page.wait_for_selector("main h1")
            await tab.page.wait_for_timeout(SETTLE_MS)
            await tab.page.screenshot(path=FOLDER / f"{file}.png")
            assert tab.errors == [], tab.errors
            await tab.page.context.close()


async def main() -> None:
    """Serve the shop and its console, and draw."""
    logging.basicConfig(level="ERROR")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server.configure(store=f"sqlite:///{folder}/tasks.db")
        async with server.running():
            console = console_of(server, SignIn(operator="ada"), hosts=["*"], path="")
            async with serving_app(console) as url, Client(server) as client:
                report = await fill(client)
                await draw(RunningConsole(url, console, http=None), report)  # type: ignore[arg-type]


if __name__ == "__main__":
    asyncio.run(main())
