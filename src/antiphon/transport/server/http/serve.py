"""Runs an ASGI app on uvicorn until a signal ends it.

Owns the subclass of `uvicorn.Server` that `Server.run()` and the command line share, and the settings of
uvicorn that both need. Knows nothing about tools, tasks or stores.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from antiphon.log_records import clean_records
from antiphon.runtime.limits import Limits
from antiphon.transport.server.http.app import App
from antiphon.transport.server.http.batched_start import BatchedStart
from antiphon.transport.server.http.connections import Connections, raise_descriptor_limit
from antiphon.transport.server.http.endpoint import Endpoint
from antiphon.transport.server.http.known_heads import KnownHeads
from antiphon.transport.server.http.protocol import HttpProtocol
from antiphon.transport.server.http.responses import Responses
from antiphon.transport.server.interrupts import Interrupts

__all__ = ["HttpConfig", "HttpServer", "create_config", "create_server", "serve_http"]

ANSWER_SECONDS = 5
"""How long calls that the app stopped at the end of the drain may take to send their errors."""
KEEP_ALIVE_SECONDS = 65
"""How long an idle connection stays open: longer than clients keep theirs, so that a client closes first."""


class HttpServer(uvicorn.Server):
    """A uvicorn server with hooks for its start and its end.

    `on_listening` is called once the server accepts connections. `on_signal` is called when SIGINT or
    SIGTERM arrives. After SIGTERM the server accepts requests for another `shutdown_delay` seconds. Then
    `on_closing` is called, and the server stops listening and drains. `interrupts` hears of each SIGINT. With
    `handle_signals=False` the server leaves signals alone: set `should_exit` to stop it.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        on_listening: Callable[[], None] | None = None,
        on_signal: Callable[[], None] | None = None,
        on_closing: Callable[[], None] | None = None,
        interrupts: Interrupts | None = None,
        shutdown_delay: float = 0.0,
        handle_signals: bool = True,
    ) -> None:
        super().__init__(config)
        self._on_closing = on_closing
        self._interrupts = interrupts
        self._shutdown_delay = shutdown_delay
        self._closes_at: float | None = None
        self._on_listening = on_listening
        self._on_signal = on_signal
        self._handle_signals = handle_signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `on_listening`."""
        await super().startup(sockets)
        if self._on_listening is not None:
            self._on_listening()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop listening: `shutdown_delay` seconds after SIGTERM, at once after SIGINT."""
        if not await super().on_tick(counter):
            return False
        if signal.SIGINT in self._captured_signals:  # a person waits for the end
            return True
        now = asyncio.get_running_loop().time()
        if self._closes_at is None:
            self._closes_at = now + self._shutdown_delay
        return now >= self._closes_at

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_closing`, then stop listening and drain."""
        if self._on_closing is not None:
            self._on_closing()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Call `on_signal`, then start to shut down. The second SIGINT ends the process."""
        if sig == signal.SIGINT and self._interrupts is not None:
            self._interrupts.handle()
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


class HttpConfig(uvicorn.Config):
    """The configuration of uvicorn, with the limits that apply to connections and heads."""

    connections: Connections
    """The connections of this process, once the configuration is loaded."""
    known_heads: KnownHeads
    """The heads of plain requests that were parsed before, once the configuration is loaded."""
    batched_start: BatchedStart
    """Starts the work of plain requests, once the configuration is loaded."""
    responses: Responses
    """Writes the answers to plain requests, once the configuration is loaded."""
    plain_endpoint: Endpoint | None
    """Where plain requests go, which need no ASGI; `None` if all requests go through ASGI."""

    def __init__(self, app: Any, *, limits: Limits, **options: Any) -> None:
        super().__init__(app, http=HttpProtocol, **options)
        self.limits = limits

    def load(self) -> None:
        """Load the app, and raise the limit of open descriptors, which bounds the connections."""
        super().load()
        self.connections = Connections(self.limits, raise_descriptor_limit())
        self.known_heads = KnownHeads(self.limits.principal_share)
        self.batched_start = BatchedStart()
        self.responses = Responses()
        self.plain_endpoint = None
        app = self.loaded_app
        if isinstance(app, App):
            app.skip_head_checks()
            if not (self.root_path or self.limit_concurrency or self.reset_contextvars):
                self.plain_endpoint = app.endpoint


def create_config(app: Any, *, limits: Limits, **options: Any) -> HttpConfig:
    """Create the configuration of uvicorn for an MCP app.

    Calls that are running when the server stops get `Limits.drain_timeout` seconds to finish; the app answers
    the others with an error. `options` are further options of `uvicorn.Config`.
    """
    config = HttpConfig(
        app,
        limits=limits,
        ws="none",
        # Forwarded headers are not trusted: the guard checks the Host header as it arrives.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(limits.drain_timeout) + ANSWER_SECONDS,
        **options,
    )
    clean_records(("uvicorn.access", "uvicorn.error"))
    return config


def serve_http(app: App, *, host: str, port: int) -> None:
    """Serve an app until SIGINT or SIGTERM. Running calls then get `Limits.drain_timeout` seconds."""
    config = create_config(app, limits=app.limits, host=host, port=port, lifespan="on")
    create_server(config, app).run()


def create_server(
    config: uvicorn.Config, app: App, *, on_listening: Callable[[], None] | None = None
) -> HttpServer:
    """Create the server of an app, which hears of the shutdown before the server stops listening."""
    return HttpServer(
        config,
        on_listening=on_listening,
        on_signal=app.announce_shutdown,
        on_closing=app.begin_shutdown,
        interrupts=Interrupts(app.count_running, app.limits.drain_timeout),
        shutdown_delay=app.limits.shutdown_delay,
    )
