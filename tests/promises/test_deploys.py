"""Rollouts of a version whose steps return other types: tasks wait for their own version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.runtime.tasks.records import task_of
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.asking.driving import accept
from tests.promises.speaking import Patient, begin, reach
from tests.support.leases import end_leases
from tests.support.polling import until
from tests.support.process import ServerProcess, started

MESSAGE = "The task waits for a server of the version that began it."
TASKS = 4


@contextmanager
def deployed(directory: Path, version: str) -> Iterator[ServerProcess]:
    environment = {
        "ANTIPHON_STORE": f"sqlite:///{directory}/tasks.db",
        "NOTES": str(directory / "notes"),
        "VERSION": version,
    }
    with started("deploying.py", directory, env=environment) as server:
        yield server


async def says_why(store: Store, id: str) -> bool:
    """Whether a task says that it waits for the version that began it."""
    record = await store.get(id)
    assert record is not None
    return task_of(record).message == MESSAGE


def spoken(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [("1", "2", "Receipt {0} seven of {0}"), ("2", "1", "DatedReceipt {0} 7")],
    ids=["rollout", "rollback"],
)
async def test_tasks_wait_for_their_version_if_a_step_returns_another_type(
    tmp_path: Path, first: str, second: str, result: str
) -> None:
    orders = [f"order-{number}" for number in range(TASKS)]
    (tmp_path / "notes").touch()
    ids: dict[str, str] = {}
    with deployed(tmp_path, first) as began:
        speaker = Patient(began.port)
        for order in orders:
            ids[order] = str((await begin(speaker, "buy", order=order))["taskId"])
        for id in ids.values():
            await reach(speaker, id, "input_required")
    store = open_store(f"sqlite:///{tmp_path}/tasks.db")
    await store.open()
    try:
        with deployed(tmp_path, second) as other:
            speaker = Patient(other.port)
            for id in ids.values():
                responses = {"sure": accept(value=True)}
                answered = await speaker.ask("tasks/update", {"taskId": id, "inputResponses": responses})
                assert "error" not in answered.frame

            for id in ids.values():
                await until(lambda id=id: says_why(store, id))
        await end_leases(f"sqlite:///{tmp_path}/tasks.db")  # as if the delays of the tasks were over
        with deployed(tmp_path, first) as again:
            ended = [await reach(Patient(again.port), id, "completed", "failed") for id in ids.values()]
    finally:
        await store.close()
    assert [task["status"] for task in ended] == ["completed"] * TASKS
    assert [task["result"]["content"] for task in ended] == [
        [spoken(result.format(order))] for order in orders
    ]
    assert sorted((tmp_path / "notes").read_text().split("\n")[:-1]) == [
        f"charge {order}" for order in orders
    ]
