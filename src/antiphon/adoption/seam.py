"""The contract between this library and a server of another one: requests in, results out.

There is one implementation for each generation of the official SDK; FastMCP is built on it. Requests and
results are those of the protocol, as plain data. A seam must not know how the server is served.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec

from antiphon.adoption.exchange import Changes, Exchange
from antiphon.errors import InternalError
from antiphon.model.content import Text
from antiphon.model.identity import Implementation
from antiphon.model.outcome import Result
from antiphon.wire.client import results

__all__ = ["LifespanTask", "Seam", "dumped", "plain_result"]

logger = logging.getLogger("antiphon")

S = TypeVar("S")

MAX_SESSIONS = 1000
"""How many sessions are kept for principals whose version has no sessions; the oldest is dropped."""


class Seam(ABC, Generic[S]):
    """A server of another library. `S` is what it keeps for one session."""

    info: Implementation
    """How the server introduces itself."""
    instructions: str | None

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, S] = OrderedDict()

    @abstractmethod
    def handles(self, method: str) -> bool:
        """Return whether the server has a handler for a method of the protocol."""

    @abstractmethod
    def running(self, changes: Changes) -> AbstractAsyncContextManager[None]:
        """Enter the lifespan of the server, and report what changes while it runs."""

    @abstractmethod
    async def request(self, method: str, params: dict[str, Any], exchange: Exchange) -> Mapping[str, Any]:
        """Return the result of a request; raises `RequestError` with the error of the server."""

    async def call_tool(self, name: str, arguments: dict[str, Any], exchange: Exchange) -> Result:
        """Call a tool, and return its result as the server made it; raises `RequestError`."""
        params = {"name": name, "arguments": arguments}
        return results.result(await self.request("tools/call", params, exchange))

    @abstractmethod
    def new_session(self) -> S:
        """Create what the server keeps for one session."""

    def session(self, exchange: Exchange) -> S:
        """Return the session of a call.

        Callers of versions that have no sessions share one if they are the same principal, and have one for
        each request if nobody knows who they are.
        """
        call = exchange.call
        if call is None:
            return self.new_session()
        if call.session_state is not None:
            kept: dict[Any, S] = call.session_state.foreign
            if kept is None:
                kept = call.session_state.foreign = {}
            if self not in kept:
                kept[self] = self.new_session()
            return kept[self]
        if not call.principal.id:
            return self.new_session()
        found = self._sessions.pop(call.principal.id, None)
        self._sessions[call.principal.id] = session = self.new_session() if found is None else found
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session


class LifespanTask:
    """Runs an async context manager in an asyncio task of its own, from its beginning to its end.

    The lifespans of other libraries have cancel scopes and context variables: the task that entered them has
    to leave them. A server of ours may be stopped by another task than the one that started it.
    """

    def __init__(self) -> None:
        self.variables: Mapping[contextvars.ContextVar[Any], Any] = {}
        """The context variables that the lifespan has set. Requests are served with them."""
        self._has_failed = False

    def check(self) -> None:
        """Raise `InternalError` if the lifespan has ended although the server is still served."""
        if self._has_failed:
            raise InternalError(
                "The adopted server has stopped: its lifespan ended with an error. Its log says why."
            )

    @asynccontextmanager
    async def running(self, lifespan: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Enter the context manager, and leave it at the end; raises the errors of both."""
        started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        stopping = asyncio.Event()
        self._has_failed = False

        def note_end(ended: asyncio.Task[None]) -> None:
            if started.done() and not stopping.is_set():
                self._has_failed = True
                error = None if ended.cancelled() else ended.exception()
                logger.error(
                    "The lifespan of the adopted server has ended while it is served. Requests fail from now "
                    "on: restart it.",
                    exc_info=error,
                )

        async def run() -> None:
            before = dict(contextvars.copy_context())
            async with lifespan as value:
                after = contextvars.copy_context()
                self.variables = {
                    name: after[name]
                    for name in after
                    if name not in before or before[name] is not after[name]
                }
                started.set_result(value)
                await stopping.wait()

        task = asyncio.create_task(run())
        task.add_done_callback(note_end)
        try:
            await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                await task
                raise RuntimeError("The lifespan of the adopted server ended before the server had started.")
        except BaseException:
            task.cancel()
            await asyncio.wait({task})
            raise
        try:
            yield started.result()
        finally:
            stopping.set()
            await task


def plain_result(content: Any, data: Any, meta: Any, *, is_error: Any) -> Result | None:
    """Return a result of one text, which most tools return, without a conversion; `None` for another one."""
    if len(content) != 1 or meta is not None:
        return None
    block = content[0]
    if block.type != "text" or block.annotations is not None or block.meta is not None:
        return None
    return Result(Text(block.text), data=msgspec.UNSET if data is None else data, is_error=bool(is_error))


def dumped(model: Any) -> dict[str, Any]:
    """Return a pydantic model as the protocol writes it."""
    plain: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return plain
