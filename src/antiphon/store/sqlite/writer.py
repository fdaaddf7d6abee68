"""The one that writes: a connection, and a transaction for each batch. Lives on the writer's thread.

What it returns has been committed. When the file cannot be written, the whole batch is rolled back and
says so, and the next one begins on a fresh connection. It must not know the event loop.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable

import msgspec

from antiphon.errors import StoreError
from antiphon.store.commit_stats import CommitStats
from antiphon.store.sqlite.batch import Batch, Operation
from antiphon.store.sqlite.connection import Database
from antiphon.store.sqlite.lane import Done, Outcome

__all__ = ["Writer"]

_NOTHING: Outcome = (None, None)


class Writer:
    """Writes to one file for one process."""

    def __init__(self, database: Database, clock: Callable[[], float], meter: CommitStats) -> None:
        self._database = database
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self.origin = secrets.token_hex(8)
        """Tells this writer's commits from those of others."""
        self.meter = meter

    def run(self, operations: list[Operation]) -> Done:
        """Do the operations in one transaction; each gets its own outcome."""
        try:
            return self._transact(operations)
        except Exception as error:
            self.close()
            if _nobodys_fault(error) or (isinstance(error, sqlite3.Error) and len(operations) == 1):
                return Done([(None, self._database.explain(error, "written"))] * len(operations))
            return self._one_by_one(operations) if len(operations) > 1 else Done([(None, error)])

    def close(self) -> None:
        """Let go of the connection, and of what was not committed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass

    def _one_by_one(self, operations: list[Operation]) -> Done:
        """Something in the batch is wrong, not the file: let only the one fail that is to blame."""
        alone = [self.run([operation]) for operation in operations]
        return Done(
            [outcome for done in alone for outcome in done.outcomes],
            {id for done in alone for id in done.touched},
            any(done.ready for done in alone),
        )

    def _transact(self, operations: list[Operation]) -> Done:
        if self._connection is None:
            self._connection = self._database.connect("write")
        connection = self._connection
        self._database.begin(connection)
        before = connection.total_changes
        batch = Batch(connection, int(self._clock() * 1000))
        try:
            outcomes = _apply(batch, operations)
            batch.finish(self.origin)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if connection.total_changes != before:
            self.meter.add(len(operations))
        return Done(outcomes, batch.touched, batch.ready)


def _apply(batch: Batch, operations: list[Operation]) -> list[Outcome]:
    """Apply all operations, those that look for tasks last: all of them came at the same time."""
    batch.load(id for operation in operations for id in operation.ids)
    outcomes = [_NOTHING if operation.queries else _outcome(batch, operation) for operation in operations]
    for place, operation in enumerate(operations):
        if operation.queries:
            outcomes[place] = _outcome(batch, operation)
    return outcomes


def _outcome(batch: Batch, operation: Operation) -> Outcome:
    try:
        return operation.run(batch), None
    except StoreError as refusal:
        return None, refusal


def _nobodys_fault(error: Exception) -> bool:
    """Whether the file is to blame, and no operation. A damaged file is a bare `DatabaseError`."""
    kinds = (sqlite3.OperationalError, sqlite3.InternalError, msgspec.MsgspecError, OSError)
    return isinstance(error, kinds) or type(error) is sqlite3.DatabaseError
