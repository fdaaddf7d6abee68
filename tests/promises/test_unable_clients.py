"""Tasks of clients that cannot be asked: the task waits, and another client answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Context, InputRequired, Server
from antiphon.model.question import Elicit
from tests.promises.speaking import TASKS, Patient, answer, begin, look, reach
from tests.promises.tooling import Name, Workshop, store_of
from tests.support.polling import until
from tests.support.serving import serving
from tests.support.speakers import Session


class Unable(Patient):
    """A client of 2026-07-28 that accepts tasks and cannot answer any question."""

    capabilities = {"extensions": {TASKS: {}}}


async def answer_all(client: Patient, id: str) -> None:
    """Answer the questions of the tool `ask`."""
    await answer(client, id, first="a", second="b")

    async def is_asked_again() -> bool:
        return "third" in (await look(client, id)).get("inputRequests", {})

    await until(is_asked_again)
    await answer(client, id, third="c")


async def test_a_task_of_a_client_that_cannot_be_asked_waits_for_another_client(
    port: int, workshop: Workshop
) -> None:
    unable, able = Unable(port), Patient(port)
    id = (await begin(unable, "ask"))["taskId"]
    await reach(unable, id, "input_required", "failed")
    assert set((await look(able, id))["inputRequests"]) == {"first", "second"}
    await answer_all(able, id)
    task = await reach(unable, id, "completed")
    assert task["result"]["content"][0]["text"] == "a b c"
    assert workshop.ran == {"began": 1, "went on": 1}


async def test_a_function_that_returns_its_questions_waits_too(tmp_path: Path) -> None:
    server = Server("unable", store=store_of("sqlite", tmp_path))
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    @server.tool(task="required", poll_interval=0.05)
    async def explicit(ctx: Context) -> Any:
        if "who" in ctx.input_responses:
            return ctx.input_responses["who"]["content"]["name"]
        return InputRequired({"who": Elicit("Who?", schema)})

    async with serving(server) as address:
        unable, able = Unable(address.port), Patient(address.port)
        id = (await begin(unable, "explicit"))["taskId"]
        await reach(able, id, "input_required", "failed")
        await answer(able, id, who="Ada")
        assert (await reach(unable, id, "completed"))["result"]["content"][0]["text"] == "Ada"


async def test_a_session_that_cannot_be_asked_waits_for_the_result_of_its_task(port: int) -> None:
    """The server sends no question to a client that did not declare that it can answer."""
    session = Session(port)
    await session.open(capabilities={})
    id = (await begin(session, "ask"))["taskId"]
    await reach(session, id, "input_required", "failed")
    async with session.asking("tasks/result", {"taskId": id}, id="redeem") as connection:
        await answer_all(Patient(port), id)
        await connection.receive_head()
        frames = [event.frame async for event in connection.events() if event.data]
    assert [frame["method"] for frame in frames if frame.get("method") == "elicitation/create"] == []
    assert frames[-1]["result"]["content"][0]["text"] == "a b c"


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
async def test_a_client_without_callbacks_gets_the_result_once_another_client_has_answered(
    tmp_path: Path, protocol: str
) -> None:
    server = Server("unable", store=store_of("sqlite", tmp_path))

    @server.tool(task="required", poll_interval=0.05)
    async def greet(ctx: Context) -> str:
        return f"Hello, {(await ctx.elicit('Who?', Name, key='who')).name}!"

    async with serving(server) as address, Client(address.url, protocol=protocol, timeout=60) as unable:
        task = await unable.submit("greet")
        async with Client(address.url, elicit=lambda _: {"name": "Ada"}, timeout=60) as able:
            assert task.id is not None
            answered = await able.task(task.id).result(timeout=60)
        assert answered.text == (await task.result(timeout=60)).text == "Hello, Ada!"
