"""How long from a server's event to a client's loop: our client's, and the bare HTTP client that it uses.

Run in the environment of the library: `python drips.py OURS_PORT BARE_PORT COUNT PAUSE`; prints JSON.
"""

import asyncio
import json
import statistics
import sys
import time

import aiohttp

from antiphon import Client


async def ours(port: int, count: int, pause: float) -> float:
    """Milliseconds from `emit` to the body of `async for`, median."""
    delays = []
    async with (
        Client(f"http://127.0.0.1:{port}/mcp") as client,
        client.stream("drip", n=count, pause=pause) as segments,
    ):
        async for segment in segments:
            delays.append(time.monotonic_ns() - int(segment.text))
    return statistics.median(delays) / 1e6


async def bare(port: int, count: int, pause: float) -> float:
    """Milliseconds from `send` to the loop that reads the stream and decodes it, median."""
    delays = []
    call = {"params": {"arguments": {"n": count, "pause": pause}}}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as http,
        http.post(f"http://127.0.0.1:{port}/mcp", json=call) as response,
    ):
        async for line in response.content:
            frame = json.loads(line.removeprefix(b"data: ")) if line.strip() else {}
            if "params" in frame:
                delays.append(time.monotonic_ns() - int(frame["params"]["content"][0]["text"]))
    return statistics.median(delays) / 1e6


async def main() -> None:
    mine, theirs, count, pause = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    print(json.dumps({"ours": await ours(mine, count, pause), "bare": await bare(theirs, count, pause)}))


if __name__ == "__main__":
    asyncio.run(main())
