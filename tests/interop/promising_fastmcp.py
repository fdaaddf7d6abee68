"""FastMCP's client with its tasks extension, and a person who answers as told."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import ToolTask, call_tool_task
from fastmcp_tasks.client_models import (
    ClientCreateTaskResult,
)

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


class Person:
    """Answers as told, and remembers what was asked, with the request in which it was."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, str]] = []

    async def elicit(self, message: str, kind: Any, params: Any, context: Any) -> types.ElicitResult:
        self._asked.append((str(context.request_id), message))
        answer = OPTIONS["answers"][message]
        if isinstance(answer, str):
            return types.ElicitResult.model_validate({"action": answer})
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept" if params.url == OPTIONS["login"] else "cancel")
        return types.ElicitResult(action="accept", content=answer)

    def asked(self, id: str) -> list[str]:
        """What was asked for a task."""
        return [message for request, message in self._asked if id in request]


async def begin(client: Client[Any], tool: str) -> ToolTask:
    """A new task."""
    return await call_tool_task(client, tool, {}, raise_on_error=False)


async def questions(task: ToolTask) -> str:
    """Wait until a task asks."""
    return (await task.wait(state="input_required", timeout=60)).status


async def finish(person: Person, task: ToolTask) -> dict[str, Any]:
    """See a task ask, then let it be answered until it has ended."""
    statuses = [await questions(task)]
    result = await task.result()
    statuses.append((await task.status()).status)
    return {
        "id": task.task_id,
        "statuses": statuses,
        "given": shown(result),
        "asked": person.asked(task.task_id),
    }


async def unawares(client: Client[Any], tool: str) -> dict[str, Any]:
    """An ordinary call, whose caller does not see that there was a task."""
    return {"given": shown(await client.call_tool(tool, {}, raise_on_error=False))}


async def cancel(person: Person, task: ToolTask) -> dict[str, Any]:
    """Cancel a task when it asks."""
    await questions(task)
    await task.cancel()
    return {"status": (await task.wait(timeout=60)).status, "asked": person.asked(task.task_id)}


def again(client: Client[Any], id: str) -> ToolTask:
    """A task that somebody else began."""
    known = ClientCreateTaskResult(
        task_id=id, status="working", created_at="", last_updated_at="", result_type="task"
    )
    return ToolTask(client, "", known, raise_on_error=False)


def shown(result: Any) -> dict[str, Any]:
    """What is printed of a result."""
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    return {"content": content, "isError": result.is_error}


async def main() -> None:
    """Do what the options say."""
    person = Person()
    told: dict[str, Any] = {"calls": {}}
    target: Any = OPTIONS.get("url") or StdioTransport(**OPTIONS["process"], keep_alive=False)
    async with Client(target, timeout=60, elicitation_handler=person.elicit) as client:
        told["version"] = client.session.protocol_version
        for tool in OPTIONS.get("tools", ()):
            told["calls"][tool] = await finish(person, await begin(client, tool))
        told["many"] = await asyncio.gather(*(unawares(client, tool) for tool in OPTIONS.get("many", ())))
        if "cancel" in OPTIONS:
            told["cancelled"] = await cancel(person, await begin(client, OPTIONS["cancel"]))
        if "begin" in OPTIONS:
            task = await begin(client, OPTIONS["begin"])
            await questions(task)
            told["begun"] = task.task_id
        if "finish" in OPTIONS:
            told["finished"] = await finish(person, again(client, OPTIONS["finish"]))
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main())
