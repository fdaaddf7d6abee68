"""How a task is kept in the record of a store, and how it is found there while it waits.

A task is found by tags: who can answer it, and which events it waits for. Tags are texts that name the server
too, because several servers share a store. One more tag is for operators, who see the tasks of all servers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypedDict

import msgspec

from antiphon.model.task import Task
from antiphon.model.waiting import wake_time
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.store.contract import UNSET, Phase, Record, UnsetType

__all__ = [
    "ASKING_TAG",
    "ParkedFields",
    "audience_tag",
    "event_of_topic",
    "event_tag",
    "expiry_after",
    "has_expired",
    "head_of",
    "new_task_id",
    "parked_fields",
    "person_tag",
    "phase_of",
    "server_of_tags",
    "task_of",
]

_PHASES: dict[str, Phase] = {
    "working": "ready",
    "waiting": "waiting",
    "parked": "waiting",
    "done": "ended",
    "faulted": "ended",
    "cancelled": "ended",
}
"""The phase of each state in the store: the task needs a worker, needs something else, or has ended."""

ASKING_TAG = "asks"
"""The tag of tasks with a question that a person can answer: the owner, or somebody else. Tasks that earlier
versions have parked do not have it."""


class ParkedFields(TypedDict, total=False):
    """The arguments of `Store.append` for a task that waits."""

    wakes: int | None
    tags: list[str]


def phase_of(task: Task) -> Phase:
    """Return the phase of a task that no worker runs."""
    return "ready" if task.runs_again else _PHASES[task.state]


def parked_fields(task: Task, phase: Phase, server: str) -> ParkedFields:
    """Return when a task wakes, and the tags by which it is found; nothing unless it waits."""
    if phase != "waiting" or not (task.waits or task.questions):
        return {}
    waits = task.waits.values()
    asked = [wait for wait in waits if wait.question is not None]
    tags = [audience_tag(server, name) for wait in asked for name in wait.to]
    tags += [person_tag(server, id) for wait in asked for id in wait.people]
    tags += [event_tag(server, *wait.event) for wait in waits if wait.event is not None]
    if task.asks_people:
        tags.append(ASKING_TAG)  # the last one, because the first one names the server
    return {"wakes": wake_time(waits), "tags": list(dict.fromkeys(tags))}


def audience_tag(server: str, name: str) -> str:
    """Return the tag of tasks that the members of a group or scope can answer."""
    return _tag("to", server, name)


def person_tag(server: str, principal_id: str) -> str:
    """Return the tag of tasks that ask a principal by its id. No group has the same tag."""
    return _tag("person", server, principal_id)


def event_tag(server: str, name: str, key: str) -> str:
    """Return the tag of tasks that wait for an event, which is the topic of the event too."""
    return _tag("event", server, name, key)


def event_of_topic(topic: str) -> tuple[str, str]:
    """Return the name and the key of the events of a topic that `event_tag` returned."""
    _, name, key = _names_of(topic)
    return name, key


def server_of_tags(tags: Sequence[str]) -> str:
    """Return the server in the tags of a task, which may belong to no server itself.

    The result is empty without tags, and if they are damaged.
    """
    try:
        return _names_of(tags[0])[0] if tags else ""
    except (msgspec.MsgspecError, IndexError):
        return ""


def _names_of(tag: str) -> Sequence[str]:
    return msgspec.json.decode(tag.partition(":")[2], type=tuple[str, ...])


def _tag(kind: str, *names: str) -> str:
    return f"{kind}:{msgspec.json.encode(names).decode()}"


def new_task_id(tool: str, at: int) -> str:
    """Return the id of a new task."""
    # The time in the id keeps new tasks next to each other in a database's index.
    # The rest has 128 random bits: on a server without authentication, the id is the key to the task.
    return f"{tool}_{at:011x}-{os.urandom(16).hex()}"


def head_of(task: Task) -> Any:
    """Return a task in the form that a record keeps."""
    return msgspec.to_builtins(task)


def task_of(record: Record) -> Task:
    """Return the task that a record keeps."""
    return msgspec.convert(record.head, Task)


def has_expired(record: Record) -> bool:
    """Return whether a task has expired for its caller. The store may have to keep it for a worker."""
    ttl = record.head.get("ttl") if isinstance(record.head, dict) else None
    return isinstance(ttl, int) and record.created + ttl <= now_ms()


def expiry_after(before: Task, after: Task) -> int | UnsetType | None:
    """Return when a task expires after an entry, or `UNSET` if the entry does not change that."""
    return UNSET if after.ttl == before.ttl else after.expires
