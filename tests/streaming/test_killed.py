"""A server that is killed during a stream and restarted: a reader that resumes by number gets everything."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client
from antiphon.client import Elicitation
from antiphon.client.tasks import requests
from antiphon.store import open_store
from antiphon.store.contract import Store
from tests.promises.speaking import reach
from tests.streaming.planting import planted
from tests.streaming.speaking import (
    CORE,
    Follower,
    Reading,
    merged,
    numbered,
    reading,
    speaker,
    task_id,
    wish,
)
from tests.support.leases import end_leases
from tests.support.polling import until
from tests.support.process import ServerProcess, free_port, started

N = 40


class Place:
    """Restarts a server on one port and one store, and limits how far its tool may go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.store = f"sqlite:///{folder}/tasks.db"
        self._pace = folder / "pace"
        self.allow(0)

    def allow(self, segments: int) -> None:
        """Allow the tool to emit up to this number."""
        self._pace.write_text(str(segments))

    @contextmanager
    def serving(self) -> Iterator[ServerProcess]:
        """Run the server while the context is open."""
        env = {"ANTIPHON_STORE": self.store, "PACE": str(self._pace)}
        with started("emitting.py", self.folder, env=env, port=self.port) as server:
            yield server

    async def kill(self, server: ServerProcess) -> None:
        """Kill the server, and end the lease of its task."""
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        await end_leases(self.store)


async def read_until_killed(
    stream: Reading, place: Place, server: ServerProcess, up_to: int
) -> list[tuple[int, Any]]:
    """Read until the server is killed; return the segments, at least up to a number."""
    await stream.up_to(up_to)
    await place.kill(server)
    try:
        while await stream.next() is not None:
            pass
    except (OSError, asyncio.IncompleteReadError):
        pass
    return numbered(stream.frames)


@pytest.mark.parametrize("dialect", [*CORE, "2026-07-28"])
async def test_a_reader_goes_on_by_number(tmp_path: Path, dialect: str) -> None:
    place = Place(tmp_path)
    place.allow(10)
    with place.serving() as server:
        client = await speaker(dialect, place.port, promises=True)
        if isinstance(client, Follower):
            id = (await client.call("paced", n=N)).result["taskId"]
            async with reading(client, "tasks/stream", {"taskId": id}) as stream:
                seen = await read_until_killed(stream, place, server, 10)
        else:
            async with reading(client, "tools/call", wish("paced", "streaming", n=N)) as stream:
                seen = await read_until_killed(stream, place, server, 10)
                id = task_id(stream.frames[0]["result"])
    assert seen == [(n, str(n)) for n in range(1, 11)]
    place.allow(25)
    with place.serving() as server:
        async with _going_on(client, id, after=10) as stream:
            seen += await read_until_killed(stream, place, server, 25)
    assert seen == [(n, str(n)) for n in range(1, 26)]
    place.allow(N)
    with place.serving():
        async with _going_on(client, id, after=25) as stream:
            last = await stream.rest()
            seen += numbered(stream.frames)
        assert seen == [(n, str(n)) for n in range(1, N + 1)]
        if isinstance(client, Follower):
            assert last["result"]["status"] == "completed"
        else:
            assert last["result"]["isComplete"] is True
            polled = await client.ask("tasks/result", {"taskId": id, "lastSeqNr": 38})
            assert numbered(polled.frames) == [(39, "39"), (40, "40")]
        await reach(client, id, "completed")
        whole = await merged(client, id)
        assert [block["text"] for block in whole["content"]] == [str(n) for n in range(1, N + 1)]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_our_client_goes_on_by_itself(tmp_path: Path, version: str) -> None:
    place, found = Place(tmp_path), []
    place.allow(5)
    with ExitStack() as servers:
        server = servers.enter_context(place.serving())
        async with (
            asyncio.timeout(600),
            Client(f"http://127.0.0.1:{place.port}/mcp", protocol=version) as client,
            client.stream("paced", n=15) as stream,
        ):
            async for segment in stream:
                found.append((segment.number, segment.text))
                if segment.number in (5, 10):
                    await place.kill(server)
                    place.allow(segment.number + 5)
                    server = servers.enter_context(place.serving())
            assert found == [(number, str(number)) for number in range(1, 16)]
            final = await client.task(stream.task_id or "").result()
            assert stream.result.content == final.content


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_segments_come_one_by_one_after_an_outage_during_a_question(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "FIRST_RETRY_SECONDS", 0.02)
    place, outages = Place(tmp_path), 0
    with ExitStack() as servers:
        server = servers.enter_context(place.serving())

        async def elicit(question: Elicitation) -> dict[str, str]:
            nonlocal outages
            if not outages:
                outages += 1
                await place.kill(server)
                await _refuse_connections(place.port, 12)
                servers.enter_context(place.serving())
            return {"name": "Ada"}

        async with (
            asyncio.timeout(600),
            Client(f"http://127.0.0.1:{place.port}/mcp", protocol=version, elicit=elicit) as client,
        ):
            handle = await client.submit("ask_then_paced", n=3)
            async with handle.stream() as stream:
                for number in (1, 2, 3):
                    place.allow(number)  # the task cannot end before the last segment is allowed
                    segment = await anext(stream)
                    assert (segment.number, segment.text) == (number, f"{number} Ada")
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
    assert outages == 1


async def _refuse_connections(port: int, times: int) -> None:
    """Be a server that is down, until clients have tried to connect to it so many times."""
    refused = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal refused
        refused += 1
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", port):
        await until(lambda: refused >= times)


async def test_taking_up_a_task_that_has_said_much_costs_little_memory(tmp_path: Path) -> None:
    peaks = []
    for name, batches in (("little", [1]), ("much", [1] * 300)):
        place = Place(tmp_path)
        store = open_store(f"sqlite:///{tmp_path}/tasks.db")
        await store.open()
        await planted(store, batches, ended=False, width=200_000, name=name)
        with place.serving() as server:
            await until(partial(_has_ended, store))
            peaks.append(server.peak)
        await store.close()
    assert peaks[1] - peaks[0] < 30_000_000, "it has kept what was said"


async def _has_ended(store: Store) -> bool:
    return not await store.count("ready")


def _going_on(client: Any, id: str, after: int) -> Any:
    if isinstance(client, Follower):
        return reading(client, "tasks/stream", {"taskId": id, "after": after})
    return reading(client, "tasks/result", {"taskId": id, "stream": {}, "lastSeqNr": after})
