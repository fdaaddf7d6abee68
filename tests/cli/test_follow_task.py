"""`TaskFollower`, and the changes that `StoreTasks.follow` yields."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from antiphon import Context, Server
from antiphon.cli.call.follow_task import TaskFollower
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.targets import Target
from antiphon.cli.tasks.store_tasks import StoreTasks
from antiphon.client import Client
from antiphon.errors import InternalError, TaskCancelled, Unreachable
from antiphon.model.outcome import Result
from antiphon.model.task_status import TaskStatus
from tests.cli.command import PATIENCE
from tests.cli.pseudo_terminal import in_terminal
from tests.support.polling import until, wait_until
from tests.support.process import free_port, started

REMOTE = Target("http://127.0.0.1:1/mcp", "http://127.0.0.1:1/mcp", {}, 10)
LOCAL = Target("mine.py", ["antiphon", "run", "mine.py", "--stdio"], {}, 10)


class Screen(io.StringIO):
    """A standard error stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Handle:
    """A task handle whose end the test controls."""

    id = "t1"

    def __init__(self, end: Callable[[], Result] = lambda: Result("done")) -> None:
        self._end = end
        self.current = TaskStatus("t1", "working")
        self.ends = asyncio.Event()
        self.news: asyncio.Queue[TaskStatus] = asyncio.Queue()

    async def status(self) -> TaskStatus:
        return self.current

    async def result(self, *, timeout: float | None = None, check: bool) -> Result:
        await self.ends.wait()
        return self._end()

    async def updates(self) -> AsyncIterator[TaskStatus]:
        while True:
            yield await self.news.get()
            self.news.task_done()


def handle_raising(error: Exception, status: Any = "working") -> Any:
    def end() -> Result:
        raise error

    handle = Handle(end)
    handle.current = TaskStatus("t1", status)
    handle.ends.set()
    return handle


async def test_a_cancelled_task_exits_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError, match="The task was cancelled") as raised:
        await TaskFollower(REMOTE).wait_for_result(handle_raising(TaskCancelled("The task was cancelled.")))
    assert raised.value.code == FAILED
    assert capsys.readouterr().err == "Task: t1\n"


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        (REMOTE, "The task is still running. To follow it: antiphon tasks watch http://127.0.0.1:1/mcp t1\n"),
        (LOCAL, ""),
    ],
)
async def test_only_a_remote_server_prints_how_to_follow_the_task(
    target: Target, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unreachable):
        await TaskFollower(target).wait_for_result(handle_raising(Unreachable("It is gone.")))
    assert capsys.readouterr().err == f"Task: t1\n{hint}"


async def test_a_failed_task_exits_with_code_1_and_is_not_called_running(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = InternalError("The task was given up.")
    with pytest.raises(CommandError, match="The task failed: The task was given up.") as raised:
        await TaskFollower(REMOTE).wait_for_result(handle_raising(error, "failed"))
    assert raised.value.code == FAILED
    assert capsys.readouterr().err == "Task: t1\n"


async def test_a_task_that_waits_for_an_answer_prints_how_to_answer_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = InternalError("The question has no answer.")
    with pytest.raises(InternalError):
        await TaskFollower(REMOTE).wait_for_result(handle_raising(error, "input_required"))
    hint = "The question is still open. To answer it: antiphon tasks answer http://127.0.0.1:1/mcp t1\n"
    assert capsys.readouterr().err == f"Task: t1\n{hint}"


async def test_the_status_line_is_hidden_while_a_question_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    follower, handle = TaskFollower(REMOTE), Handle()

    async def line_after(status: TaskStatus) -> str:
        screen.seek(0)
        screen.truncate()
        handle.news.put_nowait(status)
        await handle.news.join()
        return screen.getvalue()

    async def ask(question: str) -> str:
        assert await line_after(TaskStatus("t1", "input_required")) == ""
        return question.upper()

    result = asyncio.create_task(follower.wait_for_result(handle))  # type: ignore[arg-type]
    assert "s, working: on it" in await line_after(TaskStatus("t1", "working", "on it"))
    assert await follower.hidden_during(ask)("what?") == "WHAT?"
    assert "s, working: again" in await line_after(TaskStatus("t1", "working", "again"))
    handle.ends.set()
    assert (await result).text == "done"
    assert screen.getvalue().endswith("\r\x1b[2K")


class CountingStoreTasks(StoreTasks):
    """Counts how often a task was read."""

    reads = 0

    async def _view(self, record: Any) -> Any:
        self.reads += 1
        return await super()._view(record)


async def test_follow_yields_only_visible_changes(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    server = Server("mine", store=store)
    stepped, continued = asyncio.Event(), asyncio.Event()

    @server.tool(task="required")
    async def work(ctx: Context) -> str:
        await ctx.step(stepped.wait)
        await continued.wait()
        return "done"

    async with Client(server) as client:
        handle = await client.submit("work")
        assert handle.id is not None
        async with CountingStoreTasks(store) as operator:
            seen: list[str] = []

            async def watch(id: str) -> None:
                async for task in operator.follow(id):
                    seen.append(task.status)

            watching = asyncio.create_task(watch(handle.id))
            await until(lambda: seen == ["working"])
            stepped.set()
            await until(lambda: operator.reads == 2)
            continued.set()
            await watching
    assert seen == ["working", "completed"]


WAITING = '''
import asyncio

from antiphon import Server

server = Server("waiting")


@server.tool(task="optional")
async def wait() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "done"
'''


@pytest.mark.parametrize("options", [("--task",), ("--task", "--stream"), ()], ids=" ".join)
def test_a_task_that_its_server_has_forgotten_is_not_called_running(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    file, port = tmp_path / "waiting.py", free_port()
    file.write_text(WAITING)
    with (
        started(file, tmp_path, command=True, port=port) as server,
        in_terminal("call", server.url, "wait", *options) as command,
    ):
        wait_until(lambda: "antiphon_tasks_running 1" in _metrics(port))
        server.process.kill()
        server.process.wait()
        with started(file, tmp_path, command=True, port=port):
            code, _ = command.wait()
    assert code == 3
    assert "The server does not know the task" in command.screen
    assert "running" not in command.screen


@pytest.mark.parametrize("options", [("--task",), ("--task", "--stream"), ()], ids=" ".join)
def test_a_task_whose_server_does_not_respond_may_be_running(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    file, port = tmp_path / "waiting.py", free_port()
    file.write_text(WAITING)
    with (
        started(file, tmp_path, command=True, port=port) as server,
        in_terminal("call", server.url, "wait", "--timeout", "5", *options) as command,
    ):
        wait_until(lambda: "antiphon_tasks_running 1" in _metrics(port))
        server.process.kill()
        server.process.wait()
        code, _ = command.wait()
    assert code == 3
    assert "may still be running. To follow it: antiphon tasks watch" in command.screen


def _metrics(port: int) -> str:
    return httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).text
