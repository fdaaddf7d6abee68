"""The official Python client of 2025-11-25 with tasks, mcp 1, and a person who answers as told.

It is run by the Python in `.venv/mcp-1`, which does not have the tests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
RELATED = "io.modelcontextprotocol/related-task"


class Person:
    """Answers as told, and remembers for which task what was asked."""

    def __init__(self) -> None:
        self.asked: dict[str | None, list[str]] = {}

    def _note(self, context: Any, what: str) -> None:
        related = (context.meta.model_extra or {}).get(RELATED, {}) if context.meta else {}
        self.asked.setdefault(related.get("taskId"), []).append(what)

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self._note(context, params.message)
        answer = OPTIONS["answers"][params.message]
        if isinstance(answer, str):
            return types.ElicitResult.model_validate({"action": answer})
        if params.mode == "url":
            return types.ElicitResult(action="accept" if params.url == OPTIONS["login"] else "cancel")
        return types.ElicitResult(action="accept", content=answer)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self._note(context, "sampling")
        return types.CreateMessageResult(role="assistant", content=params.messages[0].content, model="parrot")

    async def roots(self, context: Any) -> types.ListRootsResult:
        self._note(context, "roots")
        return types.ListRootsResult.model_validate({"roots": [{"uri": OPTIONS["root"]}]})


@asynccontextmanager
async def connected(person: Person) -> AsyncIterator[ClientSession]:
    """A session in which the person answers."""
    way: Any = (
        streamable_http_client(OPTIONS["url"])
        if "url" in OPTIONS
        else stdio_client(StdioServerParameters(**OPTIONS["process"]))
    )
    async with (
        way as (read, write, *_),
        ClientSession(
            read,
            write,
            timedelta(seconds=20),
            elicitation_callback=person.elicit,
            sampling_callback=person.sample,
            list_roots_callback=person.roots,
        ) as session,
    ):
        yield session


async def begin(session: ClientSession, tool: str) -> str:
    """The id of a new task."""
    return (await session.experimental.call_tool_as_task(tool, {}, ttl=60_000)).task.taskId


async def questions(session: ClientSession, id: str) -> None:
    """Wait until a task asks."""
    async for task in session.experimental.poll_task(id):
        if task.status == "input_required":
            return


async def finish(session: ClientSession, person: Person, id: str) -> dict[str, Any]:
    """Look at a task until it has ended, and redeem it as soon as it asks: then the questions come."""
    statuses, given = [], None
    async for task in session.experimental.poll_task(id):
        statuses.append(task.status)
        if task.status == "input_required":
            given = await session.experimental.get_task_result(id, types.CallToolResult)
    again = await session.experimental.get_task_result(id, types.CallToolResult)
    assert again == given
    return {"id": id, "statuses": statuses, "given": shown(again), "asked": person.asked.get(id, [])}


async def cancel(session: ClientSession, person: Person, id: str) -> dict[str, Any]:
    """Cancel a task when it asks."""
    await questions(session, id)
    await session.experimental.cancel_task(id)
    status = (await session.experimental.get_task(id)).status
    return {"status": status, "asked": person.asked.get(id, [])}


def shown(value: Any) -> Any:
    """What is printed of a result."""
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def main() -> None:
    """Do what the options say."""
    person = Person()
    told: dict[str, Any] = {"calls": {}}
    async with connected(person) as session:
        told["version"] = (await session.initialize()).protocolVersion
        for tool in OPTIONS.get("tools", ()):
            told["calls"][tool] = await finish(session, person, await begin(session, tool))
        many = [await begin(session, tool) for tool in OPTIONS.get("many", ())]
        told["many"] = await asyncio.gather(*(finish(session, person, id) for id in many))
        if "cancel" in OPTIONS:
            told["cancelled"] = await cancel(session, person, await begin(session, OPTIONS["cancel"]))
        if OPTIONS.get("list"):
            listed = (await session.experimental.list_tasks()).tasks
            told["listed"] = {task.taskId: task.status for task in listed}
        if "begin" in OPTIONS:
            told["begun"] = await begin(session, OPTIONS["begin"])
            await questions(session, told["begun"])
        if "finish" in OPTIONS:
            told["finished"] = await finish(session, person, OPTIONS["finish"])
    print(json.dumps(told))


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # mcp 1 calls tasks an experiment that has ended
    asyncio.run(main())
