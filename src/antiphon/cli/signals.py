"""Lets signals wake the event loop of a command, so that Ctrl-C is noticed at once, and end it in order.

Python runs the handler of a signal when the main thread next executes bytecode. If the signal arrives just
before the event loop begins to wait, that is after the next event, which may never come while a prompt is
open.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from antiphon.cli.exit_codes import SIGNALLED, CommandError

__all__ = ["cancelled_by_signals", "woken_by_signals"]

T = TypeVar("T")

_READ_BYTES = 4096


async def woken_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop that every signal wakes."""
    with _wakeup(asyncio.get_running_loop()):
        return await work


async def cancelled_by_signals(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and cancel it on SIGTERM or SIGHUP, so that it can stop the processes that it started.

    Raises `CommandError` then. A signal that the process ignores stays ignored.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        loop.call_soon_threadsafe(task.cancel)

    with _handling(handle):
        try:
            return await work
        except asyncio.CancelledError:
            if not received:
                raise
            name = signal.Signals(received[0]).name
            raise CommandError(f"Ended by {name}.", SIGNALLED + received[0]) from None


@contextmanager
def _handling(handle: Callable[[int, Any], None]) -> Iterator[None]:
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    replaced = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _wakeup(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    # On Windows the event loop does this by itself. Python allows it in the main thread only.
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)
        loop.add_reader(reading, _drain, reading)
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reading)


def _drain(reading: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        reading.recv(_READ_BYTES)
