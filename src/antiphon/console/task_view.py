"""One task: its status, timeline, log, output and result, and what a person can do with it.

The log is for operators. A person who is none sees of their own task what its caller sees over MCP: the
status, the questions and the result.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from antiphon.console.live import Live
from antiphon.console.routes import ConsoleRequest, ConsoleUser, EventStream, Problem, Route
from antiphon.console.sources import Sources, StoreSource
from antiphon.console.task_content import (
    MAX_ARTIFACT_BYTES,
    MAX_BLOCKS,
    artifact_json,
    artifact_of,
    bounded_blocks,
    bounded_data,
    result_json,
)
from antiphon.console.task_facts import actions_of, facts_of
from antiphon.console.task_log import log_page, read_timeline, whole_entry
from antiphon.console.task_queries import visible_task
from antiphon.console.task_rows import error_of, row_of, task_or_none
from antiphon.console.timeline_layout import lay_out
from antiphon.errors import InvalidParams, TaskEnded, TaskNotFound
from antiphon.model.artifact import ArtifactRecord
from antiphon.model.identity import Principal
from antiphon.model.segment import Segments
from antiphon.model.task import Task
from antiphon.runtime.tasks.run_again import run_again
from antiphon.store.contract import Record

__all__ = ["TaskApi"]

MAX_COPY_BYTES = 16 * 1024 * 1024
"""The size of the largest task that can be copied as JSON."""
_UNREADABLE = "This task cannot be read: its record is damaged, or another version wrote it."

_encode = msgspec.json.Encoder().encode


class TaskApi:
    """The addresses of one task."""

    def __init__(self, sources: Sources, live: Live) -> None:
        self._sources = sources

    def routes(self) -> Sequence[Route]:
        """Return the routes of one task."""
        task = "/api/stores/{store}/tasks/{id}"
        return [
            Route("GET", task, self._show),
            Route("GET", f"{task}/timeline", self._timeline, operators=True),
            Route("GET", f"{task}/log", self._log, operators=True),
            Route("GET", f"{task}/log/{{number}}", self._entry, operators=True),
            Route("GET", f"{task}/stream", self._stream),
            Route("GET", f"{task}/json", self._json),
            Route("GET", f"{task}/artifact", self._artifact),
            Route("POST", f"{task}/cancel", self._cancel, writes=True),
            Route("POST", f"{task}/retry", self._retry, writes=True),
            Route("POST", f"{task}/again", self._run_again, writes=True, operators=True),
        ]

    async def _show(self, request: ConsoleRequest) -> Any:
        source, record = await visible_task(self._sources, request)
        task, operates = task_or_none(record), request.user.may_operate
        created = await _created(source, record)
        value: dict[str, Any] = {
            "task": row_of(record),
            "entries": record.version if operates else None,
            "arguments": bounded_data(created.get("arguments", {})),
        }
        if task is None:
            return {**value, "facts": [], "actions": [], "questions": [], "problem": _UNREADABLE}
        value |= {
            "facts": facts_of(record, task, created, operates=operates),
            "actions": actions_of(request.user, task),
            "questions": _question_keys(task, all=operates),
            "segments": task.segments,
            "result": result_json(task),
        }
        if (error := error_of(task)) is not None:
            value["failure"] = {"title": "The tool failed", "text": error}
        if task.fault is not None:
            value["failure"]["title"] = f"Error {task.fault.code}"
            if task.fault.data is not None:
                value["failure"]["data"] = bounded_data(task.fault.data)
        return value

    # The log

    async def _timeline(self, request: ConsoleRequest) -> Any:
        source, record = await visible_task(self._sources, request)
        task = task_or_none(record)
        ended = task.updated if task is not None and task.has_ended else None
        timeline = await read_timeline(source.store, record, ended=ended)
        return lay_out(timeline, int(time.time() * 1000))

    async def _log(self, request: ConsoleRequest) -> Any:
        source, record = await visible_task(self._sources, request)
        after, before = _number(request, "after"), _number(request, "before")
        return await log_page(source.store, record, after=after, before=before)

    async def _entry(self, request: ConsoleRequest) -> Any:
        source, record = await visible_task(self._sources, request)
        text = request.params["number"]
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
        found = await whole_entry(source.store, record, number)
        if found is None:
            raise Problem(404, "The log has no entry of this number.")
        return found

    # Output and result

    async def _stream(self, request: ConsoleRequest) -> EventStream:
        source, record = await visible_task(self._sources, request)
        return EventStream(_follow(source, record, _number(request, "after") or 0))

    async def _json(self, request: ConsoleRequest) -> Any:
        """Return the whole task, to be copied."""
        source, record = await visible_task(self._sources, request)
        task = task_or_none(record)
        if task is None:
            raise Problem(409, _UNREADABLE)
        created = await _created(source, record)
        whole = await source.service.with_content(task)
        value = {
            "id": record.id,
            "tool": record.tool,
            "principal": record.principal,
            "server": record.server,
            "status": row_of(record)["status"],
            "created": record.created,
            "updated": task.updated,
            "arguments": created.get("arguments", {}),
            "message": task.message,
            "questions": task.questions,
            "result": whole.result,
            "error": task.fault,
        }
        encoded = _encode({name: item for name, item in value.items() if item not in (None, {})})
        if len(encoded) > MAX_COPY_BYTES:
            raise Problem(413, f"The task is too large to copy. Use `antiphon tasks show STORE {record.id}`.")
        return msgspec.Raw(encoded)

    async def _artifact(self, request: ConsoleRequest) -> Any:
        """Return the artifact of the result, as far as the page shows it."""
        source, record = await visible_task(self._sources, request)
        task = task_or_none(record)
        id = None if task is None else artifact_of(task)
        artifacts = None if id is None else await source.artifacts()
        if id is None or artifacts is None:
            raise Problem(404, "The console does not have the artifacts of this store.")
        found = await artifacts.get(record.principal, id, now=int(time.time() * 1000))
        if found is None or not _may_read(request.user, found):
            raise Problem(404, "The artifact has expired.")
        return artifact_json(found, await artifacts.read(found, 0, min(found.size, MAX_ARTIFACT_BYTES)))

    # Changes

    async def _cancel(self, request: ConsoleRequest) -> Any:
        source, record = await visible_task(self._sources, request)
        try:
            await source.service.cancel(record.id, Principal(record.principal))
        except TaskEnded:
            raise Problem(409, "The task has ended already.") from None
        except TaskNotFound:
            raise Problem(404, "This task has expired.") from None
        return {}

    async def _retry(self, request: ConsoleRequest) -> Any:
        source, record = await visible_task(self._sources, request)
        task = task_or_none(record)
        if not request.user.may_operate and (task is None or task.state != "cancelled"):
            raise Problem(403, "Only operators retry a task that has failed. You can retry a cancelled one.")
        try:
            again = await source.service.retry(record.id, Principal(record.principal))
        except TaskNotFound:
            raise Problem(404, "This task has expired.") from None
        except InvalidParams as error:
            raise Problem(409, error.message) from None
        return {} if again.id == record.id else {"id": again.id}

    async def _run_again(self, request: ConsoleRequest) -> Any:
        source, record = await visible_task(self._sources, request)
        try:
            task = await run_again(source.store, record)
        except InvalidParams as error:
            raise Problem(409, error.message) from None
        return {"id": task.id}


def _may_read(user: ConsoleUser, artifact: ArtifactRecord) -> bool:
    """Return whether a person may read an artifact: it needs the scopes of the call that stored it."""
    scopes = () if user.principal is None else user.principal.scopes
    return user.may_operate or set(artifact.scopes) <= set(scopes)


async def _follow(source: StoreSource, record: Record, after: int) -> AsyncIterator[tuple[str, Any]]:
    """Yield the segments above `after` as they come, and a notice after every change of the task."""
    stream = source.service.stream(record.id, Principal(record.principal), after)
    try:
        async with aclosing(stream) as parts:  # type: ignore[type-var]
            async for part in parts:
                if isinstance(part, Segments):
                    for at in range(0, len(part.blocks), MAX_BLOCKS):
                        blocks = part.blocks[at : at + MAX_BLOCKS]
                        segments = {"first": part.first + at, "count": len(blocks)}
                        yield "segments", {**segments, "blocks": bounded_blocks(blocks)}
                else:
                    yield "task", {"hasEnded": part.has_ended}
    except TaskNotFound:
        raise Problem(404, "This task has expired.") from None


async def _created(source: StoreSource, record: Record) -> dict[str, Any]:
    """Return the data of the first entry; empty if it is damaged."""
    entries = await source.store.read(record.id, limit=1)
    data = entries[0].data if entries and entries[0].number == 1 else None
    return data if isinstance(data, dict) else {}


def _question_keys(task: Task, *, all: bool) -> list[str]:
    """Return the keys of the open questions to the caller, and with `all` of those to others too."""
    others = [key for key, wait in task.waits.items() if all and wait.question is not None]
    return list(dict.fromkeys([*task.questions, *others]))


def _number(request: ConsoleRequest, name: str) -> int | None:
    """Return a number in the query, or `None`; raises `Problem`."""
    text = request.query.get(name)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise Problem(400, f"Invalid number {text!r} for {name!r}.")
    return int(text)
