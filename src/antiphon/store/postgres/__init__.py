"""For several machines: tasks in a PostgreSQL database, which any number of processes may share."""

from antiphon.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
