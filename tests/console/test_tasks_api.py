"""The list of tasks in the console: filters, counts, pages, and the cancellation of many tasks."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.console.cancellations import Cancellations
from antiphon.console.routes import ConsoleUser
from antiphon.console.sources import StoreSource
from antiphon.console.task_queries import TaskQuery, count_tasks, list_tasks
from antiphon.model.identity import Principal
from antiphon.store import open_store
from antiphon.store.contract import Count, Page, Record, Store
from antiphon.store.memory import MemoryStore
from tests.cli.stored_tasks import DAY, HOUR, create_task, sqlite_url
from tests.console.support import RunningConsole, serving_console
from tests.support.polling import DEADLINE, until

LIST = "/api/stores/s/tasks"


@asynccontextmanager
async def console_of(store: Store, **options: Any) -> AsyncIterator[RunningConsole]:
    """Serve a console of one store, which the test has opened."""
    source = StoreSource("s", "the store", store, is_own=False)
    async with serving_console(stores=[source], **options) as console:
        yield console


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: Any, tmp_path: Path) -> AsyncIterator[Store]:
    """A store with tasks of every status."""
    store = open_store("memory:" if request.param == "memory" else sqlite_url(tmp_path))
    await store.open()
    await create_task(store, "queued1", age=HOUR)
    await create_task(store, "waiting1", age=8 * DAY, tool="ask", principal="ann")
    await create_task(store, "waiting2", age=3 * DAY, tool="ask", principal="bob")
    await create_task(store, "done1", age=2 * DAY)
    await create_task(store, "failed1", age=3 * DAY, tool="pay", principal="ann")
    await create_task(store, "faulted1", age=9 * DAY)
    await create_task(store, "cancelled1", age=40 * DAY)
    yield store
    await store.close()


def ids(found: Any) -> list[str]:
    return [task["id"] for task in found["tasks"]]


def numbers(found: Any) -> dict[str, int]:
    return {name: int(count) for name, count in found["counts"].items()}


async def test_the_list_has_counts_for_every_status(store: Store) -> None:
    async with console_of(store) as console:
        found = await console.get(LIST)
        assert ids(found)[:2] == ["queued1", "done1"]
        assert numbers(found) == {
            "all": 7,
            "working": 1,
            "waiting": 2,
            "done": 1,
            "failed": 2,
            "cancelled": 1,
        }
        assert found["tools"] == ["ask", "echo", "pay"]
        rows = {task["id"]: task for task in found["tasks"]}
        assert (rows["failed1"]["status"], rows["failed1"]["message"]) == ("failed", "no")
        assert (rows["faulted1"]["status"], rows["faulted1"]["message"]) == ("failed", "broken")
        assert rows["waiting1"]["status"] == "waiting"
        assert (await console.get(f"{LIST}/waiting1"))["questions"] == ["name"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "failed"}, ["failed1", "faulted1"]),
        ({"status": "waiting", "order": "oldest"}, ["waiting1", "waiting2"]),
        ({"tool": "ask", "principal": "bob"}, ["waiting2"]),
        ({"age": "older:7d", "status": "waiting"}, ["waiting1"]),
        ({"age": "newer:2h"}, ["queued1"]),
        ({"tool": "none"}, []),
    ],
)
async def test_filters_choose_the_tasks_and_the_count_agrees(
    store: Store, query: dict[str, str], expected: list[str]
) -> None:
    async with console_of(store) as console:
        found = await console.get(LIST, **query)
        assert ids(found) == expected
        assert numbers(found)[query.get("status", "all")] == len(expected)


@pytest.mark.parametrize(
    "query", [{"status": "odd"}, {"age": "older:x"}, {"age": "2h"}, {"cursor": "x"}, {"cursor": "1.x"}]
)
async def test_an_invalid_filter_is_explained(store: Store, query: dict[str, str]) -> None:
    async with console_of(store) as console, console.http.get(console.url + LIST, params=query) as response:
        assert response.status == 400
        assert (await response.json())["message"]


async def test_pages_of_a_list_with_an_age_belong_together(store: Store) -> None:
    for number in range(150):
        await create_task(store, f"done{100 + number}", age=DAY)
    async with console_of(store) as console:
        first = await console.get(LIST, age="older:2h")
        second = await console.get(LIST, age="older:2h", cursor=first["cursor"])
        assert len(first["tasks"]) == 100
        assert second["cursor"] is None
        assert len({*ids(first), *ids(second)}) == 156
        assert numbers(first)["all"] == 156


async def test_a_damaged_row_does_not_break_the_list_and_is_not_counted() -> None:
    store = MemoryStore()
    await store.open()
    await create_task(store, "done1", age=HOUR)
    record = Record("odd", "", "echo", "waiting", 0, 1, 1, None, {"state": 7})
    await store.create(record, [("created", "damaged")])
    async with console_of(store) as console:
        found = await console.get(LIST)
        assert {task["id"]: task["status"] for task in found["tasks"]} == {
            "done1": "done",
            "odd": "unreadable",
        }
        view = await console.get(f"{LIST}/odd")
        assert view["problem"]
        assert (await console.get(f"{LIST}/odd/timeline"))["rows"]
    await store.close()


async def test_people_see_their_own_tasks_only(store: Store) -> None:
    source = StoreSource("s", "the store", store, is_own=False)
    await source.open()
    ann = ConsoleUser("ann", Principal("ann"), may_operate=False, may_write=True)
    from antiphon.console.task_queries import TaskQuery, count_tasks, list_tasks, may_see

    page, _, now = await list_tasks(source, TaskQuery(), ann, cursor="", limit=100)
    assert [record.id for record in page.records] == ["failed1", "waiting1"]
    page, _, _ = await list_tasks(source, TaskQuery(principal="bob"), ann, cursor="", limit=100)
    assert {record.principal for record in page.records} == {"ann"}
    counts, tallies = await count_tasks(source, TaskQuery(), ann, now)
    assert (counts["all"].tasks, tallies) == (2, None)
    other = await store.get("waiting2")
    assert other is not None
    assert not await may_see(source, ann, other)
    await source.close()


# Cancelling many tasks


async def finished(console: RunningConsole, job: str) -> Any:
    """Return the last progress of a job."""
    last = None
    async with console.http.get(f"{console.url}/api/stores/s/cancellations/{job}") as response:
        async for line in response.content:
            if line.startswith(b"data:"):
                last = json.loads(line.removeprefix(b"data:"))
    return last


async def test_the_tasks_of_a_filter_are_cancelled_with_the_number_confirmed(store: Store) -> None:
    for number in range(120):
        await create_task(store, f"queued{100 + number}", age=HOUR, tool="bulk")
    async with console_of(store) as console:
        wanted = await console.get("/api/stores/s/cancellable", tool="bulk")
        assert wanted["count"] == 120
        await create_task(store, "queued999", age=-HOUR, tool="bulk")  # created after the question
        body = {"filter": {"tool": "bulk"}, "count": wanted["count"], "before": wanted["before"]}
        started = await console.post("/api/stores/s/cancellations", body)
        async with asyncio.timeout(DEADLINE):
            end = await finished(console, started["job"])
        assert end["words"] == "120 of 120 tasks cancelled."
        found = await console.get(LIST, tool="bulk", status="working", order="oldest")
        # A worker has begun the tasks, so one has to unwind their functions.
        assert {task["status"] for task in found["tasks"]} == {"stopping"}
        assert (await console.get(f"{LIST}/queued999"))["task"]["status"] == "working"
        assert (await console.get("/api/stores/s/cancellable", tool="bulk"))["count"] == 0
        assert numbers(await console.get(LIST, tool="ask"))["waiting"] == 2


@pytest.mark.parametrize("operates", [True, False])
async def test_the_number_of_many_tasks_costs_about_a_page(
    operates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    await store.open()
    for number in range(1000):
        await create_task(store, f"waiting{number}", age=DAY, tool="ask", principal="ann")
    read = 0
    listed = store.list

    async def counted(*arguments: Any, **options: Any) -> Page:
        nonlocal read
        page = await listed(*arguments, **options)
        read += len(page.records)
        return page

    monkeypatch.setattr(store, "list", counted)
    source, cancellations = StoreSource("s", "the store", store, is_own=False), Cancellations()
    await source.open()
    user = ConsoleUser("ann", Principal("ann"), may_operate=operates, may_write=True)
    wanted = await cancellations.count(source, TaskQuery(), user)
    assert (wanted["count"], "More tasks may match" in wanted["text"]) == (
        (1000, False) if operates else (200, True)
    )
    assert read <= 200
    started = await cancellations.start(
        source, TaskQuery(), user, count=wanted["count"], before=wanted["before"]
    )
    assert started["total"] == wanted["count"]
    await cancellations.close()
    read = 0
    page, following, now = await list_tasks(source, TaskQuery(), user, cursor="", limit=100)
    counts, _ = await count_tasks(source, TaskQuery(), user, now)
    assert (len(page.records), following is None) == (100, False)
    assert counts["all"] == (Count(1000) if operates else Count(200, is_exact=False))
    assert read <= 500
    await source.close()
    await store.close()


async def test_names_cannot_reorder_what_a_person_reads(store: Store) -> None:
    await create_task(store, "queued2", age=HOUR, tool="exe\u202egnp", principal="a\u202eb")
    async with console_of(store) as console:
        found = await console.get(LIST)
        one = await console.get(f"{LIST}/queued2")
        assert "\u202e" not in json.dumps(found["tasks"], ensure_ascii=False).replace("principal=a", "")
        assert (one["task"]["tool"], one["task"]["principal"]) == ("exegnp", "ab")


@pytest.mark.parametrize("before", [-1, 2**53, 2**63, 10**30])
async def test_a_time_that_is_none_is_refused(store: Store, before: int) -> None:
    async with console_of(store) as console:
        body = {"filter": {}, "count": 1, "before": before}
        await console.post("/api/stores/s/cancellations", body, status=400)


@pytest.mark.parametrize("age", ["newer:99999999999999999999d", "older:99999999999999999999d"])
async def test_an_age_beyond_all_times_is_refused_or_matches(store: Store, age: str) -> None:
    async with (
        console_of(store) as console,
        console.http.get(console.url + LIST, params={"age": age}) as found,
    ):
        assert found.status in (200, 400)


async def test_more_tasks_than_confirmed_are_not_cancelled(store: Store) -> None:
    async with console_of(store) as console:
        wanted = await console.get("/api/stores/s/cancellable", tool="ask")
        await create_task(store, "waiting3", age=DAY, tool="ask")
        body = {"filter": {"tool": "ask"}, "count": wanted["count"], "before": wanted["before"]}
        refused = await console.post("/api/stores/s/cancellations", body, status=409)
        assert "More tasks match" in refused["message"]
        assert numbers(await console.get(LIST, tool="ask"))["waiting"] == 3


async def test_selected_tasks_are_cancelled_and_the_rest_is_reported(store: Store) -> None:
    async with console_of(store) as console:
        chosen = ["waiting1", "done1", "missing"]
        refused = await console.post("/api/stores/s/cancellations", {"ids": chosen, "count": 2}, status=409)
        assert "confirmed 2" in refused["message"]
        started = await console.post("/api/stores/s/cancellations", {"ids": chosen, "count": 3})
        end = await finished(console, started["job"])
        assert end["words"] == "1 of 3 tasks cancelled. 2 tasks had ended before."


async def test_tasks_that_cannot_be_cancelled_are_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = StoreSource("s", "the store", store, is_own=False)
    await source.open()

    async def fail(id: str, principal: Principal) -> Any:
        raise OSError("The disk is full.")

    monkeypatch.setattr(source.service, "cancel", fail)
    jobs, user = Cancellations(), ConsoleUser("op", None, may_operate=True, may_write=True)
    started = await jobs.start_selected(source, user, ["waiting1"], 1)
    last = [data async for _, data in jobs.follow(started["job"], user)][-1]
    assert last["words"] == (
        "0 of 1 task cancelled. 1 task could not be cancelled: waiting1: The disk is full."
    )
    await jobs.close()
    await source.close()


async def test_a_read_only_console_cancels_nothing(store: Store) -> None:
    async with console_of(store, read_only=True) as console:
        body = {"ids": ["waiting1"], "count": 1}
        assert await console.post("/api/stores/s/cancellations", body, status=403)
        assert await console.post(f"{LIST}/waiting1/cancel", status=403)
        assert (await console.get(f"{LIST}/waiting1"))["actions"] == []


async def test_pages_hear_of_changes(store: Store) -> None:
    async with console_of(store) as console, console.http.get(f"{console.url}/api/live") as response:
        lines = response.content
        async with asyncio.timeout(DEADLINE):
            while b"ready" not in await lines.readline():
                pass
            hearing = asyncio.create_task(lines.readuntil(b"tasks"))
            numbers = itertools.count(2000)

            async def has_heard() -> bool:
                await create_task(store, f"queued{next(numbers)}", age=HOUR)
                return hearing.done()

            await until(has_heard)
            await hearing
