"""Writes batches of operations, each in one transaction. Runs on the writer's thread.

Results are returned after the commit. If the file cannot be written, the whole batch is rolled back and
fails, and the next batch starts on a new connection. The writer does not know the event loop.
"""

from __future__ import annotations

import secrets
import sqlite3

import msgspec

from antiphon.errors import StoreError, StoreUnavailable
from antiphon.store.commit_stats import CommitStats
from antiphon.store.sqlite.batch import Batch, Operation
from antiphon.store.sqlite.batch_thread import BatchResult, OperationResult
from antiphon.store.sqlite.clock import StoreClock
from antiphon.store.sqlite.database import Database
from antiphon.store.sqlite.message_retention import MessageRetention
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["Writer"]

_PENDING: OperationResult = (None, None)


class Writer:
    """The connection that writes the tasks of one store."""

    def __init__(
        self,
        database: Database,
        clock: StoreClock,
        stats: CommitStats,
        unreadable: UnreadableRecords | None = None,
    ) -> None:
        self._database = database
        self._unreadable = unreadable or UnreadableRecords(database.path)
        self._clock = clock
        self.connection: sqlite3.Connection | None = None
        self.origin = secrets.token_hex(8)
        """Identifies the commits of this writer to other processes."""
        self._stats = stats
        self._retention = MessageRetention()

    def run(self, operations: list[Operation]) -> BatchResult:
        """Run the operations in one transaction; each gets its own result."""
        try:
            return self._transact(operations)
        except StoreUnavailable as error:
            return BatchResult([(None, error)] * len(operations))
        except Exception as error:
            self.close()
            if _is_file_fault(error) or (isinstance(error, sqlite3.Error) and len(operations) == 1):
                return BatchResult([(None, self._database.explain(error, "written"))] * len(operations))
            return self._one_by_one(operations) if len(operations) > 1 else BatchResult([(None, error)])

    def close(self) -> None:
        """Close the connection and drop uncommitted changes."""
        connection, self.connection = self.connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass

    def _one_by_one(self, operations: list[Operation]) -> BatchResult:
        """Run each operation in its own transaction, so that only the faulty one fails."""
        batches = [self.run([operation]) for operation in operations]
        return BatchResult(
            [result for batch in batches for result in batch.results],
            {id for batch in batches for id in batch.touched},
            any(batch.ready for batch in batches),
        )

    def _transact(self, operations: list[Operation]) -> BatchResult:
        self._database.file.verify()
        if self.connection is None:
            self.connection = self._database.connect("write")
        connection = self.connection
        self._database.begin(connection)
        before = connection.total_changes
        batch = Batch(connection, self._clock.now(), self._clock.lease_now(), self._unreadable)
        try:
            results = _apply(batch, operations)
            batch.finish(self.origin, self._retention)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if batch.last_message:
            self._retention.note(batch.last_message, batch.message_bytes, batch.lease_now)
        if connection.total_changes != before:
            self._stats.add(len(operations))
        return BatchResult(results, batch.touched, batch.ready)


def _apply(batch: Batch, operations: list[Operation]) -> list[OperationResult]:
    """Apply all operations. Searches come last, so that they find the changes of the others."""
    batch.load(id for operation in operations for id in operation.ids)
    batch.load_turns({operation.queue for operation in operations if operation.queue is not None})
    results = [_PENDING if operation.is_search else _run(batch, operation) for operation in operations]
    for index, operation in enumerate(operations):
        if operation.is_search:
            results[index] = _run(batch, operation)
    return results


def _run(batch: Batch, operation: Operation) -> OperationResult:
    try:
        return operation.run(batch), None
    except StoreError as refusal:
        return None, refusal


def _is_file_fault(error: Exception) -> bool:
    """Return whether the file caused the error. A damaged file raises a bare `DatabaseError`."""
    kinds = (sqlite3.OperationalError, sqlite3.InternalError, msgspec.MsgspecError, OSError)
    return isinstance(error, kinds) or type(error) is sqlite3.DatabaseError
