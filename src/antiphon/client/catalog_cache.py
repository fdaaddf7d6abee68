"""Caches the lists of a server: tools, resources, templates and prompts.

Owns the cached lists, the headers that tools declare, and the task support of tools. A tool whose headers
break the rules is left out, with a warning. Knows no connection: the caller passes a function that asks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from antiphon.errors import BadAnswer, DefinitionError
from antiphon.model.catalog import Definition, Kind, ToolDefinition
from antiphon.model.request import ListPrompts, ListResources, ListTemplates, ListTools
from antiphon.wire.client.results import Listing
from antiphon.wire.mirrored_headers import Mirrored, declared

__all__ = ["CatalogCache"]

logger = logging.getLogger("antiphon.client")

Ask: TypeAlias = Callable[[Any], Awaitable[Listing]]

_REQUESTS: Mapping[Kind, Callable[[str | None], Any]] = {
    "tools": ListTools,
    "resources": ListResources,
    "templates": ListTemplates,
    "prompts": ListPrompts,
}

_STALE: Mapping[str, tuple[Kind, ...]] = {
    "tools": ("tools",),
    "resources": ("resources", "templates"),
    "prompts": ("prompts",),
}
"""The cached lists to evict when the server announces a change."""


_MAX_WARNINGS = 10
"""How many unreadable entries of one page are logged by name."""


class CatalogCache:
    """The lists of one server, each cached for as long as the server allows. `clock` counts seconds."""

    def __init__(
        self, clock: Callable[[], float], *, max_pages: int = 1000, max_items: int = 100_000
    ) -> None:
        self._clock = clock
        self._max_pages = max_pages
        self._max_items = max_items
        self._cached: dict[Kind, tuple[float, list[Definition]]] = {}
        self._mirrored: dict[str, Mirrored] = {}
        self._task_support: dict[str, str] = {}
        self._evictions = 0

    async def get(self, kind: Kind, ask: Ask, *, mirroring: bool) -> list[Any]:
        """Return the whole list, from the cache if it is fresh; raises `BadAnswer`, and errors of `ask`."""
        cached = self._cached.get(kind)
        if cached is not None and self._clock() < cached[0]:
            return list(cached[1])
        evictions = self._evictions
        items, fresh_until = await self._fetch(kind, ask)
        if kind == "tools":
            items = self._learn(items, mirroring=mirroring)
        if evictions == self._evictions:  # a list that changed while it was read is stale already
            self._cached[kind] = (fresh_until, items)
        return list(items)

    def mirrored(self, tool: str) -> Mirrored | None:
        """Return the headers that a tool declares; `None` if the tool was not listed or declares none."""
        return self._mirrored.get(tool)

    def task_support(self, tool: str) -> str | None:
        """Return whether calls of a tool may become tasks; `None` if the tool was not listed."""
        return self._task_support.get(tool)

    def evict(self, kind: str | None = None) -> None:
        """Evict the lists that a change of this kind affects; without a kind, all of them."""
        self._evictions += 1
        for stale in _REQUESTS if kind is None else _STALE.get(kind, ()):
            self._cached.pop(stale, None)

    async def _fetch(self, kind: Kind, ask: Ask) -> tuple[list[Definition], float]:
        items: list[Definition] = []
        cursor: str | None = None
        fresh_until = float("inf")
        seen: set[str] = set()
        for _ in range(self._max_pages):
            listing = await ask(_REQUESTS[kind](cursor))
            for name, reason in listing.rejected[:_MAX_WARNINGS]:
                logger.warning("Left out of the %s: %s, which cannot be read. %s", kind, name, reason)
            if len(listing.rejected) > _MAX_WARNINGS:
                more = len(listing.rejected) - _MAX_WARNINGS
                logger.warning("Left out of the %s: %d more, which cannot be read.", kind, more)
            page = listing.page
            items += page.items
            fresh_until = min(fresh_until, self._clock() + page.ttl_ms / 1000)
            cursor = page.next_cursor
            if cursor is None:
                return items, fresh_until
            if cursor in seen or len(items) > self._max_items:
                break
            seen.add(cursor)
        raise BadAnswer(f"The server's list of {kind} does not end: {len(items)} and more.")

    def _learn(self, tools: list[Definition], *, mirroring: bool) -> list[Definition]:
        """Record the headers and the task support of tools; leave out tools with invalid headers."""
        usable: list[Definition] = []
        self._mirrored.clear()
        self._task_support.clear()
        for tool in tools:
            assert isinstance(tool, ToolDefinition)
            try:
                headers = declared(tool.input_schema) if mirroring else {}
            except DefinitionError as reason:
                logger.warning("Left out of the tools: %s. %s", tool.name, reason)
                continue
            usable.append(tool)
            self._task_support[tool.name] = tool.task_support
            if headers:
                self._mirrored[tool.name] = headers
        return usable
