"""What a server offers, page by page and kept for as long as the server says.

It owns the kept lists, the headers that tools ask for, and which tools give promises. A tool whose headers
break the rules is left out, with a warning.
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
"""Which lists are out of date when the server says that one has changed."""


class CatalogCache:
    """The lists of one server. `clock` counts seconds."""

    def __init__(
        self, clock: Callable[[], float], *, max_pages: int = 1000, max_items: int = 100_000
    ) -> None:
        self._clock = clock
        self._max_pages = max_pages
        self._max_items = max_items
        self._kept: dict[Kind, tuple[float, list[Definition]]] = {}
        self._mirrored: dict[str, Mirrored] = {}
        self._support: dict[str, str] = {}
        self._changes = 0

    async def get(self, kind: Kind, ask: Ask, *, mirroring: bool) -> list[Any]:
        """The whole list, from the server unless a kept one is still fresh."""
        kept = self._kept.get(kind)
        if kept is not None and self._clock() < kept[0]:
            return list(kept[1])
        changes = self._changes
        items, fresh_until = await self._fetch(kind, ask)
        if kind == "tools":
            items = self._learn(items, mirroring=mirroring)
        if changes == self._changes:
            self._kept[kind] = (fresh_until, items)
        return list(items)

    def mirrored(self, tool: str) -> Mirrored | None:
        """The headers that a tool asks for, as far as it has been listed."""
        return self._mirrored.get(tool)

    def task_support(self, tool: str) -> str | None:
        """Whether a tool gives promises, as far as it has been listed."""
        return self._support.get(tool)

    def forget(self, kind: str | None = None) -> None:
        """Something has changed: this list, or perhaps any of them."""
        self._changes += 1
        for stale in _REQUESTS if kind is None else _STALE.get(kind, ()):
            self._kept.pop(stale, None)

    async def _fetch(self, kind: Kind, ask: Ask) -> tuple[list[Definition], float]:
        items: list[Definition] = []
        cursor: str | None = None
        fresh_until = float("inf")
        seen: set[str] = set()
        for _ in range(self._max_pages):
            listing = await ask(_REQUESTS[kind](cursor))
            for name, reason in listing.rejected:
                logger.warning("Left out of the %s: %s, which cannot be read. %s", kind, name, reason)
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
        """Note the headers of tools, and leave out those that ask for headers that cannot be."""
        kept: list[Definition] = []
        self._mirrored.clear()
        self._support.clear()
        for tool in tools:
            assert isinstance(tool, ToolDefinition)
            try:
                headers = declared(tool.input_schema) if mirroring else {}
            except DefinitionError as reason:
                logger.warning("Left out of the tools: %s. %s", tool.name, reason)
                continue
            kept.append(tool)
            self._support[tool.name] = tool.task_support
            if headers:
                self._mirrored[tool.name] = headers
        return kept
