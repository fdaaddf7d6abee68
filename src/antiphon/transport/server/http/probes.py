"""What load balancers and monitors ask of a process: `/healthz`, `/readyz` and `/metrics`, beside MCP.

`/healthz` says that the process answers at all. `/readyz` says whether to send it requests: not before it
has started, and not once it is shutting down. A store that is away is mentioned, and no reason to send
nobody anything: plain answers go on. None of it asks who is calling, so none of it belongs on the internet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon.runtime.engine import Engine
from antiphon.runtime.observability.metrics import CONTENT_TYPE
from antiphon.transport.server.http.event_stream import Receive, Send

__all__ = ["Probes"]

_PATHS = ("/healthz", "/readyz", "/metrics")


class Probes:
    """An app with probes. `app` gets all that is not for them; without one there is nothing else."""

    def __init__(
        self,
        host: Engine,
        app: Callable[[Any, Receive, Send], Awaitable[None]] | None = None,
        *,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._host = host
        self._app = app
        self._is_ready = is_ready

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in _PATHS and scope["method"] in ("GET", "HEAD"):
            await self._answer(scope["path"], send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        else:
            await _send(send, 404, b"not found\n")

    async def _answer(self, path: str, send: Send) -> None:
        if path == "/healthz":
            await _send(send, 200, b"ok\n")
            return
        if path == "/metrics":
            await _send(send, 200, (await self._host.metrics()).encode(), CONTENT_TYPE)
            return
        ready, store = self._is_ready(), await self._host.store_answers()
        condition: dict[str, Any] = {"ready": ready}
        if store is not None:
            condition["store"] = "up" if store else "away"
        body = msgspec.json.encode(condition) + b"\n"
        await _send(send, 200 if ready else 503, body, "application/json")


async def _send(send: Send, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
