"""The one `Context` an author sees: what a function may know of its call, and say during it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from antiphon.errors import MissingCapability
from antiphon.model.notification import Log, Progress
from antiphon.model.party import LOG_LEVELS, Implementation, LogLevel, Principal
from antiphon.model.request import RequestId
from antiphon.runtime.call import Call

__all__ = ["Context"]

T = TypeVar("T")


class Context:
    """One call, as the function that serves it sees it.

    A function gets it by having a parameter annotated `Context`. In a function that is not `async`,
    which runs in a thread, wrap what would be awaited: `ctx.wait(ctx.progress(1))`.
    """

    __slots__ = ("_call", "_lifespan", "_loop", "_progress")

    def __init__(self, call: Call[Any], lifespan: Any = None) -> None:
        self._call = call
        self._lifespan = lifespan
        self._progress = float("-inf")
        self._loop = asyncio.get_running_loop()

    @property
    def principal(self) -> Principal:
        """Who is calling; its id is empty on a server that does not ask."""
        return self._call.principal

    @property
    def request_id(self) -> RequestId:
        """The id of the request, as the log has it."""
        return self._call.id

    @property
    def client(self) -> Implementation | None:
        """What the client says of itself."""
        return self._call.terms.client

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client declared that it can do."""
        return self._call.terms.capabilities

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._call.terms.meta

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self._lifespan

    def require(self, *capabilities: str) -> None:
        """Raise `MissingCapability` unless the client declared all of these."""
        missing = [name for name in capabilities if name not in self.capabilities]
        if missing:
            raise MissingCapability(
                f"This needs a client that can do {' and '.join(missing)}, and this one did not declare it.",
                data={"requiredCapabilities": {name: {} for name in missing}},
            )

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call has come. Nothing is sent to a caller that did not ask for it.

        `progress` must rise; a value that does not is not sent.
        """
        token = self._call.terms.progress_token
        if token is None or progress <= self._progress:
            return
        self._progress = progress
        await self._call.notify(Progress(token, progress, total, message))

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller, if it wants to hear of this level."""
        wanted = self._call.log_level
        if wanted is not None and LOG_LEVELS[level] >= LOG_LEVELS[wanted]:
            await self._call.notify(Log(level, data, logger))

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `debug`."""
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `info`."""
        await self.log("info", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `warning`."""
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        """Log at the level `error`."""
        await self.log("error", data, logger=logger)

    async def close_stream(self) -> None:
        """Let go of the caller's connection; it comes back for the rest.

        For long calls behind gateways that cut connections. Does nothing where the protocol version or
        the transport has no streams that can be taken up again.
        """
        if self._call.close_stream is not None:
            await self._call.close_stream()

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Wait for something of the context's in a function that is not `async`.

        Raises `RuntimeError` in one that is: there, use `await`.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            awaitable.close()
            raise RuntimeError("ctx.wait is for functions that are not async: here, use await.")
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()
