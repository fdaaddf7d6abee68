"""How every server under measurement is run: the same uvicorn, loop, parser and silence for all.

One worker, uvloop, httptools, no access log, no WebSockets, no proxy to trust, loopback only. A
server file builds its ASGI app in its framework's fastest documented configuration and hands it over;
nothing here knows which framework it came from.
"""

import sys
from typing import Any

import uvicorn


def serve(app: Any) -> None:
    """Serve `app` on the loopback port named by the first argument, until the process is ended."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        workers=1,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=120,
    )
