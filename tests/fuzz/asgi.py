"""A whole server without a network: one ASGI request in, its response out, on one event loop."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from antiphon import Context, Limits, Server

__all__ = ["ANSWER_SECONDS", "Answer", "Served", "build_server"]

ANSWER_SECONDS = 30.0
"""How long a request may take before it counts as one that never ends."""

Headers = Sequence[tuple[bytes, bytes]]


@dataclass
class Answer:
    """The response to one request, and the errors that the server logged meanwhile."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    starts: int = 0
    complete: bool = False
    logged: list[str] = field(default_factory=list)

    @property
    def frame(self) -> Any:
        """The JSON in the body, or in the last event of a stream."""
        text = self.body.decode()
        if self.headers.get(b"content-type") == b"text/event-stream":
            text = text.strip().rpartition("data: ")[2]
        return json.loads(text) if text else None


def build_server() -> Server:
    """Return a server with a tool, a tool that asks, a mirrored argument, a template and a prompt."""
    server = Server("fuzz", secrets=[bytes(range(32))], limits=Limits(max_body_bytes=100_000))

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Name?", str))

    @server.resource("u://{name}")
    async def resource(name: str) -> str:
        return name

    @server.prompt
    async def prompt(name: str) -> str:
        return name

    return server


class Served:
    """A server's ASGI app that is running."""

    def __init__(self, server: Server, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.app = server.asgi(**options)
        self._log = _Log()
        logging.getLogger("antiphon").addHandler(self._log)

    def send(self, method: str, headers: Headers, body: bytes = b"", path: str = "/mcp") -> Answer:
        """Send a request, and return its response. A listener is left as soon as it is open."""
        return self._runner.run(self._exchange(method, headers, body, path))

    async def _exchange(self, method: str, headers: Headers, body: bytes, path: str) -> Answer:
        answer = Answer()
        self._log.records.clear()
        gone, opened = asyncio.Event(), asyncio.Event()
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "root_path": "",
            "query_string": b"",
            "headers": list(headers),
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 50000),
        }
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.starts += 1
                answer.status, answer.headers = message["status"], dict(message["headers"])
                return
            answer.body += message.get("body", b"")
            answer.complete = not message.get("more_body", False)
            if not answer.complete and method == "GET":
                gone.set()
            if not answer.complete and b"subscriptions/listen" in body:
                opened.set()

        task = asyncio.ensure_future(self.app(scope, receive, send))
        listening = asyncio.ensure_future(opened.wait())
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.wait({task, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in (task, listening):
                waiting.cancel()
            await asyncio.gather(task, listening, return_exceptions=True)
        if not task.cancelled() and (raised := task.exception()) is not None:
            raise raised
        answer.logged = list(self._log.records)
        return answer


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))
