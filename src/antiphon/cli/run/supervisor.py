"""Supervises the worker processes of `antiphon run --workers`.

uvicorn starts them, and starts another one for each that ends. This module says so in the log.
"""

from __future__ import annotations

import logging
import signal
import time

from uvicorn.supervisors import Multiprocess

__all__ = ["WorkerSupervisor", "exit_reason"]

logger = logging.getLogger("antiphon")


class WorkerSupervisor(Multiprocess):
    """uvicorn's supervisor, which logs why a worker process is replaced."""

    def keep_subprocess_alive(self) -> None:
        """Replace the worker processes that have ended, and those that do not respond."""
        before = [(worker, worker.process.is_alive()) for worker in self.processes]
        started, seconds = time.monotonic(), self.config.timeout_worker_healthcheck
        super().keep_subprocess_alive()
        # A process may also end by itself after the look at it. uvicorn kills one only after waiting for it.
        has_waited = time.monotonic() - started >= seconds
        for worker, was_running in before:
            if worker in self.processes:
                continue
            logger.warning(
                "Worker process %s %s. Another one has been started in its place.",
                worker.pid,
                f"did not respond for {seconds:g} s and was killed"
                if was_running and has_waited
                else exit_reason(worker.exitcode),
            )


def exit_reason(code: int | None) -> str:
    """Return how a process has ended, from its exit code."""
    if code is None or code >= 0:
        return f"has ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
