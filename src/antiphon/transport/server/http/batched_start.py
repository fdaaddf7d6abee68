"""Starts the work of plain requests in batches: some requests are read, then these are served.

Reading is work of the kernel, and serving is work of Python. A processor is quicker at doing one of them
several times in a row: its caches and branch predictors fit. But if hundreds of requests are read first, the
requests themselves leave the caches. Owns how many requests make a batch, and how their tasks start.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

__all__ = ["MAX_BATCH", "BatchedStart"]

Work: TypeAlias = Coroutine[Any, Any, None]

MAX_BATCH = 32
"""How many requests are read at most before they are served."""
_TASK_NAME = "antiphon-request"
"""The name of every task. asyncio would make another one for each."""


class BatchedStart:
    """The requests of one event loop that have been read, and are not served yet."""

    def __init__(self) -> None:
        self._waiting: list[Work] = []

    def add(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        """Run the work of a request in a task of its own, soon. Call it from a callback, not from a task."""
        waiting = self._waiting
        waiting.append(work)
        if len(waiting) == 1:
            loop.call_soon(self._run, loop)
        elif len(waiting) == MAX_BATCH:
            self._run(loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting:
            works, self._waiting = self._waiting, []
            _start(works, loop)


if sys.version_info >= (3, 12):

    def _start(works: Sequence[Work], loop: asyncio.AbstractEventLoop) -> None:
        """Run each work in a task: at once, up to where it waits."""
        waiting = iter(works)
        try:
            for work in waiting:
                asyncio.Task(work, loop=loop, name=_TASK_NAME, eager_start=True)
        finally:
            for work in waiting:  # Ctrl-C has interrupted the work before
                loop.create_task(work)

else:

    def _start(works: Sequence[Work], loop: asyncio.AbstractEventLoop) -> None:
        """Run each work in a task: at once, up to where it waits.

        A task of Python 3.11 has no option for that: it gives its first step to `loop.call_soon` when it is
        created. So another function stands there meanwhile, and collects the steps.
        """
        steps: list[tuple[Callable[[], None], contextvars.Context]] = []
        call_soon = loop.call_soon

        def collect(callback: Callable[..., None], *arguments: Any, context: Any = None) -> Any:
            if arguments or context is None:  # a finalizer calls, of an object that is collected just now
                return call_soon(callback, *arguments, context=context)
            return steps.append((callback, context))

        try:
            loop.call_soon = collect  # type: ignore[method-assign, assignment]
        except AttributeError:  # a loop of another library, which cannot be changed
            for work in works:
                loop.create_task(work)
            return
        try:
            for work in works:
                asyncio.Task(work, loop=loop, name=_TASK_NAME)
        finally:
            del loop.call_soon
        waiting = iter(steps)
        try:
            for step, context in waiting:
                context.run(step)
        finally:
            for step, context in waiting:  # Ctrl-C has interrupted the step before
                call_soon(step, context=context)
