"""Reading a task's segments again after any number, as a page or as a stream, and every error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio

from tests.asking.driving import EVERYTHING
from tests.promises.speaking import answer, reach
from tests.streaming.planting import planted
from tests.streaming.speaking import (
    CORE,
    JSON_ONLY,
    UNKNOWN,
    Reading,
    numbered,
    reading,
    respond,
    speaker,
    task_id,
    texts,
    wish,
)
from tests.streaming.tooling import Studio
from tests.support import http
from tests.support.http import Response
from tests.support.polling import turns, until
from tests.support.speakers import Bare, Session, Speaker

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", params=CORE)
async def core(request: pytest.FixtureRequest, port: int) -> Speaker:
    """A client of each dialect that reads with `lastSeqNr`."""
    return await speaker(request.param, port)


async def after(client: Speaker, id: str, number: Any, **more: Any) -> Response:
    return await client.ask("tasks/result", {"taskId": id, "lastSeqNr": number, **more}, id="again")


async def begun(client: Speaker, tool: str, **arguments: Any) -> str:
    result = (await client.ask("tools/call", wish(tool, **arguments))).result
    return str(result["task"]["taskId"])


async def reaching(client: Speaker, id: str, number: int) -> None:
    """Wait until a task has this many segments."""

    async def has_come() -> bool:
        if numbered((await after(client, id, number - 1 or 1)).frames):
            return True
        return number == 1 and bool((await after(client, id, 1)).result["isComplete"])

    await until(has_come)


# lastSeqNr


@pytest.mark.parametrize("number", [None, 0, -1, -(2**40), "1", "one", 1.5, True, [1], {}])
async def test_a_number_that_is_none_is_refused(core: Speaker, number: Any) -> None:
    id = await begun(core, "count", n=3)
    await reach(core, id, "completed")
    assert (await after(core, id, number)).error["code"] == -32602


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 7, 1000, 2**53, 2**70])
async def test_a_task_that_has_ended_gives_the_rest_and_says_that_it_is_complete(
    core: Speaker, number: int
) -> None:
    id = await begun(core, "count", n=5)
    await reach(core, id, "completed")
    answered = await after(core, id, number)
    if number == 2**70 and "error" in answered.frame:
        assert answered.error["code"] == -32602  # a number too large to be one
        return
    result = answered.result
    assert answered.frame["id"] == "again"
    assert not answered.is_stream
    assert numbered([answered.frame]) == [(n, str(n)) for n in range(number + 1, 6)]
    assert (result["isComplete"], result["isError"]) == (True, False)
    assert task_id(result) == id
    assert not {"content", "task"} & set(result)


async def test_a_task_that_works_gives_what_there_is_at_once(core: Speaker, studio: Studio) -> None:
    id = await begun(core, "gated", n=5)
    studio.allow(3)
    await reaching(core, id, 3)
    for number, rest in ((1, ["2", "3"]), (2, ["3"]), (3, []), (7, [])):
        result = (await after(core, id, number)).result
        assert [segment["text"] for segment in result["partial-content"]] == rest
        assert (result["isComplete"], result["isError"]) == (False, False)
    studio.allow(2)
    await reach(core, id, "completed")
    assert numbered([(await after(core, id, 3)).frame]) == [(4, "4"), (5, "5")]
    assert (await after(core, id, 5)).result["isComplete"] is True


async def test_a_task_that_waits_gives_what_there_is_and_is_not_complete(core: Speaker) -> None:
    id = await begun(core, "ask")
    await reach(core, id, "input_required")
    result = (await after(core, id, 1)).result
    assert [segment["text"] for segment in result["partial-content"]] == ["2"]
    assert (result["isComplete"], result["isError"]) == (False, False)


async def test_a_page_of_a_task_that_waits_has_its_questions(port: int) -> None:
    client = Bare(port)
    id = await begun(client, "ask")
    await reach(client, id, "input_required")
    for number, rest in ((1, ["2"]), (2, []), (7, [])):
        result = (await after(client, id, number)).result
        assert [segment["text"] for segment in result["partial-content"]] == rest
        assert (result["isComplete"], result["isError"]) == (False, False)
        assert result["resultType"] == "input_required"
        assert list(result["inputRequests"]) == ["first"]
        assert task_id(result) == id


async def test_a_session_that_has_all_segments_is_asked_on_the_stream_of_its_page(port: int) -> None:
    client = await speaker("2025-11-25", port)
    id = await begun(client, "ask")
    await reach(client, id, "input_required")
    async with reading(client, "tasks/result", {"taskId": id, "lastSeqNr": 2}) as stream:
        question = await stream.until("elicitation/create")
        assert question["params"]["message"] == "First?"
        await respond(client, question["id"], {"action": "accept", "content": {"name": "a"}})
        last = (await stream.rest())["result"]
        assert (last["isComplete"], last["isError"]) == (False, False)


async def test_a_task_that_was_cancelled_gives_what_there_was(core: Speaker, studio: Studio) -> None:
    id = await begun(core, "gated", n=5)
    studio.allow(2)
    await reaching(core, id, 2)
    assert (await core.ask("tasks/cancel", {"taskId": id})).result["status"] == "cancelled"
    result = (await after(core, id, 1)).result
    assert [segment["text"] for segment in result["partial-content"]] == ["2"]
    assert (result["isComplete"], result["isError"]) == (True, True)
    assert result["content"] == [{"type": "text", "text": "The task was cancelled by request."}]
    assert result["task"]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("fail", "rest"), [("Failure", ["2", "It cannot be done."]), ("InvalidParams", ["2"])]
)
async def test_a_task_that_failed_gives_what_there_was_and_says_so(
    core: Speaker, studio: Studio, fail: str, rest: list[str]
) -> None:
    studio.allow(2)
    id = await begun(core, "gated", n=2, fail=fail)
    await reach(core, id, "failed")
    result = (await after(core, id, 1)).result
    assert [segment["text"] for segment in result["partial-content"]] == rest
    assert (result["isComplete"], result["isError"]) == (True, True)
    if fail == "InvalidParams":  # the task ended with an error in place of a result
        assert result["content"] == [{"type": "text", "text": "Not like that."}]
    result = (await after(core, id, 9)).result
    assert (result["partial-content"], result["isComplete"], result["isError"]) == ([], True, True)


async def test_a_task_that_emitted_nothing_has_its_result_as_segments(core: Speaker) -> None:
    id = await begun(core, "plain")
    await reach(core, id, "completed")
    answered = await core.ask("tasks/result", {"taskId": id, "stream": {}})
    assert texts(answered.frames) == ["plain"]
    result = (await after(core, id, 1)).result
    assert (result["partial-content"], result["isComplete"]) == ([], True)


# Merged


async def test_without_a_number_it_blocks_and_gives_everything_as_content(
    core: Speaker, studio: Studio
) -> None:
    id = await begun(core, "gated", n=3)
    studio.allow(2)
    waiting = asyncio.create_task(core.ask("tasks/result", {"taskId": id}))
    await reaching(core, id, 2)
    assert not waiting.done()
    studio.allow(1)
    result = (await waiting).result
    assert result["content"] == [{"type": "text", "text": str(number)} for number in (1, 2, 3)]
    assert result["isError"] is False
    assert not {"partial-content", "isComplete"} & set(result)
    assert task_id(result) == id


async def test_what_it_gives_in_the_end_is_what_the_call_would_have_given(core: Speaker) -> None:
    plain = (await core.call("count", n=700)).result
    id = await begun(core, "count", n=700)
    merged = (await core.ask("tasks/result", {"taskId": id})).result
    del merged["_meta"]
    assert merged == plain


# As a stream


async def test_a_stream_gives_what_there_is_and_then_what_comes(core: Speaker, studio: Studio) -> None:
    id = await begun(core, "gated", n=4)
    studio.allow(2)
    await reaching(core, id, 2)
    async with reading(core, "tasks/result", {"taskId": id, "stream": {}}, id="late") as stream:
        await stream.up_to(2)
        studio.allow(1)
        await stream.up_to(3)
        studio.allow(1)
        last = await stream.rest()
        assert texts(stream.frames) == ["1", "2", "3", "4"]
        assert {frame["id"] for frame in stream.frames} == {"late"}
        assert [frame["result"]["isComplete"] for frame in stream.frames[:-1]] == [False] * (
            len(stream.frames) - 1
        )
        assert last["result"]["isComplete"] is True


async def test_a_stream_may_begin_after_a_number(core: Speaker, studio: Studio) -> None:
    id = await begun(core, "gated", n=4)
    studio.allow(2)
    await reaching(core, id, 2)
    params = {"taskId": id, "stream": {}, "lastSeqNr": 2}
    async with reading(core, "tasks/result", params) as stream:
        studio.allow(2)
        await stream.rest()
        assert numbered(stream.frames) == [(3, "3"), (4, "4")]
    late = await core.ask("tasks/result", {**params, "lastSeqNr": 9})
    assert (late.result["partial-content"], late.result["isComplete"]) == ([], True)


async def test_the_wish_may_stand_beside_the_parameters(core: Speaker, port: int, studio: Studio) -> None:
    client = core
    id = await begun(client, "gated", n=2)
    frame = {"jsonrpc": "2.0", "id": 4, "method": "tasks/result", "params": {"taskId": id}, "stream": {}}
    async with http.connect(port) as connection:
        await connection.send("POST", "/mcp", client.headers, json.dumps(frame).encode())
        studio.allow(1)
        stream = Reading(connection)
        await stream.up_to(1)
        studio.allow(1)
        await stream.rest()
    assert texts(stream.frames) == ["1", "2"]


async def test_the_wish_beside_the_parameters_is_nothing_to_a_session_without_response_modes(
    port: int,
) -> None:
    session = Session(port)
    await session.open(capabilities=EVERYTHING)
    id = await begun(session, "count", n=2)
    for stream in ({}, 5):
        frame = {"jsonrpc": "2.0", "id": 4, "method": "tasks/result", "params": {"taskId": id}}
        body = json.dumps({**frame, "stream": stream}).encode()
        async with http.connect(port) as connection:
            await connection.send("POST", "/mcp", session.headers, body)
            result = (await connection.receive()).result
        assert [block["text"] for block in result["content"]] == ["1", "2"]


async def test_many_read_the_same(core: Speaker, studio: Studio) -> None:
    id = await begun(core, "gated", n=20)

    async def read(after: int) -> list[tuple[int, Any]]:
        more = {"lastSeqNr": after} if after else {}
        answered = await core.ask("tasks/result", {"taskId": id, "stream": {}, **more})
        return numbered(answered.frames)

    readers = [asyncio.create_task(read(number)) for number in range(10)]
    for _ in range(20):
        studio.allow(1)
        await turns()
    for number, reader in enumerate(readers):
        assert await reader == [(n, str(n)) for n in range(number + 1, 21)]


async def test_a_caller_that_takes_no_event_stream_gets_it_whole(core: Speaker) -> None:
    id = await begun(core, "count", n=3)
    params = {"taskId": id, "stream": {}}
    answered = await core.ask("tasks/result", params, headers=JSON_ONLY)
    assert [block["text"] for block in answered.result["content"]] == ["1", "2", "3"]
    answered = await core.ask("tasks/result", {**params, "lastSeqNr": 1}, headers=JSON_ONLY)
    assert numbered(answered.frames) == [(2, "2"), (3, "3")]


async def test_a_stream_of_the_draft_ends_with_a_question_and_goes_on_after_the_answer(port: int) -> None:
    client = Bare(port)
    id = await begun(client, "ask")
    after = 0
    for key, name, segments in (("first", "a", ["1", "2"]), ("second", "b", ["3 a"])):
        more = {"lastSeqNr": after} if after else {}
        asked = await client.ask("tasks/result", {"taskId": id, "stream": {}, **more})
        assert [text for _, text in numbered(asked.frames)] == segments
        assert asked.result["resultType"] == "input_required"
        assert list(asked.result["inputRequests"]) == [key]
        assert asked.result["isComplete"] is False
        after += len(segments)
        await answer(client, id, **{key: name})
    ended = await client.ask("tasks/result", {"taskId": id, "stream": {}, "lastSeqNr": after})
    assert numbered(ended.frames) == [(4, "4 b")]
    assert ended.result["isComplete"] is True


# Whose it is


async def test_a_task_of_somebody_else_and_one_that_never_was_look_the_same(
    port: int, studio: Studio
) -> None:
    for dialect in CORE:
        ada = await speaker(dialect, port, headers={"x-who": "ada"})
        bob = await speaker(dialect, port, headers={"x-who": "bob"})
        id = await begun(ada, "count", n=3)
        await reach(ada, id, "completed")
        for more in ({}, {"lastSeqNr": 1}, {"stream": {}}, {"stream": {}, "lastSeqNr": 1}):
            refused = [
                await bob.ask("tasks/result", {"taskId": wanted, **more}) for wanted in (id, "count_nobody")
            ]
            assert refused[0].body == refused[1].body
            assert refused[0].error == {"code": -32602, "message": UNKNOWN}
        assert numbered((await after(ada, id, 1)).frames) == [(2, "2"), (3, "3")]


# Long logs


@pytest.mark.parametrize("number", [1, 2, 63, 64, 65, 1249, 2500, 4000, 4935, 4936, 4999, 5000, 6000])
async def test_a_place_far_into_a_long_log_is_found(port: int, studio: Studio, number: int) -> None:
    client = Bare(port)
    id = await planted(studio.store, [1] * 5000, name=f"long{number}")
    answered = await after(client, id, number)
    assert numbered(answered.frames) == [(n, str(n)) for n in range(number + 1, 5001)]
    assert answered.result["isComplete"] is True


async def test_a_reader_far_behind_reads_a_little_at_a_time(port: int, studio: Studio) -> None:
    id = await planted(studio.store, [1] * 5000, name="behind")
    answered = await Bare(port).ask("tasks/result", {"taskId": id, "stream": {}, "lastSeqNr": 17})
    assert numbered(answered.frames) == [(n, str(n)) for n in range(18, 5001)]
    assert max(len(frame["result"]["partial-content"]) for frame in answered.frames) <= 64


async def test_segments_that_come_fast_share_entries(port: int, studio: Studio) -> None:
    client = Bare(port)
    id = await begun(client, "count", n=5000)
    await reach(client, id, "completed")
    entries = [entry for entry in await studio.store.read(id) if entry.kind == "emitted"]
    assert len(entries) <= 40
    for number in (1, 255, 256, 257, 4999):
        assert numbered((await after(client, id, number)).frames) == [
            (n, str(n)) for n in range(number + 1, 5001)
        ]


async def test_a_stream_hears_of_every_segment_whoever_writes_it(port: int, studio: Studio) -> None:
    """Also when the log grows while it is being read."""
    client = Bare(port)
    id = await begun(client, "gated", n=300)
    async with reading(client, "tasks/result", {"taskId": id, "stream": {}}) as stream:
        for _ in range(100):
            studio.allow(3)
            await turns()
        await stream.rest()
        assert texts(stream.frames) == [str(number) for number in range(1, 301)]
    await until(lambda: studio.ended["gated"] == 1)
