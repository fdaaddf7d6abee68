"""The journal of a call: the answers it got and the results of its steps, by key.

Owns the entries. It must not know which carrier holds the journal between two runs. Entries are found by key
and never by position, so that a new version of a function can use the entries of an old version.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

from antiphon import wall_clock
from antiphon.model.task import ANSWER_KIND, OTHERS_KIND

__all__ = ["JOURNAL_NAMES", "MISSING", "Journal", "KeyKind"]

MISSING: Any = object()
"""The value that `Journal.find` returns for a key without an entry."""

Write: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
"""Writes entries to durable storage."""

KeyKind: TypeAlias = Literal["ask", "event", "nested", "now", "sleep", "step", "tried"]
"""The first parts of the keys of entries that are counted. They never change: existing logs contain them."""

_ID = "id"
_STATE = "state"
_SEGMENTS = "segments"
_RETURNED = "returned"
_ASKED = "asked"
_PROGRESS = "progress"
_BRANCH = "branch:"
"""The prefix of the branch that an entry belongs to. An entry without one is of the function itself."""
_OF_QUESTIONS = (f"print:{ANSWER_KIND}:", f"{_BRANCH}{ANSWER_KIND}:")
"""The prefixes of what is noted about a question while it has no answer."""
_COMPANIONS = ("", "print:", "within:")
"""The prefixes of entries that show that an earlier run has used a key."""

JOURNAL_NAMES = (
    *get_args(KeyKind),
    *(_ID, _STATE, _SEGMENTS, _RETURNED, _ASKED, _PROGRESS),
    *(OTHERS_KIND, _BRANCH.rstrip(":"), "print", "within", "unanswered"),
)
"""The keys of all entries, or their first parts. `tests/upgrade/` keeps an entry of each."""


class Journal:
    """The entries of one call. All values are JSON."""

    __slots__ = (
        "_counts",
        "_default_id",
        "_has_new_times",
        "_taken",
        "_unwritten",
        "_write",
        "_writing",
        "entries",
        "grown",
    )

    def __init__(
        self, entries: dict[str, Any] | None = None, *, write: Write | None = None, id: str = ""
    ) -> None:
        self.entries: dict[str, Any] = entries if entries is not None else {}
        self._default_id = id
        self.grown = False
        """Whether this run has recorded an entry."""
        self._counts: dict[str, int] = {}
        self._unwritten: dict[str, Any] = {}
        self._write = write
        self._writing: asyncio.Future[None] | None = None
        self._has_new_times = False
        self._taken: set[str] | None = None

    def key(self, kind: KeyKind | Literal["random", "uuid"], name: str) -> str:
        """Return the key of the next entry of this kind and name in this run, and count it."""
        base = f"{kind}:{name}"
        count = self._counts[base] = self._counts.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def next_key(self, kind: KeyKind, name: str) -> str:
        """Return the key of the next entry of this kind and name in this run."""
        base = f"{kind}:{name}"
        count = self._counts.get(base, 0) + 1
        return base if count == 1 else f"{base}#{count}"

    def restart_counts(self, prefix: str = "") -> None:
        """Count the entries whose keys begin with `prefix` from the start: the function runs again."""
        self._counts = {base: count for base, count in self._counts.items() if not base.startswith(prefix)}
        if not prefix:
            self._taken = None

    # Keys that several branches may use under one name: see `branches.py`

    def take_key(self, kind: KeyKind, name: str) -> str | None:
        """Take the next key for the function itself; return `None` if an entry of a branch has the key."""
        key, taken = self.key(kind, name), self._taken
        if taken is None:
            taken = self._taken = set()
        while key in taken:
            key = self.key(kind, name)
        if self.entries.get(_BRANCH + key):
            return None
        taken.add(key)
        return key

    def take_for_branch(self, key: str, branch: str) -> None:
        """Take a key for a branch, and note whose it is."""
        self._take(key)
        if self.branch_of(key) != branch:
            self.note(_BRANCH + key, branch)

    def is_taken(self, key: str) -> bool:
        """Return whether this run uses a key already."""
        return self._taken is not None and key in self._taken

    def branch_of(self, key: str) -> str:
        """Return the branch to which an entry belongs; empty for the function itself, or an unknown key."""
        found: str = self.entries.get(_BRANCH + key, "")
        return found

    def knows(self, key: str) -> bool:
        """Return whether an earlier run has used a key."""
        return _BRANCH + key in self.entries or any(prefix + key in self.entries for prefix in _COMPANIONS)

    def _take(self, key: str) -> None:
        if self._taken is None:
            self._taken = set()
        self._taken.add(key)

    def find(self, key: str) -> Any:
        """Return the value recorded under a key, or `MISSING`."""
        return self.entries.get(key, MISSING)

    def record(self, key: str, value: Any) -> None:
        """Record a value under a key."""
        self.note(key, value)
        self.grown = True

    def note(self, key: str, value: Any) -> None:
        """Keep a value under a key, although it is no progress. It becomes durable with the next entry."""
        self.entries[key] = value
        if self._write is not None:
            self._unwritten[key] = value

    def forget(self, *keys: str) -> None:
        """Remove entries that no later run needs, and what is noted about them."""
        for key in keys:
            for entry in (key, _BRANCH + key):
                self.entries.pop(entry, None)
                self._unwritten.pop(entry, None)
            if self._taken is not None:
                self._taken.discard(key)

    def before_step(self, key: str) -> None:
        """Allow a step that is not in the journal to run. A journal for tests stops the run here."""

    async def commit(self) -> None:
        """Write the entries that are not durable yet, if the journal is attached to a log."""
        if self._write is None or not self._unwritten:
            return
        new, self._unwritten = self._unwritten, {}
        self._writing = written = asyncio.get_running_loop().create_future()
        try:
            await self._write(new)
        finally:
            written.set_result(None)
            if self._writing is written:
                self._writing = None

    async def settle(self) -> None:
        """Make the times that `now` returned durable, before a step whose identity may depend on them."""
        if not self._has_new_times:
            return
        await self.commit()
        if self._writing is not None:  # another step may be writing them
            await asyncio.shield(self._writing)
        self._has_new_times = False

    def take_unwritten(self) -> dict[str, Any]:
        """Return the entries that are not durable yet, for the caller to write."""
        new, self._unwritten = self._unwritten, {}
        return new

    def detach(self) -> None:
        """Stop writing entries: the journal stays in memory."""
        self._write = None
        self._unwritten = {}

    def attach(self, write: Write) -> dict[str, Any]:
        """Write new entries with `write` from now on; return all entries so far."""
        self._write = write
        self._unwritten = {}
        return dict(self.entries)

    @property
    def id(self) -> str:
        """The id of the call, the same in every run.

        The journal of a task gets one from its creator. Any other call gets a random one at the first use.
        """
        found: str = self.entries.get(_ID, "") or self._default_id
        if not found:
            found = os.urandom(16).hex()
            self.record(_ID, found)
        return found

    @property
    def state(self) -> Any:
        """The `state` of the last `InputRequired` that the function returned, or `None`."""
        return self.entries.get(_STATE)

    @state.setter
    def state(self, value: Any) -> None:
        self.record(_STATE, value)

    @property
    def is_needed(self) -> bool:
        """Whether the next run needs the journal.

        It does not if the function has only asked, each question under a key of its own: it asks the same
        again, and has its answers in the request.
        """
        return any(
            key not in (_RETURNED, _ASKED) and (not key.startswith(_OF_QUESTIONS) or "#" in key)
            for key in self.entries
        )

    def note_returned(self) -> None:
        """Note that the function returned an `InputRequired`: it decides itself where it continues."""
        self.note(_RETURNED, True)

    @property
    def has_returned(self) -> bool:
        """Whether the function returned an `InputRequired` in an earlier run."""
        return _RETURNED in self.entries

    def note_asked(self, questions: Mapping[str, Any]) -> None:
        """Note what the caller is asked, in its order, for answers without keys."""
        self.note(_ASKED, questions)

    def take_asked(self) -> Mapping[str, Any]:
        """Return what the caller was asked last, and forget it; empty if that was not noted."""
        found: Mapping[str, Any] = self.entries.pop(_ASKED, {})
        return found

    @property
    def segments(self) -> int:
        """How many segments the caller received in earlier requests of the call."""
        return int(self.entries.get(_SEGMENTS, 0))

    @segments.setter
    def segments(self, count: int) -> None:
        self.record(_SEGMENTS, count)

    @property
    def progress(self) -> float:
        """The highest progress that the caller was sent, in this run or an earlier one."""
        return float(self.entries.get(_PROGRESS, -math.inf))

    @progress.setter
    def progress(self, reached: float) -> None:
        self.note(_PROGRESS, reached)

    def now(self) -> datetime:
        """Return the current time, the same in every run."""
        key = self.key("now", "")
        found = self.find(key)
        if found is MISSING:
            found = datetime.fromtimestamp(wall_clock.now(), UTC).isoformat()
            self.record(key, found)
            self._has_new_times = True
        return datetime.fromisoformat(found)

    def derived(self, kind: Literal["random", "uuid"]) -> bytes:
        """Return the next 32 random bytes of a kind, the same in every run."""
        return self.digest(self.key(kind, ""))

    def digest(self, key: str) -> bytes:
        """Return 32 bytes that are unique to this call and key."""
        return hashlib.sha256(f"{self.id}\0{key}".encode()).digest()
