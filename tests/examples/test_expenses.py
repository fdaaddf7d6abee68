"""`examples/expenses.py`, as a process: three people use it over HTTP, and it is killed during an import."""

from __future__ import annotations

import ast
import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import fastmcp
import mcp_types
import pytest
from fastmcp.exceptions import ToolError

from antiphon import AntiphonError, Client, Unauthorized
from antiphon.client import InboxItem
from tests.cli.command import PATIENCE, Running, running
from tests.examples.people import LAPTOP, TRAIN, booked, many_rows, november, people
from tests.support.fork_server import PythonProcess
from tests.support.leases import end_leases
from tests.support.polling import until
from tests.support.process import ROOT, started
from tests.waiting.support import status_of

EXPENSES = ROOT / "examples" / "expenses.py"
FASTMCP = ROOT / "tests" / "examples" / "expenses_fastmcp.py"
KILLED = ROOT / "tests" / "examples" / "killed.py"
ROWS = 1000
LUNCHES = sorted(f"lunch {row}" for row in range(ROWS))
"""The purposes of all imported expenses."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("expenses")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    """`antiphon run examples/expenses.py`."""
    with running(EXPENSES, directory=folder, cwd=folder) as server:
        yield server


async def question(manager: Client) -> InboxItem:
    """Wait until a manager has one question, and return it."""
    async with asyncio.timeout(PATIENCE), manager.listen_inbox() as changes:
        async for change in changes:
            if change.kind == "asked":
                return change.item
    raise AssertionError("the inbox closed")


async def killed(process: PythonProcess, folder: Path) -> None:
    """Let a process of `killed.py` kill itself."""
    (folder / "kill").touch()
    assert await asyncio.to_thread(process.wait, PATIENCE) == -9
    (folder / "kill").unlink()
    if (folder / "tasks.db").exists():
        await end_leases(f"sqlite:///{folder}/tasks.db")


async def test_a_manager_approves(service: Running, folder: Path) -> None:
    async with people(service.url) as (ada, bob, eve):
        task = await ada.submit("submit", LAPTOP)
        asked = await question(eve)
        assert asked.message == "ada asks for 1,240.00 € for laptop. Why do you approve?"
        assert await ada.inbox() == await bob.inbox() == []
        await asked.answer("The old one is broken.")
        assert (await task.result(timeout=PATIENCE)).text == "Booked 1,240.00 € for laptop."
        (table,) = (await ada.read("expenses://2026-12")).contents
        assert "ada,2026-12-01,office,1240.0,laptop,eve: The old one is broken." in table.text.splitlines()


async def test_a_manager_rejects(service: Running, folder: Path) -> None:
    async with people(service.url) as (_, bob, eve):
        task = await bob.submit("submit", {**LAPTOP, "day": "2027-01-01"})
        await (await question(eve)).decline()
        assert (await task.result(timeout=PATIENCE)).text == "eve has rejected 1,240.00 € for laptop."
    assert booked(folder, "2027-01") == []


async def test_a_manager_cannot_approve_an_expense_of_their_own(service: Running) -> None:
    async with people(service.url) as (_, _, eve):
        task = await eve.submit("submit", LAPTOP)
        await status_of(task, "Waiting for an answer from manager.")
        assert await eve.inbox() == []
        await task.cancel()


async def test_an_import_survives_two_kills(tmp_path: Path) -> None:
    with running(KILLED, directory=tmp_path, cwd=tmp_path, env={"BOOKINGS": "3"}) as server:
        async with Client(server.url, auth="ada-token") as ada:
            task = await ada.submit("import_csv", table=many_rows(ROWS))
            assert await status_of(task, "100 of") == "100 of 1000"
            await killed(server.process, tmp_path)
    assert len(booked(tmp_path, "2026-10")) == 3 * 50
    with running(KILLED, directory=tmp_path, cwd=tmp_path, env={"BOOKINGS": "4"}) as server:
        await killed(server.process, tmp_path)
    assert len(booked(tmp_path, "2026-10")) == 6 * 50  # the third booking was made again, without effect
    with running(EXPENSES, directory=tmp_path, cwd=tmp_path) as server:
        async with Client(server.url, auth="ada-token") as ada:
            assert task.id is not None
            result = await ada.task(task.id).result(timeout=PATIENCE)
    assert result.text == f"Imported {ROWS} expenses."
    assert booked(tmp_path, "2026-10") == LUNCHES


async def test_fastmcp_does_the_same_with_more_tools(service: Running, tmp_path: Path) -> None:
    """Where FastMCP cannot ask somebody else, or continue a task, tools of the service do it by hand."""
    folder = [str(tmp_path)]
    with started(KILLED, tmp_path, env={"BOOKINGS": "3"}, options=folder) as server:
        async with Client(server.url, auth="ada-token") as ada:
            await ada.call("import_csv", table=many_rows(ROWS))
            await killed(server.process, tmp_path)
    assert len(booked(tmp_path, "2026-10")) == 2 * 50  # the third transaction was not committed
    with started(KILLED, tmp_path, options=folder) as server:
        await until(lambda: booked(tmp_path, "2026-10") == LUNCHES, PATIENCE)
        async with people(server.url) as (ada, bob, eve):
            assert (await ada.call("import_progress", number=1)).text == f"Imported {ROWS} expenses."
            for person, approves, outcome in (
                (ada, True, "Booked 1,240.00 € for laptop."),
                (bob, False, "eve has rejected 1,240.00 € for laptop."),
            ):
                number = int((await person.call("submit", LAPTOP)).text.rstrip(".").rpartition(" ")[2])
                assert list((await eve.call("questions")).data) == [str(number)]
                assert "questions" not in [tool.name for tool in await person.tools()]
                await eve.call("answer", number=number, approve=approves, reason="Well.")
                assert (await person.call("outcome", number=number)).text == outcome
            assert booked(tmp_path, "2026-12") == ["laptop"]
            theirs = await november(ada, bob, eve)
    async with people(service.url) as (ada, bob, eve):
        ours = await november(ada, bob, eve)
    assert ours == theirs
    totals = [each for each in ours if isinstance(each, str) and each.startswith("2026-11: ")]
    assert totals == ["2026-11: 40.00 €", "2026-11: 60.50 €", "2026-11: 100.50 €"]
    pictures = [each[:2] for each in ours if isinstance(each, tuple) and each[0] == "PNG"]
    assert pictures == [("PNG", (400, 30)), ("PNG", (400, 30)), ("PNG", (400, 60))]


async def test_the_client_of_fastmcp_sees_the_same(service: Running) -> None:
    async with fastmcp.Client(service.url, auth="bob-token") as bob:
        submitted = await bob.call_tool("submit", {**TRAIN, "day": "2026-09-01"})
        assert submitted.content[0].text == "Booked 60.50 € for train."
        report = await bob.call_tool("report", {"month": "2026-09"})
        text, image, link = report.content
        assert text.text == "2026-09: 60.50 €"
        assert base64.b64decode(image.data).startswith(b"\x89PNG\r\n\x1a\n")
        (table,) = await bob.read_resource("expenses://2026-09")
        assert table.text.splitlines()[1:] == ["bob,2026-09-01,travel,60.5,train,"]
        (downloaded,) = await bob.read_resource(link.uri)
        assert downloaded.text == table.text
        (message,) = (await bob.get_prompt("review", {"month": "2026-09"})).messages
        assert message.content.text.endswith(table.text)
        reference = mcp_types.PromptReference(name="review")
        assert (await bob.complete(reference, {"name": "month", "value": "2026-0"})).values == ["2026-09"]
        with pytest.raises(ToolError, match="There are no expenses in 2025-01."):
            await bob.call_tool("report", {"month": "2025-01"})
    async with fastmcp.Client(service.url, auth="ada-token") as ada:
        with pytest.raises(ToolError, match="There are no expenses in 2026-09."):
            await ada.call_tool("report", {"month": "2026-09"})


async def test_an_amount_is_finite(service: Running) -> None:
    async with people(service.url) as (ada, _, eve):
        with pytest.raises(AntiphonError, match="finite"):
            await ada.call("submit", {**LAPTOP, "amount": "inf"}, timeout=PATIENCE)
        assert await eve.inbox() == []


async def test_nobody_without_a_token_sees_anything(service: Running) -> None:
    with pytest.raises(Unauthorized):
        async with Client(service.url, auth="no-token") as client:
            await client.read("expenses://2026-09")


def lines(path: Path) -> int:
    """Count the lines of a program, without its first docstring, comments and empty lines."""
    text = path.read_text()
    rest = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    return len([line for line in rest if line.strip() and not line.strip().startswith("#")])


def test_it_takes_fewer_lines_than_with_fastmcp() -> None:
    ours, theirs = lines(EXPENSES), lines(FASTMCP)
    assert 3 * ours < 2 * theirs
    page = (ROOT / "docs" / "howto" / "moving.md").read_text(encoding="utf-8")
    assert f"| {ours} | {theirs} |" in page
