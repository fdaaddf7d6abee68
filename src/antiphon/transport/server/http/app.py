"""The ASGI app of a server: the router in front, the MCP endpoint behind it, and the server's lifespan.

Mounts in Starlette or FastAPI, or runs under any ASGI server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from antiphon.errors import InternalError
from antiphon.runtime.engine import Engine
from antiphon.runtime.limits import Limits
from antiphon.transport.server.http.asgi import Receive, Scope, Send
from antiphon.transport.server.http.endpoint import Endpoint
from antiphon.transport.server.http.lifespan import ServerLifespan
from antiphon.transport.server.http.metadata_pages import metadata_pages
from antiphon.transport.server.http.probes import probe_routes
from antiphon.transport.server.http.router import HttpResponse, Router, Routes
from antiphon.transport.server.interrupts import Running

__all__ = ["App", "ConsoleOptions", "MountedConsole"]

logger = logging.getLogger("antiphon")

_UNWIND_SECONDS = 2.0
"""How long calls that were stopped may take to unwind and to send their error."""


class MountedConsole(Protocol):
    """The console beside the endpoint: an ASGI app that stops with the server."""

    path: str
    """The address of its page, without a slash at the end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose `root_path` ends with the path of the console."""

    def end_streams(self) -> None:
        """End the streams that have no end of their own."""

    async def close(self) -> None:
        """Release everything, before the server stops."""


class ConsoleOptions(Protocol):
    """The options of a console, such as a `Console`."""

    def attach(self, server: Any, hosts: Sequence[str] | None) -> MountedConsole:
        """Return the console of a server; raises `DefinitionError` if the server cannot have one."""


class App:
    """Serves one server over HTTP."""

    def __init__(
        self,
        engine: Engine,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] | None = None,
        routes: Routes | None = None,
        probes: bool = False,
        console: MountedConsole | None = None,
    ) -> None:
        self.engine = engine
        self._lifespan = ServerLifespan(engine)
        self.endpoint = Endpoint(engine, self._lifespan, path=path, hosts=hosts, origins=origins)
        """Serves MCP. An HTTP server may hand it requests itself, without ASGI."""
        own = Routes() if routes is None else routes
        own.reserve(path)
        self._router = Router(
            engine.limits,
            engine.threads.run,
            own=own,
            probes=probe_routes(engine, self._check_ready) if probes else Routes(),
            guard=self.endpoint.guard,
            start=self._lifespan.start_for_request,
            metadata=metadata_pages(engine.protected_resource, path),
        )
        self.console = console
        self._leaving = False
        self._stopping: asyncio.TimerHandle | None = None
        self._has_stopped_calls = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self.console is not None and await self._serve_console(self.console, scope, receive, send):
                return
            page = self._router.find(scope) if self._router.has_pages else None
            if page is None:
                await self.endpoint(scope, receive, send)
            else:
                await self._router.serve(page, scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})

    async def _serve_console(
        self, console: MountedConsole, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Answer a request to the console; return false if it is for another part of the app."""
        root = scope.get("root_path", "").rstrip("/") + console.path
        if not (scope["path"] == root or scope["path"].startswith(root + "/")):
            return False
        try:
            await self._lifespan.start_for_request()
        except InternalError as error:
            response = HttpResponse(f"{error.message}\n", status=503)
            await response.send(send, receive, timeout=self.engine.limits.body_timeout)
        else:
            await console({**scope, "root_path": root}, receive, send)
        return True

    # Starting and stopping

    @property
    def is_ready(self) -> bool:
        """Whether the app accepts requests: the server has started, and is not shutting down."""
        return self._lifespan.started and not self._leaving

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        return self.engine.limits

    def skip_head_checks(self) -> None:
        """Do not check the size of request heads: the HTTP server that runs the app bounds them."""
        self.endpoint.checks_heads = False

    @property
    def failure(self) -> Exception | None:
        """Why the server did not start, or `None`."""
        return self._lifespan.failure

    def count_running(self) -> Running:
        """Return how many calls and tasks are running. Streams that only listen do not count."""
        return Running(self.endpoint.running_calls, self.engine.tasks.running)

    def announce_shutdown(self) -> None:
        """Report that the app is not ready, and claim no more tasks. Requests are still served."""
        self._leaving = True
        self.engine.stop_claiming()

    def begin_shutdown(self) -> None:
        """Close the streams of listeners. Running calls get `Limits.drain_timeout` seconds to finish.

        Call it in the thread of the event loop.
        """
        self.announce_shutdown()
        self.engine.end_listeners()
        if self.console is not None:
            self.console.end_streams()
        remaining = self.engine.begin_drain()
        if self._stopping is None:
            # The host may wait for all responses before it shuts the app down: stop the calls without it.
            self._stopping = asyncio.get_running_loop().call_later(remaining, self._stop_calls)

    async def shutdown(self) -> None:
        """Wait up to `Limits.drain_timeout` seconds for running calls and tasks, then stop the server."""
        self.begin_shutdown()
        supervisor = self.endpoint.supervisor
        if not await supervisor.drained(self.engine.begin_drain()):
            self._stop_calls()
            await supervisor.drained(_UNWIND_SECONDS)
        if self._stopping is not None:
            self._stopping.cancel()
        if self.console is not None:
            await self.console.close()
        await self._lifespan.stop()

    def _stop_calls(self) -> None:
        """Stop the calls that have not finished. Each gets an error as its response."""
        supervisor = self.endpoint.supervisor
        if self._has_stopped_calls or not len(supervisor):
            return
        self._has_stopped_calls = True
        logger.warning(
            "Stopping %d calls that did not finish within Limits.drain_timeout, %g seconds.",
            len(supervisor),
            self.engine.limits.drain_timeout,
        )
        supervisor.stop("shutdown")

    async def _check_ready(self) -> bool:
        """Return whether the app is ready.

        A mounted app gets no lifespan events: the probe starts its server.
        """
        if not self._lifespan.started and not self._leaving:
            try:
                await self._lifespan.start()
            except Exception as error:
                self._lifespan.report(error)
        return self.is_ready

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._leaving = self._has_stopped_calls = False
                self._stopping = None
                try:
                    await self._lifespan.start()
                except Exception as error:
                    self._lifespan.report(error)
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return
