"""The client of one connection to an upstream server, which passes requests on as they are.

Owns how a request of the model is sent and followed: rounds, tasks and progress. The outcome goes back
unchanged. It must not know who the callers are.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from antiphon.client.client import Client
from antiphon.client.connection import Callback
from antiphon.client.tasks.handle import TaskHandle
from antiphon.errors import AntiphonError
from antiphon.model.identity import LogLevel
from antiphon.model.request import CallTool, Request, RequestMeta
from antiphon.model.task_status import TaskStatus
from antiphon.transport.client.line_channel import LineChannel

__all__ = ["Settled", "UpstreamClient"]

FOREVER = float("inf")
SETTLE_SECONDS = 5.0
"""How long a server may take to respond after a call was given up, and to answer that call."""

Settled: TypeAlias = Literal["ended", "responds", "silent"]
"""All calls that were given up have ended; or they may still run, and the server responds; or it does not."""


class UpstreamClient(Client):
    """A client that also sends requests as they are."""

    _session_level: LogLevel | None = None

    def rename_peer(self, name: str) -> None:
        """Use a name in error messages in place of the URL or the command, which can contain secrets."""
        self._connection.channel.peer = name  # type: ignore[misc]

    def prefer_sessions(self) -> None:
        """Open a session, although the server may speak a newer version without sessions."""
        self._connection.prefer_sessions()

    @property
    def has_sessions(self) -> bool:
        """Whether the server asks on the connection. If not, it returns its questions."""
        return self._connection.dialect.has_sessions

    async def use_log_level(self, level: LogLevel | None) -> None:
        """Receive the log messages that the caller wants who has this session for itself."""
        if level is not None and level != self._session_level and self.has_sessions and self.offers.logging:
            self._session_level = level
            await self.set_log_level(level)

    async def forward(
        self, request: Request, meta: RequestMeta, *, on_progress: Callback | None = None
    ) -> Any:
        """Send one round of a request, and return its outcome, whatever it is: also a `TaskStatus`.

        It has no time limit: the call that waits for it has one.
        """
        if isinstance(request, CallTool):
            return await self._calls.send(request, meta, timeout=FOREVER, on_progress=on_progress)
        return await self._connection.ask(request, meta, timeout=FOREVER, on_progress=on_progress)

    def follow(self, task: TaskStatus | str, on_progress: Callback | None = None) -> TaskHandle:
        """Return the handle of a task that a call has become."""
        return self._handle(task, on_progress)

    async def settle(self) -> Settled:
        """Find out what has become of calls that were given up.

        Over standard streams, a server may answer such a call, and only then the call has certainly ended.
        """
        try:
            await self.ping(timeout=SETTLE_SECONDS)
        except (TimeoutError, AntiphonError):
            return "silent"
        channel = self._connection.channel
        if isinstance(channel, LineChannel) and await channel.answers_given_up(SETTLE_SECONDS):
            return "ended"
        return "responds"
