"""The fifteen test scenarios that SEP-1905 recommends, each over a real socket and under its own number.

Those about what a client does are driven by our own client as well: on our server, on others', on fake ones.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from antiphon import Client, Failure, Stream
from antiphon.errors import TaskCancelled, TaskLost
from tests.client.conftest import _wait_for as wait_for
from tests.client.conftest import command
from tests.client.fakes import Reply, legacy, serving
from tests.client.streams import Legacy, blocks, on, read, streaming
from tests.promises.speaking import look, reach
from tests.promises.tooling import Ahead
from tests.streaming.speaking import (
    ALL,
    CORE,
    FALLBACK,
    RELATED,
    UNKNOWN,
    numbered,
    reading,
    speaker,
    task_id,
    texts,
    wish,
)
from tests.streaming.tooling import Studio, at_work
from tests.support.loop_time import LoopTime
from tests.support.polling import until
from tests.support.process import free_port
from tests.support.proxy import round_robin
from tests.support.speakers import Bare, Session, Speaker

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEGACY, MODERN = "2025-11-25", "2026-07-28"
HOUR = 3_600_000
versions = pytest.mark.parametrize("version", [LEGACY, MODERN])


@pytest.fixture(scope="module", params=["sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """The store that survives."""
    return str(request.param)


@pytest_asyncio.fixture(loop_scope="module", params=CORE)
async def client(request: pytest.FixtureRequest, port: int) -> Speaker:
    """A client of each dialect that SEP-1905 extends."""
    return await speaker(request.param, port)


@asynccontextmanager
async def ours(port: int, version: str) -> AsyncIterator[Client]:
    """Our own client."""
    url = f"http://127.0.0.1:{port}/mcp"
    async with asyncio.timeout(600), Client(url, protocol=version, timeout=600) as found:
        yield found


def content(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


# Basic Functionality


async def test_01_immediate_mode_complete_results(client: Speaker) -> None:
    answered = await client.ask("tools/call", wish("count", "immediate", n=3))
    assert content(answered.result) == ["1", "2", "3"]
    assert answered.result["isError"] is False
    assert not {"task", "partial-content", "isComplete"} & set(answered.result)
    assert RELATED not in answered.result.get("_meta", {})  # no task was made, so none is named


@pytest.mark.parametrize("modes", [(), ("task",)])
async def test_02_task_mode_standard_flow(client: Speaker, studio: Studio, modes: tuple[str, ...]) -> None:
    made = (await client.ask("tools/call", wish("gated", *modes, n=3))).result["task"]
    assert made["status"] == "working"
    assert (await look(client, made["taskId"]))["status"] == "working"
    studio.allow(3)
    await reach(client, made["taskId"], "completed")
    result = (await client.ask("tasks/result", {"taskId": made["taskId"]})).result
    assert content(result) == ["1", "2", "3"]
    assert task_id(result) == made["taskId"]
    assert "partial-content" not in result


async def test_03_streaming_mode_initial_response_only(client: Speaker) -> None:
    answered = await client.ask("tools/call", wish("plain", "streaming"))
    assert len(answered.frames) == 1
    result = answered.result
    assert result["partial-content"] == [{"seqNr": 1, "type": "text", "text": "plain"}]
    assert (result["isComplete"], result["isError"]) == (True, False)
    assert result["task"]["status"] == "completed"
    merged = (await client.ask("tasks/result", {"taskId": task_id(result)})).result
    assert content(merged) == ["plain"]


# Streaming Scenarios


async def test_04_streaming_mode_multiple_responses(client: Speaker, studio: Studio) -> None:
    studio.allow(2)
    async with reading(client, "tools/call", wish("gated", "streaming", n=4), id="one") as stream:
        first = (await stream.up_to(2))["result"]
        assert first["isComplete"] is False
        id = task_id(first)
        assert (await look(client, id))["status"] == "working"  # until isComplete
        studio.allow(2)
        last = (await stream.rest())["result"]
        assert texts(stream.frames) == ["1", "2", "3", "4"]
        assert last["isComplete"] is True
        assert {frame["id"] for frame in stream.frames} == {"one"}
        assert {task_id(frame["result"]) for frame in stream.frames} == {id}
    assert (await look(client, id))["status"] == "completed"


async def test_05_streaming_mode_sse_stream(client: Speaker, studio: Studio) -> None:
    async with client.asking("tools/call", wish("gated", "streaming", n=3)) as connection:
        head = await connection.receive_head()
        assert head.headers["content-type"].startswith("text/event-stream")
        studio.allow(3)
        frames = [event.frame async for event in connection.events() if event.data]
    assert texts(frames) == ["1", "2", "3"]
    assert all("result" in frame and "method" not in frame for frame in frames)


@versions
async def test_05_our_client_parses_it(port: int, studio: Studio, version: str) -> None:
    async with ours(port, version) as client, client.stream("gated", n=4) as stream:
        for number in range(1, 5):
            studio.allow(1)
            segment = await anext(stream)
            assert (segment.number, segment.text) == (number, str(number))
        assert [segment async for segment in stream] == []
        assert [block.text for block in stream.result.content] == ["1", "2", "3", "4"]  # type: ignore[union-attr]


async def test_06_streaming_mode_resume_with_last_seq_nr(client: Speaker, studio: Studio) -> None:
    async with reading(client, "tools/call", wish("gated", "streaming", n=5)) as stream:
        studio.allow(3)
        id = task_id((await stream.up_to(3))["result"])
        stream.connection.vanish()
    studio.allow(2)
    await reach(client, id, "completed")
    resumed = await client.ask("tasks/result", {"taskId": id, "lastSeqNr": 3}, id="again")
    assert numbered([resumed.frame]) == [(4, "4"), (5, "5")]
    assert (resumed.frame["id"], resumed.result["isComplete"]) == ("again", True)


@versions
async def test_06_our_client_resumes_by_itself(port: int, studio: Studio, version: str) -> None:
    async with (
        round_robin([port]) as line,
        ours(line.port, version) as client,
        client.stream("gated_required", n=9) as stream,
    ):
        seen: list[int] = []
        for reached in (3, 6, 9):
            studio.allow(3)
            while not seen or seen[-1] < reached:
                seen.append((await anext(stream)).number)
            line.cut()
        seen += [segment.number async for segment in stream]
        assert seen == list(range(1, 10))
        assert stream.result.text.split() == [str(n) for n in range(1, 10)]
    assert studio.ran["gated"] == 1


async def test_07_streaming_mode_gap_detection(client: Speaker) -> None:
    answered = await client.ask("tools/call", wish("count", "streaming", n=5))
    asked = await client.ask("tasks/result", {"taskId": task_id(answered.result), "lastSeqNr": 1})
    assert numbered([asked.frame]) == [(n, str(n)) for n in (2, 3, 4, 5)]


async def test_07_our_client_asks_for_what_is_missing() -> None:
    dialect, asked = Legacy(), []

    async def call(reply: Reply) -> None:
        for number in (1, 3, 5):
            await dialect.part(reply, number, task_id="t1")
        await dialect.end(reply, 5, task_id="t1")

    async def follow(reply: Reply) -> None:
        asked.append(dialect.after(reply))
        await reply.events()
        for number in range(dialect.after(reply) + 1, 6):
            await dialect.part(reply, number, task_id="t1")
        await dialect.end(reply, 5, task_id="t1")

    done = _completed(dialect, 5)
    async with streaming(dialect, on(dialect, _events(call), follow, done), task=True) as (stream, _):
        assert await read(stream) == [1, 2, 3, 4, 5]
    assert asked[0] == 1


def _events(call: Any) -> Any:
    async def answer(reply: Reply) -> None:
        await reply.events()
        await call(reply)

    return answer


def _completed(dialect: Legacy, count: int) -> Any:
    async def look(reply: Reply) -> None:
        await dialect.status(reply, "completed", count)

    return look


# Edge Cases


async def test_08_immediate_mode_fallback(client: Speaker, studio: Studio) -> None:
    async with reading(client, "tools/call", wish("gated", *ALL, n=2)) as stream:
        first = await stream.next()  # it emits, and streaming was offered
        assert first is not None
        assert first["result"]["task"]["status"] == "working"
        studio.allow(2)
        await stream.rest()
        assert texts(stream.frames) == ["1", "2"]
    for offered in (("immediate",), ("immediate", "task")):  # streaming was not
        made = (await client.ask("tools/call", wish("gated", *offered, n=1))).result
        assert made["task"]["status"] == "working"
        studio.allow(1)
        await reach(client, made["task"]["taskId"], "completed")


@pytest_asyncio.fixture(loop_scope="module")
async def expiring(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Studio, int, Ahead]]:
    """A server of its own, its port, and the time of day, which a test moves."""
    async with at_work(kind, tmp_path) as (studio, address):
        yield studio, address.port, Ahead(monkeypatch)


@pytest.mark.parametrize("dialect", CORE)
async def test_09_ttl_expiration_during_streaming(expiring: tuple[Studio, int, Ahead], dialect: str) -> None:
    studio, port, ahead = expiring
    client = await speaker(dialect, port)
    async with reading(client, "tools/call", wish("gated", "streaming", ttl=HOUR, n=5)) as stream:
        studio.allow(2)
        id = task_id((await stream.up_to(2))["result"])
        ahead(hours=1)
        last = (await stream.rest())["result"]
        assert (last["isComplete"], last["isError"]) == (True, True)
        assert "expired" in last["content"][0]["text"]
    assert (await client.ask("tasks/get", {"taskId": id})).error["message"] == UNKNOWN
    await until(lambda: studio.ended["gated"] == 1)


@versions
async def test_09_our_client_says_that_it_is_lost(expiring: tuple[Studio, int, Ahead], version: str) -> None:
    studio, port, ahead = expiring
    async with ours(port, version) as client:
        studio.allow(2)
        made = (await Bare(port).ask("tools/call", wish("gated", ttl=HOUR, n=5))).result["task"]["taskId"]
        async with client.task(made).stream() as stream:
            seen = [(await anext(stream)).number for _ in range(2)]
            ahead(hours=1)
            end = asyncio.ensure_future(anext(stream))
            await LoopTime.here().advance_until(end.done, 1)  # the client asks again from time to time
            with pytest.raises(TaskLost):
                await end
        assert seen == [1, 2]


async def test_10_task_cancellation_during_streaming(client: Speaker, studio: Studio) -> None:
    async with reading(client, "tools/call", wish("gated", "streaming", n=5)) as stream:
        studio.allow(2)
        id = task_id((await stream.up_to(2))["result"])
        assert (await client.ask("tasks/cancel", {"taskId": id})).result["status"] == "cancelled"
        studio.allow(3)
        last = (await stream.rest())["result"]
        assert last["isComplete"] is True
        assert texts(stream.frames) == ["1", "2"]
    assert (await look(client, id))["status"] == "cancelled"


@versions
async def test_10_our_client_says_that_it_was_cancelled(port: int, studio: Studio, version: str) -> None:
    async with ours(port, version) as client:
        promise = await client.submit("gated", n=5)
        studio.allow(2)
        async with promise.stream() as stream:
            seen = [(await anext(stream)).number for _ in range(2)]
            await promise.cancel()
            with pytest.raises(TaskCancelled):
                await anext(stream)
        assert seen == [1, 2]


async def test_11_task_failure_during_streaming(client: Speaker, studio: Studio) -> None:
    studio.allow(2)
    async with reading(client, "tools/call", wish("gated", "streaming", n=2, fail="Failure")) as stream:
        last = (await stream.rest())["result"]
        assert (last["isError"], last["isComplete"]) == (True, True)
        assert texts(stream.frames) == ["1", "2", "It cannot be done."]
    assert (await look(client, task_id(last)))["status"] == "failed"
    answered = await client.ask("tools/call", wish("gated", "streaming", n=0, fail="Failure"))
    assert content(answered.result) == ["It cannot be done."]  # nothing but the message: as content
    assert (answered.result["isError"], answered.result["isComplete"]) == (True, True)
    assert "partial-content" not in answered.result


async def test_11_an_error_after_segments_keeps_its_message(client: Speaker, studio: Studio) -> None:
    studio.allow(2)
    async with reading(client, "tools/call", wish("gated", "streaming", n=2, fail="InvalidParams")) as stream:
        last = (await stream.rest())["result"]
        assert (last["isError"], last["isComplete"]) == (True, True)
        assert texts(stream.frames) == ["1", "2"]
        assert content(last) == ["Not like that."]
    answered = await client.ask("tools/call", wish("gated", "streaming", n=0, fail="InvalidParams"))
    assert content(answered.result) == ["Not like that."]
    assert "partial-content" not in answered.result


@versions
async def test_11_our_client_raises_it_after_the_segments(port: int, studio: Studio, version: str) -> None:
    studio.allow(2)
    seen: list[int] = []
    async with ours(port, version) as client, client.stream("gated", n=2, fail="Failure") as stream:
        with pytest.raises(Failure, match="It cannot be done"):
            await read_numbers(stream, seen)
    assert seen[:2] == [1, 2]


async def read_numbers(stream: Stream, seen: list[int]) -> None:
    async for segment in stream:
        seen.append(segment.number)


async def test_12_duplicate_segment_detection() -> None:
    """A fake server sends a number twice on one stream, and again on another; our client takes each once."""
    dialect = Legacy()

    async def call(reply: Reply) -> None:
        for number in (1, 2, 2, 1):
            await dialect.part(reply, number, task_id="t1")

    async def follow(reply: Reply) -> None:
        await reply.events()
        for number in (2, 3):
            await dialect.part(reply, number, task_id="t1")
        await dialect.end(reply, 3, fresh=1, task_id="t1")

    done = _completed(dialect, 3)
    async with streaming(dialect, on(dialect, _events(call), follow, done), task=True) as (stream, _):
        assert await read(stream) == [1, 2, 3]
        assert len(stream.result.content) == 3


# Compatibility


async def test_13_new_client_old_server(tmp_path: Path) -> None:
    """Servers of the official SDK and of FastMCP, which never heard of any of this."""
    for peer in ("mcp", "fastmcp"):
        with _peer(peer, tmp_path) as port:
            for version in (LEGACY, MODERN):
                async with ours(port, version) as client, client.stream("add", a=2, b=3) as stream:
                    assert [segment.text async for segment in stream] == ["5"]
                    assert stream.task_id is None
                    assert stream.result.text == "5"


async def test_13_new_client_old_server_with_tasks() -> None:
    """One that has tasks and no modes gives the whole at the end, by way of a task."""
    dialect = Legacy()

    async def answer(reply: Reply) -> None:
        method = reply.request.method
        if method == "tools/list":
            execution = {"taskSupport": "required"}
            tool = {"name": "tool", "inputSchema": {"type": "object"}, "execution": execution}
            await reply.result({"tools": [tool]})
        elif method == "tools/call" and "task" not in reply.request.params:
            await reply.error(-32601)
        elif method == "tools/call":
            assert "responseModes" not in reply.request.params["task"]
            await dialect.promise(reply)
        elif method == "tasks/get":
            await dialect.status(reply, "completed", 2)
        else:
            await reply.result({"content": blocks([1, 2]), "isError": False})

    served = legacy(answer, tasks={"requests": {"tools": {"call": {}}}})
    async with asyncio.timeout(60), serving(served) as fake, Client(fake.url) as client:
        async with client.stream("tool") as stream:
            assert await read(stream) == [1, 2]
            assert stream.task_id == "t1"
        assert "tasks/result" in fake.methods()


@contextmanager
def _peer(name: str, folder: Path) -> Iterator[int]:
    port, log = free_port(), folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command(name, str(port)), stdout=sink, stderr=sink)
    try:
        wait_for(port, process, log)
        yield port
    finally:
        process.kill()
        process.wait()


async def test_14_old_client_new_server(port: int) -> None:
    old = Session(port)
    await old.open()  # it declares nothing, and names no modes
    for client in (old, Bare(port)):
        answered = await client.ask("tools/call", wish("count", n=3))
        assert answered.result["task"]["status"] == "working"
        assert FALLBACK not in answered.result.get("_meta", {})
        result = (await client.ask("tasks/result", {"taskId": answered.result["task"]["taskId"]})).result
        assert content(result) == ["1", "2", "3"]
        assert content((await client.call("count", n=3)).result) == ["1", "2", "3"]


async def test_15_mixed_mechanisms(client: Speaker, studio: Studio) -> None:
    """The call's own stream, a second stream and polling at once: one row of numbers for all of them."""
    async with reading(client, "tools/call", wish("gated", "streaming", n=6)) as first:
        studio.allow(2)
        id = task_id((await first.up_to(2))["result"])
        async with reading(client, "tasks/result", {"taskId": id, "stream": {}}) as second:
            await second.up_to(2)
            polled = numbered((await client.ask("tasks/result", {"taskId": id, "lastSeqNr": 1})).frames)
            studio.allow(4)
            await asyncio.gather(first.rest(), second.rest())
            assert texts(first.frames) == texts(second.frames) == [str(n) for n in range(1, 7)]
            assert polled == [(2, "2")]


async def test_15_our_client_merges_what_comes_both_ways() -> None:
    """Segments in the first response, on the same stream, and after that by `tasks/result`."""
    dialect = Legacy()

    async def call(reply: Reply) -> None:
        await dialect.part(reply, 1, 2, task_id="t1")
        await dialect.part(reply, 3, task_id="t1")

    async def follow(reply: Reply) -> None:
        await reply.events()
        after = dialect.after(reply)
        for number in range(max(after - 1, 1), 6):
            await dialect.part(reply, number, task_id="t1")
        await dialect.end(reply, 5, task_id="t1")

    done = _completed(dialect, 5)
    async with streaming(dialect, on(dialect, _events(call), follow, done), task=True) as (stream, _):
        assert await read(stream) == [1, 2, 3, 4, 5]
