"""Tells the failures of an author's function apart from the signals that stop it.

Everything that a function raises is a failure of its call, even `SystemExit`, except the cancellation of the
call. Owns that distinction; transports, tools and tasks decide what follows from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from antiphon.runtime.execution.supervisor import Supervised

__all__ = ["UNSAFE_IN_TASKS", "SelfCancelled", "StopSignal", "as_exception", "contain", "is_failure"]

T = TypeVar("T")

UNSAFE_IN_TASKS = (SystemExit, KeyboardInterrupt, GeneratorExit)
"""Exceptions that an asyncio task cannot hand to the coroutine that awaits it.

The first two end the event loop, and with it the process. The last one closes the coroutine.
"""


class StopSignal(BaseException):
    """Unwinds a function that the library stops. It is never a failure of the call."""


class SelfCancelled(RuntimeError):
    """A function raised `CancelledError`, though nobody cancelled its call."""


def is_failure(raised: BaseException, work: Supervised) -> bool:
    """Return whether an exception is a failure of a call, and not a sign that the call is being stopped."""
    if isinstance(raised, Exception):
        return True
    if isinstance(raised, StopSignal):
        return False
    if isinstance(raised, asyncio.CancelledError):
        return not work.is_cancelled
    if isinstance(raised, GeneratorExit):
        return work.is_current  # if not, Python closes a coroutine that nobody awaits any more
    return True


def as_exception(raised: BaseException) -> Exception:
    """Return an exception that an asyncio task can hand to the coroutine that awaits it."""
    if isinstance(raised, Exception):
        return raised
    error = RuntimeError(f"The function raised {type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error


async def contain(awaitable: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """Return the result of an awaitable, or the exception that no asyncio task can hand on."""
    try:
        return await awaitable, None
    except UNSAFE_IN_TASKS as error:
        return None, error
