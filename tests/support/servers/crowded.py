"""A server for a hostile crowd: `antiphon run crowded.py`, or `python crowded.py PORT` under uvicorn."""

from __future__ import annotations

import sys

import uvicorn
from tests.support.own_memory import settled_status, status_number

from antiphon import BearerTokens, Limits, Server

LIMITS = Limits(
    max_memory_bytes=64 * 1024 * 1024,
    max_connections=3000,
    max_connections_per_address=3000,
    max_head_bytes=16 * 1024,
    max_calls=400,
    max_listeners=2000,
    body_timeout=20.0,
)
TOKENS = {f"token-of-{name}": name for name in ("ada", "bodies", "listeners", "unread", "flood")}

server = Server("crowded", limits=LIMITS, authenticate=BearerTokens(TOKENS), secrets=[bytes(range(32))])


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def say(size: int) -> str:
    """Say something long."""
    return "x" * size


@server.resource("u://{name}")
async def resource(name: str) -> str:
    """Something to subscribe to."""
    return name


@server.tool
async def measure() -> dict[str, int]:
    """Measure the process."""
    status = settled_status()
    return {
        "memory": status_number(status, "VmRSS") * 1024,
        "reserved": server.engine.budget.reserved,
    }


if __name__ == "__main__":
    uvicorn.run(server.asgi(), port=int(sys.argv[1]), log_level="warning", access_log=False)
