"""The inbox on the wire and in the client: `dev.antiphon/inbox`, over HTTP, in memory and over pipes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon import BearerTokens, Client, Context, InvalidParams, MethodNotFound, Principal, Server
from antiphon.errors import BadAnswer
from antiphon.middleware import AuditLog
from antiphon.wire.client import inbox
from tests.support.serving import serving
from tests.support.speakers import Modern
from tests.waiting.people import PEOPLE, VERSIONS, WAYS, asked, expenses, people
from tests.waiting.support import client_of, status_of


@VERSIONS
@WAYS
async def test_somebody_else_answers(version: str, *, http: bool) -> None:
    server = expenses()
    async with people(server, "a-token", "b-token", "m-token", version=version, http=http) as clients:
        ada, bob, max = clients
        assert bob.offers.inbox
        handle = await ada.submit("expense", amount=1240)
        (item,) = await asked(bob)
        assert (item.task_id, item.key, item.tool, item.owner) == (handle.id, "approve", "expense", "ada")
        assert (item.message, item.to, item.deadline) == ("Approve 1240 €?", ("finance",), None)
        assert item.asked_at is not None
        assert await ada.inbox() == await max.inbox() == []
        await item.answer(True)
        assert (await handle.result(timeout=60)).text == "True by bob"
        assert await bob.inbox() == []


@VERSIONS
async def test_an_answer_may_be_repeated_and_not_changed(version: str) -> None:
    server = expenses(approvals=2)
    async with people(server, "a-token", "b-token", "e-token", version=version) as (ada, bob, eve):
        handle = await ada.submit("expense", amount=5)
        (item,) = await asked(bob)
        for _ in range(2):
            await item.answer(True)
        with pytest.raises(InvalidParams, match="Task not found"):
            await item.answer(False)
        with pytest.raises(InvalidParams, match="Task not found"):
            await item.decline()
        (other,) = await asked(eve)
        assert (other.approvals, other.answered) == (2, 1)
        await other.answer({"value": True})
        assert (await handle.result(timeout=60)).text == "[True, True] by bob, eve"
        await other.answer(True)
        await item.answer(True)


async def test_one_who_may_not_answer_gets_the_error_of_a_task_that_does_not_exist() -> None:
    server = expenses()
    async with serving(server) as address, asyncio.timeout(60):
        async with Client(address.url, auth="a-token") as ada, Client(address.url, auth="b-token") as bob:
            handle = await ada.submit("expense", amount=5)
            await asked(bob)
        refusals = [
            await _answer(address.port, token, id, key)
            for token, id, key in [
                ("m-token", handle.id, "approve"),
                ("m-token", "expense_none", "approve"),
                ("a-token", handle.id, "approve"),
                ("b-token", handle.id, "other"),
            ]
        ]
        assert all(refusal == refusals[0] for refusal in refusals)
        assert refusals[0] == (200, {"code": -32602, "message": "Failed to retrieve task: Task not found"})


async def _answer(port: int, token: str, task_id: str | None, key: str) -> Any:
    params = {"taskId": task_id, "key": key, "response": {"action": "accept", "content": {"value": True}}}
    speaker = Modern(port, headers={"authorization": f"Bearer {token}"})
    response = await speaker.ask("dev.antiphon/inbox/answer", params)
    return response.status, response.error


async def test_an_anonymous_caller_has_an_empty_inbox() -> None:
    server = Server("shop", store="memory:")

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context) -> bool:
        return await ctx.elicit("Approve?", bool, to=["finance", Principal("bob")])

    async with serving(server) as address, Client(address.url) as client, asyncio.timeout(60):
        handle = await client.submit("expense")
        assert await status_of(handle, "finance") == "Waiting for an answer from finance, bob."
        assert not client.offers.inbox
        assert await client.inbox() == []
        async with Modern(address.port).asking("dev.antiphon/inbox/listen") as connection:
            await connection.receive_head()
            news = (event.frame["params"]["kind"] async for event in connection.events() if event.data)
            assert await anext(news) == "current"  # and it was told of no question before


async def test_only_servers_with_tasks_have_an_inbox() -> None:
    server = Server("plain")
    server.add_tool(_plain)
    async with client_of(server) as client:
        assert not client.offers.inbox
        with pytest.raises(MethodNotFound):
            await client.inbox()
        with pytest.raises(MethodNotFound):
            async with client.listen_inbox():
                pass
    async with Client(expenses(), principal=PEOPLE["b-token"], protocol="2025-11-25") as client:
        assert not client.offers.inbox
        with pytest.raises(MethodNotFound):
            await client.inbox()


async def _plain() -> str:
    return "plain"


PIPED = """
import asyncio
from antiphon import Context, Server

server = Server("shop", store="memory:")

@server.tool(task="required")
async def expense(ctx: Context) -> bool:
    return await ctx.elicit("Approve?", bool, to="finance")

asyncio.run(server.stdio())
"""


@VERSIONS
async def test_over_pipes_the_caller_is_nobody(tmp_path: Path, version: str) -> None:
    script = tmp_path / "server.py"
    script.write_text(PIPED)
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script)]
    async with Client(command, env=env, protocol=version) as client, asyncio.timeout(60):
        await client.submit("expense")
        assert await client.inbox() == []
        async with client.listen_inbox():
            pass


async def test_scopes_of_the_tool_do_not_apply_to_those_who_answer() -> None:
    server = Server("shop", store="memory:", authenticate=BearerTokens(PEOPLE))

    @server.tool(task="required", poll_interval=0.02, scopes=["spend"])
    async def expense(ctx: Context) -> bool:
        return await ctx.elicit("Approve?", bool, to="finance")

    caller = Principal("ada", scopes=frozenset({"spend"}))
    async with (
        Client(server, principal=caller) as ada,
        Client(server, principal=PEOPLE["b-token"]) as bob,
        asyncio.timeout(60),
    ):
        handle = await ada.submit("expense")
        (item,) = await asked(bob)
        await item.answer(True)
        assert (await handle.result(timeout=60)).data is True


async def test_neither_questions_nor_answers_are_in_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = Server(
        "shop", store="memory:", authenticate=BearerTokens(PEOPLE), middleware=[AuditLog(arguments=True)]
    )

    @server.tool(task="required", poll_interval=0.02)
    async def expense(ctx: Context) -> str:
        await ctx.elicit("a secret", str, to="finance", key="approve")
        return "done"

    async with people(server, "a-token", "b-token") as (ada, bob), bob.listen_inbox():
        handle = await ada.submit("expense")
        (item,) = await asked(bob)
        await item.answer("another secret")
        assert (await handle.result(timeout=60)).text == "done"
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("antiphon")]
    (answer,) = [line for line in lines if "AnswerInbox" in line]
    assert json.loads(answer)["target"] == handle.id
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize(
    "params",
    [{}, {"taskId": "t"}, {"taskId": "t", "key": "k"}, {"taskId": 1, "key": "k", "response": {}}],
)
async def test_an_answer_without_its_parts_is_invalid(params: dict[str, Any]) -> None:
    async with serving(expenses()) as address:
        speaker = Modern(address.port, headers={"authorization": "Bearer b-token"})
        assert (await speaker.ask("dev.antiphon/inbox/answer", params)).error["code"] == -32602


async def test_a_cursor_that_the_server_did_not_give_is_invalid() -> None:
    async with serving(expenses()) as address:
        speaker = Modern(address.port, headers={"authorization": "Bearer b-token"})
        listed = await speaker.ask("dev.antiphon/inbox/list", {"cursor": "nonsense"})
        assert listed.error["message"] == "Invalid cursor: start again without a cursor."


async def test_a_listener_has_to_accept_a_stream() -> None:
    async with serving(expenses()) as address:
        headers = {"authorization": "Bearer b-token", "accept": "application/json"}
        listened = await Modern(address.port, headers=headers).ask("dev.antiphon/inbox/listen")
        assert listened.status == 406


ITEM = {
    "taskId": "t",
    "key": "k",
    "tool": "expense",
    "owner": "ada",
    "request": {"method": "elicitation/create", "params": {"message": "Approve?", "requestedSchema": {}}},
}


@pytest.mark.parametrize(
    ("changes", "is_read"),
    [
        ({}, True),
        ({"to": 5, "askedAt": "soon", "deadline": "0000", "approvals": "two", "answered": -1}, True),
        ({"deadline": "9999-12-31T23:59:59Z"}, True),
        ({"taskId": ""}, False),
        ({"taskId": 5}, False),
        ({"key": None}, False),
        ({"owner": ["ada"]}, False),
        ({"request": None}, False),
        ({"request": {"method": "sampling/createMessage", "params": {}}}, False),
        ({"request": {"method": "elicitation/create", "params": {"message": 5}}}, False),
    ],
)
def test_a_client_leaves_out_questions_that_it_cannot_read(changes: dict[str, Any], *, is_read: bool) -> None:
    page = inbox.page({"items": [{**ITEM, **changes}, ITEM, 5]})
    assert len(page.items) == 1 + is_read
    assert all(item.approvals >= 1 and item.answered >= 0 for item in page.items)


@pytest.mark.parametrize("params", [{}, {"kind": "told"}, {"kind": ["gone"]}, {"kind": "gone", "taskId": 5}])
def test_a_client_refuses_news_that_it_cannot_read(params: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer):
        inbox.news(params)
    assert inbox.news({"kind": "asked", "item": 5})[1].item is None
