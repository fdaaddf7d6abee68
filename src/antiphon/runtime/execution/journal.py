"""The journal of one run: what it asked and was answered, which steps it did and what they gave.

Owns the record and nothing else: who carries it between two runs is the carriers' business.
Entries are found by key, never by position, so that a new version of a function can use what an old
one recorded.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from antiphon.model.task import ANSWER_KIND

__all__ = ["MISSING", "Journal"]

MISSING: Any = object()
"""What a journal gives for something that it does not have."""

Write: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
"""Makes entries durable."""

_ID = "id"
_STATE = "state"
_SEGMENTS = "segments"


class Journal:
    """What one run has done so far. Values are JSON."""

    __slots__ = ("_counts", "_new", "_write", "entries", "grown")

    def __init__(self, entries: dict[str, Any] | None = None, *, write: Write | None = None) -> None:
        self.entries: dict[str, Any] = entries if entries is not None else {}
        self.grown = False
        """Whether this run has added anything."""
        self._counts: dict[str, int] = {}
        self._new: dict[str, Any] = {}
        self._write = write

    def key(self, kind: str, name: str) -> str:
        """The key of the next thing of this kind and name in this run."""
        base = f"{kind}:{name}"
        count = self._counts[base] = self._counts.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def question_key(self, name: str) -> str:
        """Return the key of the next question of this name in this run."""
        return self.key(ANSWER_KIND, name).removeprefix(f"{ANSWER_KIND}:")

    def find(self, key: str) -> Any:
        """What was recorded under a key, or `MISSING`."""
        return self.entries.get(key, MISSING)

    def record(self, key: str, value: Any) -> None:
        """Note something that was done or answered."""
        self.entries[key] = value
        self.grown = True
        if self._write is not None:
            self._new[key] = value

    async def commit(self) -> None:
        """Wait until what was recorded is as durable as its carrier makes it."""
        if self._write is not None and self._new:
            new, self._new = self._new, {}
            await self._write(new)

    def take(self) -> dict[str, Any]:
        """What was recorded and is not durable yet, to be written together with something else."""
        new, self._new = self._new, {}
        return new

    def take_back(self) -> None:
        """Nobody makes it durable any more."""
        self._write = None
        self._new = {}

    def hand_over(self, write: Write) -> dict[str, Any]:
        """Let another carrier have it from now on; returns all that is in it."""
        self._write = write
        self._new = {}
        return dict(self.entries)

    @property
    def id(self) -> str:
        """What this run is known by, the same in every replay."""
        found: str = self.entries.get(_ID, "")
        if not found:
            found = secrets.token_hex(16)
            self.record(_ID, found)
        return found

    @property
    def state(self) -> Any:
        """What an author of the explicit style gave to be kept, `None` if nothing."""
        return self.entries.get(_STATE)

    @state.setter
    def state(self, value: Any) -> None:
        self.record(_STATE, value)

    @property
    def segments(self) -> int:
        """How many segments the caller was sent in the rounds before."""
        return int(self.entries.get(_SEGMENTS, 0))

    @segments.setter
    def segments(self, count: int) -> None:
        self.record(_SEGMENTS, count)

    def now(self) -> datetime:
        """The time, the same in every replay."""
        key = self.key("now", "")
        found = self.find(key)
        if found is MISSING:
            found = datetime.now(UTC).isoformat()
            self.record(key, found)
        return datetime.fromisoformat(found)

    def derived(self, kind: str) -> bytes:
        """The next 32 random bytes of a kind, the same in every replay."""
        return self.digest(self.key(kind, ""))

    def digest(self, key: str) -> bytes:
        """32 bytes that belong to a key of this run alone."""
        return hashlib.sha256(f"{self.id}\0{key}".encode()).digest()
