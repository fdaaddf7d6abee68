"""Stores, states, sessions and artifacts that earlier versions have left open in this one, and go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import asyncpg
import msgspec
import pytest

from antiphon.model.task import EntryKind, Fault, State, Task, TaskProgress
from antiphon.model.waiting import Wait
from antiphon.runtime.carriers.seal import Use
from antiphon.runtime.execution.journal import JOURNAL_NAMES
from antiphon.store.contract import Phase
from tests.upgrade.clients import run
from tests.upgrade.kept import (
    AN_HOUR,
    ENDS,
    FOLDERS,
    MOMENT,
    SCHEMA,
    Kept,
    Place,
    at,
    copy_of_file,
    go_on,
    load_dump,
    look,
    missing,
    protocols,
    redeem,
    served,
    visit,
)
from tests.upgrade.write import checksums

KINDS = ("sqlite", "postgres")
NEWEST = FOLDERS[max(FOLDERS)]


class Left:
    """One store that a version has left, and what is expected of it."""

    def __init__(self, folder: Path, kind: str, copy: Callable[[], Awaitable[Place]]) -> None:
        self.kept = Kept.read(folder / kind / "kept.json")
        self.copy = copy


@pytest.fixture(params=[(name, kind) for name in FOLDERS for kind in KINDS], ids="-".join)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Left:
    """Return each store of each folder."""
    name, kind = request.param
    return _left(request, FOLDERS[name], kind, tmp_path)


@pytest.fixture(params=KINDS)
def newest(request: pytest.FixtureRequest, tmp_path: Path) -> Left:
    """Return each store of the newest folder."""
    return _left(request, NEWEST, request.param, tmp_path)


def _left(request: pytest.FixtureRequest, folder: Path, kind: str, tmp_path: Path) -> Left:
    dsn = request.getfixturevalue("database").dsn if kind == "postgres" else ""

    async def copy() -> Place:
        return await load_dump(folder, dsn) if dsn else copy_of_file(folder, tmp_path)

    return Left(folder, kind, copy)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_never_changes(name: str) -> None:
    written = (FOLDERS[name] / "SHA256SUMS").read_text(encoding="utf-8")
    assert checksums(FOLDERS[name]) == written, "write a new folder: python -m tests.upgrade.write VERSION"


# Going on


async def test_every_task_is_read_with_all_that_it_has(left: Left) -> None:
    found = await look(await left.copy(), left.kept.tasks)
    for name, task in left.kept.tasks.items():
        expected = {key: task[key] for key in ("seen", "log", "journal", "record")}
        assert missing(expected, found[name], name) == []


@pytest.mark.parametrize("when", [when for when in ENDS if when != "before"])
async def test_tasks_go_on_when_their_time_has_come_and_repeat_no_step(left: Left, when: str) -> None:
    outcomes, effects = await go_on(await left.copy(), left.kept, when)
    expected = {name: task["outcome"] for name, task in left.kept.tasks.items() if task["ends"] == when}
    assert missing(expected, outcomes) == []
    assert effects == left.kept.effects[when]


async def test_every_state_is_redeemed_and_no_step_repeated(left: Left) -> None:
    found = await redeem(await left.copy(), left.kept.rounds)
    for each, answer in zip(left.kept.rounds, found, strict=True):
        expected = {"answer": each["answer"], "effects": each["effects"]}
        assert missing(expected, answer, each["name"]) == []


async def test_sessions_cookies_cursors_and_artifacts_are_still_good(left: Left) -> None:
    found = await visit(await left.copy(), left.kept)
    assert missing(left.kept.visits, found) == []


async def test_a_check_of_the_store_finds_that_every_log_adds_up_to_its_task(left: Left) -> None:
    place = await left.copy()
    run("store", "check", place.url)


async def test_the_console_shows_every_task_to_an_operator(left: Left) -> None:
    place = await left.copy()
    with at(MOMENT + AN_HOUR):
        async with served(place.desk(only=()), console=True) as wire:
            headers = {"host": "localhost", "cookie": left.kept.cookies["bob-token"]}
            for name, task in left.kept.tasks.items():
                if not task["owner"]:
                    continue  # it belongs to another server
                page = wire.url.replace("/mcp", f"/console/api/stores/own/tasks/{task['id']}")
                for part in ("", "/timeline", "/log", "/json"):
                    answer = await wire.http.get(page + part, headers=headers)
                    assert (name, part, answer.status_code) == (name, part, 200), answer.text


# What the newest folder has


def _names(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


async def _heads(left: Left) -> list[dict[str, Any]]:
    store = (await left.copy()).store()
    with at(MOMENT):
        await store.open()
        try:
            records = [await store.get(task["id"]) for task in left.kept.tasks.values()]
        finally:
            await store.close()
    return [record.head for record in records if record is not None]


async def test_the_newest_folder_has_everything_that_a_task_can_have(newest: Left) -> None:
    heads = await _heads(newest)
    assert set(get_args(State)) == {head.get("state", "working") for head in heads}
    assert set(get_args(EntryKind)) == {kind for task in newest.kept.tasks.values() for kind in task["log"]}
    assert set(get_args(Phase)) == {task["record"]["phase"] for task in newest.kept.tasks.values()}
    assert _names(Task) - {name for head in heads for name in head} == set()
    waits = [wait for head in heads for wait in head.get("waits", {}).values()]
    assert _names(Wait) - {name for wait in waits for name in wait} == set()
    assert _names(Fault) - {name for head in heads for name in head.get("fault", ())} == set()
    assert _names(TaskProgress) - {name for head in heads for name in head.get("progress", ())} == set()


def test_the_newest_folder_has_every_kind_of_entry_in_journals(newest: Left) -> None:
    keys = {key for task in newest.kept.tasks.values() for key in task["journal"]}
    found = {name for name in JOURNAL_NAMES for key in keys if key == name or key.startswith(f"{name}:")}
    of_states = {"asked", "segments"}  # a state is sealed: the rounds of the drafts without keys need them
    assert set(JOURNAL_NAMES) - found == of_states


def test_the_newest_folder_has_every_kind_of_token_and_every_protocol(newest: Left) -> None:
    names = [each["name"] for each in newest.kept.rounds]
    uses = {
        "state": any(name.startswith("pay") for name in names),
        "held": any(name.startswith("held") for name in names),
        "session": bool(newest.kept.sessions),
        "console": bool(newest.kept.cookies),
        "question": True,  # it names a process, and means nothing to another one
    }
    assert all(uses[use] for use in get_args(Use))
    spoken = {session["protocol"] for session in newest.kept.sessions.values()}
    assert set(protocols()) == spoken | {name.split(", ")[1] for name in names if name.startswith("pay")}


EMPTY = {"messages", "commits", "used", "turns"}
"""Tables that may be empty: what is in them is needed for a moment only, or is counted again."""


async def test_the_newest_folder_has_a_row_in_every_table_and_a_value_in_every_column(newest: Left) -> None:
    place = await newest.copy()
    store = place.store()
    with at(MOMENT):
        await store.open()  # which migrates it to the schema of this version
        await store.close()
    rows = _rows_of_sqlite(place) if place.url.startswith("sqlite") else await _rows_of_postgres(place)
    empty = {table for table, values in rows.items() if not any(values.values())}
    assert empty - EMPTY == set()
    unused = {
        f"{table}.{column}"
        for table in rows.keys() - empty
        for column, count in rows[table].items()
        if not count
    }
    assert unused == set()


def _rows_of_sqlite(place: Place) -> dict[str, dict[str, int]]:
    connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
    try:
        found: dict[str, dict[str, int]] = {}
        listed = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in connection.execute(listed).fetchall():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            counts = ", ".join(f"count({column})" for column in columns)
            row = connection.execute(f"SELECT {counts} FROM {table}").fetchone()
            found[table] = dict(zip(columns, row, strict=True))
        return found
    finally:
        connection.close()


async def _rows_of_postgres(place: Place) -> dict[str, dict[str, int]]:
    connection = await asyncpg.connect(place.url.partition("?")[0])
    try:
        found: dict[str, dict[str, int]] = {}
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1"
        for table, column in await connection.fetch(query, SCHEMA):
            count = await connection.fetchval(f'SELECT count("{column}") FROM {SCHEMA}."{table}"')
            found.setdefault(table, {})[column] = count
        return found
    finally:
        await connection.close()
