"""The seam for tools, resources and prompts that another program implements, such as one behind a gateway.

A provider registers its items with the engine, and the engine serves them like those of the author: with
tasks, scopes and metrics. It must not know where a provider gets its items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from antiphon.model.catalog import Definition, Kind
from antiphon.model.outcome import Completion
from antiphon.model.request import Complete

if TYPE_CHECKING:
    from antiphon.runtime.authoring.prompt import Prompt
    from antiphon.runtime.authoring.resource import Resource
    from antiphon.runtime.authoring.tool import Tool
    from antiphon.runtime.execution.call import Call

__all__ = ["Completer", "Listing", "Provider"]

Completer: TypeAlias = "Callable[[Call[Complete]], Awaitable[Completion]]"
"""Completes an argument of a prompt or of a resource template that another program has."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The items of one provider in a list, as one caller sees them."""

    definitions: Sequence[Definition]
    ttl_ms: int | None = None
    """How long the caller may cache the list; `None` for as long as the server says."""
    shared: bool = False
    """Whether every caller gets the same list."""


class Provider:
    """A source of tools, resources and prompts. Register its items with `Engine.replace`.

    The methods of this base class do nothing: override what your provider needs.
    """

    kinds: Collection[Kind] = ()
    """The lists that the provider can have items in, although it may have none now."""

    prefix: str | None = None
    """What the names of its tools and prompts begin with, before an underscore; `None` for nothing."""

    task_tools: Collection[str] = ()
    """The names of its tools that can run as tasks, as far as they are known before it starts."""

    @property
    def protects(self) -> bool:
        """Whether the provider checks its callers over HTTP, and not those who run the server."""
        return False

    def reassigned(self, kind: Kind) -> None:
        """Take note that names which the provider has registered have become another's, or its own."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the provider with the server, and stop it at the end. Registers the items of the provider."""
        yield

    async def list(self, kind: Kind, call: Call[Any]) -> Listing | None:
        """Return what the caller of a list request sees; `None` for all registered items of the provider."""
        return None

    async def find(self, kind: Kind, key: str, call: Call[Any]) -> Tool | Resource | Prompt | None:
        """Return an item that is not registered, by its name or URI; `None` if there is no such item."""
        return None

    async def subscribe(self, uri: str, call: Call[Any]) -> None:
        """Take note that a caller wants to know of changes of a resource."""

    async def unsubscribe(self, uri: str, call: Call[Any]) -> None:
        """Take note that a caller does not want to know of changes of a resource any more."""
