"""Makes a store with tasks of all kinds, as servers leave them, for tests of the commands for operators."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from antiphon.model.task import Task
from antiphon.runtime.tasks.claimed_task import head_of
from antiphon.store import open_store
from antiphon.store.contract import Phase, Record, Store

HOUR = 3_600_000
DAY = 24 * HOUR


def sqlite_url(folder: Path, name: str = "tasks.db") -> str:
    """Return the URL of a store in a folder."""
    return f"sqlite:///{folder / name}"


def make_store(url: str, *, count: int = 1) -> dict[str, str]:
    """Create `count` tasks of each kind; return the ids of the first of each, by kind."""
    return asyncio.run(_make_store(url, count))


async def _make_store(url: str, count: int) -> dict[str, str]:
    store = open_store(url)
    await store.open()
    try:
        for n in range(count):
            await create_task(store, f"queued{n}", age=HOUR)
            await create_task(store, f"running{n}", age=HOUR, worker="w")
            await create_task(store, f"waiting{n}", age=8 * DAY, tool="ask", principal="ann")
            await create_task(store, f"done{n}", age=2 * DAY)
            await create_task(store, f"failed{n}", age=3 * DAY, tool="pay", principal="ann")
            await create_task(store, f"faulted{n}", age=9 * DAY)
            await create_task(store, f"cancelled{n}", age=40 * DAY)
    finally:
        await store.close()
    kinds = ("queued", "running", "waiting", "done", "failed", "faulted", "cancelled")
    return {kind: f"{kind}0" for kind in kinds}


async def create_task(
    store: Store, id: str, *, age: int, tool: str = "echo", principal: str = "", worker: str | None = None
) -> None:
    """Create a task whose kind is the first part of its id. Its log is what a worker writes."""
    now = int(time.time() * 1000)
    created = Task(id, tool, now - age, now - age, keep=1000 * DAY)
    first = ("created", {"task": head_of(created), "arguments": {"n": 1}})
    claim = await store.create(
        Record(id, principal, tool, "ready", 0, created.created, created.updated, None, head_of(created)),
        [first],
        worker="w",
        lease=3600 if worker else 0.001,
    )
    assert claim is not None
    last = _LAST_ENTRIES.get(id.rstrip("0123456789"))
    if last is None:
        if worker is None:
            await store.release(id, claim.token)
        return
    kind, data, phase = last
    after = created.after(kind, data, now - age + 1000)
    await store.append(
        id,
        [(kind, {**data, "by": claim.token})],
        expect=1,
        phase=phase,
        head=head_of(after),
        token=claim.token,
    )


_LAST_ENTRIES: dict[str, tuple[Any, dict[str, Any], Phase]] = {
    "waiting": ("asked", {"asks": {"name": ["elicit", {"message": "Name?", "schema": {}}]}}, "waiting"),
    "done": ("ended", {"result": {"content": [{"type": "text", "text": "ok"}], "is_error": False}}, "ended"),
    "failed": ("ended", {"result": {"content": [{"type": "text", "text": "no"}], "is_error": True}}, "ended"),
    "faulted": ("faulted", {"fault": {"code": -32603, "message": "broken"}}, "ended"),
    "cancelled": ("cancelled", {"message": "stopped"}, "ended"),
}
