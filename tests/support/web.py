"""Small web servers that a test writes as an object with one method."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from aiohttp import web


class Handler(Protocol):
    """An object that answers requests to any path."""

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""


H = TypeVar("H", bound=Handler)


@asynccontextmanager
async def answering(make: Callable[[int], H]) -> AsyncIterator[H]:
    """Serve an object while the context is open. `make` gets the port on loopback, and returns the object."""
    listening = socket.create_server(("127.0.0.1", 0))
    handler = make(listening.getsockname()[1])
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield handler
    finally:
        await runner.cleanup()
