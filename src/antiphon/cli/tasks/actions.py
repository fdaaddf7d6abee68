"""What the commands about tasks do, with whichever place the tasks are at: a server, or a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from antiphon.cli import render
from antiphon.cli.call.questions import Asker
from antiphon.cli.exit_codes import FAILED, USAGE, CommandError
from antiphon.cli.targets import Target, is_url, run
from antiphon.cli.tasks import report as shown
from antiphon.cli.tasks.report import Shown
from antiphon.errors import TaskLost, TaskNotFound
from antiphon.store import DATABASES
from antiphon.store.contract import Entry

__all__ = ["Place", "answer_task", "cancel_task", "list_tasks", "place", "show_task", "sweep", "watch_task"]

T = TypeVar("T")


class Place(Protocol):
    """Where tasks are, once it is open. What is not there is `TaskLost` or `TaskNotFound`."""

    async def list(self, limit: int) -> Sequence[Shown]:
        """Some tasks, newest first."""

    async def show(self, id: str) -> tuple[Shown, Sequence[Entry] | None]:
        """A task, with its log if that can be seen."""

    def follow(self, id: str) -> AsyncIterator[Shown]:
        """A task, and then each change, until it has ended."""

    async def answer(self, id: str, asker: Asker, key: str | None) -> Sequence[str]:
        """Answer what a task asks; the keys that were answered."""

    async def cancel(self, id: str) -> str:
        """Cancel a task; its status after that."""


def place(
    target: str,
    headers: Sequence[str] | None,
    token: str | None,
    timeout: float,
    protocol: str | None,
) -> AbstractAsyncContextManager[Place]:
    """Where a word on the command line points; raises `CommandError`."""
    if _is_store(target):
        from antiphon.cli.tasks.store_tasks import Operator

        if protocol is not None:
            raise CommandError("A store speaks no protocol: --protocol is for URLs.")
        return Operator(target)
    from antiphon.cli.tasks.server_tasks import Caller

    if "://" in target and not is_url(target):
        raise CommandError(
            f"{target!r} is neither a server's URL (http://…) nor a store (sqlite:///tasks.db, postgresql://…)."
        )
    known = Target.of(target, headers=headers or (), token=token, timeout=timeout)
    return Caller(known, protocol)


def list_tasks(where: AbstractAsyncContextManager[Place], limit: int, *, as_json: bool) -> None:
    """Print tasks; raises `CommandError`, as everything here does."""

    async def work() -> Sequence[Shown]:
        async with where as tasks:
            return await tasks.list(limit)

    found = _run(work())
    if as_json:
        print(render.pretty([shown.as_json(task) for task in found]))
    else:
        print(shown.table(found) if found else "There are no tasks.")


def show_task(where: AbstractAsyncContextManager[Place], id: str, *, as_json: bool) -> None:
    """Print a task, and its log where there is one to see."""

    async def work() -> tuple[Shown, Sequence[Entry] | None]:
        async with where as tasks:
            return await tasks.show(id)

    task, log = _run(work())
    if as_json:
        value = shown.as_json(task)
        print(render.pretty(value if log is None else {**value, "log": log}))
        return
    print(shown.page(task))
    if log is not None:
        print(f"\n{shown.log_lines(log)}")


def watch_task(where: AbstractAsyncContextManager[Place], id: str, *, as_json: bool) -> int:
    """Print each change of a task until it has ended; the exit code."""

    async def work() -> Shown | None:
        last = None
        async with where as tasks:
            async for last in tasks.follow(id):
                print(
                    render.compact(shown.as_json(last)) if as_json else shown.change(last),
                    flush=True,
                )
        return last

    task = _run(work())
    went_well = task is not None and task.status == "completed"
    return 0 if went_well and not (task and task.result and task.result.is_error) else FAILED


def answer_task(
    where: AbstractAsyncContextManager[Place], id: str, asker: Asker, key: str | None, *, as_json: bool
) -> None:
    """Answer what a task asks."""

    async def work() -> Sequence[str]:
        async with where as tasks:
            try:
                return await tasks.answer(id, asker, key)
            finally:
                if asker.stopped is not None:
                    raise asker.stopped from None

    _done({"taskId": id, "answered": list(_run(work()))}, "Answered {answered} of {taskId}.", as_json=as_json)


def cancel_task(where: AbstractAsyncContextManager[Place], id: str, *, as_json: bool) -> None:
    """Cancel a task."""

    async def work() -> str:
        async with where as tasks:
            return await tasks.cancel(id)

    status = _run(work())
    if status in ("completed", "failed"):
        raise CommandError(f"The task {id} has ended already: it is {status}.", FAILED)
    sentence = "Cancelled {taskId}." if status == "cancelled" else "Asked to cancel {taskId}; it is {status}."
    _done({"taskId": id, "status": status}, sentence, as_json=as_json)


def sweep(target: str, *, as_json: bool) -> None:
    """Forget the tasks of a store whose time is over."""
    from antiphon.cli.tasks.store_tasks import Operator

    if not _is_store(target):
        raise CommandError("Only the operator removes tasks: name the store, such as sqlite:///tasks.db.")

    async def work() -> int:
        async with Operator(target) as tasks:
            return await tasks.expire()

    _done({"removed": _run(work())}, "Removed {removed}.", as_json=as_json)


def _done(value: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    said = {key: ", ".join(item) if isinstance(item, list) else item for key, item in value.items()}
    print(render.pretty(value) if as_json else render.clean(sentence.format(**said)))


def _run(work: Any) -> Any:
    async def minding() -> Any:
        try:
            return await work
        except (TaskLost, TaskNotFound) as error:
            raise CommandError(str(error), USAGE) from None

    return run(minding())


def _is_store(target: str) -> bool:
    return target.startswith(("memory:", *DATABASES))
