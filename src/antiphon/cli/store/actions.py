"""The actions of `antiphon store`, and what they print."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from antiphon.cli import render
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.cli.stores import opened_store
from antiphon.cli.targets import run_async
from antiphon.errors import StoreUnavailable
from antiphon.runtime.tasks.pruning import prune
from antiphon.store.contract import TaskFilter
from antiphon.store.maintenance import back_up_store, compact_store

__all__ = ["back_up", "compact", "prune_store"]

T = TypeVar("T")


def back_up(url: str, target: Path, *, as_json: bool) -> None:
    """Copy a store to a file. Raises `CommandError`."""
    done = _run(lambda: back_up_store(url, target))
    if as_json:
        print(render.pretty({"file": str(target), "tasks": done.tasks, "bytes": done.bytes}))
    else:
        tasks = "1 task" if done.tasks == 1 else f"{done.tasks} tasks"
        print(f"Copied {tasks} to {target} ({_size(done.bytes)}).")


def compact(url: str, *, as_json: bool) -> None:
    """Rewrite the file of a store. Raises `CommandError`."""
    before, after = _run(lambda: compact_store(url))
    if as_json:
        print(render.pretty({"bytesBefore": before, "bytes": after}))
    else:
        print(f"Compacted the store from {_size(before)} to {_size(after)}.")


def prune_store(url: str, age: int, filter: TaskFilter, principal: str | None, *, as_json: bool) -> None:
    """Delete the tasks that ended longer ago than an age in milliseconds. Raises `CommandError`."""

    async def work() -> int:
        async with opened_store(url) as store:
            ended_before = int(time.time() * 1000) - age
            return await prune(store, filter, ended_before=ended_before, principal=principal)

    count = run_async(work())
    if as_json:
        print(render.pretty({"deleted": count}))
    else:
        print(f"Deleted {count} ended task{'' if count == 1 else 's'}.")


def _run(work: Callable[[], T]) -> T:
    try:
        return work()
    except ValueError as error:
        raise CommandError(str(error)) from None
    except StoreUnavailable as error:
        raise CommandError(str(error), UNREACHABLE) from None


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
