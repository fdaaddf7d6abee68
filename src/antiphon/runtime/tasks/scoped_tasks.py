"""Checks the scopes of callers in requests about tasks: a caller needs the scopes of the task's tool.

A task runs with the scopes of its submission. Who asks for it later may have a token with fewer. If the tool
does not exist for that caller any more, neither does the task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from antiphon.errors import TaskNotFound
from antiphon.model.identity import Principal
from antiphon.model.request import ListTasks
from antiphon.model.task import TaskPage
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.execution.call import Call
from antiphon.runtime.scopes import ScopeCheck
from antiphon.runtime.tasks.handlers import TaskHandlers
from antiphon.runtime.tasks.service import NOT_FOUND_MESSAGE

__all__ = ["ScopedTasks"]

Handler = Callable[[Call[Any]], Awaitable[Any]]


class ScopedTasks:
    """Checks scopes before the handlers of a server run."""

    def __init__(self, handlers: TaskHandlers, registry: Registry, scopes: ScopeCheck) -> None:
        self._handlers = handlers
        self._registry = registry
        self._scopes = scopes

    def guard(self, call: Call[Any], handler: Handler) -> Handler:
        """Return a handler that checks the caller first: it raises, or leaves tasks out of a list."""
        return self._list if type(call.request) is ListTasks else lambda call: self._checked(call, handler)

    async def allows(self, id: str, principal: Principal, tool: str | None = None) -> bool:
        """Return whether a caller may see one of its tasks. `tool` is the name of its tool, if known."""
        try:
            name = await self._handlers.tool_of(id, principal) if tool is None else tool
            tool_of_task, arguments = await self._tool_and_arguments(name, id)
            if tool_of_task is None:
                return self._scopes.has_all(principal, await self._handlers.scopes_of(id))
            if not tool_of_task.offer.is_for(principal):
                return False
            return self._scopes.allows(principal, tool_of_task, arguments)
        except TaskNotFound:  # it has expired meanwhile
            return False

    async def _checked(self, call: Call[Any], handler: Handler) -> Any:
        id = call.request.task_id
        name = await self._handlers.tool_of(id, call.principal)
        tool, arguments = await self._tool_and_arguments(name, id)
        if tool is not None and not tool.offer.is_for(call.principal):
            raise TaskNotFound(NOT_FOUND_MESSAGE)
        self._scopes.check(call.principal, tool, arguments)
        if tool is None:
            self._scopes.check_named(call.principal, await self._handlers.scopes_of(id), "This task")
        return await handler(call)

    async def _list(self, call: Call[ListTasks]) -> TaskPage:
        self._scopes.check(call.principal, None, {})
        page: TaskPage = await self._handlers.handlers[ListTasks](call)
        visible = [task for task in page.tasks if await self.allows(task.id, call.principal, task.tool)]
        return TaskPage(tuple(visible), page.next_cursor)

    async def _tool_and_arguments(self, name: str, id: str) -> tuple[Tool | None, Mapping[str, Any]]:
        """Return the tool of a task, and its arguments if the scopes depend on them; raises `TaskNotFound`.

        The scopes of a tool that the server no longer has are unknown: its tasks need all scopes with which
        they were submitted.
        """
        tool: Tool | None = self._registry.registered("tools").get(name)
        if tool is None or not callable(tool.scopes):
            return tool, {}
        return tool, await self._handlers.arguments_of(id)
