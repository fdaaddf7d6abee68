"""A task as the pages of the console show it: a row of the list, and the status of one task.

Pure: it reads records of a store and returns JSON. A record that somebody damaged, or that another version
wrote, becomes a row that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from antiphon.console.timeline_layout import duration_text
from antiphon.model.task import Task
from antiphon.printable import printable
from antiphon.store.contract import Record

__all__ = ["UNREADABLE", "error_of", "row_of", "status_of", "table_of", "task_or_none"]

UNREADABLE = "unreadable"
"""The status of a task whose record cannot be read."""
STOPPING = "stopping"
"""The status of a task that was cancelled, and whose function a worker has to unwind."""
_MAX_ERROR_CHARACTERS = 64 * 1024
"""How many characters of an error the page of a task shows."""
_MAX_LINE_CHARACTERS = 300
"""How many characters of a message a row shows."""


def task_or_none(record: Record) -> Task | None:
    """Return the task of a record; `None` if the record is damaged, or another version wrote it."""
    try:
        return msgspec.convert(record.head, Task)
    except msgspec.ValidationError:
        return None


def status_of(task: Task) -> str:
    """Return the state of a task as people read it.

    A task that ended with an error, or with a result that says that the tool failed, is `failed`.
    """
    return "failed" if task.state == "faulted" or task.failed else task.state


def error_of(task: Task) -> str | None:
    """Return why a task failed, as one text; `None` if it has not failed."""
    if task.fault is not None:
        return task.fault.message[:_MAX_ERROR_CHARACTERS]
    if not task.failed or task.result is None:
        return None
    content = task.result.get("content")
    blocks = content if isinstance(content, list | tuple) else ()
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    text = "\n".join(text for text in texts if isinstance(text, str))
    return text[:_MAX_ERROR_CHARACTERS] or "The tool says that it failed."


def row_of(record: Record) -> dict[str, Any]:
    """Return a row of the list. Times are in milliseconds since 1970."""
    row: dict[str, Any] = {
        "id": record.id,
        "tool": _line(record.tool),
        "principal": _line(record.principal),
        "server": _line(record.server),
        "created": record.created,
    }
    task = task_or_none(record)
    if task is None:
        return {
            **row,
            "status": UNREADABLE,
            "message": "The record is damaged, or another version wrote it.",
        }
    error = error_of(task)
    if task.summary:
        row["summary"] = _line(task.summary)
    row["status"] = STOPPING if task.state == "cancelled" and record.phase == "ready" else status_of(task)
    row["message"] = _line(error or task.message or "")
    if task.has_ended:
        row["took"] = duration_text(task.updated - task.created)
    else:
        row["mayCancel"] = True
        if task.progress is not None and task.progress.total:
            row["progress"] = [task.progress.progress, task.progress.total]
    return row


def table_of(records: Sequence[Record], store: str, query: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the list as the page draws it: its columns, and rows of cells with the class of each column.

    The principal of a row is a link that adds it to the filter `query`; `None` for people who see their own
    tasks only.
    """
    columns = ["Status", "Task", "Age", "Took"]
    if len({record.server for record in records}) > 1:
        columns.insert(2, "Server")
    if any(record.principal for record in records):
        columns.insert(2, "Principal")
    return {"columns": columns, "tasks": [_list_row(record, store, query, columns) for record in records]}


def _list_row(
    record: Record, store: str, query: Mapping[str, str] | None, columns: Sequence[str]
) -> dict[str, Any]:
    row, who = row_of(record), record.principal
    task = {name: row[name] for name in ("id", "summary", "message", "progress") if row.get(name)}
    task["tool"] = row["tool"]
    task["href"] = f"tasks/{quote(store, safe='')}/{quote(record.id, safe='')}"
    principal: Any = row["principal"]
    if query is not None and who:
        address = f"tasks?{urlencode({**query, 'principal': who, 'store': store})}"
        principal = {"link": [address, principal]}
    cells: dict[str, tuple[str, Any]] = {
        "Status": ("state", {"status": [row["status"]]}),
        "Task": ("what", {"task": task}),
        "Principal": ("who", principal),
        "Server": ("server", row["server"]),
        "Age": ("when age", {"age": record.created}),
        "Took": ("when took", row.get("took", "")),
    }
    names = ("id", "tool", "status", "message", "mayCancel")
    return {
        **{name: row[name] for name in names if name in row},
        "cells": [cells[column] for column in columns],
    }


def _line(text: str) -> str:
    return printable(text, _MAX_LINE_CHARACTERS)
