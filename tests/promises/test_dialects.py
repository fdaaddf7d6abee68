"""Tasks in each dialect: create, get, redeem, cancel, and every error."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from antiphon import wall_clock
from tests.asking.driving import Able
from tests.promises.speaking import RELATED, TASKS, Patient, begin, look, reach
from tests.promises.tooling import DIALECTS, Workshop, speaker
from tests.support.http import Response
from tests.support.polling import until
from tests.support.serving import Address
from tests.support.speakers import Bare, Session, Speaker

CORE = ("draft", "2025-11-25")
UNKNOWN = "Failed to retrieve task: Task not found"


@pytest.fixture(params=DIALECTS)
async def client(request: pytest.FixtureRequest, port: int) -> Speaker:
    """A client of each dialect."""
    return await speaker(request.param, port)


@pytest.fixture(params=CORE)
async def core(request: pytest.FixtureRequest, port: int) -> Speaker:
    """A client of each dialect that has tasks in the core protocol."""
    return await speaker(request.param, port)


@pytest.fixture
async def modern(port: int) -> Patient:
    """A client of the tasks extension."""
    return Patient(port)


def redeem(client: Speaker, id: str) -> Any:
    return client.ask("tasks/result", {"taskId": id})


# Making and looking


async def test_a_task_of_the_core_has_these_fields(core: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    now = int(time.time()) + 0.25
    monkeypatch.setattr(wall_clock, "now", lambda: now)
    task = await begin(core, "add", 3_600_000, a=1, b=2)
    assert set(task) == {
        "taskId",
        "status",
        "statusMessage",
        "createdAt",
        "lastUpdatedAt",
        "ttl",
        "pollInterval",
    }
    assert (task["status"], task["ttl"], task["pollInterval"]) == ("working", 3_600_000, 50)
    said = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.250Z")
    assert task["createdAt"] == task["lastUpdatedAt"] == said
    monkeypatch.undo()
    ended = await reach(core, task["taskId"], "completed")
    assert ended["createdAt"] == task["createdAt"]
    assert ended["lastUpdatedAt"] >= task["lastUpdatedAt"]
    assert "result" not in ended


async def test_a_task_of_the_extension_is_flat_and_has_its_result_in_it(modern: Patient) -> None:
    made = (await modern.call("add", a=1, b=2)).result
    assert made["resultType"] == "task"
    assert {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"} < set(made)
    assert (made["status"], made["ttlMs"], made["pollIntervalMs"]) == ("working", None, 50)
    ended = await reach(modern, made["taskId"], "completed")
    assert ended["resultType"] == "complete"
    assert ended["result"]["structuredContent"] == 3
    assert ended["result"]["content"] == [{"type": "text", "text": "3"}]


async def test_redeeming_gives_exactly_what_the_call_would_have_given(core: Speaker) -> None:
    plain = (await core.call("add", a=1, b=2)).result
    id = (await begin(core, "add", a=1, b=2))["taskId"]
    assert (await redeem(core, id)).result == {**plain, "_meta": {RELATED: {"taskId": id}}}
    assert (await redeem(core, id)).result["content"][0]["text"] == "3"  # as often as one likes


async def test_redeeming_blocks_while_the_task_works(core: Speaker, served: tuple[Workshop, Address]) -> None:
    workshop, address = served
    id = (await begin(core, "long"))["taskId"]
    waiting = asyncio.create_task(redeem(core, id))
    await until(lambda: workshop.ran["long"])
    await until(lambda: address.under_way == 1)
    assert (await look(core, id))["status"] == "working"  # the server answers others meanwhile
    assert not waiting.done()
    workshop.gate.set()
    assert (await waiting).text == "long"
    assert workshop.ran["long"] == 1


async def test_a_promise_lets_the_connection_go(client: Speaker, workshop: Workshop) -> None:
    id = (await begin(client, "long"))["taskId"]
    await until(lambda: workshop.ran["long"])
    assert (await look(client, id))["status"] == "working"
    workshop.gate.set()
    await reach(client, id, "completed")


async def test_a_tool_that_fails_is_a_task_that_failed_in_the_core_and_completed_in_the_extension(
    client: Speaker,
) -> None:
    id = (await begin(client, "fail"))["taskId"]
    task = await reach(client, id, "failed", "completed")
    if isinstance(client, Patient):
        assert task["status"] == "completed"
        result = task["result"]
    else:
        assert task["status"] == "failed"
        result = (await redeem(client, id)).result
    assert result["isError"] is True
    assert result["content"][0]["text"] == "It cannot be done."
    assert result["structuredContent"] == {"why": "wrong"}


@pytest.mark.parametrize(
    ("internal", "code", "message"), [(False, -32602, "Not like that."), (True, -32603, "It broke.")]
)
async def test_a_json_rpc_error_fails_the_task_and_comes_back_as_itself(
    client: Speaker, internal: bool, code: int, message: str
) -> None:
    id = (await begin(client, "fault", internal=internal))["taskId"]
    task = await reach(client, id, "failed")
    error = task["error"] if isinstance(client, Patient) else (await redeem(client, id)).error
    assert (error["code"], error["message"]) == (code, message)
    assert error.get("data") == ({"where": "inside"} if internal else None)


async def test_an_exception_leaks_nothing_through_a_task(client: Speaker) -> None:
    id = (await begin(client, "crash"))["taskId"]
    await reach(client, id, "failed", "completed")
    answer = await (
        client.ask("tasks/get", {"taskId": id}) if isinstance(client, Patient) else redeem(client, id)
    )
    assert b"internal error" in answer.body
    assert b"secret of the implementation" not in answer.body


async def test_arguments_that_do_not_fit_are_a_failure_of_the_task(client: Speaker) -> None:
    id = (await begin(client, "add", a="one", b=2))["taskId"]
    task = await reach(client, id, "failed", "completed")
    result = task["result"] if isinstance(client, Patient) else (await redeem(client, id)).result
    assert result["isError"] is True
    assert "Invalid arguments" in result["content"][0]["text"]


# Cancelling


async def test_a_cancelled_task_is_stopped_and_stays_cancelled(client: Speaker, workshop: Workshop) -> None:
    id = (await begin(client, "long"))["taskId"]
    await until(lambda: workshop.ran["long"])
    cancelled = (await client.ask("tasks/cancel", {"taskId": id})).result
    if isinstance(client, Patient):
        assert "status" not in cancelled
        assert cancelled["resultType"] == "complete"
    else:
        assert (cancelled["taskId"], cancelled["status"]) == (id, "cancelled")
    await until(lambda: workshop.stopped["long"])
    workshop.gate.set()
    assert (await look(client, id))["status"] == "cancelled"
    if not isinstance(client, Patient):
        assert "cancelled" in (await redeem(client, id)).error["message"]


@pytest.mark.parametrize("tool", ["add", "fail", "fault"])
async def test_an_ended_task_cannot_be_cancelled_in_the_core_and_is_acknowledged_in_the_extension(
    client: Speaker, tool: str
) -> None:
    arguments = {"a": 1, "b": 2} if tool == "add" else {}
    id = (await begin(client, tool, **arguments))["taskId"]
    ended = await reach(client, id, "completed", "failed")
    again = await client.ask("tasks/cancel", {"taskId": id})
    if isinstance(client, Patient):
        assert again.result["resultType"] == "complete"
    else:
        assert again.error["code"] == -32602
        assert "ended" in again.error["message"]
    assert (await look(client, id))["status"] == ended["status"]


async def test_a_cancellation_while_a_task_ends_is_acknowledged_in_the_core_only_if_it_counts(
    client: Speaker,
) -> None:
    for _ in range(10):
        id = (await begin(client, "add", a=1, b=2))["taskId"]
        answer = await client.ask("tasks/cancel", {"taskId": id})
        status = (await reach(client, id, "completed", "cancelled"))["status"]
        if isinstance(client, Patient):
            assert answer.result["resultType"] == "complete"
        elif status == "cancelled":
            assert answer.result["status"] == "cancelled"
        else:
            assert answer.error["code"] == -32602
            assert "it has ended already" in answer.error["message"]


async def test_a_task_that_waits_for_an_answer_can_be_cancelled(client: Speaker) -> None:
    id = (await begin(client, "ask"))["taskId"]
    await reach(client, id, "input_required")
    assert "error" not in (await client.ask("tasks/cancel", {"taskId": id})).frame
    assert (await look(client, id))["status"] == "cancelled"


# Who may see it


def verbs(client: Speaker) -> list[tuple[str, dict[str, Any]]]:
    given: dict[str, Any] = {"inputResponses": {}}
    if isinstance(client, Patient):
        return [("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", given)]
    verbs: list[tuple[str, dict[str, Any]]] = [("tasks/get", {}), ("tasks/cancel", {}), ("tasks/result", {})]
    return [*verbs, ("tasks/input_response", given)] if isinstance(client, Bare) else verbs


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_no_task_another_s_task_and_an_expired_one_look_the_same(
    dialect: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await speaker(dialect, port, headers={"x-who": "me"})
    theirs = await speaker(dialect, port, headers={"x-who": "them"})
    another = (await begin(theirs, "ask"))["taskId"]
    expired = (await begin(await speaker("draft", port, headers={"x-who": "me"}), "ask", 1))["taskId"]
    await reach(theirs, another, "input_required")
    monkeypatch.setattr(wall_clock, "ahead", 60.0)  # now its lifetime is over
    errors = []
    for id in ("ask_nobody", another, expired):
        for method, params in verbs(mine):
            answer: Response = await mine.ask(method, {"taskId": id, **params})
            assert answer.status == 200
            errors.append(answer.error)
    assert errors == [{"code": -32602, "message": UNKNOWN}] * len(errors)
    assert (await look(theirs, another))["status"] == "input_required"


async def test_a_task_is_its_principal_s_on_every_dialect(port: int) -> None:
    speakers = [await speaker(dialect, port, headers={"x-who": "me"}) for dialect in DIALECTS]
    for maker in speakers:
        id = (await begin(maker, "add", a=1, b=2))["taskId"]
        for other in speakers:
            assert (await reach(other, id, "completed"))["taskId"] == id


async def test_ids_cannot_be_guessed(core: Speaker) -> None:
    ids = {(await begin(core, "add", a=1, b=2))["taskId"] for _ in range(20)}
    assert len({id[-32:] for id in ids}) == 20
    assert all(len(id) >= 36 for id in ids)


# What a server and its tools say


async def test_the_core_says_which_tools_give_promises(core: Speaker) -> None:
    listed = (await core.ask("tools/list")).result["tools"]
    support = {tool["name"]: tool.get("execution", {}).get("taskSupport") for tool in listed}
    assert (support["plain"], support["long"], support["ask"]) == (None, "required", "optional")


async def test_the_server_declares_tasks(port: int) -> None:
    session = Session(port)
    told = (await session.open()).result["capabilities"]
    modes = {"modes": ["immediate", "streaming", "task"]}
    requests = {"tools": {"call": {}}}
    assert told["tasks"] == {"list": {}, "cancel": {}, "requests": requests, "responses": modes}
    session = Session(port)
    assert "tasks" not in (await session.open("2025-06-18")).result["capabilities"]
    discovered = (await Patient(port).ask("server/discover")).result
    assert discovered["capabilities"]["extensions"] == {
        TASKS: {},
        "dev.antiphon/streaming": {},
        "dev.antiphon/inbox": {},
    }


async def test_a_version_before_tasks_has_none(port: int) -> None:
    session = Session(port)
    await session.open("2025-06-18")
    for method in ("tasks/get", "tasks/list", "tasks/cancel", "tasks/result"):
        assert (await session.ask(method, {"taskId": "x"})).error["code"] == -32601
    wish = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {}}
    assert (await session.ask("tools/call", wish)).text == "3"
    assert (await session.call("long")).error["code"] == -32601


async def test_a_wish_for_a_task_is_refused_where_a_tool_gives_none(core: Speaker) -> None:
    refused = await core.ask("tools/call", {"name": "plain", "task": {}})
    assert (refused.status, refused.error["code"]) == (200, -32601)
    assert "'plain' does not run as a task" in refused.error["message"]


async def test_a_tool_that_only_gives_promises_is_refused_without_the_wish(core: Speaker) -> None:
    refused = await core.call("long")
    assert (refused.status, refused.error["code"]) == (200, -32601)
    assert "call it with a task" in refused.error["message"]


async def test_the_extension_must_be_declared_before_anything_is_looked_up(port: int) -> None:
    undeclared = Able(port)
    for method, params in verbs(Patient(port)):
        refused = await undeclared.ask(
            method, {"taskId": "ask_nobody", **params}, headers={"mcp-name": "ask_nobody"}
        )
        assert (refused.status, refused.error["code"]) == (400, -32021)
        assert refused.error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    refused = await undeclared.call("long")
    assert (refused.status, refused.error["code"]) == (400, -32021)
    assert (await undeclared.call("add", a=1, b=2)).text == "3"


async def test_the_extension_has_neither_result_nor_list_and_the_core_no_update(port: int) -> None:
    for method in ("tasks/result", "tasks/list", "tasks/input_response"):
        refused = await Patient(port).ask(method, {"taskId": "x"})
        assert (refused.status, refused.error["code"]) == (404, -32601)
    assert (await Bare(port).ask("tasks/update", {"taskId": "x"})).error["code"] == -32601


async def test_a_task_s_id_stands_in_a_header_and_agrees(modern: Patient) -> None:
    id = (await begin(modern, "add", a=1, b=2))["taskId"]
    for wrong in ("another", ""):
        refused = await modern.ask("tasks/get", {"taskId": id}, headers={"mcp-name": wrong})
        assert (refused.status, refused.error["code"]) == (400, -32020)
    assert (await modern.ask("tasks/get", {"taskId": id}, headers={"mcp-name": f"{id} "})).status == 200


async def test_malformed_requests_about_tasks_are_refused(client: Speaker) -> None:
    for params in ({}, {"taskId": 7}, {"taskId": None}):
        refused = await client.ask("tasks/get", params, headers={"mcp-name": "7"})
        assert refused.error["code"] == -32602
