"""The subscriptions of callers: which ones are allowed, and which ones providers are told, for how long.

Owns the way from a session to the providers. It must not know how changes reach the callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

from antiphon.errors import AntiphonError, ResourceNotFound
from antiphon.model.identity import Principal
from antiphon.model.notification import Change, ListChanged
from antiphon.runtime.authoring.registry import Registry
from antiphon.runtime.execution.call import Call, Caller, SessionState
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.providers import Provider
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
        """Subscribe a session to a resource; raises the errors of the session and of the providers.

        To the providers, all subscriptions of a session are of whoever subscribed first in it: a caller
        without a principal may come from another address each time.
        """
        if not state.subscribe(uri) or not self._registry.providers:
            return
        if state.passed_on is None:
            # The request ends long before the session.
            subscriber = call.derive(caller=Caller(), work=Supervised())
            state.passed_on = _PassedOn(self._registry, subscriber, self._ending)
        try:
            await state.passed_on.add(uri)
        except BaseException:
            state.unsubscribe(uri)
            raise

    async def remove(self, state: SessionState, uri: str) -> None:
        """Unsubscribe a session, if it is subscribed: others may be subscribed to the same resource."""
        if (ending := state.unsubscribe(uri)) is not None:
            await asyncio.shield(ending)


class _PassedOn:
    """The subscriptions of one session that the providers of this process know."""

    def __init__(self, registry: Registry, subscriber: Call[Any], ending: set[asyncio.Task[None]]) -> None:
        self._registry = registry
        self._subscriber = subscriber
        self._ending = ending
        self._uris: set[str] = set()

    async def add(self, uri: str) -> None:
        """Tell the providers of a subscription; raises their errors."""
        self._uris.add(uri)
        told: list[Provider] = []
        try:
            for provider in self._registry.providers:
                await provider.subscribe(uri, self._subscriber)
                told.append(provider)
        except BaseException:
            self._uris.discard(uri)
            self._start_removing((uri,), told)
            raise

    def remove(self, uris: Collection[str]) -> asyncio.Task[None] | None:
        """Start to tell the providers that subscriptions have ended, if they know them."""
        known = self._uris.intersection(uris)
        self._uris -= known
        return self._start_removing(known, tuple(self._registry.providers)) if known else None

    def _start_removing(self, uris: Collection[str], providers: Sequence[Provider]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._remove(uris, providers))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _remove(self, uris: Collection[str], providers: Sequence[Provider]) -> None:
        for uri in uris:
            for provider in providers:
                try:
                    await provider.unsubscribe(uri, self._subscriber)
                except AntiphonError as error:
                    logger.warning("Cannot end the subscription to %s: %s", uri, error)
