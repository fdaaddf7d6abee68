"""Notices what other processes have committed. A thread that looks while somebody watches, and else sleeps.

`PRAGMA data_version` tells that some other connection has committed; the table of commits tells what.
It may report too much, never too little: it keeps its place when nobody watches, and goes on from there.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence

import msgspec

from antiphon.store.sqlite import sql
from antiphon.store.sqlite.connection import Database

__all__ = ["Feed"]

_FAR = 128
"""Commits that are told apart in one look; with more, everything counts as changed."""

_PAUSE = 1.0
"""Seconds between looks at a file that cannot be read."""

_messages = msgspec.json.Decoder(list[tuple[str, str]])
_commits = msgspec.json.Decoder(list[tuple[list[str], int] | None])


class Feed:
    """Looks every `interval` seconds. Reports the tasks touched, or `None` for any, and if one is ready.

    Tells what others said, by topic, as JSON.
    """

    def __init__(
        self,
        database: Database,
        origin: str,
        interval: float,
        report: Callable[[Collection[str] | None, bool], None],
        tell: Callable[[Sequence[tuple[str, str]]], None],
    ) -> None:
        self._database = database
        self._origin = origin
        self._interval = interval
        self._report = report
        self._tell = tell
        self._connection: sqlite3.Connection | None = None
        self._seen = -1
        self._last = -1
        self._heard = 0
        self._wanted = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="antiphon-store-feed", daemon=True)

    def start(self) -> None:
        """Note what there is by now, and be ready to look; raises `sqlite3.Error`."""
        self._look()
        self._thread.start()

    def idle(self, idle: bool) -> None:
        """Stop looking, or look again."""
        if idle:
            self._wanted.clear()
        else:
            self._wanted.set()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._disconnect()

    def _run(self) -> None:
        while not self._over.wait(self._interval):
            self._wanted.wait()
            try:
                self._look()
            except (sqlite3.Error, msgspec.MsgspecError):
                self._disconnect()
                self._report(None, True)
                self._over.wait(_PAUSE)

    def _look(self) -> None:
        if self._connection is None:
            self._connection = self._database.connect("read")
            self._seen = -1
        seen = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if seen == self._seen:
            return
        values = {"origin": self._origin, "last": self._last, "limit": _FAR, "heard": self._heard}
        latest, text, self._heard, said = self._connection.execute(sql.RECENT, values).fetchone()
        began, last = self._last >= 0, self._last
        self._seen, self._last = seen, latest
        if not began:
            return
        if messages := _messages.decode(said):
            self._tell(messages)
        commits = _commits.decode(text)
        others = [commit for commit in commits if commit is not None]
        if latest - last > len(commits):
            self._report(None, True)
        elif others:
            touched = {id for ids, _ in others for id in ids}
            self._report(touched, any(ready for _, ready in others))

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
