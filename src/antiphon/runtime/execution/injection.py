"""Calls a function with the values of its dependencies, and closes these after the call.

Owns the order: values are made one after the other, once for each run of the function, and closed in reverse.
It must not know tools, resources or prompts.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon.runtime.authoring.dependencies import Dependency, read_dependencies
from antiphon.runtime.authoring.signature import name_of
from antiphon.runtime.execution.context import Context, environment_of
from antiphon.runtime.execution.executor import Threads, as_async, as_emitter
from antiphon.runtime.execution.run import Run

if TYPE_CHECKING:
    from antiphon.runtime.execution.invoke import Environment

__all__ = ["Injection"]

logger = logging.getLogger("antiphon")


class Injection:
    """A function that has dependencies, ready to run."""

    __slots__ = ("_dependencies", "_function", "_may_emit", "_threads")

    def __init__(
        self,
        function: Callable[..., Any],
        dependencies: Mapping[str, Callable[..., Any]],
        threads: Threads,
        *,
        may_emit: bool,
    ) -> None:
        self._function = function
        self._dependencies = read_dependencies(dependencies, Context)
        self._threads = threads
        self._may_emit = may_emit

    async def call(self, run: Run, arguments: dict[str, Any], context: Context) -> Any:
        """Make the values, call the function with them, and close them. A generator emits what it yields.

        The error of the call is raised into the dependencies. Raises it again, also if a dependency catches
        it, or raises the error that a dependency raised instead.
        """
        opened = _OpenDependencies(run, context, self._threads, name_of(self._function))
        try:
            for name, dependency in self._dependencies.items():
                arguments[name] = await opened.value(dependency)
            run.threaded = False
            generate = as_emitter(self._function, opened) if self._may_emit else None
            if generate is None:
                value = await as_async(self._function, opened)(**arguments)
            else:
                value = await generate(run.emit, arguments)
        except BaseException as error:
            await opened.close(error)
            raise
        await opened.close(None)
        return value


class _Exit(NamedTuple):
    """Closes one value, as at the end of `with`."""

    label: str
    """The name of the function that made the value."""
    leave: Callable[..., Awaitable[Any]]
    needs_thread: bool


class _OpenDependencies:
    """The values of dependencies in one run of a function. Runs functions in threads, and knows if one runs.

    A thread cannot be interrupted. If a call is stopped while a thread runs a part of it, the dependencies
    are closed when the thread has finished, so that it does not use a closed one. A server that stops does
    not wait longer than its `drain_timeout` for the thread.
    """

    __slots__ = (
        "_beginning",
        "_context",
        "_environment",
        "_exits",
        "_is_late",
        "_label",
        "_opening",
        "_overrides",
        "_run",
        "_running",
        "_threads",
        "_values",
    )

    def __init__(self, run: Run, context: Context, threads: Threads, label: str) -> None:
        self._run = run
        self._context = context
        self._environment: Environment = environment_of(context)
        self._overrides = self._environment.dependency_overrides.found
        self._threads = threads
        self._label = label
        self._values: dict[Any, Any] = {}
        """The values that were made, by function."""
        self._exits: list[_Exit] = []
        self._opening: tuple[str, Callable[[Any], Awaitable[Any]]] | None = None
        """A dependency that a thread is opening, and the function that gets the result of the thread."""
        self._running: asyncio.Future[Any] | None = None
        """The last function that a thread has run."""
        self._beginning: threading.Lock | None = None
        """Taken by the thread when it begins with the function, or else by a call that is stopped before."""
        self._is_late = False
        """Whether the call was stopped before the thread had finished."""

    async def value(self, dependency: Dependency, replaced: tuple[Callable[..., Any], ...] = ()) -> Any:
        """Return the value of a dependency, which is made once.

        `replaced` has the functions whose overrides need this value: an override may use the original.
        """
        function = dependency.function
        if self._overrides and function not in replaced and function in self._overrides:
            dependency, replaced = self._overrides[function], (*replaced, function)
            function = dependency.function
        key: Any = function
        if replaced and (originals := self._originals(dependency, replaced)):
            key = (function, originals)  # elsewhere, the same function gets the values of overrides
        if key not in self._values:
            arguments = {
                name: await self.value(each, replaced) for name, each in dependency.dependencies.items()
            }
            if dependency.context is not None:
                arguments[dependency.context] = self._context
            self._values[key] = await self._make(dependency, arguments)
        return self._values[key]

    def _originals(
        self, dependency: Dependency, replaced: tuple[Callable[..., Any], ...]
    ) -> frozenset[Callable[..., Any]]:
        """Return the replaced functions whose own values a dependency needs, also through others."""
        found: set[Callable[..., Any]] = set()
        for each in dependency.dependencies.values():
            within = replaced
            if each.function in replaced:
                found.add(each.function)
            elif each.function in self._overrides:
                each, within = self._overrides[each.function], (*replaced, each.function)
            found |= self._originals(each, within)
        return frozenset(found.intersection(replaced))

    async def _make(self, dependency: Dependency, arguments: dict[str, Any]) -> Any:
        self._run.threaded = False
        label = name_of(dependency.function)
        if dependency.is_generator:
            made = dependency.make(**arguments)
        elif dependency.is_async:
            made = await dependency.make(**arguments)
        else:
            self._opening = (label, partial(self._enter, label))
            made = await self.run(dependency.make, arguments)
            self._opening = None
        return await self._enter(label, made)

    async def _enter(self, label: str, made: Any) -> Any:
        """Return the value of an object that a dependency made, and enter the object if it is left later."""
        # Connections, files and locks have `__enter__` too, and are passed as they are: only an object whose
        # class says that it is a context manager is entered.
        kinds = type(made).__mro__
        if AbstractAsyncContextManager in kinds:
            self._run.threaded = False
            value = await made.__aenter__()
            self._exits.append(_Exit(label, made.__aexit__, needs_thread=False))
            return value
        if AbstractContextManager in kinds:
            leaving = _Exit(label, partial(self._in_thread, made.__exit__), needs_thread=True)

            async def entered(_: Any) -> None:
                self._exits.append(leaving)

            self._opening = (label, entered)
            value = await self.run(made.__enter__, {})
            self._opening = None
            self._exits.append(leaving)
            return value
        return made

    def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Call a function in a thread, unless the call is stopped before a thread is free."""
        self._run.threaded = True
        self._beginning = beginning = threading.Lock()
        return self._in_thread(lambda: function(**kwargs) if beginning.acquire(blocking=False) else None)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        work = partial(function, *arguments)
        self._running = asyncio.ensure_future(self._threads.run(work, {}))
        self._running.add_done_callback(_retrieve)
        await asyncio.wait({self._running})  # a cancellation does not reach the thread
        return self._running.result()

    async def close(self, error: BaseException | None) -> None:
        """Close the values, the last one first. Raises the error of a dependency that fails."""
        if self._is_busy and self._beginning is not None and self._beginning.acquire(blocking=False):
            assert self._running is not None
            self._running.cancel()  # no thread was free: the function does not run
        raised = error
        leaving: _Exit | None = None
        if not self._is_busy:
            self._opening = None  # opening it has failed
        while self._exits or self._opening is not None or (self._is_late and self._is_busy):
            if self._is_busy:
                if self._is_late:
                    await self._close_without_threads(raised, leaving)
                else:
                    self._is_late = True
                    closing = asyncio.create_task(self._close_later(raised))
                    self._environment.closing.add(closing)
                    closing.add_done_callback(self._environment.closing.discard)
                break
            leaving = self._exits.pop()
            raised = await _leave(leaving, raised)
        if raised is not None and raised is not error:
            raise raised

    @property
    def _is_busy(self) -> bool:
        """Whether a thread still runs a part of the call, which has been stopped."""
        return self._running is not None and not self._running.done()

    async def _close_later(self, error: BaseException | None) -> None:
        """Close the values when the thread has finished. The server cancels this when it stops."""
        assert self._running is not None
        try:
            await asyncio.wait({self._running})
            if self._opening is not None:
                _, enter = self._opening
                self._opening = None
                await enter(self._running.result())
        except BaseException as failed:  # also a cancellation, or the signal of a question that nobody awaits
            if isinstance(failed, Exception):
                logger.exception("A dependency of %r failed while it was opened.", self._label)
        try:
            await self.close(error)
        except Exception:
            logger.exception("A dependency of %r failed while it was closed.", self._label)

    async def _close_without_threads(self, error: BaseException | None, leaving: _Exit | None) -> None:
        """Close the values that need no thread, and log the names of the others: the server stops.

        `leaving` is the value that the thread closes.
        """
        still_open = [self._opening[0]] if self._opening is not None else []
        if leaving is not None:
            still_open.append(leaving.label)
        while self._exits:
            each = self._exits.pop()
            if each.needs_thread:
                still_open.append(each.label)
            else:
                error = await _leave(each, error)
        if still_open:
            logger.warning(
                "The server stopped while a thread still ran a part of %r. These dependencies are still "
                "open: %s. Let the function return earlier, or raise Limits.drain_timeout.",
                self._label,
                ", ".join(still_open),
            )


async def _leave(leaving: _Exit, error: BaseException | None) -> BaseException | None:
    """Close a value; return the error for the next one."""
    try:
        if error is None:
            await leaving.leave(None, None, None)
        else:
            await leaving.leave(type(error), error, error.__traceback__)
    except BaseException as another:
        return another
    return error


def _retrieve(running: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a function whose call was stopped, which nobody awaits."""
    if not running.cancelled():
        running.exception()
