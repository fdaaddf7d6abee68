"""Fake servers that stream, in both dialects: what a test says is what goes over the socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from antiphon.client import Client, Stream
from tests.client.fakes import Answer, Fake, Reply, legacy, modern, serving
from tests.support.polling import DEADLINE

LIMIT = 256 * 1024
TASK = "t1"
RELATED = "io.modelcontextprotocol/related-task"
EXTENSIONS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}, "dev.antiphon/streaming": {}}
TASKS = {"requests": {"tools": {"call": {}}}, "responses": {"modes": ["immediate", "streaming", "task"]}}


def blocks(numbers: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": f"text {number}"} for number in numbers]


class Modern:
    """2026-07-28 with the extension: notifications, and one response."""

    name = "2026-07-28"
    follow = "tasks/stream"

    def serve(self, answer: Answer, *, task: bool) -> Answer:
        return modern(answer, extensions=EXTENSIONS)

    async def part(self, reply: Reply, *numbers: Any, task_id: str | None = None, of: Any = None) -> None:
        """A message for each: these notifications have consecutive numbers in them."""
        for number in numbers:
            params = {"requestId": reply.request.id, "seqNr": number, "content": blocks([number])}
            if of is not None:
                params["content"] = [{"type": "text", "text": of}]
            if task_id is not None:
                params["taskId"] = task_id
            await reply.event({"method": "notifications/tools/partial_result", "params": params})

    async def end(self, reply: Reply, count: int, *, fresh: int = 0, task_id: str | None = None) -> None:
        """The last response, after `count` segments."""
        result: dict[str, Any] = {
            "resultType": "complete",
            "content": blocks(range(1, count + 1)),
            "isError": False,
        }
        if task_id is not None:
            result = self.task("completed", result=result, resultType="complete")
        await reply.event({"id": reply.request.id, "result": result})

    def task(self, status: str, **more: Any) -> dict[str, Any]:
        moment = "2026-11-15T12:00:00Z"
        known = {"taskId": TASK, "createdAt": moment, "lastUpdatedAt": moment, "ttlMs": None}
        return {"resultType": "complete", **known, "pollIntervalMs": 20, "status": status, **more}

    async def promise(self, reply: Reply) -> None:
        """The answer to a call that becomes a task."""
        await reply.result(self.task("working", resultType="task"))

    async def status(self, reply: Reply, status: str, count: int) -> None:
        """The answer to `tasks/get`."""
        result = {"content": blocks(range(1, count + 1)), "isError": False}
        await reply.result(self.task(status, **({"result": result} if status == "completed" else {})))

    def after(self, reply: Reply) -> int:
        """From which number on a request wants segments."""
        return int(reply.request.params.get("after", 0))


class Legacy(Modern):
    """2025-11-25 as SEP-1905 extends it: several responses with one id."""

    name = "2025-11-25"
    follow = "tasks/result"

    def serve(self, answer: Answer, *, task: bool) -> Answer:
        tool = {"name": "tool", "inputSchema": {"type": "object"}}
        support = {"execution": {"taskSupport": "optional" if task else "forbidden"}}

        async def listing(reply: Reply) -> None:
            if reply.request.method == "tools/list":
                await reply.result({"tools": [{**tool, **support}]})
            else:
                await answer(reply)

        return legacy(listing, tasks=TASKS)

    async def part(self, reply: Reply, *numbers: Any, task_id: str | None = None, of: Any = None) -> None:
        content = [{"seqNr": number, **block} for number, block in zip(numbers, blocks(numbers), strict=True)]
        if of is not None:
            content = [{**block, "text": of} for block in content]
        await reply.event(self._response(reply, content, complete=False, task_id=task_id))

    async def end(self, reply: Reply, count: int, *, fresh: int = 0, task_id: str | None = None) -> None:
        numbers = range(count - fresh + 1, count + 1)
        content = [{"seqNr": number, **block} for number, block in zip(numbers, blocks(numbers), strict=True)]
        await reply.event(self._response(reply, content, complete=True, task_id=task_id))

    def task(self, status: str, **more: Any) -> dict[str, Any]:
        moment = "2026-11-15T12:00:00Z"
        known = {"taskId": TASK, "createdAt": moment, "lastUpdatedAt": moment, "ttl": None}
        return {**known, "pollInterval": 20, "status": status, **more}

    async def promise(self, reply: Reply) -> None:
        await reply.result({"task": self.task("working")})

    async def status(self, reply: Reply, status: str, count: int) -> None:
        await reply.result(self.task(status))

    def after(self, reply: Reply) -> int:
        return int(reply.request.params.get("lastSeqNr", 0))

    def _response(self, reply: Reply, content: Any, *, complete: bool, task_id: str | None) -> dict[str, Any]:
        result: dict[str, Any] = {"partial-content": content, "isError": False, "isComplete": complete}
        if task_id is not None:
            result["_meta"] = {RELATED: {"taskId": task_id}}
        return {"id": reply.request.id, "result": result}


DIALECTS = (Modern(), Legacy())


@asynccontextmanager
async def streaming(
    dialect: Modern,
    answer: Answer,
    *,
    task: bool = False,
    within: float | None = None,
    deadline: float | None = DEADLINE,
    **options: Any,
) -> AsyncIterator[tuple[Stream, Fake]]:
    """A stream of a call of a server that answers so."""
    given: dict[str, Any] = {"max_message": LIMIT, **options}
    async with (
        asyncio.timeout(deadline),
        serving(dialect.serve(answer, task=task)) as fake,
        Client(fake.url, **given) as client,
        client.stream("tool", timeout=within) as stream,
    ):
        yield stream, fake


async def read(stream: Stream) -> list[int]:
    """The numbers of all segments, whose texts are as they should be."""
    numbers: list[int] = []
    await read_into(numbers, stream)
    return numbers


async def read_into(numbers: list[int], stream: Stream) -> None:
    """Note the numbers of segments until the stream ends or fails."""
    async for segment in stream:
        assert segment.text == f"text {segment.number}"
        numbers.append(segment.number)


def on(dialect: Modern, call: Answer, follow: Answer, look: Answer | None = None) -> Answer:
    """Answers calls with one, requests for segments with another, and says that the task works."""

    async def answer(reply: Reply) -> None:
        method = reply.request.method
        if method == "tools/call":
            await call(reply)
        elif method == dialect.follow:
            await follow(reply)
        elif method == "tasks/get":
            await (look(reply) if look is not None else dialect.status(reply, "working", 0))
        elif method == "tasks/cancel":
            await reply.result({"resultType": "complete"})
        else:
            await reply.error(-32601, 404)

    return answer
