"""The PostgreSQL store: tasks in a database, for any number of processes on any number of machines.

`store.py` is the store, `writer.py` and `reader.py` run batches of operations (`batcher.py`), and
`change_listener.py` notices the commits of other processes. The SQL is in `sql/`, one file per statement.
Nothing here knows what entries mean.
"""

from antiphon.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
