"""The progress of a task reaches the caller that waits: from polling, and from notifications."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.client import Client
from antiphon.model.notification import Progress
from tests.client.channels import DONE, LEGACY, Line, refusal
from tests.client.fakes import MODERN
from tests.support.polling import DEADLINE, until

DRAFT = "DRAFT-2026-v1"
VERSIONS = pytest.mark.parametrize(
    ("version", "notification"),
    [
        (MODERN, "notifications/tasks"),
        (LEGACY, "notifications/tasks/status"),
        (DRAFT, "notifications/tasks/status"),
    ],
)
CAPABLE = {
    "extensions": {"io.modelcontextprotocol/tasks": {}},
    "tasks": {"requests": {"tools": {"call": {}}}},
}


class Packing:
    """A task whose progress the test sets. It ends after the third box."""

    def __init__(self, poll_ms: int) -> None:
        self._poll_ms = poll_ms
        self.boxes = 0
        self.grows = True
        self.polls = 0

    def fields(self) -> dict[str, Any]:
        is_over = self.boxes > 3
        task: dict[str, Any] = {
            "taskId": "t1",
            "status": "completed" if is_over else "working",
            "pollInterval": self._poll_ms,
            "pollIntervalMs": self._poll_ms,
        }
        if is_over:
            return {**task, "result": DONE["result"]}
        reported = {"progress": self.boxes, "total": 3, "message": f"box {self.boxes}"}
        return {
            **task,
            "statusMessage": f"{self.boxes} of 3: box {self.boxes}",
            "_meta": {"dev.antiphon/progress": reported},
        }

    async def __call__(self, line: Line, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["method"] == "tasks/get":
            self.polls += 1
            self.boxes += self.grows
            return {"result": self.fields()}
        if asked["method"] == "tasks/result":
            await until(lambda: self.boxes > 3)
            return DONE
        return refusal(-32601)


def steps(seen: list[Progress]) -> list[tuple[float, float | None, str | None]]:
    return [(progress.progress, progress.total, progress.message) for progress in seen]


@VERSIONS
async def test_polling_brings_progress(version: str, notification: str) -> None:
    seen: list[Progress] = []
    line = Line(Packing(poll_ms=20), version=version, **CAPABLE)
    async with Client(line, protocol=version, on_progress=seen.append) as client:
        assert (await client.task("t1").result(timeout=DEADLINE)).text == "Done."
    assert steps(seen) == [(1, 3, "box 1"), (2, 3, "box 2"), (3, 3, "box 3")]


@VERSIONS
async def test_notifications_bring_progress(version: str, notification: str) -> None:
    seen: list[Progress] = []
    packing = Packing(poll_ms=60_000)
    packing.grows = False
    line = Line(packing, version=version, **CAPABLE)
    async with Client(line, protocol=version, on_progress=seen.append) as client:
        waiting = asyncio.create_task(client.task("t1").result(timeout=DEADLINE))
        await until(lambda: packing.polls)
        for packing.boxes in (1, 2, 3):
            await line.say(method=notification, params=packing.fields())
            await until(lambda: steps(seen)[-1:] == [(packing.boxes, 3, f"box {packing.boxes}")])
        packing.boxes = 4
        await line.say(method=notification, params=packing.fields())
        assert (await waiting).text == "Done."
    assert packing.polls <= 2, "the progress did not come from polling"
