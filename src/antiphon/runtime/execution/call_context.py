"""The methods of the `Context` for facts about the call, and for messages to the caller.

Owns their documentation. It must not know which carrier or which transport the call has.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar  # the one of typing has defaults from 3.13 on

from antiphon.errors import MissingCapability
from antiphon.model.identity import LOG_LEVELS, Implementation, LogLevel, Principal
from antiphon.model.notification import Log, Progress
from antiphon.model.request import RequestId
from antiphon.model.ui import shows_ui
from antiphon.runtime.execution.request_headers import RequestHeaders
from antiphon.runtime.execution.run import Run
from antiphon.runtime.writable import finite, is_writable, writable, writable_text

if TYPE_CHECKING:
    from antiphon.runtime.execution.invoke import Environment

__all__ = ["CallContext", "State"]

State = TypeVar("State", default=Any)
"""The type of the value that the server's lifespan yields."""


class CallContext(Generic[State]):
    """The part of the `Context` that knows the call and its caller."""

    __slots__ = ("_call", "_environment", "_loop", "_progress", "_run")

    def __init__(self, run: Run, environment: Environment) -> None:
        self._run = run
        self._call = run.call
        self._environment = environment
        task = run.call.work.task
        self._loop = asyncio.get_running_loop() if task is None else task.get_loop()
        self._progress = -math.inf

    @property
    def principal(self) -> Principal:
        """The caller. The id is empty on a server without authentication."""
        return self._call.principal

    @property
    def request_id(self) -> RequestId:
        """The id of the request, as it appears in the server's log."""
        return self._call.id

    @property
    def client(self) -> Implementation | None:
        """The name and version that the client reports, or `None` if it reports none."""
        return self._call.request_meta.client

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared."""
        return self._call.request_meta.capabilities

    @property
    def shows_ui(self) -> bool:
        """Whether the client shows MCP Apps. The text of a result has to make sense for other clients."""
        return shows_ui(self._call.request_meta.capabilities)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._call.request_meta.raw

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the HTTP request, by names in any case, without credentials.

        Empty over stdio and in memory, and in a call that is a task or may become one. A function that runs
        again after a question sees the headers of the request that brought the answer. `Authorization`,
        `Cookie`, `Proxy-Authorization` and `Mcp-Session-Id` are left out: `principal` says who calls.
        """
        return RequestHeaders(self._call.caller.headers)

    @property
    def streams(self) -> bool:
        """Whether the caller receives segments at once. Other callers get all of them with the result."""
        return self._call.request_meta.wants_stream or "streaming" in (
            self._call.request_meta.response_modes or ()
        )

    @property
    def lifespan(self) -> State:
        """The value that the server's lifespan yielded. `Context[State]` says its type to type checkers."""
        state: State = self._environment.lifespan
        return state

    def require(self, *capabilities: str) -> None:
        """Raise `MissingCapability` unless the client declared all of these capabilities."""
        missing = [name for name in capabilities if name not in self.capabilities]
        if missing:
            raise MissingCapability(
                f"This needs a client that can do {' and '.join(missing)}, and this one did not declare it.",
                needs={name: {} for name in missing},
            )

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller, if the caller asked for progress.

        `progress` must increase with every report; a value that does not, or is not finite, is not sent. A
        function that runs again does not report again what an earlier run has. In a task, the report becomes
        the status message of the task, for example `3 of 10: fetching`. It is stored about once a second.
        """
        token = self._call.request_meta.progress_token
        if not progress > self._progress or (reached := finite(progress)) is None:
            return
        if token is None:
            if self._call.task_id is None:
                return
            token = self._call.task_id
        self._progress = progress
        journal = self._run.journal
        # The status of a task loses its message while the task waits, and gets the last one back.
        if reached < journal.progress or (reached == journal.progress and self._call.task_id is None):
            return
        journal.progress = reached
        text = None if message is None else writable_text(message)
        await self._call.caller.notify(Progress(token, reached, finite(total), text))

    report_progress = progress
    """An alias of `progress`, under the name that other libraries use."""

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller, if the caller wants messages of this level.

        The name of its type replaces data that JSON cannot represent, so no message fails the call. In a
        task, the message goes into the server's log, because no caller is connected.
        """
        wanted = "debug" if self._call.task_id is not None else self._call.log_level
        if wanted is not None and LOG_LEVELS[level] >= LOG_LEVELS[wanted]:
            if not is_writable(data):
                data = writable(data)
            name = None if logger is None else writable_text(logger)
            await self._call.caller.notify(Log(level, data, name))

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `debug`."""
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `info`."""
        await self.log("info", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `warning`."""
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        """Send a log message at the level `error`."""
        await self.log("error", data, logger=logger)
