"""How the log of a task keeps the principal that owns the task.

Owns the form. Another worker, which reads the log, must find the same principal as the process that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from antiphon.model.identity import ANONYMOUS, Principal, Stranger

__all__ = ["as_stored", "dump_principal", "kept_principal", "stored_principal"]


def kept_principal(principal: Principal, names: Sequence[str]) -> Principal:
    """Return a principal as a task keeps it: with the claims of these names only, and without an expiry."""
    if principal.expires_at is not None:
        principal = replace(principal, expires_at=None)
    return principal.with_claims(names) if principal.claims else principal


def dump_principal(principal: Principal) -> dict[str, Any]:
    """Return a principal that a task keeps in the form of the first entry of its log."""
    return _STRANGER if isinstance(principal, Stranger) else _dump(principal)


def stored_principal(created: Mapping[str, Any]) -> Principal:
    """Return the principal that owns a task, from the first entry of its log."""
    return msgspec.convert(created["principal"], Principal)


def as_stored(principal: Principal, created: Mapping[str, Any]) -> Principal:
    """Return a principal as another worker would read it from the log: claims may be other types there."""
    is_own_type = type(principal) in (Principal, Stranger)
    is_stored_whole = is_own_type and not principal.claims and principal.expires_at is None
    return principal if is_stored_whole else stored_principal(created)


def _dump(principal: Principal) -> dict[str, Any]:
    stored: dict[str, Any] = msgspec.to_builtins(principal)
    del stored["expires_at"]
    return stored


_STRANGER = _dump(ANONYMOUS)
