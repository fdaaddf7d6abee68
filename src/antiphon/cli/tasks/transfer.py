"""`antiphon tasks export` of many tasks, and `antiphon tasks import`: moves tasks from one store to another.

A file has one task on each line, with its record and its log, then the events that the store keeps for the
servers of these tasks, and a last line with the number of tasks. Tasks and events are read and written a few
at a time, so a file may have any size. Artifacts stay behind.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from antiphon.cli import render
from antiphon.cli.exit_codes import FAILED, CommandError
from antiphon.cli.stores import opened_store
from antiphon.cli.targets import run_async
from antiphon.errors import StoreUnavailable
from antiphon.printable import printable
from antiphon.runtime.tasks.events import wake_for_event
from antiphon.runtime.tasks.records import server_of_tags
from antiphon.store.contract import Entry, KeptEvent, Record, Store, TaskFilter
from antiphon.store.private_files import open_private_file

__all__ = ["export_tasks", "import_tasks", "read_export", "write_export"]

EXPORT_FORMAT = 1
"""The format of the lines. A reader refuses other formats."""

_PAGE_TASKS = 100
_PAGE_EVENTS = 16
_CONCURRENT_READS = 8
"""How many logs are read at once. Each may have as many bytes as `Limits.max_task_bytes`."""
_PORTION_TASKS = 64
_PORTION_BYTES = 8 * 1024 * 1024
"""How many tasks, and bytes of the file, are imported at once, so that they can share a commit."""
_MAX_NAMED_TASKS = 20
"""How many tasks a message names."""


class _TaskLine(msgspec.Struct):
    """A line of a file: a task and its log."""

    format: int
    record: Record
    log: list[Entry]


class _EventLine(msgspec.Struct):
    """A line of a file: an event that the store kept for tasks that wait for it."""

    format: int
    event: KeptEvent


class _LastLine(msgspec.Struct):
    """The last line of a file: the number of tasks before it."""

    format: int
    end: int


class _Format(msgspec.Struct):
    format: int
    end: int | None = None
    event: Any = None


_Line: TypeAlias = _TaskLine | _EventLine | _LastLine


class _Exported:
    """The counts of an export."""

    def __init__(self) -> None:
        self.tasks = 0
        self.unfinished = 0
        self.with_artifacts = 0
        self.events = 0
        self.servers: set[str] = set()
        self.unreadable: list[str] = []

    def add(self, record: Record) -> None:
        """Count a task."""
        self.tasks += 1
        self.unfinished += record.phase != "ended"
        self.with_artifacts += _has_artifact(record.head)
        self.servers.add(record.server or server_of_tags(record.tags))


class _Imported:
    """The counts of an import."""

    def __init__(self) -> None:
        self.tasks = 0
        self.present = 0
        self.updated = 0
        self.events = 0
        self.differing: list[str] = []


def export_tasks(url: str, filter: TaskFilter, principal: str | None, output: Path | None) -> int:
    """Write tasks of a store, and the counts to the standard error. Return the exit code."""
    with ExitStack() as stack:
        sink = sys.stdout.buffer if output is None else stack.enter_context(_create(output))
        done = run_async(write_export(url, filter, principal, sink))
    what = _tasks(done.tasks) + (f" and {_events(done.events)}" if done.events else "")
    _report(f"Exported {what}{'' if output is None else f' to {output}'}.")
    if done.unfinished:
        _report(
            f"{_tasks(done.unfinished)} had not ended. Stop the servers and workers of this store before you "
            "import the file into another one. Otherwise both stores run these tasks."
        )
    if done.with_artifacts:
        _report(
            f"{_tasks(done.with_artifacts)} had results in artifacts. Artifacts are not exported: to keep "
            "them, set ANTIPHON_ARTIFACTS to this store for the servers on the other one."
        )
    if done.unreadable:
        _report(
            f"Left out {_named(done.unreadable)}, because the log cannot be read. Find the reason with "
            "`antiphon store check`."
        )
        return FAILED
    return 0


async def write_export(url: str, filter: TaskFilter, principal: str | None, sink: BinaryIO) -> _Exported:
    """Write the tasks of a store that match, and return their counts."""
    done = _Exported()
    async with opened_store(url) as store:
        async for record, log in _read_tasks(store, filter, principal, done.unreadable):
            sink.write(msgspec.json.encode(_TaskLine(EXPORT_FORMAT, record, log)) + b"\n")
            done.add(record)
        async for event in _read_events(store, done.servers):
            sink.write(msgspec.json.encode(_EventLine(EXPORT_FORMAT, event)) + b"\n")
            done.events += 1
    sink.write(msgspec.json.encode(_LastLine(EXPORT_FORMAT, done.tasks)) + b"\n")
    sink.flush()
    return done


async def _read_tasks(
    store: Store, filter: TaskFilter, principal: str | None, unreadable: list[str]
) -> AsyncIterator[tuple[Record, list[Entry]]]:
    """Yield tasks with their logs. A log only grows, so its first entries are those of the record."""
    cursor: str | None = None
    while True:
        page = await store.list(principal, cursor=cursor, limit=_PAGE_TASKS, filter=filter)
        for start in range(0, len(page.records), _CONCURRENT_READS):
            records = page.records[start : start + _CONCURRENT_READS]
            logs = await asyncio.gather(*(_read_log(store, record) for record in records))
            for record, log in zip(records, logs, strict=True):
                if log is None:
                    unreadable.append(record.id)
                elif len(log) == record.version:  # otherwise the task was deleted meanwhile
                    yield record, log
        if (cursor := page.cursor) is None:
            return


async def _read_log(store: Store, record: Record) -> list[Entry] | None:
    """Return the entries that a record contains; `None` if they cannot be read."""
    log: list[Entry] = []
    try:
        while len(log) < record.version:
            more = await store.read(record.id, after=len(log), limit=min(record.version - len(log), 1000))
            if not more:
                break
            log += more
    except StoreUnavailable:
        await store.probe()  # raises if the whole store cannot be used
        return None
    return log


async def _read_events(store: Store, servers: Collection[str]) -> AsyncIterator[KeptEvent]:
    """Yield the events that a store keeps for tasks of some servers."""
    after: tuple[str, int] | None = None
    while page := await store.list_events(after=after, limit=_PAGE_EVENTS):
        for kept in page:
            if server_of_tags([kept.topic]) in servers:
                yield kept
        after = page[-1].topic, page[-1].event.number


def import_tasks(url: str, file: str, *, as_json: bool) -> int:
    """Add the tasks of a file to a store, and print the counts. Return the exit code."""
    with ExitStack() as stack:
        source = sys.stdin.buffer if file == "-" else stack.enter_context(_open(file))
        done, is_complete = run_async(read_export(url, source))
    if as_json:
        counts = {"imported": done.tasks, "present": done.present, "updated": done.updated}
        found = {"events": done.events, "differing": done.differing, "complete": is_complete}
        print(render.pretty({**counts, **found}))
    else:
        present = f" {_tasks(done.present)} were there already." if done.present else ""
        events = f" and {_events(done.events)}" if done.events else ""
        updated = f" {_tasks(done.updated)} had gone on and were brought up to date." if done.updated else ""
        print(f"Imported {_tasks(done.tasks)}{events}.{present}{updated}")
    if done.differing:
        _report(
            f"The store has another log for {_named(done.differing)}. The tasks in the store were not "
            "changed. Compare them with `antiphon tasks show`."
        )
    if not is_complete:
        _report("The file is incomplete: its last line is missing. Export the tasks again.")
    return FAILED if done.differing or not is_complete else 0


async def read_export(url: str, source: BinaryIO) -> tuple[_Imported, bool]:
    """Add the tasks of a file to a store; return their counts, and whether the file is complete."""
    done = _Imported()
    is_complete = False
    async with opened_store(url, create=True) as store:
        for portion in _portions(source):
            tasks = [line for line in portion if isinstance(line, _TaskLine)]
            is_complete = isinstance(portion[-1], _LastLine)
            states = await asyncio.gather(*(_add(store, task) for task in tasks))
            for task, state in zip(tasks, states, strict=True):
                done.tasks += state == "new"
                done.present += state == "present"
                done.updated += state == "updated"
                if state == "differs":
                    done.differing.append(task.record.id)
            done.events += await _add_events(
                store, [line.event for line in portion if isinstance(line, _EventLine)]
            )
    return done, is_complete


async def _add(store: Store, task: _TaskLine) -> str:
    """Add a task; return whether it was new, present, brought up to date, or differs from the one there."""
    record, log = task.record, task.log
    if await store.restore(record, log, token=_last_token(log)):
        return "new"
    # A task that went on after an earlier import has the same first entries.
    found = list(await store.read(record.id, limit=max(len(log), 1)))
    if found and found == log:
        return "present"
    # A task that went on in the old store after an earlier import has more entries in the file.
    if found and found == log[: len(found)]:
        tokens = {"token": _last_token(log), "expect_token": _last_token(found)}
        if await store.extend(record, log, expect=len(found), **tokens):
            return "updated"
    return "differs"


async def _add_events(store: Store, events: Sequence[KeptEvent]) -> int:
    """Add events, wake the tasks that have not looked for them yet, and return how many events were new.

    A task that has seen the event, and waits for the next one, stays as it is in the other store, so that a
    later import can bring it up to date.
    """
    added = await asyncio.gather(*map(store.restore_event, events))
    last = {kept.topic: kept.event.at for kept, is_new in zip(events, added, strict=True) if is_new}
    for topic, at in last.items():
        page = await store.list_tagged([topic], limit=_PAGE_TASKS)
        if any(record.updated <= at for record in page.records):
            await wake_for_event(store, topic)
    return sum(added)


def _portions(source: BinaryIO) -> Iterator[list[_Line]]:
    """Yield the lines of a file, some at a time. Raises `CommandError` for a line that is no task."""
    portion: list[_Line] = []
    size = 0
    for number, text in enumerate(source, 1):
        if text.strip():
            portion.append(_decode(text, number))
            size += len(text)
        if len(portion) >= _PORTION_TASKS or size >= _PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _decode(text: bytes, number: int) -> _Line:
    try:
        line = msgspec.json.decode(text, type=_Format)
        if line.format != EXPORT_FORMAT:
            raise ValueError(f"its format is {line.format}, and this version reads {EXPORT_FORMAT}")
        if line.end is not None:
            return _LastLine(line.format, line.end)
        if line.event is not None:
            return msgspec.json.decode(text, type=_EventLine)
        task = msgspec.json.decode(text, type=_TaskLine)
        if [entry.number for entry in task.log] != list(range(1, task.record.version + 1)):
            raise ValueError("its log has gaps, or not as many entries as its record says")
    except ValueError as error:
        raise CommandError(
            f"Line {number} is not a task of `antiphon tasks export`: {error}. The tasks before it may have "
            "been imported. Run the command again with a complete file."
        ) from None
    return task


def _last_token(log: Sequence[Entry]) -> int:
    """Return the largest token in a log, so that the tokens of the next claims are larger."""
    return max((entry.data.get("by") or 0 for entry in log if isinstance(entry.data, dict)), default=0)


def _has_artifact(head: Any) -> bool:
    result = head.get("result") if isinstance(head, dict) else None
    meta = result.get("meta") if isinstance(result, dict) else None
    return isinstance(meta, dict) and "artifact_id" in meta


def _create(path: Path) -> BinaryIO:
    try:
        return open_private_file(path)
    except OSError as error:
        raise CommandError(f"Cannot write {path}: {error.strerror}.") from None


def _open(file: str) -> BinaryIO:
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CommandError(f"Cannot read {file}: {error.strerror}.") from None


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _events(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _MAX_NAMED_TASKS} more" if len(ids) > _MAX_NAMED_TASKS else ""
    return f"{_tasks(len(ids))}: {', '.join(map(printable, ids[:_MAX_NAMED_TASKS]))}{more}"


def _report(sentence: str) -> None:
    print(sentence, file=sys.stderr)
