"""The subscriptions of callers: which ones are allowed, and which ones providers are told, for how long.

Owns the way from a session to the providers. It must not know how changes reach the callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeAlias

from antiphon.errors import AntiphonError, ResourceNotFound
from antiphon.model.identity import Principal
from antiphon.model.notification import Change, ListChanged
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.execution.call import Call, Caller, SessionState
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.scopes import ScopeCheck

__all__ = ["Accepts", "SessionSubscriptions", "check_interests", "visible_changes"]

logger = logging.getLogger("antiphon")

Accepts: TypeAlias = Callable[[Change], bool]
"""Returns whether a listener gets a change."""


def check_interests(
    uris: Iterable[str], principal: Principal, registry: Registry, scopes: ScopeCheck
) -> None:
    """Raise `InsufficientScope` if a listener does not have the scopes of a resource."""
    for uri in uris:
        with contextlib.suppress(ResourceNotFound):  # it may be added while the caller listens
            scopes.check(principal, *registry.resource(uri, principal))


def visible_changes(wants: Accepts, principal: Principal, registry: Registry) -> Accepts:
    """Return a filter that keeps changes of resources from a listener for whom they do not exist.

    The listener is not told at once, as for a URI that is unknown: it may be added later.
    """

    def accepts(change: Change) -> bool:
        if not wants(change):
            return False
        return isinstance(change, ListChanged) or not registry.hides("resources", change.uri, principal)

    return accepts


class SessionSubscriptions:
    """The subscriptions of sessions, as providers see them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ending: set[asyncio.Task[None]] = set()

    async def add(self, state: SessionState, uri: str, call: Call[Any]) -> None:
        """Subscribe a session to a resource; raises the errors of the session and of the providers."""
        if not state.subscribe(uri) or not self._registry.providers:
            return
        if state.on_close is None:
            # The request ends long before the session.
            quiet = call.derive(caller=Caller(), work=Supervised())
            state.on_close = partial(self._end, quiet)
        try:
            for provider in self._registry.providers:
                await provider.subscribe(uri, call)
        except BaseException:
            state.unsubscribe(uri)
            raise

    async def remove(self, state: SessionState, uri: str, call: Call[Any]) -> None:
        """Unsubscribe a session, if it is subscribed: others may be subscribed to the same resource."""
        if state.unsubscribe(uri):
            for provider in self._registry.providers:
                await provider.unsubscribe(uri, call)

    def _end(self, call: Call[Any], uris: Collection[str]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._remove_all(uris, call))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _remove_all(self, uris: Collection[str], call: Call[Any]) -> None:
        """Tell the providers that a session has ended."""
        for uri in uris:
            for provider in self._registry.providers:
                try:
                    await provider.unsubscribe(uri, call)
                except AntiphonError as error:
                    logger.warning("Cannot end the subscription to %s: %s", uri, error)
