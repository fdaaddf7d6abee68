"""Errors of stores."""

from __future__ import annotations

from antiphon.errors.base import AntiphonError

__all__ = ["LeaseLost", "NoTask", "Stale", "StoreError", "StoreUnavailable", "TooLarge", "TooLate"]


class StoreError(AntiphonError):
    """A store operation failed."""


class Stale(StoreError):
    """Another writer has appended to the log in the meantime: read it again and retry."""


class LeaseLost(StoreError):
    """Another worker has claimed the task: stop working on it."""


class NoTask(StoreError):
    """The task does not exist, or has expired."""


class TooLarge(StoreError):
    """An artifact is larger than `Limits.max_artifact_bytes`."""


class TooLate(StoreError):
    """The time before which an entry had to be written has come."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, is full, or is read-only. Tasks that it has confirmed are not lost."""
