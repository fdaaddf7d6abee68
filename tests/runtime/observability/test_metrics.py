"""The metrics of a process, with and without tasks, and while the store does not respond."""

from __future__ import annotations

import asyncio

import pytest

from antiphon import Server
from antiphon.errors import StoreUnavailable
from antiphon.runtime.observability.metrics import render
from antiphon.runtime.observability.telemetry import Telemetry
from antiphon.runtime.tasks import lifecycle
from antiphon.store.memory import MemoryStore
from tests.runtime.faulty_store import created_task, open_faulty_store
from tests.support.memory import in_memory


def names(page: str) -> set[str]:
    return {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}


async def test_a_server_without_tasks_counts_its_calls_and_its_memory_and_nothing_else() -> None:
    server = Server("tests")

    @server.tool
    async def tool() -> str:
        return "done"

    async with in_memory(server) as client:
        await client.call("tool")
        page = await server.metrics()
        assert await server.engine.store_responds() is None
    assert names(page) == {"antiphon_calls_total", "antiphon_held_runs", "antiphon_memory_reserved_bytes"}
    assert 'antiphon_calls_total{tool="tool",response="answer",outcome="complete"} 1' in page.splitlines()


async def test_the_tasks_in_a_store_are_counted_by_phase() -> None:
    store = await open_faulty_store()
    await created_task(store)
    lines = (await render(Telemetry(), store, None)).splitlines()
    assert {"antiphon_store_up 1", 'antiphon_tasks{phase="ready"} 1'} <= set(lines)
    assert f"antiphon_stored_task_bytes {await store.stored_bytes()}" in lines


async def test_a_store_that_does_not_respond_is_reported() -> None:
    store = await open_faulty_store()
    store.instead("count", StoreUnavailable("It is away."))
    page = await render(Telemetry(), store, None)
    assert "antiphon_store_up 0" in page.splitlines()
    assert "antiphon_queue_age_seconds" not in page
    assert "antiphon_tasks{" not in page


async def test_a_server_knows_whether_its_store_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    store = await open_faulty_store()
    server = Server("tests", store=store)
    async with server.running():
        assert await server.engine.store_responds() is True
        store.instead("probe", StoreUnavailable("It is away."), StoreUnavailable("It is still away."))
        assert await server.engine.store_responds() is False
        assert await server.engine.store_responds() is False
        assert await server.engine.store_responds() is True
    probes = [record.getMessage() for record in caplog.records if "probe" in record.getMessage()]
    assert probes == [
        "The store failed a readiness probe: It is away.",
        "The store passes readiness probes again.",
    ]


class StallingStore(MemoryStore):
    """A store whose probes wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.probes = 0

    async def probe(self) -> None:
        self.probes += 1
        await self.reached.wait()


async def test_callers_share_a_probe_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "STORE_PROBE_SECONDS", 0.01)
    store = StallingStore()
    server = Server("tests", store=store)
    async with server.running():
        responses = await asyncio.gather(*(server.engine.store_responds() for _ in range(3)))
        assert [*responses, await server.engine.store_responds()] == [False] * 4
        assert store.probes == 1
        store.reached.set()
        assert await server.engine.store_responds() is True
        store.reached.clear()
        assert await server.engine.store_responds() is False
        # The server stops here without waiting for that probe.
