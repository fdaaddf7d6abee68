"""The clocks of the SQLite store: one for the times in records, and one for leases.

The times in records go by the wall clock. Leases go by a clock that does not jump when somebody sets the wall
clock: the time since the machine started, plus a number that the processes share through the file. Owns the
table of those numbers; does not know who holds a lease.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from antiphon import wall_clock
from antiphon.store.sqlite.database import Database

__all__ = ["MachineClock", "StoreClock", "find_machine_clock"]

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE_LINK = "/proc/self/ns/time"

_SELECT_CLOCKS = "SELECT boot, namespace, ahead FROM clocks"
_DELETE_CLOCKS = "DELETE FROM clocks"
_INSERT_CLOCK = "INSERT INTO clocks (boot, namespace, ahead) VALUES (?, ?, ?)"
_END_ALL_LEASES = "UPDATE task_rows SET lease = 0 WHERE lease > 0"


@dataclass(frozen=True, slots=True)
class MachineClock:
    """A clock that counts from the start of the machine, and that nobody can set."""

    seconds: Callable[[], float]
    boot: str
    """Identifies the start of the machine. Processes with the same value run on the same machine."""
    namespace: str = ""
    """Identifies the time namespace: within one boot, clocks of different namespaces differ."""


def find_machine_clock() -> MachineClock | None:
    """Return the clock of this machine; `None` if the system does not identify the start of the machine."""
    try:
        boot = _BOOT_ID_FILE.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    try:
        namespace = os.readlink(_TIME_NAMESPACE_LINK)
    except OSError:
        namespace = ""
    # Unlike the monotonic clock, this one counts the time for which the machine was suspended.
    source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return MachineClock(lambda: time.clock_gettime(source) + wall_clock.leases_ahead, boot, namespace)


class StoreClock:
    """The clocks of one store. Without a machine clock, leases go by the wall clock too."""

    def __init__(self, wall: Callable[[], float], machine: MachineClock | None) -> None:
        self._wall = wall
        self._machine = machine
        self._ahead = 0

    def now(self) -> int:
        """Return the wall clock's time, in milliseconds since 1970."""
        return int(self._wall() * 1000)

    def lease_now(self) -> int:
        """Return the time by which leases go, in milliseconds. Needs `agree` first."""
        if self._machine is None:
            return self.now() - int((wall_clock.ahead - wall_clock.leases_ahead) * 1000)
        return int(self._machine.seconds() * 1000) + self._ahead

    def agree(self, database: Database) -> None:
        """Find out how far leases are ahead of this machine's clock; raises `sqlite3.Error`.

        The first process since the machine started decides, and sets the clock of leases to the wall clock.
        It also ends all earlier leases, because no process that held one is left.
        """
        if self._machine is None:
            return
        connection = database.connect("write")
        try:
            database.begin(connection)
            self._ahead = self._load(connection, self._machine)
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _load(self, connection: sqlite3.Connection, machine: MachineClock) -> int:
        known = {(boot, name): ahead for boot, name, ahead in connection.execute(_SELECT_CLOCKS)}
        if (machine.boot, machine.namespace) in known:
            return int(known[machine.boot, machine.namespace])
        if known and machine.boot not in {boot for boot, _ in known}:
            connection.execute(_DELETE_CLOCKS)
            connection.execute(_END_ALL_LEASES)
        ahead = self.now() - int(machine.seconds() * 1000)
        connection.execute(_INSERT_CLOCK, (machine.boot, machine.namespace, ahead))
        return ahead
