"""The limit of the bytes that tasks have in the store, in all and of one caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from antiphon import Context, Limits, Principal, Server
from antiphon.runtime.tasks.pruning import prune
from antiphon.runtime.tasks.run_again import run_again
from antiphon.store.contract import Store, TaskFilter
from tests.promises.speaking import Patient, begin, look, reach
from tests.promises.tooling import DIALECTS, speaker, store_of
from tests.support import http
from tests.support.http import Response
from tests.support.polling import turns, until
from tests.support.serving import serving
from tests.support.speakers import Bare, Modern, Speaker

ALL = 40_000
TEXT = "x" * 8_000
"""Two of these are within the half of a principal, and three are not."""


class Note(BaseModel):
    text: str


def named(headers: Mapping[str, str]) -> Principal:
    """Trust the name in the header."""
    return Principal(headers.get("x-who", "anyone"))


@asynccontextmanager
async def keeping(
    kind: str,
    folder: Path,
    *,
    has_strangers: bool = False,
    most: int = ALL,
    add: Callable[[Server], None] = lambda server: None,
    **limits: Any,
) -> AsyncIterator[tuple[Store, int]]:
    """Serve tools that keep their argument in a task, and yield the store and the port."""
    store = store_of(kind, folder)
    server = Server(
        "keeper",
        store=store,
        authenticate=None if has_strangers else named,
        limits=Limits(max_stored_task_bytes=most, drain_timeout=0.2, **limits),
    )

    @server.tool(task="optional", poll_interval=0.05)
    async def keep(text: str, ctx: Context) -> str:
        """Waits for an answer, and asks again until it is empty."""
        while answer := (await ctx.elicit("More?", Note, key="more")).text:
            del answer
        return "kept"

    @server.tool(poll_interval=0.05)
    async def promised(text: str, ctx: Context) -> str:
        """Becomes a task while it runs."""
        await ctx.promise()
        return f"had {len(text)}"

    @server.tool(answer_within=0.0, poll_interval=0.05)
    async def slow(text: str) -> str:
        """Becomes a task if it is not done at once."""
        await turns(100)
        return f"had {len(text)}"

    add(server)
    async with serving(server) as address:
        yield store, address.port


def client(port: int, who: str, **options: Any) -> Bare:
    return Bare(port, headers={"x-who": who}, **options)


async def make(speaker: Speaker, tool: str = "keep", text: str = TEXT) -> Response:
    params: dict[str, Any] = {"name": tool, "arguments": {"text": text}}
    return await speaker.ask("tools/call", params if isinstance(speaker, Modern) else {**params, "task": {}})


async def fill(speaker: Speaker, text: str = TEXT) -> list[str]:
    """Make tasks that wait until one is refused, and return their ids."""
    ids: list[str] = []
    while "error" not in (response := await make(speaker, text=text)).frame:
        task = response.result.get("task", response.result)
        ids.append(task["taskId"])
        assert len(ids) < 30, "nothing is refused"
        await reach(speaker, ids[-1], "input_required")
    return ids


def is_refused(response: Response) -> str:
    """Check that there is no space, and return the reason."""
    assert (response.status, response.error["code"]) == (503, -32603)
    assert int(response.headers["retry-after"]) >= 10
    return str(response.error["message"])


async def respond(speaker: Bare, id: str, text: str) -> Response:
    """Answer the question that a task asks now."""
    asked = (await speaker.ask("tasks/result", {"taskId": id})).result["inputRequests"]
    response = {"action": "accept", "content": {"text": text}}
    responses = dict.fromkeys(asked, response)
    return await speaker.ask("tasks/input_response", {"taskId": id, "inputResponses": responses})


async def forget(store: Store, ids: list[str]) -> None:
    """Delete tasks once they have ended, as an operator can."""

    async def are_gone() -> bool:
        await prune(store, TaskFilter(), ended_before=int(time.time() * 1000))
        return not any([await store.get(id) for id in ids])

    await until(are_gone)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_principal_stores_its_share_and_others_the_rest(
    kind: str, tmp_path: Path, dialect: str
) -> None:
    async with keeping(kind, tmp_path) as (store, port):
        ada = await speaker(dialect, port, headers={"x-who": "ada"})
        bob = client(port, "bob")
        ids = await fill(ada)
        assert len(ids) == 2
        before = await store.count("waiting")
        message = is_refused(await make(ada))
        assert message.startswith("Your tasks take 1")
        assert "of at most 20000 bytes in this server's store, and this needs 8" in message
        assert "let those that wait end, or cancel them, and try again when some have expired" in message
        assert await store.count("waiting") == before, "nothing was stored"
        await make(ada, text="small")
        assert len(await fill(bob)) == 2
        assert await store.stored_bytes("ada") <= ALL // 2
        for id in ids:
            await ada.ask("tasks/cancel", {"taskId": id})
        is_refused(await make(ada))
        await forget(store, ids)
        assert "result" in (await make(ada)).frame


async def test_all_callers_together_store_the_limit(kind: str, tmp_path: Path) -> None:
    async with keeping(kind, tmp_path) as (store, port):
        for name in "abc":
            await fill(client(port, name), text="x" * 4_000)
        message = is_refused(await make(client(port, "dora")))
        assert message.startswith("The tasks of this server take 3")
        assert "of at most 40000 bytes" in message
        assert "The operator can raise `Limits.max_stored_task_bytes`." in message
        assert await store.stored_bytes() <= ALL


async def test_callers_without_a_principal_share_by_their_address(kind: str, tmp_path: Path) -> None:
    async with keeping(kind, tmp_path, has_strangers=True) as (store, port):
        near, far = Bare(port), Bare(port, source=http.OTHER_LOOPBACK)
        ids = await fill(near)
        assert len(ids) == 2
        assert "Your tasks take 1" in is_refused(await make(Bare(port)))
        theirs = await fill(far)
        assert len(theirs) == 2
        assert (await look(near, theirs[0]))["status"] == "input_required", "the id is the key, as ever"
        sizes = [await store.stored_bytes(share) for share in (http.LOOPBACK, http.OTHER_LOOPBACK, "")]
        assert sizes[2] == sizes[0] + sizes[1]


async def test_callers_without_a_principal_wait_and_queue_by_their_address(kind: str, tmp_path: Path) -> None:
    async with keeping(kind, tmp_path, has_strangers=True, most=10**9, max_waiting_tasks=4) as (_, port):
        near, far = Bare(port), Bare(port, source=http.OTHER_LOOPBACK)
        assert len(await fill(near)) == 2
        message = is_refused(await make(Bare(port)))
        assert "You have 2 of at most 2 tasks that wait for an answer" in message
        assert len(await fill(far)) == 2


async def test_a_call_that_cannot_become_a_task_goes_on_as_an_answer(kind: str, tmp_path: Path) -> None:
    async with keeping(kind, tmp_path) as (_, port):
        ada = Patient(port, headers={"x-who": "ada"})
        await fill(ada)
        for tool in ("promised", "slow"):
            response = await ada.call(tool, text=TEXT)
            assert response.text == "had 8000", tool


async def test_an_answer_may_exceed_the_limit_a_little_and_a_task_can_always_be_cancelled(
    kind: str, tmp_path: Path
) -> None:
    async with keeping(kind, tmp_path) as (store, port):
        ada = client(port, "ada")
        first, second = await fill(ada)
        assert "result" in (await respond(ada, first, "x" * 4_000)).frame
        await reach(ada, first, "input_required")
        message = is_refused(await respond(ada, first, TEXT))
        assert "Your tasks take 2" in message
        assert "and this needs 8" in message
        assert await store.stored_bytes("ada") < ALL // 2 * 1.25
        assert "result" in (await ada.ask("tasks/cancel", {"taskId": second})).frame
        await reach(ada, second, "cancelled")
        await forget(store, [second])
        assert "result" in (await respond(ada, first, "")).frame
        await reach(ada, first, "completed")


async def test_a_task_that_runs_again_counts_for_its_caller(kind: str, tmp_path: Path) -> None:
    async with keeping(kind, tmp_path, has_strangers=True) as (store, port):
        near = Bare(port)
        id = (await begin(near, "keep", text=TEXT))["taskId"]
        await reach(near, id, "input_required")
        record = await store.get(id)
        assert record is not None
        before = await store.stored_bytes(http.LOOPBACK)
        again = await run_again(store, record)
        await reach(near, again.id, "input_required")
        assert await store.stored_bytes(http.LOOPBACK) >= before + len(TEXT)


async def test_a_worker_keeps_the_address_of_a_task_that_another_process_accepted(
    kind: str, tmp_path: Path
) -> None:
    async with keeping(kind, tmp_path, has_strangers=True) as (store, port):
        id = (await begin(Bare(port), "keep", text=TEXT))["taskId"]
        await reach(Bare(port), id, "input_required")
        record = await store.get(id)
        assert record is not None
        assert (record.principal, record.sharer) == ("", http.LOOPBACK)
        await respond(Bare(port), id, "go on")
        await reach(Bare(port), id, "input_required")
        record = await store.get(id)
        assert record is not None
        assert record.sharer == http.LOOPBACK


async def test_tasks_of_a_caller_without_space_wait_until_there_is_some(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.runtime.tasks.worker.NO_SPACE_DELAY_SECONDS", 0.1)
    monkeypatch.setattr("antiphon.runtime.tasks.admission.COUNT_BYTES_SECONDS", 0.0)
    gates, ran = {"first": asyncio.Event(), "end": asyncio.Event()}, list[str]()

    def add_to(server: Server) -> None:
        @server.tool(task="optional", poll_interval=0.05)
        async def grow(text: str, ctx: Context) -> str:
            """Emits much, and waits in the first task."""
            ran.append(text)
            if text == "first":
                await gates["first"].wait()
            await ctx.emit("x" * 30_000)
            if text == "first":
                await gates["end"].wait()
            return text

    async with keeping(kind, tmp_path, add=add_to, max_running_tasks=1) as (store, port):
        ada, bob = client(port, "ada"), client(port, "bob")
        ids = [(await begin(ada, "grow", text=text))["taskId"] for text in ("first", "second", "third")]
        gates["first"].set()

        async def is_written() -> bool:
            return await store.stored_bytes("ada") >= 30_000

        await until(is_written)
        gates["end"].set()
        await reach(ada, ids[0], "completed")
        await reach(bob, (await begin(bob, "grow", text="bob"))["taskId"], "completed")
        assert ran == ["first", "bob"]
        await ada.ask("tasks/cancel", {"taskId": ids[1]})
        await reach(ada, ids[1], "cancelled")
        await forget(store, [ids[0]])
        await reach(ada, ids[2], "completed")
        assert ran[-1] == "third"
