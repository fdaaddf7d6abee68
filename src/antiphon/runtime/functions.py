"""Calling an author's function, whether it is `async` or not."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from antiphon.errors import DefinitionError
from antiphon.runtime.signature import name_of

__all__ = ["Threads", "awaitable"]


class Threads:
    """The threads in which functions that are not `async` run; made when the first one is called."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._executor: Executor | None = None

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, with the context variables of here."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._size, thread_name_prefix="antiphon")
        call = functools.partial(contextvars.copy_context().run, function, **kwargs)
        return asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Let the threads end; those that are at work are not waited for."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def awaitable(function: Callable[..., Any], threads: Threads) -> Callable[..., Awaitable[Any]]:
    """The function as one that can be awaited."""
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target).__call__
    if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
        raise DefinitionError(f"{name_of(function)}: a generator cannot be called here; return a value.")
    if inspect.iscoroutinefunction(target):
        return function
    return lambda **kwargs: threads.run(function, kwargs)
