"""Supervises the worker processes of `antiphon run --workers`.

uvicorn starts them, and starts another one for each that ends. This module says so in the log.
"""

from __future__ import annotations

import logging
import signal
from functools import partial
from socket import socket

from uvicorn import Config
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

__all__ = ["WorkerSupervisor", "exit_reason"]

logger = logging.getLogger("antiphon")

RESPONSE_SECONDS = 30
"""How long a worker process may take to respond before it is killed: on a busy machine it is slow."""


class WorkerSupervisor(Multiprocess):
    """uvicorn's supervisor, which is more patient, and logs why a worker process is replaced."""

    def __init__(self, config: Config, sockets: list[socket]) -> None:
        config.timeout_worker_healthcheck = RESPONSE_SECONDS
        super().__init__(config, sockets)

    def keep_subprocess_alive(self) -> None:
        """Replace the worker processes that have ended, and those that do not respond."""
        before, stuck = list(self.processes), set[Process]()
        for worker in before:
            worker.kill = partial(_kill, worker, stuck)  # type: ignore[method-assign]
        super().keep_subprocess_alive()
        for worker in before:
            if worker in self.processes:
                continue
            logger.warning(
                "Worker process %s %s. Another one has been started in its place.",
                worker.pid,
                f"did not respond for {RESPONSE_SECONDS} s and was killed"
                if worker in stuck
                else exit_reason(worker.exitcode),
            )


def _kill(worker: Process, stuck: set[Process]) -> None:
    """Kill a worker process, and note that it was stuck: uvicorn also kills those that have ended."""
    if worker.process.is_alive():
        stuck.add(worker)
    Process.kill(worker)


def exit_reason(code: int | None) -> str:
    """Return how a process has ended, from its exit code."""
    if code is None or code >= 0:
        return f"has ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
