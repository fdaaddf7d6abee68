"""Keeps a server's lifespan open, in a task of its own, so that it closes where it was opened."""

from __future__ import annotations

import asyncio

from antiphon.runtime.engine import Engine

__all__ = ["ServerLifespan"]


class ServerLifespan:
    """Starts a server when it is first needed, and stops it when told to."""

    def __init__(self, host: Engine) -> None:
        self.started = False
        self._host = host
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._stop: asyncio.Event | None = None

    async def start(self) -> None:
        """Wait until the server runs; raises what its lifespan raised."""
        if self._ready is None:
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            self._stop = asyncio.Event()
            self._task = loop.create_task(self._own(self._ready, self._stop))
        try:
            await asyncio.shield(self._ready)
        except Exception:
            self._ready = None
            raise
        self.started = True

    async def stop(self) -> None:
        """Close the server."""
        if self._task is not None and self._stop is not None:
            self._stop.set()
            await self._task
        self.started = False
        self._task = self._ready = self._stop = None

    async def _own(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        try:
            async with self._host.running():
                ready.set_result(None)
                await stop.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
