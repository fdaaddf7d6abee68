"""Builds the errors of a store that cannot take an operation. Every store raises the same ones."""

from __future__ import annotations

from antiphon.errors import StoreUnavailable

__all__ = ["closed", "newer_format", "not_open", "overloaded"]


def not_open() -> StoreUnavailable:
    """Return the error for a store that was not opened."""
    return StoreUnavailable("The store is not open: call open() first.")


def closed() -> StoreUnavailable:
    """Return the error for a store that is being closed."""
    return StoreUnavailable("The store is closed: open it again before you use it.")


def overloaded(queued: int) -> StoreUnavailable:
    """Return the error for a store whose queue is full."""
    return StoreUnavailable(f"The store is overloaded: {queued} operations are queued. Try again later.")


def newer_format(store: str) -> StoreUnavailable:
    """Return the error for data in a format that this version cannot read."""
    return StoreUnavailable(
        f"The store {store} has data that a newer Antiphon wrote: install a newer Antiphon to read it."
    )
