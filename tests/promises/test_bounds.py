"""How much a server takes upon itself, and what it does when that is too much, or its store is gone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon import Limits
from antiphon.store.sqlite.connection import Database
from tests.asking.driving import accept, once
from tests.promises.speaking import Patient, answer, begin, look, reach
from tests.promises.tooling import STORES, Workshop, at_work
from tests.support.polling import until
from tests.support.speakers import Bare, Modern, Session, Speaker


@pytest.fixture
async def narrow(kind: str, tmp_path: Path) -> AsyncIterator[tuple[Workshop, int]]:
    """A workshop with room for two tasks at once, and for three that are not done."""
    limits = Limits(tasks=2, queued=3, lease=2.0, drain=0.2)
    async with at_work(kind, tmp_path, limits=limits) as (workshop, address):
        yield workshop, address.port


async def test_only_so_many_run_at_once_and_the_others_wait(narrow: tuple[Workshop, int]) -> None:
    workshop, port = narrow
    ids = [(await begin(Bare(port), "long"))["taskId"] for _ in range(3)]
    await until(lambda: workshop.ran["long"] == 2)
    await asyncio.sleep(0.2)
    assert workshop.ran["long"] == 2
    workshop.gate.set()
    for id in ids:
        await reach(Bare(port), id, "completed")
    assert workshop.ran["long"] == 3


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
        assert "too many tasks" in refused.error["message"]
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
    """Makes the file of a store read-only. Root writes whatever the mode of a file is, SQLite does not."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._patch = monkeypatch
        self._connect = Database.connect

    def begin(self) -> None:
        """From now on, nobody writes."""

        def connect(database: Database, role: Any) -> sqlite3.Connection:
            connection = self._connect(database, role)
            connection.execute("PRAGMA query_only = ON")
            return connection

        self._patch.setattr(Database, "connect", connect)
        self._store._threads.writer._connection.execute("PRAGMA query_only = ON")

    def end(self) -> None:
        """From now on, somebody may."""
        self._patch.setattr(Database, "connect", self._connect)
        self._store._threads.writer.close()


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
