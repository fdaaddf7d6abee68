"""The embedded default: tasks in one SQLite file, for one machine and any number of its processes."""

from antiphon.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
