"""Servers of other frameworks with our tasks in them: real processes, an SQLite file, their own clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mcp
import mcp_types
import pytest
from fastmcp import Client as FastMcpClient
from fastmcp_tasks.client import TasksClientExtension

from antiphon import Client, Elicit, InternalError
from antiphon.client.tasks.handle import TaskHandle
from antiphon.model.task_status import TaskStatus
from tests.support.leases import end_leases
from tests.support.polling import DEADLINE, until
from tests.support.process import ServerProcess, started

SCRIPTS = ("mcp_server.py", "fastmcp_server.py")


class Pair(NamedTuple):
    """Two processes with one store."""

    script: Path
    store: str
    folder: Path
    first: ServerProcess
    second: ServerProcess


@pytest.fixture(scope="module", params=SCRIPTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two instances of a server, without sessions between them."""
    folder = tmp_path_factory.mktemp("pair")
    script, store = Path(__file__).with_name(request.param), f"sqlite:///{folder / 'tasks.db'}"
    with (
        started(script, folder, options=[store]) as first,
        started(script, folder, options=[store]) as second,
    ):
        yield Pair(script, store, folder, first, second)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A file in which tools count their runs."""
    return tmp_path / "log"


async def accept(*args: Any, **kwargs: Any) -> mcp_types.ElicitResult:
    return mcp_types.ElicitResult(action="accept", content={"approved": True})


async def test_the_official_client_drives_a_task_that_asks(pair: Pair, log: Path) -> None:
    extension = TasksClientExtension(accept)
    async with mcp.Client(pair.first.url, extensions=[extension], elicitation_callback=accept) as client:
        assert client.protocol_version == "2026-07-28"
        assert _text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"
        asked = await client.call_tool("approve", {"item": "tea", "log": str(log)})
        assert _text(asked) == "tea: accept, True"
        made = await client.call_tool("import_rows", {"waits": False, "log": str(log)})
        assert made.structured_content == {"rows": 3}


async def test_the_client_of_fastmcp_drives_a_task_that_asks(pair: Pair, log: Path) -> None:
    async with FastMcpClient(pair.first.url, elicitation_handler=accept) as client:
        assert _text(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"
        asked = await client.call_tool("approve", {"item": "tea", "log": str(log)})
        assert _text(asked) == "tea: accept, True"
        made = await client.call_tool("import_rows", {"waits": False, "log": str(log)})
        assert made.structured_content == {"rows": 3}


async def test_a_question_is_answered_at_another_instance(pair: Pair, log: Path) -> None:
    async with Client(pair.first.url) as here, Client(pair.second.url) as there:
        promise = await here.submit("approve", item="tea", log=str(log))
        assert await _waits(there, promise.id) == ["Approve tea?"]
        (key,) = (await there.task(promise.id).status()).questions
        await there.task(promise.id).answer({key: {"approved": False}})
        assert (await here.task(promise.id).result(timeout=DEADLINE)).text == "tea: accept, False"
    assert log.read_text().split() == ["asks", "answered"]


async def test_a_tool_that_returns_its_questions_runs_as_a_task(pair: Pair) -> None:
    async def introduce(question: Any) -> Any:
        return {"name": "Ada"}

    async with Client(pair.first.url, elicit=introduce) as client:
        promise = await client.submit("introduce")
        assert (await promise.result(timeout=DEADLINE)).text == "round 1: Ada"


async def test_progress_is_the_status_of_a_task(pair: Pair, log: Path) -> None:
    async with Client(pair.first.url) as client:
        task = client.task((await client.submit("import_rows", waits=True, log=str(log))).id)
        status = await _status(task, lambda status: status.message is not None)
        assert status.message == "1 of 2: reading"
        await task.cancel()
        assert (await task.status()).status == "cancelled"


async def test_tasks_survive_the_end_of_their_process(pair: Pair, tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("done", "imported", "charged", "reviewed", "approved")}

    def runs(name: str) -> list[str]:
        return logs[name].read_text().split()

    with started(pair.script, pair.folder, options=[pair.store]) as doomed:
        async with Client(doomed.url) as client:

            async def submit(name: str, tool: str, **arguments: Any) -> str:
                return str((await client.submit(tool, log=str(logs[name]), **arguments)).id)

            ids = {
                "done": await submit("done", "charge", waits=False),
                "imported": await submit("imported", "import_rows", waits=True),
                "charged": await submit("charged", "charge", waits=True),
                "reviewed": await submit("reviewed", "review", item="tea"),
                "approved": await submit("approved", "approve", item="tea"),
            }
            await client.task(ids["done"]).result(timeout=DEADLINE)
            assert await _waits(client, ids["reviewed"]) == await _waits(client, ids["approved"])
            await until(lambda: logs["imported"].exists() and logs["charged"].exists())
        doomed.process.kill()
        doomed.process.wait()
    await end_leases(pair.store)
    with started(pair.script, pair.folder, options=[pair.store]) as another:
        async with Client(another.url) as client:
            redeemed = {name: client.task(id) for name, id in ids.items()}
            assert (await redeemed["done"].result(timeout=DEADLINE)).text == "charged"
            # These functions may run again.
            assert (await redeemed["imported"].result(timeout=DEADLINE)).data == {"rows": 3}
            assert runs("imported") == ["begins", "begins"]
            (key,) = (await redeemed["reviewed"].status()).questions
            await redeemed["reviewed"].answer({key: {"approved": True}})
            assert (await redeemed["reviewed"].result(timeout=DEADLINE)).text == "tea: accept, True"
            assert runs("reviewed") == ["asks", "asks", "answered"]
            # And these may not: they are given up once their worker has had time to say that it lives.
            for name in ("charged", "approved"):
                await _status(
                    redeemed[name],
                    lambda status: status.has_ended or "No attempt is left" in str(status.message),
                )
    await end_leases(pair.store)
    with started(pair.script, pair.folder, options=[pair.store]) as last:
        async with Client(last.url) as client:
            for name, line in (("charged", "begins"), ("approved", "asks")):
                with pytest.raises(InternalError, match="worker was lost"):
                    await client.task(ids[name]).result(timeout=DEADLINE)
                assert runs(name) == [line]


def _text(result: Any) -> str:
    return str(result.content[0].text)


async def _status(task: TaskHandle, condition: Callable[[TaskStatus], bool]) -> TaskStatus:
    """Poll a task until its status fulfils a condition, and return the status."""

    async def look() -> TaskStatus | None:
        status = await task.status()
        return status if condition(status) else None

    status = await until(look)
    assert status is not None
    return status


async def _waits(client: Client, id: str) -> list[str]:
    """Wait until a task asks, and return its questions."""
    status = await _status(client.task(id), lambda status: bool(status.questions))
    return [question.message for question in status.questions.values() if isinstance(question, Elicit)]
