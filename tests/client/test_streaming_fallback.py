"""Servers that do not stream, or do it in their own way: the same segments and the same result in the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.client import Client, Elicitation
from antiphon.client.streaming import task_segments
from antiphon.client.tasks import requests
from antiphon.errors import (
    ClientError,
    Failure,
    InternalError,
    NotFound,
    RequestError,
    TaskCancelled,
    TaskLost,
)
from tests.client.fakes import META, Answer, Reply, legacy, modern, serving
from tests.client.streams import (
    DIALECTS,
    RELATED,
    TASK,
    TASKS,
    Legacy,
    Modern,
    blocks,
    on,
    read,
    read_into,
    streaming,
)
from tests.support.polling import DEADLINE

WHOLE = {"content": blocks([1, 2]), "structuredContent": {"n": 2}, "isError": False}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
MODERN, LEGACY = DIALECTS


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(task_segments, "LATE_RESULT_SECONDS", 0.2)


async def stream(answer: Answer, **options: Any) -> tuple[list[int], Any, list[str]]:
    async with asyncio.timeout(DEADLINE), serving(answer) as fake, Client(fake.url, **options) as client:
        async with client.stream("tool", {"x": 1}, y=2) as stream:
            numbers = await read(stream)
        call = next(heard for heard in fake.heard if heard.method == "tools/call")
        assert call.params["arguments"] == {"x": 1, "y": 2}
        return numbers, stream.result, fake.methods()


def plainly(make: Any) -> Answer:
    async def answer(reply: Reply) -> None:
        assert "task" not in reply.request.params
        assert "stream" not in reply.request.params
        declared = reply.request.params.get("_meta", {}).get(META + "clientCapabilities", {})
        assert "dev.antiphon/streaming" not in declared.get("extensions", {})
        await reply.result(WHOLE)

    return make(answer)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "make",
    [
        modern,
        legacy,
        lambda answer: legacy(answer, "2025-06-18", tasks=TASKS),
        lambda answer: modern(answer, extensions={META + "tasks": {}}),
        lambda answer: modern(answer, extensions=["dev.antiphon/streaming"]),
        lambda answer: legacy(answer, tasks={"responses": {"modes": "streaming"}}),
        lambda answer: legacy(answer, tasks={"responses": {"modes": ["task"]}}),
    ],
)
async def test_a_server_that_does_not_stream_gives_everything_at_the_end(make: Any) -> None:
    numbers, result, methods = await stream(plainly(make))
    assert (numbers, result.text, result.data) == ([1, 2], "text 1\ntext 2", {"n": 2})
    assert "tools/list" not in methods


async def test_a_plain_task_is_waited_for() -> None:
    looks = iter(["working", "working", "completed"])

    async def answer(reply: Reply) -> None:
        if reply.request.method == "tools/call":
            await MODERN.promise(reply)
        elif reply.request.method == "tasks/get":
            await MODERN.status(reply, next(looks), 2)
        else:
            await reply.error(-32601, 404)

    numbers, result, methods = await stream(modern(answer, extensions={META + "tasks": {}}))
    assert (numbers, result.text) == ([1, 2], "text 1\ntext 2")
    assert "tasks/stream" not in methods


async def test_a_server_without_streaming_that_asks_is_answered() -> None:
    async def answer(reply: Reply) -> None:
        if "inputResponses" in reply.request.params:
            await reply.result(WHOLE)
        else:
            params = {"mode": "form", "message": "Name?", "requestedSchema": FORM}
            request = {"method": "elicitation/create", "params": params}
            await reply.result({"resultType": "input_required", "inputRequests": {"name": request}})

    async def elicit(question: Elicitation) -> dict[str, Any]:
        return {"name": "Ada"}

    numbers, _, methods = await stream(modern(answer), elicit=elicit)
    assert numbers == [1, 2]
    assert methods.count("tools/call") == 2


async def test_a_call_that_failed_raises_after_its_segments_unless_told_otherwise() -> None:
    async def answer(reply: Reply) -> None:
        await reply.result({**WHOLE, "isError": True})

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        async with client.stream("tool") as stream:
            with pytest.raises(Failure, match="text 1"):
                await read(stream)
            assert stream.result.is_error
        async with client.stream("tool", check=False) as stream:
            assert await read(stream) == []
            assert stream.result.data == {"n": 2}


async def test_an_error_of_the_call_is_raised() -> None:
    async def answer(reply: Reply) -> None:
        await reply.error(-32602)

    with pytest.raises(RequestError) as caught:
        await stream(modern(answer))
    assert caught.value.code == -32602
    assert not isinstance(caught.value, NotFound)


async def test_a_stream_is_read_inside_its_context_and_once() -> None:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await MODERN.part(reply, 1)
        await reply.hang()

    async with serving(MODERN.serve(answer, task=False)) as fake, Client(fake.url) as client:
        stream = client.stream("tool")
        with pytest.raises(ClientError, match="inside `async with`"):
            await anext(stream)
        async with stream:
            assert (await anext(stream)).number == 1
            with pytest.raises(ClientError, match="has no result yet"):
                assert stream.result
        await asyncio.wait_for(fake.gone.wait(), 30)  # leaving it gives the call up
        with pytest.raises(ClientError, match="left before its end"):
            assert stream.result
        with pytest.raises(ClientError, match="read once"):
            async with stream:
                pass


# SEP-1905, as others may speak it


async def test_what_the_client_wishes_for_is_said_by_the_tool() -> None:
    async def answer(reply: Reply) -> None:
        await reply.result(WHOLE)

    for task in (True, False):
        async with streaming(LEGACY, answer, task=task) as (stream, fake):
            assert await read(stream) == [1, 2]
        params = next(heard.params for heard in fake.heard if heard.method == "tools/call")
        modes = ["streaming", "task"]
        expected: dict[str, Any] = {"task": {"responseModes": modes}} if task else {"stream": {}}
        assert {key: params.get(key) for key in expected} == expected
        assert ("task" in params, "stream" in params) == (task, not task)


async def test_a_first_response_that_is_the_only_one() -> None:
    async def answer(reply: Reply) -> None:
        content = [{"seqNr": n, **block} for n, block in enumerate(blocks([1, 2]), 1)]
        await reply.result({"partial-content": content, "isComplete": True, "structuredContent": {"n": 2}})

    async with streaming(LEGACY, answer) as (stream, _):
        assert await read(stream) == [1, 2]
        assert (stream.result.text, stream.result.data) == ("text 1\ntext 2", {"n": 2})


def polled(*answers: dict[str, Any]) -> Answer:
    """A server that makes a task of a call, and tells of its segments only when it is asked."""
    left = list(answers)

    async def call(reply: Reply) -> None:
        first = {"partial-content": [{"seqNr": 1, **blocks([1])[0]}], "isError": False, "isComplete": False}
        await reply.result({"task": LEGACY.task("working"), **first})

    async def follow(reply: Reply) -> None:
        await reply.result(left.pop(0))

    async def look(reply: Reply) -> None:
        await LEGACY.status(reply, "completed" if not left else "working", 0)

    return on(LEGACY, call, follow, look)


async def test_a_server_that_answers_at_once_with_what_there_is_is_asked_again() -> None:
    nothing: dict[str, Any] = {"partial-content": [], "isError": False, "isComplete": False}
    second = {**nothing, "partial-content": [{"seqNr": 2, **blocks([2])[0]}]}
    answer = polled(nothing, second, nothing, {**nothing, "isComplete": True})
    async with streaming(LEGACY, answer, task=True) as (stream, fake):
        assert await read(stream) == [1, 2]
        assert stream.result.text == "text 1\ntext 2"
    asked = [heard.params for heard in fake.heard if heard.method == "tasks/result"]
    assert [params["lastSeqNr"] for params in asked] == [1, 1, 2, 2]


async def test_a_server_that_gives_all_in_the_end_instead() -> None:
    async with streaming(LEGACY, polled({**WHOLE, "_meta": {RELATED: {"taskId": TASK}}}), task=True) as given:
        stream, _ = given
        assert await read(stream) == [1, 2]
        assert (stream.result.data, stream.result.meta) == ({"n": 2}, None)


async def test_a_server_that_cannot_resume_is_waited_for() -> None:
    async def call(reply: Reply) -> None:
        await reply.events()
        await LEGACY.part(reply, 1, task_id=TASK)

    looks = iter(["working"] * 5)

    async def follow(reply: Reply) -> None:
        if "lastSeqNr" in reply.request.params:
            await reply.error(-32603)
        else:
            await reply.result(WHOLE)

    async def look(reply: Reply) -> None:
        await LEGACY.status(reply, next(looks, "completed"), 0)

    async with streaming(LEGACY, on(LEGACY, call, follow, look), task=True) as (stream, _):
        assert await read(stream) == [1, 2]


@pytest.mark.parametrize(
    ("status", "redeemed", "kind"),
    [
        ("failed", {"content": [{"type": "text", "text": "It broke."}], "isError": True}, Failure),
        ("failed", -32603, InternalError),
        ("cancelled", -32602, TaskCancelled),
        ("gone", -32602, TaskLost),
    ],
)
async def test_how_a_stream_of_a_task_can_end(status: str, redeemed: Any, kind: type[Exception]) -> None:
    async def call(reply: Reply) -> None:
        await reply.events()
        await LEGACY.part(reply, 1, task_id=TASK)
        last = {"partial-content": [], "isError": status == "failed", "isComplete": True}
        await reply.event({"id": reply.request.id, "result": last})

    async def follow(reply: Reply) -> None:
        await (reply.error(redeemed) if isinstance(redeemed, int) else reply.result(redeemed))

    async def look(reply: Reply) -> None:
        await (reply.error(-32602) if status == "gone" else LEGACY.status(reply, status, 0))

    got: list[int] = []
    async with streaming(LEGACY, on(LEGACY, call, follow, look), task=True) as (stream, fake):
        with pytest.raises(kind):
            await read_into(got, stream)
    assert got == [1]
    assert "tasks/cancel" not in fake.methods()


async def test_a_failure_in_an_answer_has_its_words_in_the_result() -> None:
    async def answer(reply: Reply) -> None:
        words = [{"type": "text", "text": "It broke."}]
        await reply.result({"content": words, "isError": True, "isComplete": True})

    async with streaming(LEGACY, answer) as (stream, _):
        with pytest.raises(Failure, match="^It broke.$"):
            await read(stream)


async def test_a_plain_call_of_a_server_that_sends_parts_all_the_same() -> None:
    async def answer(reply: Reply) -> None:
        content = [{"seqNr": n, **block} for n, block in enumerate(blocks([1, 2]), 1)]
        await reply.result({"partial-content": content, "isComplete": True})

    async with serving(LEGACY.serve(answer, task=False)) as fake, Client(fake.url) as client:
        assert (await client.call("tool")).text == "text 1\ntext 2"


# A task in another process


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_a_task_is_read_from_a_number_on_and_its_result_is_whole(dialect: Modern) -> None:
    async def follow(reply: Reply) -> None:
        if isinstance(dialect, Legacy) and "stream" not in reply.request.params:
            await reply.result({"content": blocks([1, 2, 3]), "isError": False})
            return
        assert dialect.after(reply) == 2
        await reply.events()
        await dialect.part(reply, 3, task_id=TASK)
        await dialect.end(reply, 3, task_id=TASK)

    def look(reply: Reply) -> Any:
        return dialect.status(reply, "working", 3)

    answer = dialect.serve(on(dialect, Reply.hang, follow, look), task=True)
    async with (
        asyncio.timeout(DEADLINE),
        serving(answer) as fake,
        Client(fake.url) as client,
        client.task(TASK).stream(after=2) as stream,
    ):
        assert await read(stream) == [3]
        assert (stream.task_id, stream.result.text) == (TASK, "text 1\ntext 2\ntext 3")
    assert "tasks/cancel" not in fake.methods()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_leaving_the_stream_of_a_task_early_does_not_stop_it(dialect: Modern) -> None:
    async def follow(reply: Reply) -> None:
        await reply.events()
        await dialect.part(reply, 1, task_id=TASK)
        await reply.hang()

    answer = dialect.serve(on(dialect, Reply.hang, follow), task=True)
    async with asyncio.timeout(DEADLINE), serving(answer) as fake, Client(fake.url) as client:
        async with client.task(TASK).stream() as stream:
            assert (await anext(stream)).number == 1
        await fake.gone.wait()
    assert "tasks/cancel" not in fake.methods()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_a_silent_stream_that_was_open_for_long_is_opened_again_however_often(
    dialect: Modern, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_segments, "STABLE_STREAM_SECONDS", -1.0)
    breaks = iter(range(2 * task_segments.MAX_BREAKS))

    async def follow(reply: Reply) -> None:
        await reply.events()
        if next(breaks, None) is None:
            await dialect.part(reply, 1, task_id=TASK)
            await reply.hang()

    def look(reply: Reply) -> Any:
        return dialect.status(reply, "working", 0)

    monkeypatch.setattr(requests, "LONGEST_RETRY_SECONDS", 0.01)
    answer = dialect.serve(on(dialect, Reply.hang, follow, look), task=True)
    async with (
        asyncio.timeout(DEADLINE),
        serving(answer) as fake,
        Client(fake.url) as client,
        client.task(TASK).stream() as stream,
    ):
        assert (await anext(stream)).number == 1


async def test_a_number_before_the_first_is_refused() -> None:
    async with serving(modern(Reply.hang)) as fake, Client(fake.url) as client:
        with pytest.raises(ValueError, match="numbers start at 1"):
            client.task(TASK).stream(after=-1)


async def test_a_promise_that_was_kept_at_once_can_be_streamed_too() -> None:
    async def answer(reply: Reply) -> None:
        await reply.result(WHOLE)

    async with serving(modern(answer)) as fake, Client(fake.url) as client:
        promise = await client.submit("tool")
        async with promise.stream(after=1) as stream:
            assert await read(stream) == [2]
        assert (stream.result.text, stream.task_id) == ("text 1\ntext 2", None)


async def test_a_gap_in_a_task_that_has_ended_is_filled_from_the_whole_result() -> None:
    async def follow(reply: Reply) -> None:
        if "lastSeqNr" in reply.request.params:  # a server need not send segments again
            content = [{"seqNr": 3, **blocks([3])[0]}]
            await reply.result({"partial-content": content, "isError": False, "isComplete": True})
        else:
            await reply.result({"content": blocks([1, 2, 3]), "isError": False})

    async def call(reply: Reply) -> None:
        await reply.events()
        await LEGACY.part(reply, 1, task_id=TASK)
        await LEGACY.end(reply, 3, fresh=1, task_id=TASK)

    def look(reply: Reply) -> Any:
        return LEGACY.status(reply, "completed", 3)

    async with streaming(LEGACY, on(LEGACY, call, follow, look), task=True) as (stream, _):
        assert await read(stream) == [1, 2, 3]
        assert stream.result.text == "text 1\ntext 2\ntext 3"
