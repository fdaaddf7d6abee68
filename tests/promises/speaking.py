"""Requests about tasks in each dialect, without our client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from tests.asking.driving import EVERYTHING, accept
from tests.support.http import Response
from tests.support.polling import DEADLINE, until
from tests.support.speakers import Modern, Speaker

TASKS = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"


T = TypeVar("T")


class Patient(Modern):
    """A client of 2026-07-28 that accepts tasks and can answer every kind of question."""

    capabilities = {**EVERYTHING, "extensions": {TASKS: {}}}

    def build(
        self, method: str, params: Mapping[str, Any] | None = None, *, id: Any = 1
    ) -> tuple[dict[str, str], dict[str, Any]]:
        headers, frame = super().build(method, params, id=id)
        if method.startswith("tasks/") and isinstance((params or {}).get("taskId"), str):
            headers["mcp-name"] = (params or {})["taskId"]
        return headers, frame


async def begin(speaker: Speaker, tool: str, ttl: int | None = None, /, **arguments: Any) -> dict[str, Any]:
    """Call a tool as a task, and return the task."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if not isinstance(speaker, Modern):
        params["task"] = {} if ttl is None else {"ttl": ttl}
    result = (await speaker.ask("tools/call", params)).result
    return dict(result["task"]) if "task" in result else result


async def look(speaker: Speaker, id: str) -> dict[str, Any]:
    """Return a task."""
    return (await speaker.ask("tasks/get", {"taskId": id})).result


async def reach(speaker: Speaker, id: str, *statuses: str, within: float = DEADLINE) -> dict[str, Any]:
    """Wait until a task has one of these statuses, and return it."""

    async def reached() -> dict[str, Any] | None:
        task = await look(speaker, id)
        return task if task["status"] in statuses else None

    return await wanted(reached, within)


async def wanted(find: Callable[[], Awaitable[T | None]], within: float = DEADLINE) -> T:
    """Wait until something is found, and return it."""
    found = await until(find, within)
    assert found is not None
    return found


async def answer(speaker: Speaker, id: str, **names: str) -> Response:
    """Answer questions that ask for a name."""
    responses = {key: accept(name=name) for key, name in names.items()}
    method = "tasks/update" if isinstance(speaker, Modern) else "tasks/input_response"
    return await speaker.ask(method, {"taskId": id, "inputResponses": responses})
