"""Runs a server in an asyncio task of its own, because its lifespan must close in the task that opened it."""

from __future__ import annotations

import asyncio
import logging

from antiphon.errors import InternalError, StoreError
from antiphon.runtime.engine import Engine

__all__ = ["ServerLifespan"]

logger = logging.getLogger("antiphon")


class ServerLifespan:
    """Starts a server when it is first needed, and stops it on request."""

    def __init__(self, engine: Engine) -> None:
        self.started = False
        self.failure: Exception | None = None
        """Why the server did not start, or `None`."""
        self._engine = engine
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._stop: asyncio.Event | None = None

    async def start(self) -> None:
        """Start the server; raises the error of its lifespan."""
        if self._ready is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            self._stop = asyncio.Event()
            self._task = loop.create_task(self._run(self._ready, self._stop))
        try:
            await asyncio.shield(self._ready)
        except Exception as error:
            self._ready = None
            self.failure = error
            raise
        self.started = True

    async def start_for_request(self) -> None:
        """Start the server with its first request, if no lifespan event came before it.

        Raises `InternalError`; the log has the reason.
        """
        try:
            await self.start()
        except Exception as error:
            self.report(error)
            raise InternalError("The server could not start. Its log has the details.") from None

    async def stop(self) -> None:
        """Stop the server."""
        if self._task is not None and self._stop is not None:
            self._stop.set()
            await self._task
        self.started = False
        self._task = self._ready = self._stop = None

    def report(self, error: Exception) -> None:
        """Log why the server does not start; without a traceback if its store is unavailable."""
        if isinstance(error, StoreError):
            logger.error("The server cannot start. %s", error)
        else:
            logger.error("The server cannot start: its lifespan failed.", exc_info=error)

    async def _run(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        try:
            async with self._engine.running():
                ready.set_result(None)
                await stop.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
