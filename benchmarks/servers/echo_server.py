"""The ceiling: a bare ASGI app that decodes the request and encodes an answer of equal shape.

It knows no protocol, validates nothing and keeps nothing. What a server costs above this is what it
does for its users.
"""

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
    """Answer every HTTP request as if it were the benchmark's call."""
    if scope["type"] != "http":
        return
    body = b""
    more = True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    request = decode(body)
    arguments = request["params"]["arguments"]
    text = str(arguments["a"] + arguments["b"])
    answer = encode(
        {
            "jsonrpc": "2.0",
            "id": request["id"],
            "result": {
                "content": [{"type": "text", "text": text}],
                "isError": False,
                "resultType": "complete",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}},
            },
        }
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    serve(app)
