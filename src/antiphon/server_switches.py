"""The methods of the `Server` that change it while it runs: what is offered, and dependencies in tests.

Owns their documentation. The engine does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping
from typing import Any

from antiphon.runtime.engine import Engine

__all__ = ["ServerSwitches"]


class ServerSwitches:
    """The part of the `Server` that changes how registered functions are offered and run."""

    _engine: Engine

    @property
    def dependency_overrides(self) -> MutableMapping[Callable[..., Any], Callable[..., Any]]:
        """The functions that replace dependencies in tests, by the functions that they replace.

        `server.dependency_overrides[get_db] = get_fake` is in force from the next call on. Setting an item
        raises `DefinitionError` if the new function cannot be a dependency. To remove all, set it to `{}`.
        """
        return self._engine.environment.dependency_overrides

    @dependency_overrides.setter
    def dependency_overrides(self, overrides: MutableMapping[Callable[..., Any], Callable[..., Any]]) -> None:
        self._engine.environment.dependency_overrides.replace(overrides)

    def disable(self, *names: str, tags: Collection[str] = ()) -> None:
        """Stop offering tools, resources and prompts, and notify listening clients.

        `names` has names of tools and prompts, and URIs of resources and templates. With `tags`, everything
        that has one of these tags is disabled. Both concern what is registered later, too. Callers get the
        same error as for an unknown name. Tasks that were accepted before go on. Raises `NotFound` for a name
        that nothing has, unless another server is mounted that may have it. A tag that nothing has when the
        server has started is a warning in its log.
        """
        self._engine.switch(names, tags, enabled=False)

    def enable(self, *names: str, tags: Collection[str] = ()) -> None:
        """Offer what was disabled with `disable` or registered with `enabled=False`, and notify clients.

        Takes the same arguments as `disable`, and raises the same error. For what several calls concern, the
        last one counts.
        """
        self._engine.switch(names, tags, enabled=True)
