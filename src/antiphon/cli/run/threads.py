"""Ends a process whose server has stopped, although functions of its tools still run in threads.

Python waits for such threads at the end of a process, and cannot interrupt them. The worker processes of
`--workers` need no help: uvicorn raises SIGTERM in them again after they have stopped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from antiphon.transport.server.interrupts import exit_at_once

if TYPE_CHECKING:
    from antiphon.server import Server

__all__ = ["end_without_threads"]

logger = logging.getLogger("antiphon")

GRACE_SECONDS = 5.0
"""How long functions in threads may run after the server has stopped. The drain is over by then."""


def end_without_threads(server: Server) -> None:
    """Wait a moment for functions that run in threads. If some still run then, end the process."""
    left = server.engine.threads.wait(GRACE_SECONDS)
    if left:
        logger.warning(
            "The process ends although functions still run in threads: %d. The server stopped %g s ago.",
            left,
            GRACE_SECONDS,
        )
        logging.shutdown()
        exit_at_once(0)
