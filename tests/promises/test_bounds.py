"""The limits of tasks, and failures of the store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon import Context, Limits, Server
from antiphon.errors import StoreUnavailable
from antiphon.store.contract import Record
from antiphon.store.sqlite.database import Database
from tests.asking.driving import accept, once
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.promises.tooling import STORES, Name, Workshop, at_work, store_of
from tests.support.loop_time import LoopTime
from tests.support.polling import forever, until
from tests.support.serving import Address, serving
from tests.support.speakers import Bare, Modern, Session, Speaker


@pytest.fixture
async def narrow(kind: str, tmp_path: Path) -> AsyncIterator[tuple[Workshop, int]]:
    """A `Workshop` that runs two tasks at once and queues three."""
    limits = Limits(max_running_tasks=2, max_queued_tasks=3, drain_timeout=0.2, principal_share=1.0)
    async with at_work(kind, tmp_path, limits=limits) as (workshop, address):
        yield workshop, address.port


async def test_only_so_many_run_at_once_and_the_others_wait(narrow: tuple[Workshop, int]) -> None:
    workshop, port = narrow
    ids = [(await begin(Bare(port), "long"))["taskId"] for _ in range(3)]
    await until(lambda: workshop.ran["long"] == 2)
    workshop.gate.set()
    for id in ids:
        await reach(Bare(port), id, "completed")
    assert workshop.ran["long"] == 3
    assert workshop.most == 2


@pytest.mark.parametrize("kind_of_speaker", [Bare, Patient])
async def test_one_too_many_is_refused_and_told_when_to_come_back(
    narrow: tuple[Workshop, int], kind_of_speaker: type[Speaker]
) -> None:
    workshop, port = narrow
    client = kind_of_speaker(port)
    ids = [(await begin(client, "long"))["taskId"] for _ in range(3)]
    wish = {} if isinstance(client, Modern) else {"task": {}}
    for _ in range(3):
        refused = await client.ask("tools/call", {"name": "long", **wish})
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        assert "Too many tasks" in refused.error["message"]
    assert (await client.call("plain")).text == "plain"
    workshop.gate.set()
    for id in ids:
        await reach(client, id, "completed")
    assert (await begin(client, "long"))["status"] == "working"


async def test_tasks_that_wait_for_answers_are_no_burden(narrow: tuple[Workshop, int]) -> None:
    _, port = narrow
    client = Bare(port)
    ids = []
    for _ in range(10):
        ids.append((await begin(client, "ask"))["taskId"])
        await reach(client, ids[-1], "input_required")
    for id in ids:
        await answer(client, id, first="a", second="b")
        await reach(client, id, "input_required")


async def test_a_task_that_makes_no_sense_does_not_hold_up_the_others(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_of(kind, tmp_path)
    await store.open()
    nonsense = Record(
        id="ask_nonsense",
        principal="anyone",
        tool="ask",
        phase="ready",
        version=0,
        created=1,
        updated=1,
        expires=None,
        head={},
    )
    await store.create(nonsense, [("created", {"v": 99})])
    made = msgspec.structs.replace(nonsense, id="add_later", tool="add", created=2)
    task = {"id": "add_later", "tool": "add", "created": 2, "updated": 2}
    data = {"v": 1, "task": task, "arguments": {"a": 1, "b": 2}, "principal": {"id": "anyone"}}
    await store.create(msgspec.structs.replace(made, head=task), [("created", data)])
    if kind == "sqlite":
        await store.close()
    async with serving(Workshop(store).server) as address:
        assert (await Bare(address.port).ask("tasks/result", {"taskId": "add_later"})).text == "3"
    assert "this version cannot read its log" in caplog.text


async def test_a_task_whose_tool_is_gone_waits_for_a_worker_that_has_it(
    served: tuple[Workshop, Address],
) -> None:
    workshop, address = served
    client = Bare(address.port)
    id = (await begin(client, "ask"))["taskId"]
    await reach(client, id, "input_required")
    workshop.server.remove_tool("ask")
    await answer(client, id, first="a", second="b")
    other = (await begin(client, "add", a=1, b=2))["taskId"]
    await reach(client, other, "completed")  # the worker runs tasks, but not this one
    assert (await look(client, id))["status"] == "working"

    @workshop.server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        first = await ctx.elicit("First?", Name, key="first")
        return f"{first.name} is back"

    await reach(client, id, "completed")
    assert (await client.ask("tasks/result", {"taskId": id})).text == "a is back"


# The list


async def test_a_caller_lists_its_own_tasks_page_by_page_newest_first(port: int) -> None:
    mine, theirs = (Bare(port, headers={"x-who": who}) for who in ("me", "them"))
    await begin(theirs, "add", a=1, b=2)
    ids = [(await begin(mine, "add", a=1, b=2))["taskId"] for _ in range(230)]
    found: list[str] = []
    cursor: dict[str, Any] = {}
    pages = 0
    while True:
        page = (await mine.ask("tasks/list", cursor)).result
        found += [task["taskId"] for task in page["tasks"]]
        pages += 1
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert len(found) == 230
    assert set(found) == set(ids)
    assert pages > 1
    assert found[0] in ids[-30:]  # some are made in the same millisecond
    assert len((await theirs.ask("tasks/list")).result["tasks"]) == 1


async def test_a_listed_task_is_the_task(port: int) -> None:
    session = Session(port)
    await session.open()
    id = (await begin(session, "add", a=1, b=2))["taskId"]
    task = await reach(session, id, "completed")
    assert (await session.ask("tasks/list")).result == {"tasks": [task]}


async def test_a_cursor_that_nobody_gave_out_is_refused(port: int) -> None:
    for cursor in ("nonsense", "", "AAAA"):
        refused = await Bare(port).ask("tasks/list", {"cursor": cursor})
        assert refused.error["code"] == -32602
        assert "cursor" in refused.error["message"]


# Request state that is used once


@pytest.mark.parametrize("kind", STORES)
async def test_a_state_is_refused_the_second_time(kind: str, tmp_path: Path) -> None:
    async with at_work(kind, tmp_path, single_use_state=True) as (workshop, address):
        client = Bare(address.port)
        asked = (await once(client, "ask"))["result"]
        names = {"first": accept(name="a"), "second": accept(name="b")}
        again = (await once(client, "ask", answers=names, state=asked["requestState"]))["result"]
        assert list(again["inputRequests"]) == ["third"]
        refused = await once(client, "ask", answers=names, state=asked["requestState"])
        assert refused["error"]["code"] == -32602
        assert "request state is not valid" in refused["error"]["message"]
        last = (await once(client, "ask", answers={"third": accept(name="c")}, state=again["requestState"]))[
            "result"
        ]
        assert last["content"][0]["text"] == "a b c"
        assert workshop.ran == {"began": 1, "went on": 1}


async def test_a_state_is_used_once_on_all_processes_together(tmp_path: Path) -> None:
    async with (
        at_work("sqlite", tmp_path, single_use_state=True) as (_, one),
        at_work("sqlite", tmp_path, single_use_state=True) as (_, other),
    ):
        asked = (await once(Bare(one.port), "ask"))["result"]
        names = {"first": accept(name="a"), "second": accept(name="b")}
        frames = await asyncio.gather(
            *(
                once(Bare(port), "ask", answers=names, state=asked["requestState"])
                for port in (one.port, other.port)
            )
        )
        assert sorted("error" in frame for frame in frames) == [False, True]


# A store that cannot be written


class ReadOnly:
    """Makes a SQLite store read-only with `query_only`: root can write a file of any mode."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._patch = monkeypatch
        self._connect = Database.connect

    def begin(self) -> None:
        """Make the store read-only."""

        def connect(database: Database, role: Any) -> sqlite3.Connection:
            connection = self._connect(database, role)
            connection.execute("PRAGMA query_only = ON")
            return connection

        self._patch.setattr(Database, "connect", connect)
        self._store.opened().writer.connection.execute("PRAGMA query_only = ON")

    def end(self) -> None:
        """Make the store writable again."""
        self._patch.setattr(Database, "connect", self._connect)
        self._store.opened().writer.close()


async def test_a_file_that_cannot_be_written_gives_503_and_plain_answers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work("sqlite", tmp_path) as (workshop, address):
        client = Bare(address.port)
        kept = (await begin(client, "ask"))["taskId"]
        await reach(client, kept, "input_required")
        read_only = ReadOnly(workshop.store, monkeypatch)
        read_only.begin()
        refused = await client.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {}})
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        assert "try again" in refused.error["message"]
        assert (await answer(client, kept, first="a", second="b")).status == 503
        assert (await client.call("plain")).text == "plain"
        assert (await client.call("add", a=1, b=2)).text == "3"
        assert (await look(client, kept))["status"] == "input_required"
        read_only.end()
        await answer(client, kept, first="a", second="b")
        assert (await begin(client, "add", a=1, b=2))["status"] == "working"
        await reach(client, kept, "input_required")


async def test_a_listener_waits_for_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work("memory", tmp_path) as (workshop, address):
        client = Patient(address.port)
        id = (await begin(client, "long"))["taskId"]
        wanted = {"notifications": {"taskIds": [id]}}
        heard: list[str] = []
        async with client.asking("subscriptions/listen", wanted, id="ear") as connection:
            await connection.receive_head()
            async for event in connection.events():
                if not event.data or "tasks" not in event.frame["method"]:
                    continue
                heard.append(event.frame["params"]["status"])
                if heard == ["working"]:
                    with monkeypatch.context() as patch:
                        asked = _failing(patch, workshop)
                        workshop.gate.set()
                        await until(asked.__len__)
                if heard[-1] == "completed":
                    break
        assert heard == ["working", "completed"]


def _failing(patch: pytest.MonkeyPatch, workshop: Workshop) -> list[str]:
    """Make the store fail while the patch lasts; return the ids that are asked for."""
    asked: list[str] = []

    async def get(id: str) -> Record | None:
        asked.append(id)
        raise StoreUnavailable("It is away.")

    patch.setattr(workshop.store, "get", get)
    return asked


async def test_a_tool_that_has_only_so_much_time_has_no_more_as_a_task(kind: str, tmp_path: Path) -> None:
    server, begun, time = Server("hurried", store=store_of(kind, tmp_path)), asyncio.Event(), LoopTime.here()

    @server.tool(task="required", timeout=600, poll_interval=0.05)
    async def slow() -> AsyncIterator[str]:
        yield "begun"
        begun.set()
        await forever()

    async with serving(server) as address:
        client = Bare(address.port)
        id = (await begin(client, "slow"))["taskId"]
        await until(begun.is_set)
        time.advance(600)
        await reach(client, id, "failed")
        redeemed = (await client.ask("tasks/result", {"taskId": id})).result
    assert redeemed["isError"] is True
    texts = [block["text"] for block in redeemed["content"]]
    assert texts == ["begun", "The tool 'slow' did not finish within 600 seconds."]
