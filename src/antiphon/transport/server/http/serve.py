"""Runs an ASGI app on uvicorn until a signal ends it.

Owns the subclass of `uvicorn.Server` that `Server.run()` and the command line share, and the settings of
uvicorn that both need. Knows nothing about tools, tasks or stores.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from antiphon.transport.server.http.app import App

__all__ = ["HttpServer", "create_config", "serve_http"]

KEEP_ALIVE_SECONDS = 65
"""How long an idle connection stays open: longer than clients keep theirs, so that a client closes first."""


class HttpServer(uvicorn.Server):
    """A uvicorn server with hooks for its start and its end.

    `on_listening` is called once the server accepts connections. `on_signal` is called when SIGINT or
    SIGTERM arrives, before the server starts to drain. With `handle_signals=False` the server leaves
    signals alone: set `should_exit` to stop it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_listening: Callable[[], None] | None = None,
        on_signal: Callable[[], None] | None = None,
        handle_signals: bool = True,
    ) -> None:
        super().__init__(config)
        self._on_listening = on_listening
        self._on_signal = on_signal
        self._handle_signals = handle_signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `on_listening`."""
        await super().startup(sockets)
        if self._on_listening is not None:
            self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Call `on_signal`, then start to drain."""
        if self._on_signal is not None:
            self._on_signal()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals while the server runs, unless `handle_signals=False`."""
        if not self._handle_signals:
            yield
            return
        with super().capture_signals():
            yield


def create_config(app: Any, *, drain_timeout: float, **options: Any) -> uvicorn.Config:
    """Create the configuration of uvicorn for an MCP app.

    Calls that are running when the server stops get `drain_timeout` seconds to finish. `options` are further
    options of `uvicorn.Config`.
    """
    return uvicorn.Config(
        app,
        ws="none",
        # Forwarded headers are not trusted: the guard checks the Host header as it arrives.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(drain_timeout),
        **options,
    )


def serve_http(app: App, *, host: str, port: int, drain: float) -> None:
    """Serve an app until SIGINT or SIGTERM. Running calls then get `drain` seconds to finish."""
    config = create_config(app, drain_timeout=drain, host=host, port=port, lifespan="on")
    HttpServer(config, on_signal=app.begin_shutdown).run()
