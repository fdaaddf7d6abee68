"""A value that cannot be written as JSON is one clear failure of its call, and is not run for ever."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Context, Failure, Result, Server
from antiphon.errors import RequestError
from antiphon.store.contract import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.sqlite import SQLiteStore
from tests.hostile.unwritable import LONE, UNWRITABLE, WRITABLE, build
from tests.support.memory import in_memory
from tests.support.serving import serving
from tests.support.speakers import Modern

RESULTS = ("returned", "declared", "given", "emitted", "yielded", "block", "artifact", "stepped")
"""Tools that fail because of the value."""
QUESTIONS = ("asked", "asked_schema", "sampled", "returned_question")
"""Tools that fail because of the value, before anybody is asked."""
MESSAGES = ("progress", "logged")
"""Tools that succeed: a message to people fails no call."""
ERRORS = ("failure", "refusal")
"""Tools that fail by themselves, with an error that contains the value."""
REPLACED = {
    ("declared", "key"),
    ("sampled", "bytes"),
    ("returned_question", "bytes"),
    ("returned_question", "bytes_key"),
}
"""Where the value has a form after all: pydantic replaces the key, and bytes are written in base64."""


async def decline(question: Any) -> dict[str, str]:
    return {"action": "decline"}


@pytest.fixture(params=["http", "memory"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client of the server, whose tools are no tasks."""
    server, _ = build()
    async with AsyncExitStack() as stack:
        target: Any = server
        if request.param == "http":
            target = (await stack.enter_async_context(serving(server))).url
        yield await stack.enter_async_context(connected(target))


def connected(target: Any) -> Client:
    """Return a client that answers everything, and wants all messages."""

    async def ignore(*_: Any) -> None: ...

    return Client(
        target,
        timeout=60,
        log_level="debug",
        on_log=ignore,
        on_progress=ignore,
        elicit=decline,
        sample=lambda question: "sampled",
    )


async def said(client: Client, tool: str, kind: str) -> tuple[bool, str]:
    """Call a tool; return whether it failed, and what it said."""
    try:
        result = await client.call(tool, kind=kind, check=False)
    except (RequestError, Failure) as error:
        return True, str(error)
    return result.is_error, result.text


async def check(client: Client, runs: Any = None) -> None:
    """Call every tool with every value."""
    for tool in (*RESULTS, *QUESTIONS, *ERRORS, *MESSAGES):
        for kind in UNWRITABLE:
            if (tool, kind) in REPLACED:
                continue
            if runs is not None:
                runs.clear()
            failed, text = await said(client, tool, kind)
            assert failed is (tool not in MESSAGES), (tool, kind, text)
            if tool in ERRORS:
                assert "a lone ?, as os.listdir gives" in text, (tool, kind, text)
            elif failed:
                assert "log" in text, (tool, kind, text)
                assert "Traceback" not in text
            if runs is not None:
                assert runs[tool] == 1, (tool, kind, text)
        assert (await client.call("healthy")).text == "fine"


async def test_each_value_that_json_cannot_hold_is_one_failure_of_its_call(client: Client) -> None:
    await check(client)


async def test_each_unusual_value_that_json_can_hold_arrives(client: Client) -> None:
    for tool in ("returned", "declared", "given"):
        for kind, (_, expected) in WRITABLE.items():
            if (tool, kind) == ("declared", "tuple_key"):
                continue
            assert (await client.call(tool, kind=kind)).data == expected, (tool, kind)
    for kind in WRITABLE:
        for tool in (*MESSAGES, "stepped", "emitted", "yielded"):
            assert not (await said(client, tool, kind))[0], (tool, kind)


async def test_what_a_prompt_a_resource_and_a_completion_cannot_write_is_an_error(client: Client) -> None:
    for kind in UNWRITABLE:
        for request in (
            client.prompt("prompt", {"kind": kind}),
            client.read(f"u://text/{kind}"),
            client.complete("prompt", "kind", kind),
        ):
            with pytest.raises(RequestError, match="Its log says why"):
                await request
        with pytest.raises(RequestError, match="log"):
            await client.read(f"u://data/{kind}")
    assert (await client.call("healthy")).text == "fine"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each kind of store."""
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("database").url())
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "store.db")


async def test_each_value_that_json_cannot_hold_fails_its_task_once(store: Store) -> None:
    server, runs = build(store, task="required")
    async with connected(server) as client:
        await check(client, runs)


async def test_each_unusual_value_passes_through_every_store(store: Store) -> None:
    server, _ = build(store, task="required")
    async with connected(server) as client:
        for kind, (_, expected) in WRITABLE.items():
            assert (await client.call("returned", kind=kind)).data == expected, kind
            assert not (await said(client, "stepped", kind))[0], kind


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_a_declared_number_that_is_not_finite_is_a_mistake_of_the_tool(number: float) -> None:
    server = Server("tests")

    @server.tool
    async def single() -> float:
        return number

    @server.tool
    async def listed() -> list[float]:
        return [1.0, number]

    @server.tool
    async def built() -> Result[list[float]]:
        return Result(data=[number])

    @server.tool
    async def optional() -> list[float | None]:
        return [1.0, number]

    async with in_memory(server) as client:
        for tool in ("single", "listed", "built"):
            failed = await client.call(tool)
            assert failed["isError"], tool
            assert "does not match its declared output" in failed["content"][0]["text"]
        assert (await client.call("optional"))["structuredContent"] == {"result": [1.0, None]}


async def test_a_step_that_returns_nan_is_a_mistake_unless_it_declares_none() -> None:
    server = Server("tests")

    async def measured() -> float:
        return float("nan")

    async def maybe() -> float | None:
        return float("nan")

    @server.tool
    async def fails(ctx: Context) -> str:
        return str(await ctx.step(measured))

    @server.tool
    async def works(ctx: Context) -> str:
        return str(await ctx.step(maybe))

    async with in_memory(server) as client:
        assert (await client.call("fails"))["isError"]
        assert await client.text("works") == "None"


async def test_progress_that_is_not_finite_is_not_sent() -> None:
    server = Server("tests")

    @server.tool
    async def report(ctx: Context) -> str:
        for value in (float("nan"), 1, float("inf"), 2):
            await ctx.progress(value, total=float("inf"), message=LONE)
        return "done"

    async with serving(server) as where:
        params = {"name": "report", "arguments": {}, "_meta": {"progressToken": "t"}}
        frames = (await Modern(where.port).ask("tools/call", params)).frames
    sent = [frame["params"] for frame in frames if frame.get("method") == "notifications/progress"]
    assert [each["progress"] for each in sent] == [1, 2]
    assert all("total" not in each and "a lone ?" in each["message"] for each in sent)


async def test_the_data_of_an_error_that_came_before_the_call_is_left_out_if_it_is_not_json() -> None:
    from antiphon import Forbidden

    def refuse(headers: Any) -> Any:
        raise Forbidden(LONE, data={"odd": object()})

    async with serving(Server("tests", authenticate=refuse)) as where:
        response = await Modern(where.port).call("any")
    assert (response.status, json.loads(response.body)["error"]["message"]) == (
        403,
        LONE.replace("\udcff", "?"),
    )
