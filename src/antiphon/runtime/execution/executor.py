"""Runs author functions of every kind: `async` functions, plain functions in threads, and generators.

Owns the thread pool of a server. It must not know calls, journals or results.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import aclosing, closing
from typing import Any, Protocol, TypeAlias

from antiphon.errors import DefinitionError
from antiphon.runtime.authoring.signature import name_of, underlying_function
from antiphon.runtime.execution.failures import contain

__all__ = [
    "Emit",
    "OwnThreads",
    "ThreadExecutor",
    "Threads",
    "as_async",
    "as_emitter",
    "is_async",
    "is_own_thread",
]

logger = logging.getLogger("antiphon")

_thread_of_function: contextvars.ContextVar[int] = contextvars.ContextVar("antiphon_thread", default=0)

Emit: TypeAlias = Callable[[Any], Awaitable[None]]
"""Sends one yielded value to the caller."""


class Threads(Protocol):
    """Runs functions in threads."""

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, with a copy of the current context variables."""


class ThreadExecutor:
    """The thread pool for functions that are not `async`, created at the first call of one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._executor: Executor | None = None
        self._submitted: set[concurrent.futures.Future[Any]] = set()

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, with a copy of the current context variables."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._size, thread_name_prefix="antiphon")
        call = functools.partial(contextvars.copy_context().run, _in_thread, function, kwargs)
        submitted = self._executor.submit(call)
        self._submitted.add(submitted)
        submitted.add_done_callback(self._submitted.discard)
        return asyncio.wrap_future(submitted)

    @property
    def apart(self) -> OwnThreads:
        """Runs functions in threads of their own, for those that may wait long."""
        return OwnThreads(self._submitted)

    @property
    def running(self) -> int:
        """The number of functions that run in a thread, or wait for one."""
        return len(self._submitted)

    def close(self) -> None:
        """Shut the pool down, without waiting for functions that still run. Log how many there are."""
        if self._executor is None:
            return
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = None
        if running := sum(submitted.running() for submitted in tuple(self._submitted)):
            logger.warning(
                "Functions that still run in threads, and cannot be interrupted: %d. The process ends when "
                "they have returned, or a few seconds after the server with `antiphon run` or `worker`.",
                running,
            )

    def wait(self, timeout: float) -> int:
        """Block until no function runs in a thread, or for `timeout` seconds; return how many still run."""
        return len(concurrent.futures.wait(tuple(self._submitted), timeout).not_done)


class OwnThreads:
    """Runs each function in a thread of its own, so that functions that wait do not occupy the pool."""

    def __init__(self, running: set[concurrent.futures.Future[Any]]) -> None:
        self._running = running

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a new thread, with a copy of the current context variables."""
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        done.set_running_or_notify_cancel()
        self._running.add(done)
        done.add_done_callback(self._running.discard)
        call = functools.partial(contextvars.copy_context().run, _in_thread, function, kwargs)
        threading.Thread(target=_settle, args=(done, call), name="antiphon-held", daemon=True).start()
        return asyncio.wrap_future(done)


def _settle(done: concurrent.futures.Future[Any], call: Callable[[], Any]) -> None:
    """Set the outcome of a call. No exception ends the thread, not even `SystemExit`."""
    try:
        done.set_result(call())
    except BaseException as error:
        done.set_exception(error)


def _in_thread(function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    _thread_of_function.set(threading.get_ident())
    try:
        return function(**kwargs)
    except (StopIteration, GeneratorExit) as error:  # no future can hand them on
        raise RuntimeError(f"The function raised {type(error).__name__}.") from error


def is_own_thread() -> bool:
    """Return whether this is the thread in which a pool runs a function, and not one that it started."""
    return _thread_of_function.get() == threading.get_ident()


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function runs in the event loop, and not in a thread."""
    target = underlying_function(function)
    return inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target)


def as_async(function: Callable[..., Any], threads: Threads) -> Callable[..., Awaitable[Any]]:
    """Return a function that can be awaited; raises `DefinitionError` for a generator."""
    target = underlying_function(function)
    if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
        raise DefinitionError(f"{name_of(function)}: generators are not supported here: return a value.")
    if inspect.iscoroutinefunction(target):
        return function
    return lambda **kwargs: threads.run(function, kwargs)


def as_emitter(
    function: Callable[..., Any], threads: Threads
) -> Callable[[Emit, dict[str, Any]], Awaitable[Any]] | None:
    """Return a function that emits the values a generator yields; `None` if `function` is not a generator."""
    target = underlying_function(function)
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
                        sending = asyncio.run_coroutine_threadsafe(contain(emit(value)), loop)
                        if (error := sending.result()[1]) is not None:
                            raise error
                    except concurrent.futures.CancelledError:
                        raise asyncio.CancelledError from None

        return await threads.run(work, {})

    return generate_in_thread
