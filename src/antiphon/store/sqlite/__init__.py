"""The SQLite store: tasks in one file, for any number of processes on one machine.

`store.py` is the store, `writer.py` and `reader.py` run operations on a thread each (`batch_thread.py`), and
`change_poller.py` notices the commits of other processes. Nothing here knows what entries mean.
"""

from antiphon.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
