"""Calls an ASGI app in the same process: an HTTP client that needs no connection, and the app's lifespan.

A body is handed over piece by piece, so that the reader bounds it. It must not know OpenAPI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from antiphon.transport.client.http_client import HttpFailure, HttpResponse

__all__ = ["AsgiClient", "running_lifespan"]

logger = logging.getLogger("antiphon")

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[..., Awaitable[Any]]
_STARTUP_SECONDS = 60.0
"""How long the lifespan of an app may take to start, and to stop."""
_END_SECONDS = 10.0
"""How long requests that have their answers may go on, as those with background tasks do."""


class AsgiClient:
    """Sends requests to an ASGI app. `state` is what the app's lifespan has set."""

    def __init__(self, app: App, state: Mapping[str, Any]) -> None:
        self._app = app
        self._state = state
        self._tasks: set[asyncio.Task[None]] = set()

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return the response, still unread."""
        parts = urlsplit(url)
        sent = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        sent.insert(0, (b"host", parts.netloc.rpartition("@")[2].encode("latin-1")))
        if body is not None:
            sent.append((b"content-length", str(len(body)).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": parts.scheme,
            "path": unquote(parts.path),
            "raw_path": parts.path.encode("ascii"),
            "query_string": parts.query.encode("ascii"),
            "root_path": "",
            "headers": sent,
            "client": ("127.0.0.1", 0),
            "server": (parts.hostname or "localhost", parts.port or (443 if parts.scheme == "https" else 80)),
            "state": dict(self._state),
            "extensions": {},
        }
        response = _Response(self._app, scope, body or b"")
        self._tasks.add(response.task)
        response.task.add_done_callback(self._tasks.discard)
        await response.started()
        return response

    async def close(self) -> None:
        """Wait for requests that still run, and then stop them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_SECONDS)
        for task in self._tasks:
            task.cancel()


class _Response:
    """A response that an app is sending, in a task of its own."""

    def __init__(self, app: App, scope: Mapping[str, Any], body: bytes) -> None:
        self.status = 0
        self._headers: dict[str, str] = {}
        self._body: bytes | None = body
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(1)
        self._gone = asyncio.Event()
        self._is_complete = False
        self.task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: App, scope: Mapping[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._messages.put)
        except Exception:  # Starlette raises an error again after it has sent a response
            logger.exception("The app failed: %s %s", scope["method"], scope["path"])
        await self._messages.put(None)

    async def _receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body, "more_body": False}

    async def started(self) -> None:
        """Wait for the status and the headers; raises `HttpFailure` if the app sends none."""
        try:
            message = await self._messages.get()
        except BaseException:
            await self.close()
            raise
        if message is None or message["type"] != "http.response.start":
            await self.close()
            raise HttpFailure("the app sent no response")
        self.status = message["status"]
        for raw_name, raw_value in message.get("headers", ()):
            name, value = bytes(raw_name).decode("latin-1").lower(), bytes(raw_value).decode("latin-1")
            self._headers[name] = f"{self._headers[name]}, {value}" if name in self._headers else value

    def header(self, name: str) -> str | None:
        """Return the value of a header; several are joined with commas."""
        return self._headers.get(name.lower())

    async def read(self) -> bytes:
        """Return the next bytes that are not empty."""
        while not self._is_complete:
            message = await self._messages.get()
            if message is None:
                raise HttpFailure("the app did not finish its response")
            self._is_complete = not message.get("more_body", False)
            if body := message.get("body", b""):
                return bytes(body)
        return b""

    async def close(self) -> None:
        """Stop the app if its response was not read to the end. Background tasks of the app go on."""
        self._gone.set()
        if not self._is_complete:
            self.task.cancel()


@asynccontextmanager
async def running_lifespan(app: App) -> AsyncIterator[Mapping[str, Any]]:
    """Run the lifespan of an app around the block, and return the state that it sets.

    Raises `RuntimeError` if the app fails to start, or takes too long.
    """
    state: dict[str, Any] = {}
    received: asyncio.Queue[Message] = asyncio.Queue()
    sent: asyncio.Queue[Message | None] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.4"}, "state": state}

    async def run() -> None:
        try:
            await app(scope, received.get, sent.put)
        except Exception:  # an app may raise because it has no lifespan
            logger.debug("The lifespan of the app ended with an error.", exc_info=True)
        await sent.put(None)

    async def exchange(message: str) -> None:
        await received.put({"type": f"lifespan.{message}"})
        try:
            async with asyncio.timeout(_STARTUP_SECONDS):
                answer = await sent.get()
        except TimeoutError:
            raise RuntimeError(
                f"The lifespan of the app did not finish its {message} within {_STARTUP_SECONDS:g} seconds. "
                "If the app itself runs this server, pass app_lifespan=False."
            ) from None
        if answer is not None and answer["type"] == f"lifespan.{message}.failed":
            reason = str(answer.get("message", "")).strip().rpartition("\n")[2]
            raise RuntimeError(f"The lifespan of the app failed at {message}: {reason}")

    task = asyncio.create_task(run())  # one task: a lifespan has to end in the task that it began in
    try:
        await exchange("startup")
        yield state
        if not task.done():
            await exchange("shutdown")
    finally:
        task.cancel()
        await asyncio.wait({task})
