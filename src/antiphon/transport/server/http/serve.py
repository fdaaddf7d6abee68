"""Serves an app over HTTP from inside a program, until a signal ends it.

For `Server.run`. The command line has more to it: several processes, probes, and a socket of its own.
"""

from __future__ import annotations

import math
from types import FrameType

from antiphon.transport.server.http.app import App

__all__ = ["serve_http"]


def serve_http(app: App, *, host: str, port: int, drain: float) -> None:
    """Serve until SIGINT or SIGTERM; calls under way get `drain` seconds to end."""
    import uvicorn

    class Standing(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.begin_shutdown()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        lifespan="on",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(drain),
    )
    Standing(config).run()
