"""A server behind a real socket and a real uvicorn, in the event loop of the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from antiphon import Server
from antiphon.transport.server.http.app import App
from antiphon.transport.server.http.serve import HttpServer, create_config
from tests.support.polling import until

WAY = "run"
"""How `serving` serves a `Server`: a name in `WAYS`. The tests of the HTTP server are repeated for each."""


class PlainUvicorn(uvicorn.Server):
    """A uvicorn server that does not handle signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Address:
    """The address of a running server, and its app."""

    def __init__(self, port: int, app: Any, runner: uvicorn.Server) -> None:
        self.port = port
        self.app = app
        self.runner = runner

    def is_refusing(self) -> bool:
        """Return whether nobody listens at the port."""
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) != 0

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def under_way(self) -> int:
        """The number of requests that the app is handling."""
        assert isinstance(self.app, App)
        return len(self.app.endpoint.supervisor)


@asynccontextmanager
async def serving(served: Server | Any, *, lifespan: str = "on", **options: Any) -> AsyncIterator[Address]:
    """Serve a server in the way of `WAY`, with the options of `Server.asgi`; or any ASGI app."""
    if WAY == "run" and isinstance(served, Server) and lifespan == "on":
        way = running(served, **options)
    else:
        way = serving_asgi(served, lifespan=lifespan, **options)
    async with way as address:
        yield address


@asynccontextmanager
async def serving_asgi(
    served: Server | Any, *, lifespan: str = "on", port: int = 0, **options: Any
) -> AsyncIterator[Address]:
    """Serve a server as an ASGI app, or any ASGI app, under a plain uvicorn."""
    app = served.asgi(**options) if isinstance(served, Server) else served
    config = uvicorn.Config(
        app,
        log_level="error",
        lifespan=lifespan,
        timeout_graceful_shutdown=5,
        access_log=False,  # type: ignore[arg-type]
    )
    async with _running(PlainUvicorn(config), app, port) as address:
        yield address


@asynccontextmanager
async def running(
    served: Server, *, port: int = 0, access_log: bool = False, **options: Any
) -> AsyncIterator[Address]:
    """Serve a server as `Server.run` and `antiphon run` do, with the options of `Server.asgi`."""
    app = served.asgi(**options)
    config = create_config(app, limits=app.limits, lifespan="on", log_config=None, access_log=access_log)
    async with _running(HttpServer(config, handle_signals=False), app, port) as address:
        yield address


WAYS = {"run": running, "asgi": serving_asgi}
"""The ways into a server over HTTP: our own server, and an ASGI app under a plain uvicorn."""


@asynccontextmanager
async def _running(runner: uvicorn.Server, app: Any, port: int = 0) -> AsyncIterator[Address]:
    listening = socket.create_server(("127.0.0.1", port))
    task = asyncio.create_task(runner.serve(sockets=[listening]))
    try:
        await until(lambda: runner.started or task.done())
        assert runner.started, "the server did not start"
        yield Address(listening.getsockname()[1], app, runner)
    finally:
        runner.should_exit = True
        await task
        listening.close()
