"""Calls one server with one client library, for a while, and prints how many calls and at what CPU time.

Run in the environment of the library: `python client_load.py LIBRARY WORK PORT AT_ONCE SECONDS`. LIBRARY is
antiphon, antiphon-httpx2, mcp or fastmcp, WORK is calls or segments; prints JSON. The CPU time is that of
this process alone, so the server does not count.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

WARM_UP = 50
SEGMENTS = 500
"""How many segments one stream has."""

Work = Callable[[], Awaitable[int]]
"""Does one piece of work, and returns how many items it brought."""


@asynccontextmanager
async def antiphon(work: str, url: str, *, with_httpx2: bool = False) -> AsyncIterator[Work]:
    """Our client, as it comes or with httpx2."""
    from antiphon import Client

    async with AsyncExitStack() as stack:
        http = None
        if with_httpx2:
            import httpx2

            http = await stack.enter_async_context(httpx2.AsyncClient())
        client = await stack.enter_async_context(Client(url, http=http))

        async def call() -> int:
            return int((await client.call("add", a=1, b=2)).text == "3")

        async def segments() -> int:
            async with client.stream("count", n=SEGMENTS) as stream:
                return len([segment async for segment in stream])

        yield call if work == "calls" else segments


@asynccontextmanager
async def mcp(url: str) -> AsyncIterator[Work]:
    """The official client, as its documentation shows it."""
    from mcp import Client

    async with Client(url) as client:

        async def call() -> int:
            return int((await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3")

        yield call


@asynccontextmanager
async def fastmcp(url: str) -> AsyncIterator[Work]:
    """FastMCP's client, as its documentation shows it."""
    from fastmcp import Client

    async with Client(url) as client:

        async def call() -> int:
            return int((await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3")

        yield call


async def measure(work: Work, at_once: int, seconds: float, wanted: int) -> dict[str, float]:
    """Do the work again and again for some seconds, so many at once."""
    for _ in range(WARM_UP if wanted == 1 else 1):
        await work()
    items, errors = 0, 0
    began, cpu = time.perf_counter(), time.process_time()

    async def repeat() -> None:
        nonlocal items, errors
        while time.perf_counter() - began < seconds:
            brought = await work()
            items += brought
            errors += brought != wanted

    await asyncio.gather(*(repeat() for _ in range(at_once)))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"per_second": items / took, "cpu_us": cpu / max(items, 1) * 1e6, "errors": errors}


async def main() -> None:
    library, work, port, at_once, seconds = sys.argv[1:]
    url = f"http://127.0.0.1:{port}/mcp"
    if library.startswith("antiphon"):
        client = antiphon(work, url, with_httpx2=library.endswith("httpx2"))
    else:
        client = mcp(url) if library == "mcp" else fastmcp(url)
    async with client as one:
        measured = await measure(one, int(at_once), float(seconds), 1 if work == "calls" else SEGMENTS)
    print(json.dumps(measured))


if __name__ == "__main__":
    asyncio.run(main())
