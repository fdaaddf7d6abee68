"""The seeds' flows, in every dialect, with clients that retry when a process is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.asking.driving import EVERYTHING, accept
from tests.promises.speaking import Patient
from tests.streaming.speaking import Follower, numbered, reading
from tests.support import http
from tests.support.http import Response
from tests.support.polling import until
from tests.support.speakers import JSON, Bare, Modern, Session, Speaker

T = TypeVar("T")
RETRY_SECONDS = 300.0
DIALECTS = ("draft", "2025-11-25", "2026-07-28")
GONE = (OSError, asyncio.IncompleteReadError, TimeoutError)


class Unavailable(Exception):
    """An error that says when to retry."""


async def retry_until_done(work: Callable[[], Awaitable[T]]) -> T:
    """Retry work until it succeeds, while processes are killed."""

    async def attempt() -> tuple[T] | None:
        try:
            return (await work(),)
        except (*GONE, Unavailable):
            return None

    found = await until(attempt, RETRY_SECONDS)
    assert found is not None
    return found[0]


def result_of(response: Response) -> dict[str, Any]:
    """Return the result; raise `Unavailable` for an error that says when to retry, and fail for others."""
    if response.status == 503:
        assert int(response.headers["retry-after"]) > 0
        raise Unavailable(response.frame["error"]["message"])
    return response.result


def _unavailable_message(frame: dict[str, Any]) -> str:
    """Return the message of an error on a stream; fail unless it says that the store is unavailable."""
    message = str(frame["error"]["message"])
    assert "try again" in message, frame
    return message


async def speaker(dialect: str, port: int) -> Speaker:
    """Return a speaker that accepts tasks and answers every kind of question."""
    if dialect == "draft":
        return Bare(port)
    if dialect == "2026-07-28":
        return Patient(port)
    session = Session(port)

    async def open_session() -> None:
        await session.open(capabilities={**EVERYTHING, "tasks": {"responses": {"modes": ["streaming"]}}})

    await retry_until_done(open_session)
    return session


async def begin(speaker: Speaker, tool: str, **arguments: Any) -> str:
    """Create a task, and return its id."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if not isinstance(speaker, Modern):
        params["task"] = {}

    async def ask() -> str:
        result = result_of(await speaker.ask("tools/call", params))
        return str(result["task"]["taskId"] if "task" in result else result["taskId"])

    return await retry_until_done(ask)


async def reach(speaker: Speaker, id: str, *statuses: str) -> dict[str, Any]:
    """Return the task, once it has one of these statuses."""

    async def look() -> dict[str, Any]:
        task = result_of(await speaker.ask("tasks/get", {"taskId": id}))
        return task if task["status"] in statuses else {}

    return await until(lambda: retry_until_done(look), RETRY_SECONDS)


async def redeem(speaker: Speaker, id: str) -> list[str]:
    """Return the texts of a task's result."""
    task = await reach(speaker, id, "completed", "failed", "cancelled")
    assert task["status"] == "completed", task
    if isinstance(speaker, Modern):
        return [block.get("text", block.get("uri")) for block in task["result"]["content"]]

    async def ask() -> list[str]:
        result = result_of(await speaker.ask("tasks/result", {"taskId": id}))
        return [block.get("text", block.get("uri")) for block in result["content"]]

    return await retry_until_done(ask)


# The flows: each gives the task's id, and what it told


async def weather(speaker: Speaker) -> tuple[str, list[str]]:
    """Seed 000: a promise, redeemed."""
    id = await begin(speaker, "get_weather", city="London")
    told = await redeem(speaker, id)
    assert told[0].startswith("Current weather in London:")
    return id, told


async def echo(speaker: Speaker) -> tuple[str, list[str]]:
    """Seeds 001 and 002: a task that asks, is answered, and goes on."""
    id = await begin(speaker, "echo")
    await reach(speaker, id, "input_required", "completed")
    if isinstance(speaker, Session):
        result = await retry_until_done(lambda: _on_the_stream(speaker, "tasks/result", {"taskId": id}))
        assert result["content"][0]["text"] == "Echo: Hello World!"
        return id, await redeem(speaker, id)
    method = "tasks/update" if isinstance(speaker, Modern) else "tasks/input_response"
    params = {"taskId": id, "inputResponses": {"echo_input": accept(input="Hello World!")}}

    async def answer() -> None:
        result_of(await speaker.ask(method, params))

    await retry_until_done(answer)
    told = await redeem(speaker, id)
    assert told == ["Echo: Hello World!"]
    return id, told


async def research(speaker: Speaker) -> tuple[str, list[str]]:
    """Seed 004: a task whose segments are streamed by number, while processes are killed."""
    id = await begin(speaker, "research", topic="sheep")
    seen = await _streamed(Follower(speaker.port) if isinstance(speaker, Modern) else speaker, id)
    assert list(seen) == list(range(1, len(seen) + 1))
    told = await redeem(speaker, id)
    assert [line.partition(":")[0] for line in told[:5]] == [
        f"In {place}"
        for place in ("an encyclopedia", "a library", "an archive", "the newspapers", "a museum")
    ]
    assert list(seen.values()) == told, "the stream is not whole"
    return id, told


async def _streamed(client: Speaker, id: str) -> dict[int, str]:
    seen: dict[int, str] = {}

    async def read() -> bool:
        last = max(seen, default=0)
        if isinstance(client, Follower):
            method, params = "tasks/stream", {"taskId": id, "after": last}
        else:
            method, params = "tasks/result", {"taskId": id, "stream": {}}
            params |= {"lastSeqNr": last} if last else {}
        async with reading(client, method, params) as stream:
            while (frame := await stream.next()) is not None:
                for number, words in numbered([frame]):
                    assert seen.setdefault(number, words) == words, "a number has two contents"
                if "error" in frame:
                    raise Unavailable(_unavailable_message(frame))
                if "result" in frame and frame["result"].get("isComplete", True):
                    return True
        raise Unavailable("the stream broke")

    await retry_until_done(read)
    return dict(sorted(seen.items()))


ANSWERS = {
    "How was this bug resolved?": ("resolution", accept(resolution="Duplicate")),
    "which work item is the original?": ("duplicate_of", accept(duplicateOfId=4301)),
    "Please provide the input string": ("echo_input", accept(input="Hello World!")),
}
CALL = {
    "name": "update_work_item",
    "arguments": {"workItemId": 4522, "fields": {"System.State": "Resolved"}},
}


async def rounds(speaker: Speaker) -> tuple[str, list[str]]:
    """Seed 002: an answer that asks twice; no store is needed where the client carries the journal."""
    if isinstance(speaker, Session):
        result = await retry_until_done(lambda: _on_the_stream(speaker, "tools/call", CALL))
    else:
        result = await _asked_in_rounds(speaker)
    told = [block["text"] for block in result["content"]]
    assert told[0].startswith("Bug #4522 resolved as Duplicate of Bug #4301.")
    return "", told


async def _asked_in_rounds(speaker: Speaker) -> dict[str, Any]:
    params: dict[str, Any] = dict(CALL)
    answers = dict(ANSWERS.values())

    async def ask() -> dict[str, Any]:
        return result_of(await speaker.ask("tools/call", params))

    while "content" not in (result := await retry_until_done(ask)):
        params["inputResponses"] = {key: answers[key] for key in result["inputRequests"]}
        params |= {"requestState": result["requestState"]} if "requestState" in result else {}
    return result


async def _on_the_stream(session: Session, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Call with questions on the stream. The load balancer sends the answers to any process."""
    async with reading(session, method, params) as stream:
        while (frame := await stream.next()) is not None:
            if frame.get("method") == "elicitation/create":
                message = frame["params"]["message"]
                result = next(answer for words, (_, answer) in ANSWERS.items() if words in message)
                body = json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}).encode()
                taken = await http.request(session.port, "POST", {**JSON, **session.headers}, body)
                if taken.status != 202:
                    raise Unavailable("the answer was not taken")
            elif "result" in frame:
                return dict(frame["result"])
            elif "error" in frame:
                raise Unavailable(_unavailable_message(frame))
    raise Unavailable("the stream broke")


FLOWS = (weather, echo, research, rounds)
