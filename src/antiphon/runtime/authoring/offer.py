"""What is offered to whom: the tags of a tool, resource or prompt, whether it is enabled, and who sees it.

Owns the check of these options, and the call of an author's `visible` function. It must not know lists.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from antiphon.errors import DefinitionError
from antiphon.model.identity import STRANGER, Principal

__all__ = ["EVERYBODY", "Offer", "Visible", "checked_tags", "read_offer"]

logger = logging.getLogger("antiphon")

Visible: TypeAlias = Callable[[Principal | None], bool]
"""Returns whether a caller sees an item. The caller is `None` if nobody knows who calls."""


@dataclass(frozen=True, slots=True)
class Offer:
    """To whom a tool, a resource or a prompt is offered."""

    label: str = ""
    """The name of the item, for the log."""
    tags: frozenset[str] = frozenset()
    enabled: bool = True
    """Whether the item is offered from the start."""
    visible: Visible | None = None
    """Returns whether a caller sees the item; `None` if every caller does."""
    guard: Callable[[Principal], bool] | None = None
    """Returns whether the library offers the item to a caller. Unlike `visible`, it can tell a stranger from
    the caller who runs the server."""

    @property
    def is_conditional(self) -> bool:
        """Whether not every caller sees the item."""
        return self.visible is not None or self.guard is not None

    @property
    def is_for_strangers(self) -> bool:
        """Whether the library offers the item over HTTP."""
        return self.guard is None or self.guard(STRANGER)

    def is_for(self, principal: Principal) -> bool:
        """Return whether a caller sees the item. If the author's function fails, nobody does."""
        if self.guard is not None and not self.guard(principal):
            return False
        if self.visible is None:
            return True
        try:
            seen: Any = self.visible(principal if principal.id else None)
            if inspect.isawaitable(seen):
                if inspect.iscoroutine(seen):
                    seen.close()
                raise TypeError("it returned an awaitable: use a function that is not async")
            return bool(seen)
        except Exception:
            logger.exception("The visible function of %r failed, so the caller does not see it.", self.label)
            return False


EVERYBODY = Offer()
"""The offer of an item without options: enabled, without tags, for every caller."""


def read_offer(label: str, tags: Collection[str], enabled: bool, visible: Visible | None) -> Offer:
    """Return the offer that options describe; raises `DefinitionError`."""
    if not tags and enabled is True and visible is None:
        return EVERYBODY
    if not isinstance(enabled, bool):
        raise DefinitionError(f"{label}: enabled={enabled!r} is invalid. Use True or False.")
    if visible is not None and not callable(visible):
        raise DefinitionError(
            f"{label}: visible={visible!r} is not a function. Pass one that takes a Principal, or None, and "
            "returns whether this caller sees it. To switch it off for everybody, use enabled=False."
        )
    if visible is not None and inspect.iscoroutinefunction(visible):
        raise DefinitionError(
            f"{label}: the function of visible= is async. It runs for each entry of each list: use a plain "
            "function of what the Principal has, and let authenticate= put more into its claims."
        )
    return Offer(label, checked_tags(f"{label}: tags", tags), enabled, visible)


def checked_tags(label: str, tags: Any) -> frozenset[str]:
    """Return tags as a set; raises `DefinitionError` for something else than a collection of texts."""
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise DefinitionError(f"{label}={tags!r} is not a set. Write {{{tags!r}}}.")
    if wrong := [tag for tag in tags if not isinstance(tag, str) or not tag]:
        raise DefinitionError(f"{label} cannot have {wrong[0]!r}. A tag is a text that is not empty.")
    return frozenset(tags)
