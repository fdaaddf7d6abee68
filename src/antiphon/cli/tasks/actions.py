"""The actions of `antiphon tasks`, on any source of tasks: a server or a store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from antiphon.cli import render
from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.command_words import is_command
from antiphon.cli.exit_codes import FAILED, USAGE, CommandError
from antiphon.cli.targets import Target, is_python_file, is_url, run_async
from antiphon.cli.tasks import report
from antiphon.cli.tasks.report import TaskView
from antiphon.errors import TaskLost, TaskNotFound
from antiphon.printable import printable, redacted_url
from antiphon.store import hide_password, is_store_url
from antiphon.store.contract import Entry, TaskFilter

__all__ = [
    "TaskSource",
    "answer_task",
    "cancel_task",
    "export_history",
    "list_tasks",
    "remove_expired",
    "retry_task",
    "send_event",
    "show_task",
    "task_source",
    "watch_task",
]

T = TypeVar("T")


class TaskSource(Protocol):
    """A server or a store with tasks. Its methods raise `TaskLost` or `TaskNotFound` for an unknown task."""

    async def list(self, limit: int, filter: TaskFilter, principal: str | None) -> Sequence[TaskView]:
        """Return tasks that match a filter, newest first; for a `principal`, only its tasks."""

    async def show(self, id: str) -> tuple[TaskView, Sequence[Entry] | None]:
        """Return a task and its log, or `None` if the source does not show logs."""

    def follow(self, id: str) -> AsyncIterator[TaskView]:
        """Yield a task, then each change until the task ends."""

    async def answer(self, id: str, handler: ElicitationHandler, key: str | None) -> Sequence[str]:
        """Answer the questions of a task. Return their keys."""

    async def cancel(self, id: str) -> str:
        """Cancel a task. Return its status afterwards."""


class OpeningSource(AbstractAsyncContextManager[TaskSource], Protocol):
    """A source that is not open yet."""

    @property
    def target(self) -> Target | None:
        """The server; `None` for a store."""


def task_source(
    target: str,
    headers: Sequence[str] | None,
    token: str | None,
    timeout: float | None,
    protocol: str | None,
    env: Sequence[str] | None = None,
    *,
    stderr: bool = False,
) -> OpeningSource:
    """Return the source that a target names. Raises `CommandError`."""
    if is_store_url(target):
        from antiphon.cli.tasks.store_tasks import StoreTasks

        if protocol is not None:
            raise CommandError("--protocol applies to the URL of a server, not to a store.")
        if env or stderr:
            raise CommandError("A store starts no process: remove --env and --stderr.")
        return StoreTasks(target)
    from antiphon.cli.tasks.server_tasks import ServerTasks

    if not (is_url(target) or is_python_file(target) or is_command(target)):
        raise CommandError(
            f"{redacted_url(hide_password(target))!r} is neither the URL of a server (http://…) nor a store "
            "(sqlite:///tasks.db, postgresql://…)."
        )
    parsed = Target.parse(target, headers=headers, token=token, timeout=timeout, env=env, stderr=stderr)
    return ServerTasks(parsed, protocol)


def list_tasks(
    source: OpeningSource, limit: int, filter: TaskFilter, principal: str | None, *, as_json: bool
) -> None:
    """Print the tasks of a source. Raises `CommandError`, like all actions."""

    async def work() -> Sequence[TaskView]:
        async with source as tasks:
            return await tasks.list(limit, filter, principal)

    found = _run(work(), source.target)
    if as_json:
        print(render.pretty([report.as_json(task) for task in found]))
    elif found:
        print(report.table(found))
    elif principal is None and filter == TaskFilter(outcome=filter.outcome):
        print(f"There are no {f'{filter.outcome} ' if filter.outcome else ''}tasks.")
    else:
        print("No task matches these options.")


def show_task(source: OpeningSource, id: str, *, as_json: bool) -> None:
    """Print a task, and its log if the source shows logs."""

    async def work() -> tuple[TaskView, Sequence[Entry] | None]:
        async with source as tasks:
            return await tasks.show(id)

    task, log = _run(work(), source.target)
    if as_json:
        value = report.as_json(task)
        print(render.pretty(value if log is None else {**value, "log": log}))
        return
    print(report.details(task))
    if log is not None:
        print(f"\n{report.log_lines(log)}")


def export_history(target: str, id: str, output: Path | None) -> None:
    """Write the log of a task to a file, or to the standard output."""
    from antiphon.cli.tasks.store_tasks import StoreTasks

    if not is_store_url(target):
        raise CommandError("Only a store has the histories of tasks. Name one, such as sqlite:///tasks.db.")

    async def work() -> tuple[TaskView, Sequence[Entry]]:
        async with StoreTasks(target) as tasks:
            return await tasks.show(id)

    task, log = _run(work())
    history = render.pretty(report.history(task, log))
    if output is None:
        print(history)
        return
    try:
        output.write_text(f"{history}\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"Cannot write {output}: {error.strerror}.") from None
    print(f"Wrote the history of {printable(id)} to {output}.")


def watch_task(source: OpeningSource, id: str, *, as_json: bool) -> int:
    """Print each change of a task until the task ends. Return the exit code."""

    async def work() -> TaskView | None:
        last = None
        async with source as tasks:
            async for last in tasks.follow(id):
                print(
                    render.compact(report.as_json(last)) if as_json else report.status_line(last), flush=True
                )
        return last

    task = _run(work(), source.target)
    if task is None or task.status != "completed":
        return FAILED
    return FAILED if task.result is not None and task.result.is_error else 0


def answer_task(
    source: OpeningSource, id: str, handler: ElicitationHandler, key: str | None, *, as_json: bool
) -> None:
    """Answer the questions of a task."""

    async def work() -> Sequence[str]:
        async with source as tasks:
            try:
                return await tasks.answer(id, handler, key)
            finally:
                if handler.error is not None:
                    raise handler.error from None

    answered = list(_run(work(), source.target))
    keys = f": {', '.join(answered)}" if answered else ""
    _print_done(
        {"taskId": id, "answered": answered}, f"Answered the questions of {id}{keys}.", as_json=as_json
    )


def cancel_task(source: OpeningSource, id: str, *, as_json: bool) -> None:
    """Cancel a task."""

    async def work() -> str:
        async with source as tasks:
            return await tasks.cancel(id)

    status = _run(work(), source.target)
    if status in ("completed", "failed"):
        raise CommandError(f"Cannot cancel task {id}: its status is already {status}.", FAILED)
    sentence = f"Cancelled {id}."
    if status != "cancelled":
        sentence = f"Requested the cancellation of {id}. Its status is still {status}."
    _print_done({"taskId": id, "status": status}, sentence, as_json=as_json)


def retry_task(target: str, id: str, *, as_json: bool) -> None:
    """Queue a failed task of a store again, or go on for a cancelled one with a new task."""
    from antiphon.cli.tasks.store_tasks import StoreTasks

    if not is_store_url(target):
        raise CommandError("Tasks can only be retried in a store. Name one, such as sqlite:///tasks.db.")

    async def work() -> TaskView:
        async with StoreTasks(target) as tasks:
            return await tasks.retry(id)

    task = _run(work())
    sentence = f"Queued {id} again. Its finished steps do not run again."
    if task.id != id:
        sentence = f"{id} stays cancelled. {task.id} goes on for it: its finished steps do not run again."
    _print_done({"taskId": task.id, "status": task.status}, sentence, as_json=as_json)


def send_event(
    target: str, name: str, key: str, data: str, *, id: str | None, server: str | None, as_json: bool
) -> None:
    """Send an event to the tasks of a store."""
    from antiphon.cli.tasks.store_tasks import StoreTasks

    if not is_store_url(target):
        raise CommandError("Events can only be sent to a store. Name one, such as sqlite:///tasks.db.")
    try:
        value = json.loads(data)
    except ValueError as error:
        raise CommandError(
            f"The data is not JSON: {error}. Write a text in double quotes: '\"text\"'."
        ) from None

    async def work() -> tuple[str, bool]:
        async with StoreTasks(target) as tasks:
            return await tasks.send_event(name, key, value, id=id, server=server)

    server, is_new = _run(work())
    sentence = f"Sent {name} for {key} to the tasks of {server}."
    if not is_new:
        sentence = f"An event with the id {id} was sent before. It counts once."
    _print_done({"server": server, "isNew": is_new}, sentence, as_json=as_json)


def remove_expired(target: str, *, as_json: bool) -> None:
    """Remove the expired tasks of a store."""
    from antiphon.cli.tasks.store_tasks import StoreTasks

    if not is_store_url(target):
        raise CommandError("Tasks can only be removed from a store. Name one, such as sqlite:///tasks.db.")

    async def work() -> int:
        async with StoreTasks(target) as tasks:
            return await tasks.remove_expired()

    count = _run(work())
    _print_done(
        {"removed": count}, f"Removed {count} expired task{'' if count == 1 else 's'}.", as_json=as_json
    )


def _print_done(value: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    print(render.pretty(value) if as_json else printable(sentence))


def _run(work: Coroutine[Any, Any, T], target: Target | None = None) -> T:
    """Run an action. An unknown task is a usage error."""

    async def checked() -> T:
        try:
            return await work
        except (TaskLost, TaskNotFound) as error:
            raise CommandError(str(error), USAGE) from None

    return run_async(checked(), target)
