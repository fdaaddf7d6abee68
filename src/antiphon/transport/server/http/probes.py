"""The probes for load balancers and monitors: `/healthz`, `/readyz` and `/metrics`.

`/healthz` says that the process responds. `/readyz` says whether to send requests to it: not before it has
started, and not once it is shutting down. A store that is unavailable is mentioned there, but does not make
the process unready: plain calls still work. The probes do not authenticate, so keep them off the internet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from antiphon.runtime.engine import Engine
from antiphon.runtime.observability.metrics import CONTENT_TYPE
from antiphon.transport.server.http.asgi import Receive, Send
from antiphon.transport.server.http.guard import Guard
from antiphon.transport.server.http.router import HttpRequest, HttpResponse, Router, Routes

__all__ = ["ProbeApp", "probe_routes"]

_UNCACHED = {"cache-control": "no-store"}


def probe_routes(engine: Engine, is_ready: Callable[[], Awaitable[bool]]) -> Routes:
    """Return the probes of a server, as pages."""

    async def health(request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok\n", headers=_UNCACHED)

    async def readiness(request: HttpRequest) -> HttpResponse:
        ready, responds = await is_ready(), await engine.store_responds()
        condition: dict[str, Any] = {"ready": ready}
        if responds is not None:
            condition["store"] = "up" if responds else "away"
        return HttpResponse(condition, status=200 if ready else 503, headers=_UNCACHED)

    async def metrics(request: HttpRequest) -> HttpResponse:
        return HttpResponse(await engine.metrics(), media_type=CONTENT_TYPE, headers=_UNCACHED)

    routes = Routes()
    routes.add("/healthz", ["GET"], health)
    routes.add("/readyz", ["GET"], readiness)
    routes.add("/metrics", ["GET"], metrics)
    return routes


class ProbeApp:
    """An ASGI app that serves the probes and nothing else, for a process that serves no MCP."""

    def __init__(
        self, engine: Engine, is_ready: Callable[[], bool], hosts: Sequence[str] | None = None
    ) -> None:
        async def check_ready() -> bool:
            return is_ready()

        self._timeout = engine.limits.body_timeout
        probes = probe_routes(engine, check_ready)
        self._router = Router(
            engine.limits, engine.threads.run, own=Routes(), probes=probes, guard=Guard((), hosts, None)
        )

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        page = self._router.find(scope)
        if page is None:
            response = HttpResponse("not found\n", status=404)
            await response.send(send, receive, timeout=self._timeout)
        else:
            await self._router.serve(page, scope, receive, send)
