"""How long an SQLite file keeps the messages between processes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from antiphon.store.sqlite import SQLiteStore
from antiphon.store.sqlite.message_retention import MessageRetention

from .support import Clock
from .test_topics import receive


async def test_a_process_that_polls_late_gets_the_message_before_a_flood(path: Path) -> None:
    sender, late = SQLiteStore(path), SQLiteStore(path, poll_interval=1.0)
    await sender.open()
    await late.open()
    async with late.subscribe("sessions") as messages:
        await sender.publish("sessions", "an answer")
        await asyncio.gather(*(sender.publish("changes", number) for number in range(3000)))
        assert await receive(messages) == ["an answer"]
    await late.close()
    await sender.close()


async def test_messages_that_every_process_could_read_are_deleted(
    sqlite: SQLiteStore, clock: Clock, path: Path
) -> None:
    for _ in range(5):
        await asyncio.gather(*(sqlite.publish("changes", number) for number in range(200)))
        clock.forward(60)
    assert 200 <= _count_messages(path) < 300


async def test_a_flood_of_messages_does_not_fill_the_file(sqlite: SQLiteStore, path: Path) -> None:
    for _ in range(2):  # at the same time, so that all of them are new
        await asyncio.gather(*(sqlite.publish("changes", number) for number in range(10_000)))
    assert 10_000 < _count_messages(path) < 17_000


async def test_messages_of_a_process_that_has_ended_are_deleted(clock: Clock, path: Path) -> None:
    for process in range(3):
        store = SQLiteStore(path, clock=clock)
        await store.open()
        await asyncio.gather(*(store.publish("changes", number) for number in range(50)))
        clock.forward(20)
        await store.publish("changes", "one more")
        await store.close()
        assert _count_messages(path) <= 51, process


async def test_large_messages_do_not_fill_the_file(sqlite: SQLiteStore, path: Path) -> None:
    for _ in range(60):
        await asyncio.gather(*(sqlite.publish("changes", "x" * 500_000) for _ in range(4)))
    assert 60 < _count_messages(path) < 80, "32 MiB of 120 MB"


def test_a_number_that_the_file_gives_again_is_not_deleted() -> None:
    retention = MessageRetention()
    retention.note(128, 1, 0)
    assert retention.last_old_number(64, 60_000) == 63


def _count_messages(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM messages").fetchone()[0])
    finally:
        connection.close()
