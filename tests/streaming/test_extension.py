"""`dev.antiphon/streaming` of 2026-07-28: notifications on a call's stream, and `tasks/stream`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.promises.speaking import RELATED, TASKS, Patient, answer, reach
from tests.streaming.speaking import (
    JSON_ONLY,
    PARTIAL_RESULT,
    STREAMING,
    UNKNOWN,
    Follower,
    Listener,
    numbered,
    reading,
    texts,
)
from tests.streaming.tooling import Studio
from tests.support.speakers import Bare, Modern, Session

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Declared


async def test_it_is_declared_beside_tasks(port: int) -> None:
    extensions = (await Modern(port).ask("server/discover")).result["capabilities"]["extensions"]
    assert extensions == {TASKS: {}, STREAMING: {}, "dev.antiphon/inbox": {}}


async def test_only_this_version_has_it(port: int) -> None:
    assert "extensions" not in (await Session(port).open()).result["capabilities"]
    refused = await Bare(port).ask("tasks/stream", {"taskId": "count_nobody"})
    assert refused.error["code"] == -32601


# On the call's own stream


async def test_segments_are_notifications_and_the_response_is_complete_by_itself(
    port: int, studio: Studio
) -> None:
    client = Listener(port)
    params = {"name": "gated", "arguments": {"n": 3}}
    async with reading(client, "tools/call", params, id="mine") as stream:
        for number in (1, 2):
            studio.allow(1)
            told = await stream.up_to(number)
            assert told == {
                "jsonrpc": "2.0",
                "method": PARTIAL_RESULT,
                "params": {
                    "requestId": "mine",
                    "seqNr": number,
                    "content": [{"type": "text", "text": str(number)}],
                },
            }
        studio.allow(1)
        last = await stream.rest()
    assert [frame for frame in stream.frames if "id" in frame] == [last]
    assert last["id"] == "mine"
    assert last["result"]["content"] == [{"type": "text", "text": str(number)} for number in (1, 2, 3)]
    assert (last["result"]["resultType"], last["result"]["isError"]) == ("complete", False)
    assert not {"partial-content", "isComplete"} & set(last["result"])


async def test_several_segments_may_come_in_one_notification(port: int) -> None:
    answered = await Listener(port).call("count", n=3000)
    told = [frame["params"] for frame in answered.frames if "method" in frame]
    assert len(told) < 300
    assert max(len(params["content"]) for params in told) > 1
    found = numbered(answered.frames)
    assert [(n, str(n)) for n in range(1, len(found) + 1)] == found
    assert len(answered.result["content"]) == 3000


async def test_one_that_did_not_declare_it_gets_no_notifications(port: int, studio: Studio) -> None:
    studio.allow(3)
    answered = await Modern(port).call("gated", n=3)
    assert len(answered.frames) == 1
    assert len(answered.result["content"]) == 3
    studio.allow(3)
    answered = await Listener(port).ask(
        "tools/call", {"name": "gated", "arguments": {"n": 3}}, headers=JSON_ONLY
    )
    assert (len(answered.frames), answered.is_stream) == (1, False)


async def test_what_other_dialects_say_to_stream_means_nothing_here(port: int, studio: Studio) -> None:
    params = {"name": "count", "arguments": {"n": 3}, "stream": {}, "task": {"responseModes": ["streaming"]}}
    answered = await Modern(port).ask("tools/call", params)
    assert len(answered.frames) == 1
    assert len(answered.result["content"]) == 3


async def test_a_tool_that_emits_nothing_answers_as_ever(port: int) -> None:
    answered = await Listener(port).call("quick")
    assert (len(answered.frames), answered.is_stream, answered.text) == (1, False, "quick")


# tasks/stream


async def test_a_stream_gives_what_there_is_then_what_comes_and_ends_with_the_task(
    port: int, studio: Studio
) -> None:
    client = Follower(port)
    made = (await client.call("gated", n=4)).result
    assert made["resultType"] == "task"
    studio.allow(2)
    async with reading(client, "tasks/stream", {"taskId": made["taskId"]}, id=7) as stream:
        told = await stream.up_to(1)
        assert (told["params"]["taskId"], told["params"]["requestId"]) == (made["taskId"], 7)
        await stream.up_to(2)
        studio.allow(2)
        last = await stream.rest()
    assert texts(stream.frames) == ["1", "2", "3", "4"]
    assert last["id"] == 7
    task = last["result"]
    assert (task["taskId"], task["status"], task["resultType"]) == (made["taskId"], "completed", "complete")
    assert [block["text"] for block in task["result"]["content"]] == ["1", "2", "3", "4"]
    assert task == (await client.ask("tasks/get", {"taskId": made["taskId"]})).result


@pytest.mark.parametrize(("after", "rest"), [(0, [1, 2, 3]), (1, [2, 3]), (3, []), (9, [])])
async def test_it_may_begin_after_a_number(port: int, after: int, rest: list[int]) -> None:
    client = Follower(port)
    id = (await client.call("count", n=3)).result["taskId"]
    await reach(client, id, "completed")
    answered = await client.ask("tasks/stream", {"taskId": id, "after": after})
    assert numbered(answered.frames) == [(n, str(n)) for n in rest]
    assert len(answered.result["result"]["content"]) == 3


@pytest.mark.parametrize("after", [-1, "1", 1.5, True, [0], {}])
async def test_a_number_that_is_none_is_refused(port: int, after: Any) -> None:
    client = Follower(port)
    id = (await client.call("count", n=3)).result["taskId"]
    refused = await client.ask("tasks/stream", {"taskId": id, "after": after})
    assert refused.error["code"] == -32602


async def test_it_must_be_declared_before_anything_is_looked_up(port: int) -> None:
    needed = {"requiredCapabilities": {"extensions": {TASKS: {}, STREAMING: {}}}}
    id = (await Follower(port).call("count", n=3)).result["taskId"]
    for client in (Modern(port), Patient(port)):
        for wanted in (id, "count_nobody"):
            refused = await client.ask("tasks/stream", {"taskId": wanted}, headers={"mcp-name": wanted})
            assert (refused.status, refused.error["code"]) == (400, -32021)
            assert refused.error["data"] == needed
    refused = await Listener(port).ask("tasks/stream", {"taskId": id}, headers={"mcp-name": id})
    assert (refused.status, refused.error["code"]) == (400, -32021)
    assert TASKS in refused.error["data"]["requiredCapabilities"]["extensions"]


async def test_the_headers_agree(port: int) -> None:
    client = Follower(port)
    id = (await client.call("count", n=3)).result["taskId"]
    for headers in ({"mcp-name": "another"}, {"mcp-method": "tasks/get"}):
        refused = await client.ask("tasks/stream", {"taskId": id}, headers=headers)
        assert (refused.status, refused.error["code"]) == (400, -32020)


async def test_a_task_of_somebody_else_and_one_that_never_was_look_the_same(port: int) -> None:
    ada, bob = (Follower(port, headers={"x-who": who}) for who in ("ada", "bob"))
    id = (await ada.call("count", n=3)).result["taskId"]
    await reach(ada, id, "completed")
    refused = [await bob.ask("tasks/stream", {"taskId": wanted}) for wanted in (id, "count_nobody")]
    assert refused[0].body == refused[1].body
    assert refused[0].error == {"code": -32602, "message": UNKNOWN}


async def test_a_task_that_failed_is_completed_and_one_with_an_error_failed(
    port: int, studio: Studio
) -> None:
    client = Follower(port)
    for fail, status in (("Failure", "completed"), ("InvalidParams", "failed")):
        studio.allow(2)
        id = (await client.call("gated", n=2, fail=fail)).result["taskId"]
        answered = await client.ask("tasks/stream", {"taskId": id})
        assert [text for _, text in numbered(answered.frames)][:2] == ["1", "2"]
        assert answered.result["status"] == status
        if status == "failed":
            assert answered.result["error"]["code"] == -32602
        else:
            assert answered.result["result"]["isError"] is True


async def test_changes_are_told_but_not_segments_to_those_who_only_listen(port: int, studio: Studio) -> None:
    client = Follower(port)
    id = (await client.call("ask")).result["taskId"]
    await reach(client, id, "input_required")
    interests = {"notifications": {"taskIds": [id]}}
    async with reading(client, "subscriptions/listen", interests) as stream:
        told = (await stream.until("notifications/tasks"))["params"]
        assert told["status"] == "input_required"
        await answer(client, id, first="a")
        while told["status"] != "input_required" or "second" not in told["inputRequests"]:
            told = (await stream.until("notifications/tasks"))["params"]
        await answer(client, id, second="b")
        while told["status"] != "completed":
            told = (await stream.until("notifications/tasks"))["params"]
        assert [block["text"] for block in told["result"]["content"]] == ["1", "2", "3 a", "4 b"]
        assert PARTIAL_RESULT not in {frame.get("method") for frame in stream.frames}


async def test_what_tasks_get_and_update_give_is_whole_too(port: int) -> None:
    client = Follower(port)
    id = (await client.call("count", n=600)).result["taskId"]
    ended = await reach(client, id, "completed")
    assert len(ended["result"]["content"]) == 600
    core = (await Bare(port).ask("tasks/result", {"taskId": id})).result
    assert core["content"] == ended["result"]["content"]
    assert core["_meta"][RELATED] == {"taskId": id}
