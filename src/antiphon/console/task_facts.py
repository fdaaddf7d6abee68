"""What the page says about a task beside its log and its result: facts, and what a person can do.

Pure. The page renders cells: text, numbers, and objects such as `{"ago": time}` that it keeps current.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.console.routes import ConsoleUser
from antiphon.console.timeline_layout import duration_text
from antiphon.model.task import Task
from antiphon.model.waiting import Wait
from antiphon.printable import printable
from antiphon.store.contract import Record

__all__ = ["actions_of", "facts_of"]

_ACTIONS = {
    "cancel": {
        "action": "Cancel",
        "text": "The task stops. What it has done stays done.",
        "done": "The task is cancelled.",
    },
    "retry": {
        "action": "Retry",
        "text": "The task goes on where it failed: finished steps do not run again, and answers stay.",
        "done": "The task is queued again.",
    },
    "go on": {
        "action": "Retry",
        "text": "A new task goes on where this one stopped: finished steps do not run again, and "
        "answers stay.",
        "done": "A new task goes on.",
    },
    "again": {
        "action": "Run again",
        "text": "A new task starts with the same arguments, for the same principal. Every step runs again, "
        "and every question is asked again.",
        "done": "A new task has started.",
    },
}


def actions_of(user: ConsoleUser, task: Task) -> list[dict[str, Any]]:
    """Return what a person can do with a task in its state, with the words of the page's dialog."""
    if not user.may_write:
        return []
    names: tuple[str, ...] = ("cancel",)
    if task.has_ended:
        may_retry = task.state == "cancelled" or (
            user.may_operate and (task.failed or task.state == "faulted")
        )
        names = (*(("retry",) if may_retry else ()), *(("again",) if user.may_operate else ()))
    words = {**_ACTIONS, "retry": _ACTIONS["go on"]} if task.state == "cancelled" else _ACTIONS
    return [
        {"name": name, **words[name], "title": f"{words[name]['action']}?", "danger": name == "cancel"}
        for name in names
    ]


def facts_of(record: Record, task: Task, created: Mapping[str, Any], *, operates: bool) -> list[list[Any]]:
    """Return facts about a task, each a name and a cell. Only operators see who else is asked."""
    client = created.get("client")
    progress = task.progress
    facts: list[list[Any]] = [["Principal", printable(record.principal)], ["Server", record.server]]
    if operates and isinstance(client, dict):
        facts.append(["Client", printable(f"{client.get('name', '')} {client.get('version', '')}", 100)])
    facts.append(["Created", {"ago": record.created}])
    if task.has_ended:
        facts.append(["Took", duration_text(task.updated - task.created)])
    else:
        facts += [["Last change", {"ago": task.updated}], ["Status", task.message]]
    if progress is not None and progress.total and not task.has_ended:
        facts.append(["Progress", {"progress": [progress.progress, progress.total]}])
    if operates:
        facts += [["Waits for", _wait_cell(wait)] for wait in task.waits.values()]
    if task.expires is not None:
        facts.append(["Kept", {"left": task.expires}])
    facts.append(["Id", {"code": record.id}])
    return [fact for fact in facts if fact[1]]


def _wait_cell(wait: Wait) -> list[Any]:
    if wait.question is not None:
        what = f"an answer from {', '.join(wait.asked_names)}"
        if wait.approvals > 1:
            what = f"{what} ({len(wait.answered_by)} of {wait.approvals})"
    else:
        what = "a time" if wait.event is None else f"the event {' '.join(wait.event)}"
    end = wait.until if wait.deadline is None else wait.deadline
    return [what] if end is None else [f"{what}, ", {"left": end}]
