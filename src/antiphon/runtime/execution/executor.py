"""Calling an author's function, whether it is `async` or not, and whether it returns or generates."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import aclosing, closing
from typing import Any, TypeAlias

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.signature import name_of

__all__ = ["Emit", "ThreadExecutor", "awaitable", "generating", "is_async"]

Emit: TypeAlias = Callable[[Any], Awaitable[None]]


class ThreadExecutor:
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


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function runs in the event loop, and not in a thread."""
    target = _target(function)
    return inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)


def awaitable(function: Callable[..., Any], threads: ThreadExecutor) -> Callable[..., Awaitable[Any]]:
    """The function as one that can be awaited."""
    target = _target(function)
    if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
        raise DefinitionError(f"{name_of(function)}: a generator cannot be called here; return a value.")
    if inspect.iscoroutinefunction(target):
        return function
    return lambda **kwargs: threads.run(function, kwargs)


def generating(
    function: Callable[..., Any], threads: ThreadExecutor
) -> Callable[[Emit, dict[str, Any]], Awaitable[Any]] | None:
    """The function as one that emits what it yields, and gives what it returns; `None` if it is none."""
    target = _target(function)
    if inspect.isasyncgenfunction(target):

        async def generate(emit: Emit, kwargs: dict[str, Any]) -> Any:
            async with aclosing(function(**kwargs)) as values:
                async for value in values:
                    await emit(value)

        return generate
    if not inspect.isgeneratorfunction(target):
        return None

    async def generate_in_thread(emit: Emit, kwargs: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()

        def work() -> Any:
            with closing(function(**kwargs)) as values:
                while True:
                    try:
                        value = next(values)
                    except StopIteration as end:
                        return end.value
                    try:
                        asyncio.run_coroutine_threadsafe(_awaited(emit, value), loop).result()
                    except concurrent.futures.CancelledError:
                        raise asyncio.CancelledError from None

        return await threads.run(work, {})

    return generate_in_thread


async def _awaited(emit: Emit, value: Any) -> None:
    await emit(value)


def _target(function: Callable[..., Any]) -> Any:
    """What stands behind a partial or an object that can be called."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target).__call__
    return target
