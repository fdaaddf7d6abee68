"""Readers that disconnect, cancel, come late or read slowly, and which of them slow a tool down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon import wall_clock
from tests.promises.speaking import look, reach
from tests.streaming.speaking import (
    CORE,
    UNKNOWN,
    Follower,
    numbered,
    reading,
    speaker,
    streamed,
    task_id,
    texts,
    wish,
)
from tests.streaming.tooling import Studio
from tests.support.polling import until
from tests.support.process import started
from tests.support.serving import Address
from tests.support.speakers import Bare, Session, Speaker

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIECE, PIECES = 100_000, 160
HOUR = 3_600_000


# Going away


@pytest.mark.parametrize("tool", ["gated", "threaded"])
@pytest.mark.parametrize("dialect", ["draft", "2026-07-28"])
async def test_a_caller_that_goes_away_stops_the_generator(
    port: int, studio: Studio, dialect: str, tool: str
) -> None:
    client = await speaker(dialect, port)
    async with reading(client, "tools/call", streamed(client, tool, n=50)) as stream:
        studio.allow(2)
        await stream.up_to(2)
        stream.connection.vanish()
    if tool == "threaded":  # a thread notices when it wants to say the next thing

        def has_ended() -> bool:
            studio.allow(1)
            return bool(studio.ended[tool])

        await until(has_ended)
    await until(lambda: studio.ended[tool] == 1)


async def test_a_generator_in_a_thread_does_not_go_on_for_nobody(
    served: tuple[Studio, Address], studio: Studio
) -> None:
    client = Bare(served[1].port)
    async with reading(client, "tools/call", streamed(client, "threaded", n=1000)) as stream:
        studio.allow(2)
        await stream.up_to(2)
        stream.connection.vanish()
    await until(lambda: served[1].under_way == 0)  # that has been noticed
    studio.allow(500)
    await until(lambda: studio.ended["threaded"] == 1)
    assert studio.thread_gate.acquire(blocking=False), "it has emitted everything, for nobody"


async def test_in_2025_a_caller_that_goes_away_comes_back_for_the_rest(port: int, studio: Studio) -> None:
    client = await speaker("2025-11-25", port)
    assert isinstance(client, Session)
    async with client.asking("tools/call", streamed(client, "gated", n=4)) as connection:
        studio.allow(2)
        await connection.receive_head()
        frames: list[dict[str, Any]] = []
        last_event = None
        async for event in connection.events():
            last_event = event.id or last_event
            frames += [event.frame] if event.data else []
            if len(numbered(frames)) == 2:
                break
        connection.vanish()
    studio.allow(1)
    await until(lambda: studio.gate.locked())
    async with client.listening(last_event) as connection:
        assert (await connection.receive_head()).is_stream
        studio.allow(1)
        frames += [event.frame async for event in connection.events() if event.data]
    assert texts(frames) == ["1", "2", "3", "4"]
    assert frames[-1]["result"]["isComplete"] is True
    assert studio.ended["gated"] == 1


@pytest.mark.parametrize("dialect", ["draft", "2025-11-25", "2026-07-28"])
async def test_a_reader_of_a_task_that_goes_away_leaves_the_task_alone(
    port: int, studio: Studio, dialect: str
) -> None:
    client = await speaker(dialect, port, promises=True)
    studio.allow(2)
    if isinstance(client, Follower):
        id = (await client.call("gated", n=4)).result["taskId"]
        method, params = "tasks/stream", {"taskId": id}
    else:
        id, method, params = "", "tools/call", wish("gated", "streaming", n=4)
    async with reading(client, method, params) as stream:
        first = await stream.up_to(2)
        id = id or task_id(first["result"])
        stream.connection.vanish()
    studio.allow(2)
    await reach(client, id, "completed")
    assert studio.ended["gated"] == 1


# Cancelling


async def test_a_call_of_a_session_can_be_cancelled_in_mid_stream(port: int, studio: Studio) -> None:
    client = await speaker("2025-11-25", port)
    async with reading(client, "tools/call", streamed(client, "gated", n=4), id="mine") as stream:
        studio.allow(1)
        await stream.up_to(1)
        await client.tell("notifications/cancelled", {"requestId": "mine"})
        await stream.rest()
        assert texts(stream.frames) == ["1"]
    await until(lambda: studio.ended["gated"] == 1)


@pytest.mark.parametrize("dialect", CORE)
async def test_the_stream_of_a_task_that_is_cancelled_ends(port: int, studio: Studio, dialect: str) -> None:
    client = await speaker(dialect, port)
    async with reading(client, "tools/call", wish("gated", "streaming", n=4)) as stream:
        studio.allow(2)
        id = task_id((await stream.up_to(2))["result"])
        cancelled = (await client.ask("tasks/cancel", {"taskId": id})).result
        assert cancelled["status"] == "cancelled"
        studio.allow(2)
        last = (await stream.rest())["result"]
        assert texts(stream.frames) == ["1", "2"]
        assert (last["partial-content"], last["isComplete"]) == ([], True)
        assert last["isError"] is True  # it does not end as a finished one
        assert last["content"] == [{"type": "text", "text": "The task was cancelled by request."}]
        assert last["task"]["status"] == "cancelled"
    assert (await look(client, id))["status"] == "cancelled"
    page = (await client.ask("tasks/result", {"taskId": id, "lastSeqNr": 1})).result
    assert (page["isComplete"], page["isError"], page["task"]["status"]) == (True, True, "cancelled")
    assert (await client.ask("tasks/result", {"taskId": id})).error["code"] == -32603
    await until(lambda: studio.ended["gated"] == 1)
    kinds = [entry.kind for entry in await studio.store.read(id)]
    assert "emitted" not in kinds[kinds.index("cancelled") :]


async def test_the_stream_of_the_extension_ends_with_the_cancelled_task(port: int, studio: Studio) -> None:
    client = Follower(port)
    id = (await client.call("gated", n=4)).result["taskId"]
    async with reading(client, "tasks/stream", {"taskId": id}) as stream:
        studio.allow(2)
        await stream.up_to(2)
        await client.ask("tasks/cancel", {"taskId": id})
        last = (await stream.rest())["result"]
        assert (last["taskId"], last["status"]) == (id, "cancelled")
        assert texts(stream.frames) == ["1", "2"]


# Too late


@pytest.mark.parametrize("dialect", CORE)
async def test_the_stream_of_a_task_whose_time_is_over_ends(
    port: int, studio: Studio, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await speaker(dialect, port)
    async with reading(client, "tools/call", wish("gated", "streaming", ttl=HOUR, n=4)) as stream:
        studio.allow(2)
        id = task_id((await stream.up_to(2))["result"])
        monkeypatch.setattr(wall_clock, "ahead", HOUR / 1000)
        await studio.server.engine.tasks.check_times()
        last = (await stream.rest())["result"]
        assert (last["partial-content"], last["isComplete"], last["isError"]) == ([], True, True)
        assert task_id(last) == id
        assert texts(stream.frames) == ["1", "2"]
    assert (await client.ask("tasks/get", {"taskId": id})).error["message"] == UNKNOWN
    await until(lambda: studio.ended["gated"] == 1)


async def test_the_stream_of_the_extension_ends_with_the_words_for_no_task(
    port: int, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await Bare(port).ask("tools/call", wish("gated", ttl=HOUR, n=4))).result["task"]["taskId"]
    async with reading(Follower(port), "tasks/stream", {"taskId": made}) as stream:
        studio.allow(1)
        await stream.up_to(1)
        monkeypatch.setattr(wall_clock, "ahead", HOUR / 1000)
        await studio.server.engine.tasks.check_times()
        assert (await stream.rest())["error"] == {"code": -32602, "message": UNKNOWN}


# Reading slowly


@pytest.mark.parametrize("kind", ["memory"], indirect=True)
@pytest.mark.parametrize("dialect", ["draft", "2025-11-25", "2026-07-28"])
async def test_a_slow_reader_of_an_answer_slows_the_tool(port: int, studio: Studio, dialect: str) -> None:
    client = await speaker(dialect, port)
    params = streamed(client, "bulk", size=PIECE, n=PIECES)
    async with reading(client, "tools/call", params) as stream:
        await until(lambda: studio.ran["bulk"] >= 5)
        emitted = await _stagnated(client, studio)
        assert emitted < PIECES, "nothing held it up"
        await stream.rest()
        found = numbered(stream.frames)
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    assert studio.ran["bulk"] == PIECES
    if dialect == "2026-07-28":
        assert len(stream.frames[-1]["result"]["content"]) == PIECES
    else:
        assert len(found) == PIECES


async def _stagnated(client: Speaker, studio: Studio) -> int:
    """Return how many segments a blocked tool has emitted, while other requests are served."""
    while True:
        before = studio.ran["bulk"]
        for _ in range(50):
            await client.ask("tools/list")
        if studio.ran["bulk"] == before:
            return before


@pytest.mark.parametrize("dialect", CORE)
async def test_a_slow_reader_of_a_task_does_not(port: int, studio: Studio, dialect: str) -> None:
    client = await speaker(dialect, port)
    params = wish("bulk", "streaming", size=PIECE, n=PIECES)
    async with reading(client, "tools/call", params) as stream:
        first = await stream.next()
        assert first is not None
        id = task_id(first["result"])
        await reach(client, id, "completed")
        assert studio.ran["bulk"] == PIECES
        last = await stream.rest()
        found = numbered(stream.frames)
    assert [(number, int(text.split()[0])) for number, text in found] == [
        (n, n) for n in range(1, PIECES + 1)
    ]
    assert last["result"]["isComplete"] is True


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_readers_that_do_not_read_cost_next_to_nothing(tmp_path: Path, kind: str) -> None:
    megabyte, readers = 1_000_000, 10
    with started("emitting.py", tmp_path, env={"ANTIPHON_STORE": f"sqlite:///{tmp_path}/tasks.db"}) as server:
        client = Bare(server.port)
        await client.ask("tools/call", wish("bulk", "streaming", size=PIECE, n=50))  # warmed up
        before = server.memory
        id = (await client.ask("tools/call", wish("bulk", size=PIECE, n=400))).result["task"]["taskId"]
        connections = [
            await client.asking("tasks/result", {"taskId": id, "stream": {}}).__aenter__()
            for _ in range(readers)
        ]
        await reach(client, id, "completed")
        grown = server.memory - before
        for connection in connections:
            connection.vanish()
    assert grown < 80 * megabyte, f"{grown / megabyte:.0f} MB for 40 MB, {readers} times"
