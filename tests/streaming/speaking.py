"""Streaming requests in each dialect, without our client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.asking.driving import EVERYTHING
from tests.promises.speaking import RELATED, TASKS, Patient
from tests.support import http
from tests.support.http import Connection, Event
from tests.support.speakers import Bare, Modern, Session, Speaker

STREAMING = "dev.antiphon/streaming"
FALLBACK = "io.modelcontextprotocol/fallback-mode"
PARTIAL_RESULT = "notifications/tools/partial_result"
ALL = ("task", "immediate", "streaming")
JSON_ONLY = {"accept": "application/json"}
UNKNOWN = "Failed to retrieve task: Task not found"

CORE = ("draft", "2025-11-25")
DIALECTS = ("draft", "2025-11-25", "2026-07-28")


class Listener(Modern):
    """A client of 2026-07-28 that accepts segments and does not accept tasks."""

    capabilities = {**EVERYTHING, "extensions": {STREAMING: {}}}


class Follower(Patient):
    """A client of 2026-07-28 that accepts segments and tasks."""

    capabilities = {**EVERYTHING, "extensions": {TASKS: {}, STREAMING: {}}}


def declaring(*modes: str) -> dict[str, Any]:
    """Return the capabilities of a client that accepts these response modes."""
    return {**EVERYTHING, "tasks": {"responses": {"modes": list(modes)}}}


async def speaker(dialect: str, port: int, *, promises: bool = False, **options: Any) -> Speaker:
    """Return a client of a dialect that accepts segments and can answer every kind of question."""
    if dialect == "draft":
        return Bare(port, **options)
    if dialect == "2026-07-28":
        return Follower(port, **options) if promises else Listener(port, **options)
    session = Session(port, **options)
    await session.open(capabilities=declaring(*ALL))
    return session


def wish(tool: str, *modes: str, ttl: int | None = None, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of a call that requests a task in one of these modes."""
    task: dict[str, Any] = {} if ttl is None else {"ttl": ttl}
    if modes:
        task["responseModes"] = list(modes)
    return {"name": tool, "arguments": arguments, "task": task}


def streamed(client: Speaker, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of a call that requests a stream without a task."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    return params if isinstance(client, Modern) else {**params, "stream": {}}


def numbered(frames: Sequence[Mapping[str, Any]]) -> list[tuple[int, Any]]:
    """Return the segments in messages in the order of arrival: each number, and its text or block."""
    found: list[tuple[int, Any]] = []
    for frame in frames:
        if frame.get("method") == PARTIAL_RESULT:
            params = frame["params"]
            found += [
                (number, block.get("text", block))
                for number, block in enumerate(params["content"], params["seqNr"])
            ]
        for segment in frame.get("result", {}).get("partial-content", ()):
            block = {key: value for key, value in segment.items() if key != "seqNr"}
            found.append((segment["seqNr"], block.get("text", block)))
    return found


def texts(frames: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Check that messages have every segment once and in order; return the texts."""
    found = numbered(frames)
    assert [number for number, _ in found] == list(range(1, len(found) + 1)), found
    return [text for _, text in found]


def task_id(result: Mapping[str, Any]) -> str:
    """Return the id of the task that a result belongs to."""
    return str(result["_meta"][RELATED]["taskId"])


class Reading:
    """Reads the messages of a stream."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[dict[str, Any]] = []
        self._events: AsyncIterator[Event] | None = None

    async def next(self) -> dict[str, Any] | None:
        """Return the next message, `None` at the end."""
        if self._events is None:
            head = await self.connection.receive_head()
            self._events = self.connection.events() if head.is_stream else self._alone()
        async for event in self._events:
            if event.data:
                self.frames.append(event.frame)
                return event.frame
        return None

    async def _alone(self) -> AsyncIterator[Event]:
        """Return a response that came without a stream, because it was complete."""
        yield Event(data=b"".join([piece async for piece in self.connection.chunks()]).decode())

    async def up_to(self, number: int) -> dict[str, Any]:
        """Read up to the segment with this number; return its message."""
        for frame in self.frames:
            if any(found >= number for found, _ in numbered([frame])):
                return frame
        assert await self.next() is not None, f"ended after {numbered(self.frames)}"
        return await self.up_to(number)

    async def until(self, method: str) -> dict[str, Any]:
        """Read up to a message with this method, and return it."""
        while (frame := await self.next()) is not None:
            if frame.get("method") == method:
                return frame
        raise AssertionError(f"no {method} in {self.frames}")

    async def rest(self) -> dict[str, Any]:
        """Read to the end, and return the last message."""
        while await self.next() is not None:
            pass
        return self.frames[-1]


@asynccontextmanager
async def reading(
    client: Speaker, method: str, params: Mapping[str, Any], *, id: Any = 1
) -> AsyncIterator[Reading]:
    """Make a request, and return a reader of its stream."""
    async with client.asking(method, params, id=id) as connection:
        yield Reading(connection)


async def respond(session: Speaker, id: Any, result: Mapping[str, Any]) -> None:
    """Post the response to a question of the server."""
    frame = {"jsonrpc": "2.0", "id": id, "result": dict(result)}
    taken = await http.request(session.port, "POST", session.headers, json.dumps(frame).encode())
    assert taken.status == 202


async def merged(client: Speaker, id: str) -> dict[str, Any]:
    """Wait for the end of a task, and return its whole result."""
    if isinstance(client, Modern):
        async with reading(client, "tasks/stream", {"taskId": id}) as stream:
            return dict((await stream.rest())["result"]["result"])
    return (await client.ask("tasks/result", {"taskId": id})).result
