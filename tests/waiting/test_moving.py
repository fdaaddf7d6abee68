"""Tasks that wait for events and move to another store get the events from before and from afterwards."""

from __future__ import annotations

import time
from pathlib import Path

from antiphon import Context, Server
from antiphon.cli.tasks.transfer import read_export, write_export
from antiphon.runtime.tasks.records import event_tag
from antiphon.store import open_store
from antiphon.store.contract import TaskFilter
from tests.waiting.support import client_of, status_of


def ticks(url: str) -> Server:
    server = Server("shop", store=url)

    @server.tool(task="required", poll_interval=0.02)
    async def two(ctx: Context) -> str:
        return f"{await ctx.event('tick', key='k')} {await ctx.event('tick', key='k')}"

    @server.tool(task="required", poll_interval=0.02)
    async def kept(ctx: Context) -> str:
        first = await ctx.event("go", key="k")
        return f"{first} {await ctx.event('early', key='k')}"

    return server


async def move(old: str, new: str, file: Path) -> tuple[int, int]:
    """Move all tasks of a store to another one; return how many tasks and events were new."""
    with file.open("wb") as sink:
        await write_export(old, TaskFilter(), None, sink)
    with file.open("rb") as source:
        done, is_complete = await read_export(new, source)
    assert is_complete
    assert not done.differing
    return done.tasks, done.events


async def test_events_are_received_after_a_move(store_url: str, tmp_path: Path) -> None:
    new, file = f"sqlite:///{tmp_path}/new.db", tmp_path / "tasks.jsonl"
    server = ticks(store_url)
    async with client_of(server) as client:
        for n in range(20):
            await server.send_event("other", f"{n}", n)
        one, other = await client.submit("two"), await client.submit("kept")
        await status_of(other, "Waiting for the event 'go'")
        await server.send_event("early", "k", "kept")
        await server.send_event("tick", "k", "first")
        await status_of(one, "Waiting for the event 'tick'")
    assert await move(store_url, new, file) == (2, 22)
    with file.open("rb") as source:
        again, _ = await read_export(new, source)
    assert (again.tasks, again.present, again.events) == (0, 2, 0)
    server = ticks(new)
    async with client_of(server) as client:
        assert await server.send_event("tick", "k", "second")
        assert await server.send_event("go", "k", "gone")
        assert (await client.task(one.id).result(timeout=60)).text == "first second"
        assert (await client.task(other.id).result(timeout=60)).text == "gone kept"


async def test_a_task_that_was_parked_before_its_event_came_is_woken(tmp_path: Path) -> None:
    """The sender was lost before it woke the task."""
    old, new = (f"sqlite:///{tmp_path}/{name}.db" for name in ("old", "new"))
    async with client_of(ticks(old)) as client:
        handle = await client.submit("kept")
        await status_of(handle, "Waiting for the event 'go'")
    store = open_store(old)
    await store.open()
    now = int(time.time() * 1000)
    await store.add_event(event_tag("shop", "go", "k"), "e", "gone", until=now + 3_600_000)
    await store.close()
    assert await move(old, new, tmp_path / "tasks.jsonl") == (1, 1)
    store = open_store(new)
    await store.open()
    assert [record.id for record in (await store.list(None)).records if record.phase == "ready"] == [
        handle.id
    ]
    await store.close()


async def test_tasks_that_went_on_after_a_first_import_are_brought_up_to_date(
    store_url: str, tmp_path: Path
) -> None:
    """Most of a large store is moved while its servers run, and the rest after they have stopped."""
    new, file = f"sqlite:///{tmp_path}/new.db", tmp_path / "tasks.jsonl"
    server = ticks(store_url)
    async with client_of(server) as client:
        await server.send_event("tick", "k", "first")
        ended, waiting = await client.submit("two"), await client.submit("two")
        for handle in (ended, waiting):
            await status_of(handle, "Waiting for the event 'tick'")
        assert await move(store_url, new, file) == (2, 1)
        late = await client.submit("kept")
        await status_of(late, "Waiting for the event 'go'")
        await server.send_event("tick", "k", "second")
        assert (await ended.result(timeout=60)).text == "first second"
        assert (await waiting.result(timeout=60)).text == "first second"
    with file.open("wb") as sink:
        await write_export(store_url, TaskFilter(), None, sink)
    with file.open("rb") as source:
        done, _ = await read_export(new, source)
    assert (done.tasks, done.present, done.updated, done.events, done.differing) == (1, 0, 2, 1, [])
    server = ticks(new)
    async with client_of(server) as client:
        assert (await client.task(ended.id).result(timeout=60)).text == "first second"
        assert (await client.task(waiting.id).result(timeout=60)).text == "first second"
    with file.open("rb") as source:
        done, _ = await read_export(new, source)
    assert (done.tasks, done.present, done.updated, done.differing) == (0, 3, 0, [])
