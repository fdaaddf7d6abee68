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
from collections import deque
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
    "share_threads",
]

logger = logging.getLogger("antiphon")

_thread_of_function: contextvars.ContextVar[int] = contextvars.ContextVar("antiphon_thread", default=0)

_share: contextvars.ContextVar[str] = contextvars.ContextVar("antiphon_share", default="")
"""Whose share of the threads functions use in this context."""

Emit: TypeAlias = Callable[[Any], Awaitable[None]]
"""Sends one yielded value to the caller."""


class Threads(Protocol):
    """Runs functions in threads."""

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, with a copy of the current context variables."""


_Work: TypeAlias = tuple[concurrent.futures.Future[Any], Callable[[], Any]]
"""A function that waits for a thread, and the future of its outcome."""


class ThreadExecutor:
    """The thread pool for functions that are not `async`, created at the first call of one.

    Functions of the callers with one share run in at most `most_of_share` threads at once. Further ones wait
    for one of these, so that a thread is left to others.
    """

    def __init__(self, size: int, most_of_share: int | None = None) -> None:
        self._size = size
        self._most_of_share = size if most_of_share is None else most_of_share
        self._executor: Executor | None = None
        self._submitted: set[concurrent.futures.Future[Any]] = set()
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Work]] = {}
        """The functions of each share that has as many threads as it may have, and of those that wait."""
        self._used: dict[str, int] = {}
        """How many threads the functions of each share have, or wait for in the pool."""

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, with a copy of the current context variables."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._size, thread_name_prefix="antiphon")
        call = functools.partial(contextvars.copy_context().run, _in_pool, function, kwargs)
        share = _share.get()
        if not share:
            submitted = self._executor.submit(call)
        else:
            submitted = concurrent.futures.Future()
            self._submit_of(share, (submitted, call))
        self._submitted.add(submitted)
        submitted.add_done_callback(self._submitted.discard)
        return asyncio.wrap_future(submitted)

    def _submit_of(self, share: str, work: _Work) -> None:
        """Give a function to the pool, or let it wait until a function of the same share has returned."""
        with self._lock:
            used = self._used.get(share, 0)
            if used >= self._most_of_share:
                self._waiting.setdefault(share, deque()).append(work)
                return
            self._used[share] = used + 1
        self._submit(share, work)

    def _submit(self, share: str, work: _Work) -> None:
        assert self._executor is not None
        done = self._executor.submit(self._work, share, work)
        done.add_done_callback(lambda done: work[0].cancel() if done.cancelled() else None)

    def _work(self, share: str, work: _Work) -> None:
        """Call a function in a thread of the pool, and the next ones of its share, without the lock."""
        following: _Work | None = work
        while following is not None:
            done, call = following
            if done.set_running_or_notify_cancel():
                _settle(done, call)
            del done, call
            following = self._next_of(share)

    def _next_of(self, share: str) -> _Work | None:
        """Return what waits for the thread that has become free; give the thread back if nothing does."""
        with self._lock:
            waiting = self._waiting.get(share)
            if waiting:
                return waiting.popleft()
            self._waiting.pop(share, None)
            self._used[share] -= 1
            if not self._used[share]:
                del self._used[share]
            return None

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
        with self._lock:
            for works in self._waiting.values():
                for done, _ in works:
                    done.cancel()
            self._waiting.clear()
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


def _in_pool(function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    _share.set("")  # what the function calls in further threads must not wait for its own one
    return _in_thread(function, kwargs)


def share_threads(share: str) -> None:
    """Let the functions of this context use the threads of a share (see `Principal.share`).

    Does nothing for what a function in a thread waits for.
    """
    if not _thread_of_function.get():
        _share.set(share)


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
