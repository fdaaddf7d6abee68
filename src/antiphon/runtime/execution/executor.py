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
    "share_threads",
]

logger = logging.getLogger("antiphon")

_thread_of_function: contextvars.ContextVar[int] = contextvars.ContextVar("antiphon_thread", default=0)

_share: contextvars.ContextVar[str] = contextvars.ContextVar("antiphon_share", default="")
"""Whose share of the threads functions use in this context."""

_lender: contextvars.ContextVar[int] = contextvars.ContextVar("antiphon_lender", default=0)
"""The thread of the pool whose function waits for what goes on in this context."""

Emit: TypeAlias = Callable[[Any], Awaitable[None]]
"""Sends one yielded value to the caller."""


class Threads(Protocol):
    """Runs functions in threads."""

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, with a copy of the current context variables."""


_Outcome: TypeAlias = concurrent.futures.Future[Any]
"""The future of what a function in a thread returns."""

_Work: TypeAlias = Callable[[], Any]
"""A function with its arguments."""


class ThreadExecutor:
    """The thread pool for functions that are not `async`, created at the first call of one.

    Functions of the callers with one share run in at most `most_of_share` threads at once. Callers that wait
    take turns: a thread that comes free goes to the one that has fewest. A function that waits for another
    one lends it its place: a thread beside the pool, so that functions never wait for each other for ever.
    """

    def __init__(self, size: int, most_of_share: int | None = None) -> None:
        self._size = size
        self._most_of_share = size if most_of_share is None else most_of_share
        self._executor: Executor | None = None
        self._submitted: set[_Outcome] = set()
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[_Outcome, tuple[_Work, int]]] = {}
        """The functions of each share that wait for a thread, with their lenders, or 0. The share that had a
        thread longest ago is first."""
        self._used: dict[str, int] = {}
        """How many threads the functions of each share have."""
        self._busy = 0
        """How many threads are used in all."""
        self._lent: set[int] = set()
        """The threads whose functions have lent their places. A thread beside the pool has each of these."""

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, with a copy of the current context variables."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._size, thread_name_prefix="antiphon")
        share, lender = _share.get(), _lender.get()
        submitted: _Outcome = concurrent.futures.Future()
        waiting = _awaited(submitted, self._submitted, functools.partial(self._forget, share))
        work = functools.partial(contextvars.copy_context().run, _in_pool, function, kwargs)
        with self._lock:
            self._waiting.setdefault(share, {})[submitted] = work, lender
            following = self._next()
            is_lent = following is None and lender != 0 and lender not in self._lent
            if is_lent:
                self._lent.add(lender)
                self._take(share, submitted)
        if following is not None:
            self._executor.submit(self._work, *following)
        elif is_lent:
            lent = (share, lender, submitted, work)
            threading.Thread(target=self._work_lent, args=lent, name="antiphon-lent", daemon=True).start()
        return waiting

    def _next(self) -> tuple[str, _Outcome, _Work] | None:
        """Take a thread for a function that waits, with the lock; return `None` if none may have one now."""
        if self._busy == self._size:
            return None
        shares = [share for share in self._waiting if self._used.get(share, 0) < self._most_of(share)]
        if not shares:
            return None
        share = min(shares, key=lambda share: self._used.get(share, 0))
        done = next(iter(self._waiting[share]))
        self._used[share] = self._used.get(share, 0) + 1
        self._busy += 1
        return share, done, self._take(share, done)

    def _take(self, share: str, done: _Outcome) -> _Work:
        """Take a function from those that wait."""
        waiting = self._waiting[share]
        work, _ = waiting.pop(done)
        if not waiting:
            del self._waiting[share]
        return work

    def _work_lent(self, share: str, lender: int, done: _Outcome, work: _Work) -> None:
        """Call functions that a function of the pool waits for, one after the other, until none is left."""
        while True:
            if done.set_running_or_notify_cancel():
                _settle(done, work)
            with self._lock:
                waiting = self._waiting.get(share, {}).items()
                following = next((each for each, (_, by) in waiting if by == lender), None)
                if following is None:
                    self._lent.discard(lender)
                    return
                done, work = following, self._take(share, following)

    def _most_of(self, share: str) -> int:
        return self._most_of_share if share else self._size

    def _work(self, share: str, done: _Outcome, work: _Work) -> None:
        """Call functions in a thread of the pool, without the lock, until none waits that may have it."""
        following: tuple[str, _Outcome, _Work] | None = share, done, work
        del done, work
        while following is not None:
            share, done, work = following
            if done.set_running_or_notify_cancel():
                _settle(done, work)
            del following, done, work
            with self._lock:
                self._give_back(share)
                following = self._next()

    def _give_back(self, share: str) -> None:
        self._busy -= 1
        self._used[share] -= 1
        if not self._used[share]:
            del self._used[share]
        if share in self._waiting:  # its next turn comes after those of callers with as few threads
            self._waiting[share] = self._waiting.pop(share)

    def _forget(self, share: str, done: _Outcome) -> None:
        """Forget a function that has returned, or whose caller is gone before it got a thread."""
        self._submitted.discard(done)
        with self._lock:
            waiting = self._waiting.get(share)
            if waiting is not None and waiting.pop(done, None) is not None and not waiting:
                del self._waiting[share]

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
        for submitted in tuple(self._submitted):
            submitted.cancel()  # those that run cannot be
        self._executor.shutdown(wait=False)
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

    def __init__(self, running: set[_Outcome]) -> None:
        self._running = running

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a new thread, with a copy of the current context variables."""
        done: _Outcome = concurrent.futures.Future()
        done.set_running_or_notify_cancel()
        waiting = _awaited(done, self._running, self._running.discard)
        call = functools.partial(contextvars.copy_context().run, _in_thread, function, kwargs)
        threading.Thread(target=_settle, args=(done, call), name="antiphon-held", daemon=True).start()
        return waiting


def _awaited(
    done: _Outcome, running: set[_Outcome], forget: Callable[[_Outcome], None]
) -> asyncio.Future[Any]:
    """Return a future of the event loop for a function, which is forgotten after the loop has its result."""
    running.add(done)
    waiting: asyncio.Future[Any] = asyncio.wrap_future(done)
    done.add_done_callback(forget)  # it comes after the callback of asyncio
    return waiting


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
    _lender.set(threading.get_ident())
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
