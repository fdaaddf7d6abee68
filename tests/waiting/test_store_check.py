"""`antiphon store check` names waiting tasks that would not wake, or that nobody would find."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from antiphon import Context, Principal, Server
from antiphon.cli.store.check import check_scan
from antiphon.store.postgres.database import Database
from antiphon.store.scanning import open_scan
from tests.waiting.people import PEOPLE
from tests.waiting.support import accept, asked, client_of, inbox, status_of

DAMAGES = [
    ("UPDATE {tasks} SET wakes = NULL WHERE tool = 'nap'", "nap", "It wakes at None, but its log says"),
    ("UPDATE {tasks} SET wakes = wakes * 2 WHERE tool = 'nap'", "nap", "It wakes at"),
    ("UPDATE {tasks} SET wakes = 5 WHERE tool = 'nap'", "nap", "It wakes at 5"),
    ("UPDATE {tasks} SET wakes = 5 WHERE tool = 'ask'", "ask", "It wakes at 5, but its log says None"),
    ("DELETE FROM task_tags WHERE tag LIKE 'to:%'", "ask", "The index of tags is damaged"),
    ("UPDATE {tasks} SET tags = NULL WHERE tool = 'hear'", "hear", "Its tags are not what its log says"),
    (
        "UPDATE {tasks} SET tags = '[\"x\"]', server = '' WHERE tool = 'ask'",
        "ask",
        "Its tags are not what its log says",
    ),
    ("UPDATE {tasks} SET tags = '[' WHERE tool = 'ask'", "ask", "Its tags are not what its log says"),
    ("UPDATE {tasks} SET tags = '[]' WHERE tool = 'ask'", "ask", "Its tags are not what its log says"),
    (
        "UPDATE {tasks} SET head = replace(head, '\"bob\"', '\"eve\"') WHERE tool = 'ask'",
        "ask",
        "Its head is not what its log says: waits.",
    ),
]


def shop(url: str) -> Server:
    server = Server("shop", store=url)

    @server.tool(task="required", poll_interval=0.02)
    async def nap(ctx: Context) -> None:
        await ctx.sleep(days=3)

    @server.tool(task="required", poll_interval=0.02)
    async def ask(ctx: Context) -> None:
        await ctx.elicit("Go?", bool, to=["finance", Principal("x" * 600)], key="go", approvals=2)

    @server.tool(task="required", poll_interval=0.02)
    async def hear(ctx: Context) -> None:
        await asyncio.gather(
            ctx.elicit("Mine?", bool, key="mine", within=timedelta(days=1)),
            ctx.elicit("Theirs?", bool, to="finance", remind=3600),
        )

    return server


async def problems(url: str) -> list[tuple[str, str]]:
    async with open_scan(url) as scan:
        return (await check_scan(scan)).problems


@pytest.fixture
async def parked(store_url: str) -> str:
    """A store with tasks that wait, each for something else."""
    server = shop(store_url)
    async with client_of(server) as client:
        handles = {name: await client.submit(name) for name in ("nap", "ask", "hear")}
        await status_of(handles["nap"], "Sleeping")
        bob = PEOPLE["b-token"]
        await asked(server, bob, 2)
        await inbox(server).answer(bob, handles["ask"].id, "go", accept(value=True))
    return store_url


async def test_waiting_tasks_have_no_problems(parked: str) -> None:
    assert await problems(parked) == []


async def test_damaged_waits_are_named(parked: str, tmp_path: Path) -> None:
    damaged = _damaged_sqlite if parked.startswith("sqlite") else _damaged_postgres
    for statement, tool, message in DAMAGES:
        found = await damaged(parked, tmp_path, statement)
        assert any(id.startswith(f"{tool}_") and message in text for id, text in found), (statement, found)
    assert await problems(parked) == []


async def _damaged_sqlite(url: str, folder: Path, statement: str) -> list[tuple[str, str]]:
    """Return the problems after a statement, and undo it."""
    connection, backup = sqlite3.connect(folder / "tasks.db"), sqlite3.connect(":memory:")
    connection.backup(backup)
    connection.execute(statement.format(tasks="task_rows"))
    connection.commit()
    found = await problems(url)
    backup.backup(connection)
    connection.close()
    backup.close()
    return found


async def _damaged_postgres(url: str, _: Path, statement: str) -> list[tuple[str, str]]:
    """Return the problems after a statement, and undo it. Triggers do not run."""
    database = Database.from_url(url, 10.0)
    settings = {"search_path": database.schema, "session_replication_role": "replica"}
    connection = await asyncpg.connect(database.dsn, server_settings=settings)
    rows = await connection.fetch("SELECT key, wakes, tags, head, server FROM tasks")
    tags = await connection.fetch("SELECT tag, created, task FROM task_tags")
    await connection.execute(statement.format(tasks="tasks"))
    found = await problems(url)
    await connection.executemany(
        "UPDATE tasks SET wakes = $2, tags = $3, head = $4, server = $5 WHERE key = $1",
        [tuple(row) for row in rows],
    )
    await connection.execute("DELETE FROM task_tags")
    await connection.executemany("INSERT INTO task_tags VALUES ($1, $2, $3)", [tuple(tag) for tag in tags])
    await connection.close()
    return found
