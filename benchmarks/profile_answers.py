"""Where do the microseconds of one plain answer go?

Not a benchmark of the set: a tool for whoever lowers the cost. It drives the ASGI app in this process,
without sockets, prints what a call costs above an app that does nothing, and where cProfile saw the
time. Over a socket a call costs about twice of this, since the kernel's code pushes ours out of the
caches; a change that helps here helps there. Run it with an interpreter that can import antiphon.
"""

import argparse
import asyncio
import cProfile
import pstats
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeAlias

from traffic import MODERN, call, expected

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[[Message, Any, Any], Awaitable[None]]

CALLS = 5_000
ROUNDS = 7


class Harness:
    """One request, handed to an app again and again as a server would."""

    def __init__(self) -> None:
        head, _, self.body = call(8000, MODERN, 1).partition(b"\r\n\r\n")
        lines = (line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        self.headers = [(name.lower(), value) for name, value in lines]
        self.answer = b""

    async def receive(self) -> Message:
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.answer = message["body"]

    async def drive(self, app: App, calls: int) -> float:
        """Microseconds of one call, on average over `calls`."""
        begun = time.perf_counter()
        for _ in range(calls):
            scope = {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": "1.1",
                "method": "POST",
                "scheme": "http",
                "path": "/mcp",
                "raw_path": b"/mcp",
                "root_path": "",
                "query_string": b"",
                "headers": list(self.headers),
                "server": ("127.0.0.1", 8000),
                "client": ("127.0.0.1", 5000),
                "state": {},
            }
            await app(scope, self.receive, self.send)
        return (time.perf_counter() - begun) / calls * 1e6


async def nothing(scope: Message, receive: Any, send: Any) -> None:
    """The least an app can do."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def profile(app: App, top: int) -> None:
    """Print the cost of a call and the functions that it went to."""
    harness = Harness()
    await harness.drive(app, CALLS)
    if expected(1) not in harness.answer:
        raise RuntimeError(f"not the right answer: {harness.answer!r}")
    cost = min([await harness.drive(app, CALLS) for _ in range(ROUNDS)])
    floor = min([await harness.drive(nothing, CALLS) for _ in range(ROUNDS)])
    print(f"{cost - floor:.1f} µs a call above an app that does nothing ({floor:.1f} µs)")
    profiler = cProfile.Profile()
    profiler.enable()
    await harness.drive(app, CALLS)
    profiler.disable()
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(top)


def main() -> None:
    """Profile the benchmark's antiphon server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--top", type=int, default=15, help="how many functions to show")
    options = parser.parse_args()
    sys.path.append(str(Path(__file__).resolve().parent / "servers"))
    from antiphon_server import server

    asyncio.run(profile(server.asgi(), options.top))


if __name__ == "__main__":
    main()
