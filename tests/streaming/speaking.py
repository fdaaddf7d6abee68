"""Segments as callers of each dialect see them, by hand."""

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
    """A client of 2026-07-28 that takes segments, and no promises."""

    capabilities = {**EVERYTHING, "extensions": {STREAMING: {}}}


class Follower(Patient):
    """One that takes segments and promises."""

    capabilities = {**EVERYTHING, "extensions": {TASKS: {}, STREAMING: {}}}


def declaring(*modes: str) -> dict[str, Any]:
    """The capabilities of a client that takes answers in these ways."""
    return {**EVERYTHING, "tasks": {"responses": {"modes": list(modes)}}}


async def speaker(dialect: str, port: int, *, promises: bool = False, **options: Any) -> Speaker:
    """A speaker of a dialect who takes segments, and can answer everything."""
    if dialect == "draft":
        return Bare(port, **options)
    if dialect == "2026-07-28":
        return Follower(port, **options) if promises else Listener(port, **options)
    session = Session(port, **options)
    await session.open(capabilities=declaring(*ALL))
    return session


def wish(tool: str, *modes: str, ttl: int | None = None, **arguments: Any) -> dict[str, Any]:
    """The parameters of a call that wants a task, in one of these ways."""
    task: dict[str, Any] = {} if ttl is None else {"ttl": ttl}
    if modes:
        task["responseModes"] = list(modes)
    return {"name": tool, "arguments": arguments, "task": task}


def streamed(client: Speaker, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The parameters of a call whose segments are wanted as they come, without a task."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    return params if isinstance(client, Modern) else {**params, "stream": {}}


def numbered(frames: Sequence[Mapping[str, Any]]) -> list[tuple[int, Any]]:
    """The segments in some messages, in the order in which they came: each number, and its text or block."""
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
    """The segments in some messages, which are all there, in order, and each once."""
    found = numbered(frames)
    assert [number for number, _ in found] == list(range(1, len(found) + 1)), found
    return [text for _, text in found]


def task_id(result: Mapping[str, Any]) -> str:
    """The task that a result belongs to."""
    return str(result["_meta"][RELATED]["taskId"])


class Reading:
    """What comes on a stream, as it comes."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[dict[str, Any]] = []
        self._events: AsyncIterator[Event] | None = None

    async def next(self) -> dict[str, Any] | None:
        """The next message, `None` at the end."""
        if self._events is None:
            head = await self.connection.receive_head()
            self._events = self.connection.events() if head.is_stream else self._alone()
        async for event in self._events:
            if event.data:
                self.frames.append(event.frame)
                return event.frame
        return None

    async def _alone(self) -> AsyncIterator[Event]:
        """What was answered without a stream, because it was all there."""
        yield Event(data=b"".join([piece async for piece in self.connection.chunks()]).decode())

    async def up_to(self, number: int) -> dict[str, Any]:
        """Read until the segment with this number is there; the message that brought it."""
        for frame in self.frames:
            if any(found >= number for found, _ in numbered([frame])):
                return frame
        assert await self.next() is not None, f"ended after {numbered(self.frames)}"
        return await self.up_to(number)

    async def until(self, method: str) -> dict[str, Any]:
        """Read until a message with this method; that message."""
        while (frame := await self.next()) is not None:
            if frame.get("method") == method:
                return frame
        raise AssertionError(f"no {method} in {self.frames}")

    async def rest(self) -> dict[str, Any]:
        """Read to the end; the last message."""
        while await self.next() is not None:
            pass
        return self.frames[-1]


@asynccontextmanager
async def reading(
    client: Speaker, method: str, params: Mapping[str, Any], *, id: Any = 1
) -> AsyncIterator[Reading]:
    """A request, and what comes on its stream."""
    async with client.asking(method, params, id=id) as connection:
        yield Reading(connection)


async def respond(session: Speaker, id: Any, result: Mapping[str, Any]) -> None:
    """Post the response to a question of the server's."""
    frame = {"jsonrpc": "2.0", "id": id, "result": dict(result)}
    taken = await http.request(session.port, "POST", session.headers, json.dumps(frame).encode())
    assert taken.status == 202


async def merged(client: Speaker, id: str) -> dict[str, Any]:
    """The whole result of a task, once it has ended."""
    if isinstance(client, Modern):
        async with reading(client, "tasks/stream", {"taskId": id}) as stream:
            return dict((await stream.rest())["result"]["result"])
    return (await client.ask("tasks/result", {"taskId": id})).result
