"""Our client and our server stream to each other: on both versions, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client, Failure, Image, InvalidParams, Segment, Stream, Text
from antiphon.client import Elicitation, connection
from antiphon.errors import TaskCancelled, TaskLost
from tests.client.streams import read
from tests.client.telling import make
from tests.support.polling import DEADLINE, until
from tests.support.process import environment
from tests.support.serving import serving

MODERN, LEGACY, DRAFT = "2026-07-28", "2025-11-25", "DRAFT-2026-v1"
FILE = Path(__file__).with_name("telling.py")

versions = pytest.mark.parametrize("version", [MODERN, LEGACY, DRAFT])
transports = pytest.mark.parametrize("transport", ["http", "stdio", "memory"])


async def name(question: Elicitation) -> dict[str, Any]:
    return {"value": "Ada"}


@asynccontextmanager
async def connected(version: str, transport: str, **options: Any) -> AsyncIterator[Client]:
    given: dict[str, Any] = {"elicit": name, "timeout": DEADLINE, "protocol": version, **options}
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE))
        target: Any = make()
        if transport == "http":
            target = (await stack.enter_async_context(serving(target))).url
        elif transport == "stdio":
            command = [
                sys.executable,
                "-m",
                "antiphon",
                "run",
                str(FILE),
                "--stdio",
                "--log-level",
                "warning",
            ]
            target, given["env"] = command, environment()
        yield await stack.enter_async_context(Client(target, **given))


async def texts(stream: Stream) -> list[tuple[int, str]]:
    return [(segment.number, segment.text) async for segment in stream]


async def read_by_steps(stream: Stream, client: Client) -> list[int]:
    """Read a tool that waits until each segment has been read, and return the numbers of the segments."""
    numbers = []
    async for segment in stream:
        assert segment.text == f"text {segment.number}"
        numbers.append(segment.number)
        await client.call("step")
    return numbers


@transports
@versions
async def test_what_a_tool_emits_is_read_as_it_comes(version: str, transport: str) -> None:
    async with connected(version, transport) as client:
        for tool in ("answer", "optional", "required"):
            async with client.stream(tool, to=5, waits=True) as stream:
                assert await read_by_steps(stream, client) == [1, 2, 3, 4, 5], tool
            called = await client.call(tool, to=5)
            assert stream.result.content == called.content
            assert stream.result.meta == called.meta
            assert (stream.task_id is None) == (tool == "answer")

        async with client.stream("ask") as stream:
            assert await texts(stream) == [(1, "text 1"), (2, "text 2"), (3, "Hello, Ada!")]
        async with client.stream("ask_later") as stream:
            assert await texts(stream) == [(1, "text 1"), (2, "text 2"), (3, "Hello, Ada!")]
        assert stream.result.text == "text 1\ntext 2\nHello, Ada!"


@pytest.mark.parametrize("transport", ["http", "memory"])
@versions
async def test_a_segment_comes_before_the_next_is_made(
    version: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If anything ran on that has to be waited for, the client would not close before the deadline.
    monkeypatch.setattr(connection, "GOODBYE_SECONDS", 2 * DEADLINE)
    async with connected(version, transport) as client:
        for tool in ("answer", "optional", "required"):
            async with client.stream(tool, to=3, waits=True) as stream:
                assert (await anext(stream)).text == "text 1"


@versions
async def test_a_call_that_becomes_a_task_goes_on_counting(version: str) -> None:
    async with connected(version, "memory") as client, client.stream("turn") as stream:
        assert await read(stream) == [1, 2, 3]
        assert stream.task_id is not None
        assert stream.result.text == "text 1\ntext 2\ntext 3"


@versions
async def test_a_failure_comes_after_the_segments(version: str) -> None:
    async with connected(version, "memory") as client:
        for tool in ("fail", "fail_later"):
            async with client.stream(tool, waits=True) as stream:
                assert await anext(stream) == Segment(1, Text("text 1"))
                await client.call("step")
                with pytest.raises(Failure, match="It broke") as failed:
                    await texts(stream)
            assert failed.value.data == {"why": "so"}
            assert stream.result.text == (await client.call(tool, check=False)).text
            async with client.stream(tool, check=False) as stream:
                assert (await texts(stream))[0] == (1, "text 1")
                assert stream.result.is_error
        async with client.stream("refuse") as stream:
            assert (await anext(stream)).number == 1
            await client.call("step")
            with pytest.raises(InvalidParams, match="Not like this"):
                await texts(stream)


@versions
async def test_a_result_has_all_segments_and_what_is_for_programs(version: str) -> None:
    async with connected(version, "memory") as client:
        for tool in ("measure", "measure_later"):
            async with client.stream(tool) as stream:
                blocks = [(await anext(stream)).block]
                await client.call("step")
                blocks += [segment.block async for segment in stream]
            assert blocks[:2] == [Text("text 1"), Text("text 2")]
            assert (tuple(blocks), stream.result.data) == (stream.result.content, {"measured": 2})


@versions
async def test_pictures_are_segments_too(version: str) -> None:
    async with connected(version, "memory") as client, client.stream("paint") as stream:
        first, second = [segment async for segment in stream]
    assert isinstance(second.block, Image)
    assert (first.text, second.text) == ("text 1", "")


@versions
async def test_leaving_early_stops_the_call(version: str) -> None:
    async with connected(version, "http") as client:
        async with client.stream("wait") as stream:
            assert (await anext(stream)).number == 1
            assert stream.task_id is not None
        task = client.task(stream.task_id)
        assert [status.status async for status in task.updates()][-1] == "cancelled"
        with pytest.raises(TaskCancelled):
            async with task.stream() as again:
                await texts(again)


@versions
async def test_a_task_that_is_cancelled_ends_its_stream(version: str) -> None:
    async with connected(version, "memory") as client, client.stream("wait") as stream:
        assert (await anext(stream)).number == 1
        assert stream.task_id is not None
        await client.task(stream.task_id).cancel()
        with pytest.raises(TaskCancelled):
            await anext(stream)


@pytest.mark.parametrize("transport", ["http", "stdio"])
@versions
async def test_a_task_is_read_again_from_any_number_on(version: str, transport: str) -> None:
    async with connected(version, transport) as client:
        promise = await client.submit("required", to=6, waits=True)
        async with client.task(promise.id or "").stream() as stream:
            assert await read_by_steps(stream, client) == list(range(1, 7))
        for after in (0, 4, 6, 7):
            async with client.task(promise.id or "").stream(after=after) as stream:
                assert await read(stream) == list(range(after + 1, 7))
            assert stream.result.text == (await promise.result()).text
            assert stream.result.meta == (await promise.result()).meta
        with pytest.raises(TaskLost):
            async with client.task("nobody").stream() as stream:
                await texts(stream)


@versions
async def test_another_client_takes_up_what_one_has_begun(version: str) -> None:
    async with serving(make()) as address, asyncio.timeout(DEADLINE):
        async with Client(address.url, protocol=version, elicit=name) as client:
            promise = await client.submit("ask_later")
            async with client.task(promise.id or "").stream() as stream:
                assert (await anext(stream)).number == 1
        async with (
            Client(address.url, protocol=version, elicit=name) as client,
            client.task(promise.id or "").stream(after=1) as stream,
        ):
            assert await texts(stream) == [(2, "text 2"), (3, "Hello, Ada!")]


class Wire:
    """A connection to a server that can be cut."""

    def __init__(self, port: int) -> None:
        self.backend = port
        self.port = 0
        self.made = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.backend)
        self._open |= {writer, back_writer}
        for source, sink in ((reader, back_writer), (back_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def close(self) -> None:
        self.cut()
        if self._passing:
            await asyncio.wait(self._passing)


@asynccontextmanager
async def wired(port: int) -> AsyncIterator[tuple[Wire, str]]:
    """A wire to a server, and the address of its near end."""
    wire = Wire(port)
    listening = await asyncio.start_server(wire.accept, "127.0.0.1", 0)
    try:
        yield wire, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    finally:
        listening.close()
        await wire.close()


CUTS = [{number} for number in range(1, 7)] + [set(range(1, 7))]


@versions
async def test_a_task_is_taken_up_after_each_cut(version: str) -> None:
    async with serving(make()) as address, asyncio.timeout(DEADLINE), Client(address.url) as beside:
        for cuts in CUTS:
            async with wired(address.port) as (wire, url), Client(url, protocol=version) as client:
                async with client.stream("required", to=6, waits=True) as stream:
                    found = []
                    async for segment in stream:
                        found.append((segment.number, segment.text))
                        if segment.number in cuts:
                            wire.cut()
                        await beside.call("step")
                    id = stream.task_id
                assert found == [(number, f"text {number}") for number in range(1, 7)], cuts
                final = await client.task(id or "").result()
                assert stream.result.content == final.content
                assert (stream.result.data, stream.result.is_error) == (final.data, final.is_error)
        await until(lambda: address.under_way == 0)
