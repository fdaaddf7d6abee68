"""The people of the expense service, their files, and how they use it."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from sqlite3 import connect
from typing import Any

import PIL.Image

from antiphon import Client, Image, ResourceLink, Result

PAPER = {"day": "2026-11-02", "category": "office", "amount": 40, "purpose": "paper"}
TRAIN = {"day": "2026-11-03", "category": "travel", "amount": 60.5, "purpose": "train"}
LAPTOP = {"day": "2026-12-01", "category": "office", "amount": 1240, "purpose": "laptop"}
BAD_ROWS = "day,category,amount,purpose\r\n2026-11-04,food,5,tea\r\n2026-11-05,fun,-1,game\r\n"
LARGE_ROWS = "day,category,amount,purpose\r\n2026-11-04,travel,900,flight\r\n"


def many_rows(number: int) -> str:
    """Return CSV with so many expenses of October."""
    rows = (f"2026-10-{row % 31 + 1:02},food,{row % 50 + 1},lunch {row}" for row in range(number))
    return "\r\n".join(["day,category,amount,purpose", *rows])


def booked(folder: Path, month: str) -> list[str]:
    """Return the purposes of all expenses of a month in the database of a service, in order."""
    database = connect(folder / "expenses.db")
    found = []
    if database.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'expenses'"
    ).fetchone():  # the first makes it
        found = database.execute("SELECT purpose FROM expenses WHERE day LIKE ?", [f"{month}%"]).fetchall()
    database.close()
    return sorted(purpose for (purpose,) in found)


@asynccontextmanager
async def people(url: str) -> AsyncIterator[list[Client]]:
    """Ada, Bob and Eve, each with a token."""
    async with AsyncExitStack() as stack:
        tokens = [f"{name}-token" for name in ("ada", "bob", "eve")]
        yield [await stack.enter_async_context(Client(url, auth=token)) for token in tokens]


def picture(result: Result) -> tuple[str | None, tuple[int, int], Any]:
    """Return the format, the size and the colors of the picture in a result."""
    (image,) = (block for block in result.content if isinstance(block, Image))
    decoded = PIL.Image.open(io.BytesIO(base64.b64decode(image.data)))
    return decoded.format, decoded.size, sorted(decoded.getcolors() or [])


async def downloaded(client: Client, result: Result) -> str:
    """Return the text behind the link in a result."""
    (link,) = (block for block in result.content if isinstance(block, ResourceLink))
    (contents,) = (await client.read(link.uri)).contents
    return str(contents.text)  # type: ignore[union-attr]


async def november(ada: Client, bob: Client, eve: Client) -> list[Any]:
    """Use each part of a service that needs no approval; return what everybody saw."""
    seen: list[Any] = [(await ada.call("submit", PAPER)).text, (await bob.call("submit", TRAIN)).text]
    refused = [
        await ada.call("submit", {**PAPER, "amount": -1}, check=False),
        await ada.call("import_csv", table=BAD_ROWS, check=False),
        await ada.call("import_csv", table=LARGE_ROWS, check=False),
        await ada.call("report", month="2025-11", check=False),
    ]
    seen += [result.is_error for result in refused]
    seen += [result.text for result in refused[1:]]
    for person in (ada, bob, eve):
        report = await person.call("report", month="2026-11")
        seen += [report.text, {category: report.data.get(category) for category in ("office", "travel")}]
        seen += [picture(report), await downloaded(person, report)]
        seen += (await person.read("expenses://2026-11")).contents
        seen += (await person.prompt("review", {"month": "2026-11"})).messages
        for owner in ("review", "expenses://{month}"):
            seen.append((await person.complete(owner, "month", "2026-11")).values)
    return [*seen, (await ada.templates())[0].uri_template]
