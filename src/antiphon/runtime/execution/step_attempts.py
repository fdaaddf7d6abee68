"""The attempts of one run at its steps: under which key each is recorded, and which idempotency key it has.

Owns the steps of the run that failed, because the next attempt at such a step has to be the same step.
"""

from __future__ import annotations

from typing import NamedTuple

from antiphon.runtime.execution.fingerprints import StepPrint
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.replay import Replay

__all__ = ["Attempt", "StepAttempts"]


class Attempt(NamedTuple):
    """One attempt at a step."""

    key: str
    """The key of the step in the journal."""
    identity: str
    """Names the step in its idempotency key."""
    had_failed: bool
    """Whether an earlier run tried the step without success."""

    def under(self, key: str) -> Attempt:
        """Return the attempt under another key."""
        return self._replace(key=key, identity=key if self.identity == self.key else self.identity)


class StepAttempts:
    """The attempts of one run."""

    __slots__ = ("_failed", "_journal", "_replay", "_retryable")

    def __init__(self, journal: Journal, replay: Replay | None) -> None:
        self._journal = journal
        self._replay = replay
        self._failed: dict[tuple[str, str], list[Attempt]] = {}
        self._retryable: set[str] = set()

    def next(self, name: str, fingerprint: StepPrint, *, is_sequential: bool) -> Attempt:
        """Return the next attempt at a step.

        A step that failed keeps its idempotency key when it is tried again with the same arguments. It keeps
        its key in the journal too, unless something happened in between that may depend on the failure.
        """
        failed = self._failed.get((name, fingerprint.digest))
        before = failed.pop(0) if failed else None
        if before is not None and before.key in self._retryable and not self._is_counted(name):
            return before
        key = self._journal.key("step", name)
        if before is not None:
            identity = before.identity
        elif is_sequential or fingerprint.is_keyed:
            identity = key
        else:  # the counts of steps that run beside each other may change places in the next run
            identity = self._journal.key("step", f"{name}({fingerprint.digest})")
        return Attempt(key, identity, self._replay is not None and self._replay.has_failed(key))

    def _is_counted(self, name: str) -> bool:
        """Return whether a version without fingerprints recorded the next attempt, under a key of its own."""
        return self._replay is not None and self._replay.has_no_print(self._journal.next_key("step", name))

    def note_failure(self, name: str, fingerprint: StepPrint, attempt: Attempt) -> None:
        """Note that an attempt has failed."""
        self._failed.setdefault((name, fingerprint.digest), []).append(attempt)
        self._retryable.add(attempt.key)

    def note_progress(self) -> None:
        """Note that the run has got an answer or the result of a step."""
        self._retryable.clear()
