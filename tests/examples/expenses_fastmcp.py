"""The service of `examples/expenses.py` with FastMCP 4, for comparison: `fastmcp run` serves it.

FastMCP asks only the caller of a tool, so the questions to managers are rows of a table, with tools that list
and answer them. Its tasks survive a kill only with a Redis server, so imports are rows of a table, too, and
continue when the server starts. Ada and Bob see their own expenses. Eve is a manager and sees all.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from datetime import date
from typing import Annotated, Any, Literal

import mcp_types
import PIL.Image
from fastmcp import FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AccessToken, StaticTokenVerifier, require_scopes
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.lifespan import lifespan
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from PIL import ImageDraw
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

LIMIT = 500
COLUMNS = "owner, day, category, amount, purpose, approval"
PEOPLE = {
    "ada-token": {"client_id": "ada"},
    "bob-token": {"client_id": "bob"},
    "eve-token": {"client_id": "eve", "scopes": ["manager"]},
}
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Category = Literal["travel", "food", "office"]
Person = Annotated[AccessToken, Depends(get_access_token)]


@lifespan
async def continue_imports(server: FastMCP) -> AsyncIterator[dict[str, Any]]:
    """Continue the imports that a kill interrupted."""
    with database() as connection:
        numbers = connection.execute("SELECT id FROM imports WHERE done < total").fetchall()
    for (number,) in numbers:
        threading.Thread(target=run_import, args=[number], daemon=True).start()
    yield {}


mcp = FastMCP("expenses", auth=StaticTokenVerifier(PEOPLE), lifespan=continue_imports)


class Expense(BaseModel):
    """What was bought, and when."""

    day: date
    category: Category
    amount: Amount
    purpose: str


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """Open the database for one transaction, because requests run side by side."""
    with closing(sqlite3.connect("expenses.db", timeout=30)) as connection, connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS expenses (id PRIMARY KEY, {COLUMNS})")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS questions (id INTEGER PRIMARY KEY, owner, expense, text, outcome)"
        )
        connection.execute(
            "CREATE TABLE IF NOT EXISTS imports (id INTEGER PRIMARY KEY, owner, expenses, done, total)"
        )
        connection.row_factory = sqlite3.Row
        yield connection


def book(connection: sqlite3.Connection, owner: str, expenses: list[Expense], approval: str = "") -> None:
    """Book expenses, in the transaction of the caller."""
    rows = [
        {"id": str(uuid.uuid4()), "owner": owner, "approval": approval, **expense.model_dump(mode="json")}
        for expense in expenses
    ]
    insert = "INSERT INTO expenses VALUES (:id, :owner, :day, :category, :amount, :purpose, :approval)"
    connection.executemany(insert, rows)


def visible(month: str, person: AccessToken) -> list[sqlite3.Row]:
    """Return the expenses of a month, such as 2026-11, that a person may see."""
    where = "day LIKE ? AND (owner = ? OR ?) ORDER BY day, rowid"
    values = (f"{month}%", person.client_id, "manager" in person.scopes)
    with database() as connection:
        return connection.execute(f"SELECT {COLUMNS} FROM expenses WHERE {where}", values).fetchall()


@mcp.tool
def submit(day: date, category: Category, amount: Amount, purpose: str, person: Person) -> str:
    """Submit an expense. A manager has to approve more than 500 €."""
    expense = Expense(day=day, category=category, amount=amount, purpose=purpose)
    text = f"{amount:,.2f} € for {purpose}"
    with database() as connection:
        if amount <= LIMIT:
            book(connection, person.client_id, [expense])
            return f"Booked {text}."
        number = connection.execute(
            "INSERT INTO questions (owner, expense, text, outcome) VALUES (?, ?, ?, '')",
            (person.client_id, expense.model_dump_json(), text),
        ).lastrowid
    return f"A manager has to approve it. Ask for the outcome of number {number}."


@mcp.tool(auth=require_scopes("manager"))
def questions(person: Person) -> dict[str, str]:
    """List the expenses of others that wait for an approval, by their numbers."""
    select = "SELECT * FROM questions WHERE outcome = '' AND owner != ?"
    with database() as connection:
        rows = connection.execute(select, [person.client_id]).fetchall()
    return {str(row["id"]): f"{row['owner']} asks for {row['text']}. Why do you approve?" for row in rows}


@mcp.tool(auth=require_scopes("manager"))
def answer(number: int, approve: bool, reason: str, person: Person) -> str:
    """Approve or reject an expense of somebody else."""
    select = "SELECT * FROM questions WHERE id = ? AND outcome = '' AND owner != ?"
    with database() as connection:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute(select, (number, person.client_id)).fetchone()
        if row is None:
            raise ToolError(f"You have no open question {number}.")
        outcome = f"Booked {row['text']}." if approve else f"{person.client_id} has rejected {row['text']}."
        connection.execute("UPDATE questions SET outcome = ? WHERE id = ?", (outcome, number))
        if approve:
            expense = Expense.model_validate_json(row["expense"])
            book(connection, row["owner"], [expense], f"{person.client_id}: {reason}")
    return outcome


@mcp.tool
def outcome(number: int, person: Person) -> str:
    """Return what became of an expense that needs an approval."""
    select = "SELECT outcome FROM questions WHERE id = ? AND owner = ?"
    with database() as connection:
        row = connection.execute(select, (number, person.client_id)).fetchone()
    if row is None:
        raise ToolError(f"You have not submitted number {number}.")
    return row["outcome"] or "No manager has answered yet."


@mcp.tool
def import_csv(table: str, person: Person) -> str:
    """Import expenses from CSV with the columns day, category, amount and purpose."""
    try:
        rows = TypeAdapter(list[Expense]).validate_python([*csv.DictReader(io.StringIO(table))])
    except ValidationError as error:
        raise ToolError(f"Nothing was imported: {error}") from error
    if any(row.amount > LIMIT for row in rows):
        raise ToolError(f"Nothing was imported: submit expenses of more than {LIMIT} € one by one.")
    with database() as connection:
        number = connection.execute(
            "INSERT INTO imports (owner, expenses, done, total) VALUES (?, ?, 0, ?)",
            (person.client_id, TypeAdapter(list[Expense]).dump_json(rows), len(rows)),
        ).lastrowid
    threading.Thread(target=run_import, args=[number], daemon=True).start()
    return f"The import runs. Ask for the progress of number {number}."


def run_import(number: int) -> None:
    """Book the rows of an import, in transactions that record how many are booked."""
    with database() as connection:
        row = connection.execute("SELECT * FROM imports WHERE id = ?", [number]).fetchone()
    expenses = TypeAdapter(list[Expense]).validate_json(row["expenses"])
    for start in range(row["done"], len(expenses), 50):
        with database() as connection:
            some = expenses[start : start + 50]
            book(connection, row["owner"], some)
            connection.execute("UPDATE imports SET done = ? WHERE id = ?", (start + len(some), number))


@mcp.tool
def import_progress(number: int, person: Person) -> str:
    """Return how far an import has come."""
    select = "SELECT done, total FROM imports WHERE id = ? AND owner = ?"
    with database() as connection:
        row = connection.execute(select, (number, person.client_id)).fetchone()
    if row is None:
        raise ToolError(f"You have not started import {number}.")
    done, total = row
    return f"{done} of {total}" if done < total else f"Imported {total} expenses."


@mcp.tool
def report(month: str, person: Person) -> ToolResult:
    """Report a month: the totals by category, a chart of them, and a table to download."""
    totals: Counter[str] = Counter()
    for row in visible(month, person):
        totals[row["category"]] += row["amount"]
    if not totals:
        raise ToolError(f"There are no expenses in {month}.")
    link = mcp_types.ResourceLink(
        type="resource_link",
        name=f"Expenses of {month}",
        uri=f"expenses://{month}",
        mime_type="text/csv",
    )
    return ToolResult([f"{month}: {totals.total():,.2f} €", Image(data=chart(totals)), link], totals)


def chart(totals: Counter[str]) -> bytes:
    """Draw a bar for each category, the longest first."""
    picture = PIL.Image.new("RGB", (400, 30 * len(totals)), "white")
    draw = ImageDraw.Draw(picture)
    for top, (category, total) in zip(range(0, picture.height, 30), totals.most_common(), strict=True):
        draw.text((10, top + 10), category, fill="black")
        draw.rectangle((80, top + 5, 80 + 300 * total / max(totals.values()), top + 25), fill="teal")
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()


@mcp.resource("expenses://{month}", mime_type="text/csv")
def expenses(month: str, person: Person) -> str:
    """List the expenses of a month: your own, or all of them if you are a manager."""
    text = io.StringIO()
    csv.writer(text).writerows([COLUMNS.split(", "), *visible(month, person)])
    return text.getvalue()


@mcp.prompt
def review(month: str, person: Person) -> str:
    """Ask for a review of the expenses of a month."""
    return f"Which of these expenses look wrong, and why?\n\n{expenses(month, person)}"


@mcp.completion
def months(ref: Any, argument: mcp_types.CompletionArgument, context: Any) -> list[str]:
    """Suggest the months in which the caller sees expenses."""
    if argument.name != "month":
        return []
    return sorted({row["day"][:7] for row in visible(argument.value, get_access_token())})
