"""Scopes: how claims hold them, which names they may have, and which scopes imply others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from antiphon.errors import DefinitionError

__all__ = ["ImpliedScopes", "checked_scopes", "read_scopes"]

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""The characters of a scope. https://datatracker.ietf.org/doc/html/rfc6749#section-3.3"""


def checked_scopes(label: str, scopes: Any) -> tuple[str, ...]:
    """Return the scopes of a setting without repetitions; raises `DefinitionError`."""
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise DefinitionError(f'{label}={scopes!r} is not a list of scopes. Write {label}=["notes:read"].')
    found = tuple(dict.fromkeys(scopes))
    for scope in found:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise DefinitionError(f"{label}: {scope!r} is not a scope. Scopes are words without spaces.")
        if scope == "offline_access":
            raise DefinitionError(
                f"{label}: 'offline_access' is not a scope of a server. Remove it: clients ask for it "
                "themselves if they want refresh tokens."
            )
    return found


def read_scopes(claims: Mapping[str, Any], names: Sequence[str]) -> set[str]:
    """Return the scopes in claims. A claim has a list, or a text with spaces between the scopes."""
    found: set[str] = set()
    for name in names:
        value = claims.get(name)
        words = value.split(" ") if isinstance(value, str) else value if isinstance(value, list) else ()
        found.update(word for word in words if isinstance(word, str) and word)
    return found


class ImpliedScopes:
    """A hierarchy of scopes: a caller with a scope also has the scopes that it implies."""

    def __init__(self, implies: Mapping[str, Sequence[str]]) -> None:
        self._implies = {
            scope: checked_scopes("implies", implied)
            for scope, implied in implies.items()
            if checked_scopes("implies", [scope])
        }

    def expand(self, scopes: Iterable[str]) -> frozenset[str]:
        """Return scopes with all scopes that they imply, directly or not."""
        found, pending = set[str](), list(scopes)
        while pending:
            scope = pending.pop()
            if scope not in found:
                found.add(scope)
                pending.extend(self._implies.get(scope, ()))
        return frozenset(found)
