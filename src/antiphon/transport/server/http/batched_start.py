"""Starts the work of plain requests in batches: some requests are read, then these are served.

Reading is work of the kernel, and serving is work of Python. A processor is quicker at doing one of them
several times in a row: its caches and branch predictors fit. But if hundreds of requests are read first, the
requests themselves leave the caches. Owns how many requests make a batch, and how their tasks start.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

__all__ = ["MAX_BATCH", "BatchedStart"]

Work: TypeAlias = Coroutine[Any, Any, None]

MAX_BATCH = 32
"""How many requests are read at most before they are served."""
_TASK_NAME = "antiphon-request"
"""The name of every task. asyncio would make another one for each."""


class BatchedStart:
    """The requests that have been read, and are not served yet."""

    def __init__(self) -> None:
        self._waiting: list[Work] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that is about to serve them; `None` if there are none."""

    def add(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        """Run the work of a request in a task of its own, soon."""
        if self._loop is not loop:
            self._drop_waiting()
            self._loop = loop
            loop.call_soon(self._run, loop)
        self._waiting.append(work)
        if len(self._waiting) >= MAX_BATCH and asyncio.current_task(loop) is None:
            self._start(loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = None
        self._start(loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        works, self._waiting = self._waiting, []
        if loop.get_task_factory() is None:
            _start_eagerly(works, loop)
        else:
            _start_later(works, loop)

    def _drop_waiting(self) -> None:
        """Drop what an earlier loop did not serve, because it was stopped."""
        for work in self._waiting:
            work.close()
        self._waiting.clear()


def _start_later(works: Iterable[Work], loop: asyncio.AbstractEventLoop) -> None:
    """Run each work in an ordinary task."""
    for work in works:
        loop.create_task(work)


if sys.version_info >= (3, 12):

    def _start_eagerly(works: Sequence[Work], loop: asyncio.AbstractEventLoop) -> None:
        """Run each work in a task: at once, up to where it waits. Call it outside of every task."""
        waiting = iter(works)
        try:
            for work in waiting:
                asyncio.Task(work, loop=loop, name=_TASK_NAME, eager_start=True)
        finally:
            _start_later(waiting, loop)  # if Ctrl-C has interrupted one

else:

    def _start_eagerly(works: Sequence[Work], loop: asyncio.AbstractEventLoop) -> None:
        """Run each work in a task: at once, up to where it waits. Call it outside of every task.

        A task of Python 3.11 has no option for that: it gives its first step to `loop.call_soon` when it is
        created. So another function stands there meanwhile, and collects the steps.
        """
        attributes: dict[str, Any] | None = getattr(loop, "__dict__", None)
        if attributes is None or "call_soon" in attributes:  # the loop is of a library that had the same idea
            _start_later(works, loop)
            return
        steps: list[tuple[Callable[[], None], contextvars.Context]] = []
        call_soon = loop.call_soon

        def collect(callback: Callable[..., None], *arguments: Any, context: Any = None) -> Any:
            if arguments or context is None:  # a finalizer calls, of an object that is collected just now
                return call_soon(callback, *arguments, context=context)
            return steps.append((callback, context))

        uncreated, unstarted = iter(works), iter(steps)
        try:
            attributes["call_soon"] = collect
            try:
                for work in uncreated:
                    asyncio.Task(work, loop=loop, name=_TASK_NAME)
            finally:
                del attributes["call_soon"]
            for step, context in unstarted:
                context.run(step)
        finally:  # if Ctrl-C has interrupted one
            for step, context in unstarted:
                call_soon(step, context=context)
            _start_later(uncreated, loop)
