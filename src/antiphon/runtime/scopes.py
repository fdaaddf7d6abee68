"""The scopes that tools, resources and prompts need, and the check of a caller's scopes before anything runs.

Owns the `scopes` option and the error for a caller without them. It must not know where a caller's scopes
come from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from antiphon.authorization.scope_sets import checked_scopes
from antiphon.errors import DefinitionError, InsufficientScope, InternalError
from antiphon.model.catalog import SCOPES_META_KEY
from antiphon.model.identity import ANONYMOUS, Principal

if TYPE_CHECKING:
    from antiphon.authorization.protected_resource import ProtectedResource

__all__ = ["ScopeCheck", "Scoped", "Scopes", "ScopesOption", "meta_with_scopes", "read_option"]

logger = logging.getLogger("antiphon")

ScopesOption: TypeAlias = Sequence[str] | Callable[[Mapping[str, Any]], Sequence[str]]
"""The scopes that a caller needs, or a function that returns them for the arguments of a request."""
Scopes: TypeAlias = tuple[str, ...] | Callable[[Mapping[str, Any]], Sequence[str]] | None
"""The `scopes` option after its check; `None` if every caller may make the request."""


class Scoped(Protocol):
    """A tool, a resource or a prompt."""

    @property
    def scopes(self) -> Scopes:
        """The scopes that callers need."""

    @property
    def definition(self) -> Any:
        """The definition in lists, which has the name."""


def read_option(label: str, option: ScopesOption | None) -> Scopes:
    """Return the scopes of an option; raises `DefinitionError`."""
    if option is None:
        return None
    return option if callable(option) else checked_scopes(f"{label}: scopes", option) or None


def meta_with_scopes(meta: Mapping[str, Any] | None, scopes: Scopes) -> dict[str, Any] | None:
    """Return the `_meta` of a definition, with the scopes that callers need if a list of them is known."""
    named = {SCOPES_META_KEY: list(scopes)} if isinstance(scopes, tuple) else {}
    return {**named, **(meta or {})} or None


class ScopeCheck:
    """Checks the scopes of callers. `resource` has the scopes that every request needs.

    An anonymous caller over stdio or in the same process runs the server, and needs no scopes.
    """

    def __init__(self, resource: ProtectedResource | None) -> None:
        self._resource = resource
        self.base = () if resource is None else resource.scopes
        """The scopes that every request needs."""

    def check(self, principal: Principal, item: Scoped | None, arguments: Mapping[str, Any]) -> None:
        """Raise `InsufficientScope`, with all scopes that a request needs, if a caller may not make it."""
        if principal is ANONYMOUS or (not self.base and (item is None or item.scopes is None)):
            return
        has = principal.scopes
        for scope in (needed := self.needed(item, arguments)):
            if scope not in has:
                raise self._refusal(_subject(item), needed)

    def check_named(self, principal: Principal, needed: tuple[str, ...], subject: str) -> None:
        """Raise `InsufficientScope` if a caller does not have all of these scopes."""
        if not self.has_all(principal, needed):
            raise self._refusal(subject, needed)

    @staticmethod
    def has_all(principal: Principal, needed: tuple[str, ...]) -> bool:
        """Return whether a caller has all of these scopes."""
        return principal is ANONYMOUS or all(scope in principal.scopes for scope in needed)

    def allows(self, principal: Principal, item: Scoped | None, arguments: Mapping[str, Any]) -> bool:
        """Return whether a caller may make a request."""
        return principal is ANONYMOUS or self.has_all(principal, self.needed(item, arguments))

    def lists(self, principal: Principal, item: Scoped) -> bool:
        """Return whether a list for a caller has an item. Scopes that depend on arguments do not hide it."""
        scopes = item.scopes
        return callable(scopes) or scopes is None or self.allows(principal, item, {})

    def needed(self, item: Scoped | None, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return all scopes that a request needs; raises `InternalError` if the author's function fails."""
        if item is None or item.scopes is None:
            return self.base
        scopes = item.scopes
        if callable(scopes):
            try:
                scopes = checked_scopes("scopes", scopes(arguments))
            except Exception as error:
                if isinstance(error, DefinitionError):
                    logger.error("The scopes function of %r is wrong: %s", item.definition.name, error)
                else:
                    logger.exception("The scopes function of %r failed.", item.definition.name)
                raise InternalError("The server failed to determine the scopes of this request.") from None
        return tuple(dict.fromkeys((*self.base, *scopes))) if self.base else scopes

    def _refusal(self, subject: str, needed: tuple[str, ...]) -> InsufficientScope:
        description = f"{subject} needs the scope{'s' if len(needed) > 1 else ''} {' '.join(needed)}."
        challenge = None
        if self._resource is not None:
            challenge = self._resource.challenge("insufficient_scope", description, needed)
        return InsufficientScope(
            f"{description} Get a token with more scopes.", scopes=needed, challenge=challenge
        )


def _subject(item: Scoped | None) -> str:
    """Return the words for a request in a refusal, from which a caller must not learn of unscoped items."""
    return "This request" if item is None or item.scopes is None else repr(item.definition.name)
