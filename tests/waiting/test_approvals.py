"""`examples/approvals.py`: time is made to pass on every store, and three people use it over HTTP."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from antiphon import Client, Server
from antiphon.client import InboxItem
from antiphon.client.tasks.handle import TaskHandle
from antiphon.store.contract import Store
from tests.support.polling import until
from tests.support.process import ROOT
from tests.support.serving import serving
from tests.waiting.support import Clock, status_of

PATH = ROOT / "examples" / "approvals.py"
SUBMITTED = {"amount": 1240, "purpose": "laptop"}


def example() -> ModuleType:
    """Load the example again, so that each test has a server of its own."""
    spec = importlib.util.spec_from_file_location("approvals", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(store: Store) -> Server:
    found: Server = example().server
    found.configure(store=store)
    return found


@asynccontextmanager
async def people(server: Server) -> AsyncIterator[list[Client]]:
    """Ada, Bob and Eve, over HTTP."""
    async with serving(server) as address, AsyncExitStack() as stack:
        tokens = [f"{name}-token" for name in ("ada", "bob", "eve")]
        yield [await stack.enter_async_context(Client(address.url, auth=token)) for token in tokens]


async def question(client: Client, **expected: Any) -> InboxItem:
    """Wait until somebody has one question, with these attributes."""
    found: list[InboxItem] = []

    async def is_there() -> bool:
        found[:] = await client.inbox()
        return len(found) == 1 and all(getattr(found[0], name) == expected[name] for name in expected)

    await until(is_there)
    return found[0]


async def result(handle: TaskHandle) -> str:
    return (await handle.result(timeout=60)).text


async def test_a_small_expense_needs_nobody(server: Server) -> None:
    async with people(server) as (ada, bob, _):
        assert await result(await ada.submit("expense", amount=1000, purpose="chair")) == (
            "Paid 1,000.00 € for a chair."
        )
        assert await bob.inbox() == []


async def test_two_managers_approve(server: Server) -> None:
    async with people(server) as (ada, bob, eve):
        handle = await ada.submit("expense", SUBMITTED)
        message = "ada asks for 1,240.00 € for a laptop. Do you approve?"
        assert (await question(bob)).message == message
        assert await status_of(handle, "Waiting") == "Waiting for 2 answers from manager, 0 given."
        assert await ada.inbox() == []
        await (await question(bob)).answer({"comment": "At last."})
        await (await question(eve, answered=1)).answer({})
        text = "Paid 1,240.00 € for a laptop. Approved by bob and eve. At last."
        assert await result(handle) == text


async def test_a_manager_cannot_approve_an_expense_of_their_own(server: Server) -> None:
    async with people(server) as (_, bob, eve):
        handle = await bob.submit("expense", SUBMITTED)
        await (await question(eve)).answer({})
        await status_of(handle, "1 given")
        assert await bob.inbox() == []
        await handle.cancel()


async def test_one_manager_rejects(server: Server) -> None:
    async with people(server) as (ada, bob, eve):
        handle = await ada.submit("expense", SUBMITTED)
        await (await question(bob)).answer({})
        await (await question(eve, answered=1)).decline()
        assert await result(handle) == "Rejected by eve."


async def test_managers_are_reminded_and_the_expense_is_withdrawn(server: Server, clock: Clock) -> None:
    async with people(server) as (ada, bob, _):
        handle = await ada.submit("expense", SUBMITTED)
        await question(bob, reminded=0)
        for day in (1, 2):
            clock.forward(days=1)
            await question(bob, reminded=day)
        clock.forward(days=1)
        assert await result(handle) == "Withdrawn: the managers have not answered within three days."
        assert await bob.inbox() == []


async def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    id = None
    for answering in ("bob", "eve"):
        server: Server = example().server
        server.configure(store=url)
        async with people(server) as (ada, bob, eve):
            if id is None:
                id = (await ada.submit("expense", SUBMITTED)).id
            assert id is not None
            await (await question({"bob": bob, "eve": eve}[answering])).answer({})
            if answering == "eve":
                assert await result(ada.task(id)) == "Paid 1,240.00 € for a laptop. Approved by bob and eve."


def test_it_is_short() -> None:
    assert len(PATH.read_text().splitlines()) < 60
