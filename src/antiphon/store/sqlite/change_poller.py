"""Notices the commits of other processes, on a thread that polls the file while there are watchers.

`PRAGMA data_version` tells that another connection has committed; the `commits` table tells which tasks
changed. The poller may report too much but never too little: it remembers the last commit it has seen while
there are no watchers, and continues from there. It does not know the event loop.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence

import msgspec

from antiphon.errors import StoreUnavailable
from antiphon.store.sqlite import statements
from antiphon.store.sqlite.database import Database

__all__ = ["ChangePoller"]

_MAX_POLLED_COMMITS = 128
"""Commits read in one poll. After more commits than that, every task counts as changed."""

_RETRY_SECONDS = 1.0
"""The pause after an error: an unreadable file rarely recovers sooner, and each error wakes every watcher."""

_messages = msgspec.json.Decoder(list[tuple[str, str]])
_commits = msgspec.json.Decoder(list[tuple[list[str], int] | None])


class ChangePoller:
    """Polls the file every `interval` seconds.

    Calls `notify` with the ids of the changed tasks, or `None` for all tasks, and whether one became ready.
    Calls `deliver` with the topic and the JSON data of each message that another process published.
    """

    def __init__(
        self,
        database: Database,
        origin: str,
        interval: float,
        notify: Callable[[Collection[str] | None, bool], None],
        deliver: Callable[[Sequence[tuple[str, str]]], None],
    ) -> None:
        self._database = database
        self._origin = origin
        self._interval = interval
        self._notify = notify
        self._deliver = deliver
        self._connection: sqlite3.Connection | None = None
        self._data_version = -1
        self._last_commit = -1
        self._last_message = 0
        self.active = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="antiphon-store-poller", daemon=True)

    def start(self) -> None:
        """Remember the last commit and start the thread; raises `sqlite3.Error`."""
        self._poll()
        self._thread.start()

    def set_idle(self, idle: bool) -> None:
        """Pause polling, or resume it."""
        if idle:
            self.active.clear()
        else:
            self.active.set()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self.active.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._disconnect()

    def _run(self) -> None:
        while not self._closed.wait(self._interval):
            self.active.wait()
            try:
                self._poll()
            except (sqlite3.Error, msgspec.MsgspecError, StoreUnavailable) as error:
                # Without a connection, a new file could get the number of a deleted one and be taken for it.
                if not isinstance(error, StoreUnavailable):
                    self._disconnect()
                self._notify(None, True)
                self._closed.wait(_RETRY_SECONDS)

    def _poll(self) -> None:
        self._database.file.verify()
        if self._connection is None:
            self._connection = self._database.connect("read")
            self._data_version = -1
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._data_version:
            return
        values = {
            "origin": self._origin,
            "last_commit": self._last_commit,
            "limit": _MAX_POLLED_COMMITS,
            "last_message": self._last_message,
        }
        row = self._connection.execute(statements.RECENT_CHANGES, values).fetchone()
        previous = self._last_commit
        self._data_version = version
        self._last_commit, commits_text, self._last_message, messages_text = row
        if previous < 0:  # the first poll only finds out where to start
            return
        if messages := _messages.decode(messages_text):
            self._deliver(messages)
        commits = _commits.decode(commits_text)
        foreign = [commit for commit in commits if commit is not None]
        if self._last_commit - previous > len(commits):
            self._notify(None, True)
        elif foreign:
            touched = {id for ids, _ in foreign for id in ids}
            self._notify(touched, any(ready for _, ready in foreign))

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
