"""The lists of tools, resources, templates and prompts, as one caller sees them.

Joins the author's items, those of providers and the caller's artifacts. It must not know how an item is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.errors import MethodNotFound
from antiphon.model.catalog import (
    Definition,
    Kind,
    ResourceDefinition,
    TemplateDefinition,
    ToolDefinition,
)
from antiphon.model.identity import Stranger
from antiphon.model.outcome import Page
from antiphon.model.ui import shows_ui
from antiphon.runtime.artifacts.service import ArtifactService
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.execution.call import Call
from antiphon.runtime.providers import Listing
from antiphon.runtime.scopes import ScopeCheck

__all__ = ["Lists", "listing_of"]


class Lists:
    """The lists of one server. With `hide_forbidden`, a list has only items that the caller may use."""

    def __init__(
        self,
        registry: Registry,
        artifacts: ArtifactService,
        scopes: ScopeCheck,
        *,
        ttl_ms: int,
        hide_forbidden: bool,
    ) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._scopes = scopes
        self._ttl_ms = ttl_ms
        self._hide_forbidden = hide_forbidden

    async def page(self, kind: Kind, call: Call[Any]) -> Page:
        """Return the page that a caller asks for; raises `MethodNotFound` and `InvalidParams`."""
        if not self.offers(kind):
            raise MethodNotFound(f"This server has no {'resources' if kind == 'templates' else kind}.")
        definitions, ttl_ms, shared = self._registry.definitions(kind), self._ttl_ms, True
        registry = self._registry
        if (
            registry.providers
            or self._hide_forbidden
            or registry.has_hidden_tools
            or kind in registry.conditional_kinds
        ):
            definitions, ttl_ms, shared = await self._chosen(kind, call)

        def page(cursor: str | None) -> Page:
            return self._registry.page(kind, definitions, cursor, ttl_ms, shared=shared)

        if kind == "resources" and self._artifacts.enabled and not isinstance(call.principal, Stranger):
            return await self._artifacts.page(page, call, self._registry.page_size)
        return page(call.request.cursor)

    def offers(self, kind: Kind) -> bool:
        """Return whether the server has a list."""
        if kind in ("resources", "templates"):
            return self._registry.offers("resources") or self._registry.offers("templates")
        return self._registry.offers(kind)

    async def _chosen(self, kind: Kind, call: Call[Any]) -> tuple[Sequence[Definition], int, bool]:
        """Return the definitions for a caller, how long to cache them, and whether they are for everybody."""
        registry, principal = self._registry, call.principal
        definitions, ttl_ms, shared = registry.definitions(kind), self._ttl_ms, not self._hide_forbidden
        if (listing := await listing_of(registry, kind, call)) is not None:
            definitions = listing.definitions
            ttl_ms = ttl_ms if listing.ttl_ms is None else min(ttl_ms, listing.ttl_ms)
            shared = shared and listing.shared
        if kind == "tools" and registry.has_hidden_tools:
            shared = False
            if not shows_ui(call.request_meta.capabilities):
                # A client that shows no Apps would offer the tools of Apps to its model.
                definitions = [
                    each
                    for each in definitions
                    if isinstance(each, ToolDefinition) and "model" in each.visibility
                ]
        items = registry.registered(kind)  # also those that another thread has disabled since
        if kind in registry.conditional_kinds:
            shared = False
            definitions = [
                each
                for each in definitions
                if (item := items.get(_key(each))) is None or item.offer.is_for(principal)
            ]
        if self._hide_forbidden:
            definitions = [
                each
                for each in definitions
                if (item := items.get(_key(each))) is None or self._scopes.lists(principal, item)
            ]
        return definitions, ttl_ms, shared


async def listing_of(registry: Registry, kind: Kind, call: Call[Any]) -> Listing | None:
    """Return the items of a registry as its providers list them to a caller.

    Returns `None` if no provider has a list for this caller: then it sees all registered items.
    """
    listed = {provider: await provider.list(kind, call) for provider in registry.providers}
    listings = [listing for listing in listed.values() if listing is not None]
    if not listings:
        return None
    definitions: list[Definition] = [
        item.definition
        for key, item in registry.items(kind).items()
        if (owner := registry.owner(kind, key)) is None or listed.get(owner) is None
    ]
    for listing in listings:  # a provider also lists items that are disabled here
        definitions += [each for each in listing.definitions if not registry.is_disabled(kind, _key(each))]
    ttl_ms = min((each.ttl_ms for each in listings if each.ttl_ms is not None), default=None)
    return Listing(definitions, ttl_ms, shared=all(each.shared for each in listings))


def _key(definition: Definition) -> str:
    if isinstance(definition, ResourceDefinition):
        return definition.uri
    return definition.uri_template if isinstance(definition, TemplateDefinition) else definition.name
