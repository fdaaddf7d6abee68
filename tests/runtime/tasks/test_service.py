"""Following, answering and cancelling tasks while the store fails or other processes write too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from antiphon import Limits, Server
from antiphon.errors import Busy, NoTask, NotFound, RequestError, Stale, StoreUnavailable, TaskNotFound
from antiphon.model.identity import ANONYMOUS
from antiphon.model.request import RedeemTask
from antiphon.model.task import Task, TaskChanged
from antiphon.runtime.carriers.connection import ConnectionCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks import handlers
from antiphon.runtime.tasks.handlers import TaskHandlers
from antiphon.runtime.tasks.service import TaskService
from antiphon.runtime.tasks.worker import Worker
from tests.runtime.faulty_store import created_task, open_faulty_store, waiting_task
from tests.support.memory import in_memory
from tests.support.polling import until


def none(name: str) -> Any:
    raise NotFound(f"There is no tool {name!r}.")


def promises(store: Any) -> TaskService:
    worker = Worker(store, Limits(), none, none)  # type: ignore[arg-type]
    return TaskService(store, worker, Limits(), Relay("tests"))


class Listening(Caller):
    """A caller that receives messages and cannot be asked."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    async def notify(self, message: Any) -> None:
        self.received.append(message)


def call_of(caller: Caller, request: Any = None) -> Call[Any]:
    return Call(request, carrier=ConnectionCarrier(), caller=caller, work=Supervised.here())


async def test_a_task_that_other_processes_keep_writing_is_busy() -> None:
    store = await open_faulty_store()
    task, _, _ = await created_task(store)
    store.instead("append", *[Stale("Somebody was quicker.")] * 20)
    with pytest.raises(Busy, match="try again"):
        await promises(store).cancel(task.id, ANONYMOUS)


async def test_a_task_that_expires_before_it_is_cancelled_is_not_found() -> None:
    store = await open_faulty_store()
    task, _, _ = await created_task(store)
    store.instead("append", NoTask("It is gone."))
    with pytest.raises(TaskNotFound):
        await promises(store).cancel(task.id, ANONYMOUS)


async def test_a_stream_survives_a_short_outage_of_the_store() -> None:
    store = await open_faulty_store()
    task = await waiting_task(store)
    tasks = promises(store)
    news = tasks.stream(task.id, ANONYMOUS, 0)
    first = await anext(news)
    assert isinstance(first, Task)
    assert first.state == "waiting"
    await tasks.cancel(task.id, ANONYMOUS)
    store.instead("get", StoreUnavailable("It is away."))
    assert [(item.state if isinstance(item, Task) else item) async for item in news] == ["cancelled"]


async def test_a_stream_does_not_begin_while_the_store_is_away() -> None:
    store = await open_faulty_store()
    task = await waiting_task(store)
    store.instead("get", StoreUnavailable("It is away."))
    with pytest.raises(StoreUnavailable, match="It is away"):
        await anext(promises(store).stream(task.id, ANONYMOUS, 0))


async def test_a_caller_that_cannot_be_asked_waits_for_the_end_of_the_task() -> None:
    store = await open_faulty_store()
    task = await waiting_task(store)
    tasks = promises(store)
    redeeming = asyncio.create_task(
        TaskHandlers(tasks).handlers[RedeemTask](call_of(Listening(), RedeemTask(task.id)))  # type: ignore[arg-type]
    )
    await until(lambda: store.calls["get"])
    assert not redeeming.done()
    await tasks.cancel(task.id, ANONYMOUS)
    with pytest.raises(RequestError, match="was cancelled"):
        await redeeming


async def test_a_listener_is_notified_when_the_store_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "STORE_RETRY_SECONDS", 0.0)
    store = await open_faulty_store()
    task = await waiting_task(store)
    store.instead("get", StoreUnavailable("It is away."))
    caller = Listening()
    async with TaskHandlers(promises(store)).notifying((task.id,), call_of(caller)):
        await until(lambda: caller.received)
    assert caller.received == [TaskChanged(task)]


async def test_a_server_without_task_tools_has_no_tasks() -> None:
    server = Server("tests", store="memory:")

    @server.tool
    async def tool() -> str:
        return "done"

    async with in_memory(server) as client:
        await client.initialize()
        refused = await client.error("tasks/get", {"taskId": "any"})
    assert (refused["code"], refused["message"]) == (-32601, "This server has no tasks.")


async def test_a_task_whose_tool_this_server_does_not_have_says_so() -> None:
    store = await open_faulty_store()
    service = promises(store)
    known = TaskService(
        store, service.worker, Limits(), Relay("tests"), has_tool=lambda name: name == "count"
    )
    unknown = TaskService(store, service.worker, Limits(), Relay("tests"), has_tool=lambda name: False)
    task, _, _ = await created_task(store)
    assert (await known.get(task.id, ANONYMOUS)).message is None
    says = "This server does not have the tool 'count'. A worker that has it can run the task."
    assert (await unknown.get(task.id, ANONYMOUS)).message == says
    async for followed in unknown.follow(task.id, ANONYMOUS):
        assert followed.message == says
        break
    await unknown.cancel(task.id, ANONYMOUS)
    assert (await unknown.get(task.id, ANONYMOUS)).message == "The task was cancelled by request."


async def test_a_server_without_the_tool_of_a_task_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    old, new = Server("shop", store=url), Server("shop", store=url)

    @old.tool(task="required")
    async def removed() -> str:
        return "done"

    @new.tool(task="required")
    async def added() -> str:
        return "done"

    old.configure(run_tasks=False)
    async with in_memory(old) as client:
        id = (await client.result("tools/call", {"name": "removed", "task": {}}))["task"]["taskId"]
    async with in_memory(new) as client:
        shown = await client.result("tasks/get", {"taskId": id})
    assert (shown["status"], shown["statusMessage"]) == (
        "working",
        "This server does not have the tool 'removed'. A worker that has it can run the task.",
    )
