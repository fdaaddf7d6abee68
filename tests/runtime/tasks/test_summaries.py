"""The summary of a task's arguments is one short line without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon import Client, Server
from antiphon.runtime.tasks.records import task_of
from antiphon.runtime.tasks.summaries import MAX_SUMMARY_CHARACTERS, summarize
from antiphon.store import open_store


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ({}, None),
        (None, None),
        ({"city": "Paris", "days": 3, "ratio": 0.5}, 'city="Paris", days=3, ratio=0.5'),
        ({"yes": True, "no": False, "none": None}, "yes=true, no=false, none=null"),
        (
            {"rows": [1, 2], "one": [1], "options": {"a": 1}, "empty": {}},
            "rows=[2 items], one=[1 item], options={…}, empty={}",
        ),
        ({"password": "hunter2", "api_key": 5, "AccessToken": ["x"]}, "password=…, api_key=…, AccessToken=…"),
        ({"text": "one\ntwo\x1b[31m\u202e"}, 'text="one two[31m"'),
        ({"text": "x" * 99}, f'text="{"x" * 39}…"'),
        ({"n": 10**5000}, "n=…"),
        ({f"a{n}": n for n in range(10)}, "a0=0, a1=1, a2=2, a3=3, a4=4, a5=5, a6=6, a7=7, …"),
    ],
)
def test_a_summary_is_short_and_clean(arguments: dict[str, Any] | None, summary: str | None) -> None:
    assert summarize(arguments) == summary


def test_a_summary_has_a_bound() -> None:
    summary = summarize({f"{n}{'n' * 1000}": "v" * 100_000 for n in range(1000)})
    assert summary is not None
    assert len(summary) == MAX_SUMMARY_CHARACTERS
    assert summary.endswith("…")


async def test_a_task_has_a_summary_that_its_caller_does_not_see() -> None:
    store = open_store("memory:")
    server = Server("summaries", store=store)

    @server.tool(task="required")
    async def greet(name: str) -> str:
        return f"{len(name)} letters"

    async with Client(server) as client:
        task = await client.submit("greet", {"name": "Ada"})
        await task.result()
        (record,) = (await store.list(None)).records
        assert task_of(record).summary == 'name="Ada"'
        assert "Ada" not in repr(await task.status())
