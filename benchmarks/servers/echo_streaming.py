"""The ceiling: a bare ASGI app that sends the time on an event stream, now and then."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from serve import serve

decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer every HTTP request with a stream."""
    if scope["type"] != "http":
        return
    arguments = decode((await receive())["body"])["params"]["arguments"]
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for number in range(arguments["n"]):
        await asyncio.sleep(arguments["pause"])
        content = [{"type": "text", "text": str(time.monotonic_ns())}]
        params = {"requestId": 1, "seqNr": number + 1, "content": content}
        frame = {"jsonrpc": "2.0", "method": "notifications/tools/partial_result", "params": params}
        event = b"data: " + encode(frame) + b"\n\n"
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"data: {}\n\n"})


if __name__ == "__main__":
    serve(app)
