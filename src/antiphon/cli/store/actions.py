"""The actions of `antiphon store`, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from antiphon.cli import render
from antiphon.cli.exit_codes import UNREACHABLE, CommandError
from antiphon.errors import StoreUnavailable
from antiphon.store.maintenance import back_up_store, compact_store

__all__ = ["back_up", "compact"]

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
