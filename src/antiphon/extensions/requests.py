"""Requests about tasks to a server of `mcp` 2: whether the client accepts tasks, and the response.

Both extensions use this module. It passes requests to the `TaskHost` as they came, and must not know tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    SERVER_INFO_META_KEY,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from antiphon.extensions.task_host import EXTENSION, TaskHost
from antiphon.model.identity import Principal
from antiphon.model.notification import Log, Progress
from antiphon.model.request import RequestId
from antiphon.model.segment import CallerMessage
from antiphon.runtime.execution.call import Caller

__all__ = ["METHOD_VERSIONS", "accepts_tasks", "needs_tasks", "serve_call", "serve_method"]

METHOD_VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)
"""The protocol versions that have the methods of the tasks extension."""


def accepts_tasks(protocol_version: str, meta: Any) -> bool:
    """Return whether the client declared the tasks extension in the `_meta` of a request."""
    if protocol_version not in METHOD_VERSIONS or not isinstance(meta, Mapping):
        return False
    capabilities = meta.get(CLIENT_CAPABILITIES_META_KEY)
    extensions = capabilities.get("extensions") if isinstance(capabilities, Mapping) else None
    return isinstance(extensions, Mapping) and EXTENSION in extensions


def needs_tasks(tool: str) -> MCPError:
    """Return the error for the call of a tool that only runs as a task, by a client without tasks."""
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"The tool {tool!r} only runs as a task: call it with a client that declares {EXTENSION!r}.",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


async def serve_method(
    host: TaskHost, ctx: ServerRequestContext[Any, Any], principal: Principal
) -> dict[str, Any]:
    """Serve a request of one of the methods of the extension, and return its result; raises `MCPError`."""
    headers = None
    if ctx.request is not None:
        # mcp compares the header Mcp-Name with the parameters of its own methods only.
        headers = {name.lower(): value for name, value in ctx.request.headers.raw}
    id = 0 if ctx.request_id is None else ctx.request_id
    return _result(await host.serve(ctx.method, ctx.params or {}, principal, id=id, headers=headers))


async def serve_call(
    host: TaskHost,
    params: Mapping[str, Any],
    principal: Principal,
    session: ServerSession,
    request_id: RequestId | None,
) -> dict[str, Any]:
    """Serve the call of a task tool, and return its result; raises `MCPError`."""
    caller, id = _SessionCaller(session, request_id), 0 if request_id is None else request_id
    return _result(await host.serve("tools/call", params, principal, id=id, caller=caller))


def _result(response: Mapping[str, Any]) -> dict[str, Any]:
    if (error := response.get("error")) is not None:
        raise MCPError(error["code"], error["message"], error.get("data"))
    result: dict[str, Any] = response["result"]
    # The framework adds the name of its own server.
    meta = {key: value for key, value in result.pop("_meta", {}).items() if key != SERVER_INFO_META_KEY}
    return {**result, "_meta": meta} if meta else result


class _SessionCaller(Caller):
    """Reports to the caller of a tool that is not a task yet."""

    takes_streams = False

    def __init__(self, session: ServerSession, request_id: RequestId | None) -> None:
        self._session = session
        self._request_id = request_id

    async def notify(self, message: CallerMessage) -> None:
        """Send progress and log messages in answer to the request."""
        if isinstance(message, Progress):
            await self._session.report_progress(message.progress, message.total, message.message)
        elif isinstance(message, Log):
            params = LoggingMessageNotificationParams(
                level=message.level, data=message.data, logger=message.logger
            )
            await self._session.send_notification(LoggingMessageNotification(params=params), self._request_id)
