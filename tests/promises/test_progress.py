"""The progress of a task is its status message; it does not make the log grow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Context, Limits, Server
from antiphon.model.notification import Progress
from antiphon.runtime.tasks import progress as progress_module
from antiphon.runtime.tasks.progress import ProgressWriter
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.promises.speaking import Patient, answer, begin, look, reach, wanted
from tests.promises.tooling import Name, speaker, store_of
from tests.support.leases import LONG_LEASE_SECONDS, end_leases
from tests.support.polling import forever, turns, until
from tests.support.serving import Address, serving
from tests.support.speakers import Modern, Speaker

META = "dev.antiphon/progress"


class Packing:
    """A server whose tool reports progress, waits, and reports again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.gate = asyncio.Event()
        self.server = Server("packing", store=store)

        @self.server.tool(task="optional", poll_interval=0.05)
        async def pack(ctx: Context) -> str:
            for box in (1, 2, 3):
                await ctx.progress(box, 10, f"box {box}")
            await ctx.warning({"tape": "is short"})
            await self.gate.wait()
            await ctx.progress(10, 10, "closed")
            return "packed"

        @self.server.tool(task="optional", poll_interval=0.05, answer_within=0.01)
        async def late(ctx: Context) -> str:
            await ctx.promise()
            await ctx.progress(0.5)
            await self.gate.wait()
            return "late"

        @self.server.tool(task="required", poll_interval=0.05)
        async def ask(ctx: Context) -> str:
            await ctx.progress(1, 2)
            await self.gate.wait()
            name = await ctx.elicit("Who?", Name, key="who")
            return name.name


@pytest.fixture
async def packing(kind: str, tmp_path: Path) -> AsyncIterator[tuple[Packing, Address]]:
    made = Packing(store_of(kind, tmp_path))
    async with serving(made.server) as address:
        try:
            yield made, address
        finally:
            made.gate.set()


async def says(client: Speaker, id: str, message: str) -> dict[str, Any]:
    """Wait until a task has a status message, and return the task."""

    async def said() -> dict[str, Any] | None:
        task = await look(client, id)
        return task if task.get("statusMessage") == message else None

    return await wanted(said)


@pytest.mark.parametrize("dialect", ["draft", "2025-11-25", "2026-07-28"])
async def test_progress_is_the_status_message_of_a_task(
    packing: tuple[Packing, Address], dialect: str
) -> None:
    made, address = packing
    client = await speaker(dialect, address.port)
    id = (await begin(client, "pack"))["taskId"]
    task = await says(client, id, "3 of 10: box 3")
    assert task["_meta"][META] == {"progress": 3, "total": 10, "message": "box 3"}
    assert [entry.kind for entry in await made.store.read(id)] == ["created"]
    made.gate.set()
    task = await reach(client, id, "completed")
    assert task.get("statusMessage") != "3 of 10: box 3"
    assert task["_meta"][META] == {"progress": 10, "total": 10, "message": "closed"}


async def test_the_log_has_the_last_report_only(packing: tuple[Packing, Address]) -> None:
    made, address = packing
    client = Patient(address.port)
    id = (await begin(client, "pack"))["taskId"]
    await says(client, id, "3 of 10: box 3")
    made.gate.set()
    await reach(client, id, "completed")
    created, ended = await made.store.read(id)
    assert (created.kind, ended.kind) == ("created", "ended")
    assert ended.data["progress"] == {"progress": 10, "total": 10, "message": "closed"}


async def test_a_call_that_became_a_task_reports_there(packing: tuple[Packing, Address]) -> None:
    _, address = packing
    client = Patient(address.port)
    id = (await begin(client, "late"))["taskId"]
    await says(client, id, "0.5")


async def test_a_task_that_waits_for_an_answer_says_so_and_not_how_far_it_was(
    packing: tuple[Packing, Address],
) -> None:
    made, address = packing
    client = await speaker("draft", address.port)
    id = (await begin(client, "ask"))["taskId"]
    await says(client, id, "1 of 2")
    made.gate.set()
    assert (await reach(client, id, "input_required"))["statusMessage"].startswith("Input Required")


async def test_listeners_are_notified_of_progress(packing: tuple[Packing, Address]) -> None:
    _, address = packing
    client = Patient(address.port)
    id = (await begin(client, "pack"))["taskId"]
    async with client.asking("subscriptions/listen", {"notifications": {"taskIds": [id]}}) as connection:
        await connection.receive_head()
        async for event in connection.events():
            params = event.frame["params"] if event.data else {}
            if params.get("statusMessage") == "3 of 10: box 3":
                assert params["_meta"][META]["progress"] == 3
                assert params["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
                return
    raise AssertionError("the stream ended")


@asynccontextmanager
async def client_of(address: Address, protocol: str, **options: Any) -> AsyncIterator[Client]:
    async with Client(address.url, protocol=protocol, timeout=60, **options) as client:
        yield client


ALL = pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25", "DRAFT-2026-v1"])


@ALL
async def test_on_progress_is_called_for_a_call_that_became_a_task(
    packing: tuple[Packing, Address], protocol: str
) -> None:
    made, address = packing
    seen: list[Progress] = []

    def note(progress: Progress) -> None:
        seen.append(progress)
        made.gate.set()

    async with client_of(address, protocol) as client:
        handle = await client.submit("pack", on_progress=note)
        assert (await handle.result(timeout=60)).text == "packed"
        assert handle.id is not None
    assert seen == [Progress(handle.id, 3, 10, "box 3"), Progress(handle.id, 10, 10, "closed")]


@ALL
async def test_on_progress_of_the_client_is_called_for_its_tasks(
    packing: tuple[Packing, Address], protocol: str
) -> None:
    made, address = packing
    seen: list[Progress] = []

    def note(progress: Progress) -> None:
        seen.append(progress)
        made.gate.set()

    async with client_of(address, protocol, on_progress=note) as client:
        first = await client.submit("pack")
        assert first.id is not None
        assert (await client.task(first.id).result(timeout=60)).text == "packed"
    assert [(progress.progress, progress.total, progress.message) for progress in seen] == [
        (3, 10, "box 3"),
        (10, 10, "closed"),
    ]


async def test_log_messages_of_a_task_go_into_the_servers_log(
    packing: tuple[Packing, Address], caplog: pytest.LogCaptureFixture
) -> None:
    made, address = packing
    caplog.set_level(logging.INFO, "antiphon.tasks")
    id = (await begin(Patient(address.port), "pack"))["taskId"]
    text = f'Task {id}: {{"tape":"is short"}}'
    await until(lambda: text in caplog.messages)
    made.gate.set()
    assert [record.levelname for record in caplog.records if record.message == text] == ["WARNING"]


async def test_a_plain_call_sends_progress_as_before(packing: tuple[Packing, Address]) -> None:
    made, address = packing
    made.gate.set()
    answered = await Modern(address.port).call("pack", {"progressToken": "p"})
    said = [frame["params"] for frame in answered.frames if "method" in frame]
    assert [params["progress"] for params in said if params.get("progressToken") == "p"] == [1, 2, 3, 10]


async def test_many_reports_are_few_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "FIRST_WRITE_SECONDS", 0.0)
    monkeypatch.setattr(progress_module, "WRITE_INTERVAL_SECONDS", 3600.0)
    written: list[Any] = []

    async def write(progress: Any) -> None:
        written.append(progress)

    writer = ProgressWriter(write)
    for number in range(500):
        writer.report(Progress("t", number, 500))
        await turns()
    assert len(written) == 1
    assert writer.close() == {"progress": 499, "total": 500}
    assert len(written) == 1


@pytest.mark.parametrize(
    ("report", "stored"),
    [
        (Progress("t", float("nan")), None),
        (Progress("t", 1, float("inf")), {"progress": 1}),
        (Progress("t", 1, 2, "\ud800"), {"progress": 1, "total": 2, "message": "?"}),
        (Progress("t", 1, None, "x" * 10_000), {"progress": 1, "message": "x" * 500}),
    ],
)
async def test_a_report_is_always_storable(report: Progress, stored: Any) -> None:
    async def write(progress: Any) -> None:
        raise AssertionError("not yet")

    writer = ProgressWriter(write)
    writer.report(report)
    assert writer.close() == stored


@pytest.mark.parametrize("half", [Decimal("0.5"), Fraction(1, 2)])
async def test_a_number_that_is_not_json_neither_hides_the_task_nor_loses_its_result(half: Any) -> None:
    server, gate = Server("numbers", store="memory:"), asyncio.Event()

    @server.tool(task="required", poll_interval=0.05)
    async def work(ctx: Context) -> str:
        await ctx.progress(half, half * 2)
        await gate.wait()
        return "done"

    async with serving(server) as address:
        client = Patient(address.port)
        id = (await begin(client, "work"))["taskId"]
        assert (await says(client, id, "0.5 of 1"))["status"] == "working"
        gate.set()
        assert (await reach(client, id, "completed", "failed"))["status"] == "completed"


class Noting:
    """A store that notes the progress that is written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.noted: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, id: str, entries: Any, **options: Any) -> int:
        version = await self._store.append(id, entries, **options)
        if (progress := ((options.get("head") or {}).get("progress") or {}).get("progress")) is not None:
            self.noted.append(progress)
        return version


async def test_progress_does_not_run_backwards_in_the_process_after_one_that_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "FIRST_WRITE_SECONDS", 0.0)  # the store gets each report
    monkeypatch.setattr(progress_module, "WRITE_INTERVAL_SECONDS", 0.0)
    url, gate = f"sqlite:///{tmp_path}/tasks.db", asyncio.Event()

    def process(*, is_first: bool) -> tuple[Server, Noting]:
        """Return a server as one process has it: the first one never gets further than to 5."""
        store = Noting(open_store(url))
        limits = Limits(lease_seconds=LONG_LEASE_SECONDS, drain_timeout=0)
        server = Server("packing", store=store, limits=limits)  # type: ignore[arg-type]

        @server.tool(task="required", poll_interval=0.02)
        async def pack(ctx: Context) -> str:
            for box in range(1, 6):
                await ctx.progress(box, 10)
                if is_first:
                    await until(lambda box=box: box in store.noted)
                else:
                    await turns(1000)
            if is_first:
                await forever()
            await ctx.progress(6, 10)
            await gate.wait()
            return "packed"

        return server, store

    first, before = process(is_first=True)
    second, after = process(is_first=False)
    async with serving(first) as lost, serving(second) as address:
        id = (await begin(Patient(lost.port), "pack"))["taskId"]
        await until(lambda: before.noted == [1, 2, 3, 4, 5])
        first.engine.tasks.stop_claiming()
        assert await end_leases(url) == 1
        assert (await look(Patient(address.port), id))["_meta"][META]["progress"] == 5
        await until(lambda: 6 in after.noted)
        gate.set()
        await reach(Patient(address.port), id, "completed")
    assert set(after.noted) <= {5, 6}
    assert after.noted == sorted(after.noted)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "DRAFT-2026-v1"])
async def test_progress_goes_on_after_a_question_and_is_not_reported_again(version: str) -> None:
    server = Server("packing")

    @server.tool
    async def pack(ctx: Context) -> str:
        await ctx.progress(100)
        await ctx.progress(200)
        first = await ctx.elicit("Who?", Name, key="who")
        await ctx.progress(300)
        second = await ctx.elicit("And who?", Name, key="more")
        await ctx.progress(400)
        return f"{first.name} {second.name}"

    heard: list[float] = []
    async with (
        serving(server) as address,
        Client(address.url, protocol=version, elicit=lambda _: {"name": "a"}) as client,
    ):
        result = await client.call("pack", on_progress=lambda report: heard.append(report.progress))
    assert result.text == "a a"
    assert heard == [100, 200, 300, 400]


async def test_a_task_that_reports_nothing_new_after_a_question_keeps_its_last_report(
    kind: str, tmp_path: Path
) -> None:
    server = Server("packing", store=store_of(kind, tmp_path))

    @server.tool(task="required", poll_interval=0.02)
    async def pack(ctx: Context) -> str:
        await ctx.progress(1, 2, "one")
        await ctx.progress(2, 2, "two")
        return (await ctx.elicit("Who?", Name, key="who")).name

    async with serving(server) as address:
        client = Patient(address.port)
        id = (await begin(client, "pack"))["taskId"]
        await reach(client, id, "input_required")
        await answer(client, id, who="a")
        task = await reach(client, id, "completed")
    assert task["_meta"][META] == {"progress": 2, "total": 2, "message": "two"}
