"""Keeps one process that serves the file, and starts another one when a file has changed.

The listening socket stays open throughout. The process before finishes its calls while the new one serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from antiphon.cli.dev.child import Report, serve_child
from antiphon.cli.dev.outage import Outage
from antiphon.cli.dev.watcher import FileWatcher
from antiphon.cli.exit_codes import print_error
from antiphon.cli.run.settings import Settings
from antiphon.printable import printable_text

__all__ = ["Reloader"]

STOP_SECONDS = 15.0
"""How long processes may take to finish their calls when the command itself ends. Then they are killed."""
POLL_SECONDS = 0.05
"""How often to look for a report, or for the end of a process."""
MAX_SHOWN_NAMES = 3


class Reloader:
    """Serves a file, and reloads it. `on_report` is called when a process is ready or has failed."""

    def __init__(
        self,
        settings: Settings,
        listening: socket.socket,
        folder: Path,
        on_report: Callable[[Report], None],
    ) -> None:
        self._settings = settings
        self._listening = listening
        self._on_report = on_report
        self._outage = Outage(listening)
        self._watcher = FileWatcher(folder)
        self._spawn = multiprocessing.get_context("spawn")
        self._process: BaseProcess | None = None
        self._stop_seconds = STOP_SECONDS
        self._leaving: dict[asyncio.Task[None], BaseProcess] = {}
        self._following: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the file, and start it again after each change, until cancelled."""
        try:
            await self._start()
            while True:
                changed = await self._watcher.changed()
                print(f"Changed: {_names(changed)}. Loading it again.", flush=True)
                await self._stop_current()
                await self._start()
        finally:
            await self._stop_current()
            await self._outage.end()
            await self._end_all()

    async def _start(self) -> None:
        """Start a process. Requests wait in the socket until it serves, or until it has failed."""
        await self._outage.end()
        receiving, sending = self._spawn.Pipe(duplex=False)
        process = self._spawn.Process(
            target=serve_child, args=(self._settings, self._listening, sending), name="antiphon-dev"
        )
        await asyncio.to_thread(process.start)
        sending.close()
        self._process, self._stop_seconds = process, STOP_SECONDS
        self._following = asyncio.create_task(self._follow(process, receiving))

    async def _follow(self, process: BaseProcess, reports: Connection) -> None:
        """Pass on what a process reports, and answer in its place once it has ended."""
        reason = ""
        try:
            while (report := await _next_report(process, reports)) is not None:
                self._watcher.include(report.files)
                reason = report.error
                if process is self._process:
                    self._stop_seconds = report.stop_seconds
                    self._on_report(report)
            await _ended(process)
        finally:
            reports.close()
        if process is not self._process:
            return
        if not reason:
            reason = f"The server's process has ended with exit code {process.exitcode}."
            self._on_report(Report([], error=reason))
            if process.exitcode:  # Ctrl-C reaches all processes, and ends them with 0
                print_error(f"{reason} Save a file to start it again.")
        else:
            print(printable_text(reason), file=sys.stderr, flush=True)
            print_error("The file cannot be served. Requests get status 503 until you have mended it.")
        await self._outage.begin(f"The server's file cannot be served now. {reason}")

    async def _stop_current(self) -> None:
        """Have the process finish its calls. It does so while another one serves."""
        process, self._process = self._process, None
        if process is not None and process.is_alive():
            process.terminate()
            leaving = asyncio.create_task(_stop(process, self._stop_seconds))
            self._leaving[leaving] = process
            leaving.add_done_callback(self._leaving.pop)

    async def _end_all(self) -> None:
        """Wait for the processes that finish their calls, and kill the ones that take long."""
        if not self._leaving:
            return
        _, slow = await asyncio.wait(self._leaving, timeout=STOP_SECONDS)
        for leaving in slow:
            self._leaving[leaving].kill()
        if slow:
            await asyncio.wait(slow)


async def _stop(process: BaseProcess, seconds: float) -> None:
    """Wait for a process that was told to stop; kill it if it does not."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _ended(process)
    if process.is_alive():
        process.kill()
        await _ended(process)


async def _ended(process: BaseProcess) -> None:
    """Wait for the end of a process.

    `join` with a timeout waits for the end of a pipe, which processes that were forked from it keep open.
    """
    while process.is_alive():  # noqa: ASYNC110 - a process sets no event
        await asyncio.sleep(POLL_SECONDS)


async def _next_report(process: BaseProcess, reports: Connection) -> Report | None:
    """Return the next report; `None` once the process has ended, or has closed the pipe.

    The pipe alone does not say so: a process that was forked from it keeps the pipe open.
    """
    with contextlib.suppress(EOFError, OSError):
        while True:
            has_ended = not process.is_alive()  # before the look at the pipe: the last report counts
            if reports.poll():
                report: Report = await asyncio.to_thread(reports.recv)
                return report
            if has_ended:
                return None
            await asyncio.sleep(POLL_SECONDS)
    return None


def _names(files: Sequence[str]) -> str:
    shown = [os.path.relpath(name) for name in files[:MAX_SHOWN_NAMES]]
    more = len(files) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
