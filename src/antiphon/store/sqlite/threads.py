"""The threads of an open SQLite store, and the connections that they use."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.store.sqlite.batch import Operation
from antiphon.store.sqlite.batch_thread import BatchThread
from antiphon.store.sqlite.change_poller import ChangePoller
from antiphon.store.sqlite.reader import Reader, ReadOperation
from antiphon.store.sqlite.writer import Writer

__all__ = ["Threads"]


@dataclass(frozen=True, slots=True)
class Threads:
    """The parts of an open store."""

    writer: Writer
    reader: Reader
    poller: ChangePoller
    writing: BatchThread[Operation]
    reading: BatchThread[ReadOperation]

    @property
    def pending(self) -> int:
        """The number of operations that were started and are not done yet."""
        return self.writing.queued + self.reading.queued

    def close_connections(self) -> None:
        """Close the connections, after the threads have ended."""
        self.poller.close()
        self.reader.close()
        self.writer.close()
