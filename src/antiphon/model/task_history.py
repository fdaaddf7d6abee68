"""Reads the log of a task: its state, its journal, and how its runs ended.

Owns how entries add up. The store keeps the entries, and the engine decides what follows from the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.model.task import ANSWERED_IN, HELD, EntryKind, EntryRanges, Task, answer_entry, others_entry

__all__ = ["TaskHistory", "forget_failures"]


_GIVEN_UP, _DEADLINE, _ATTEMPTS = "unanswered:", "within:", "tried:"
"""The prefixes of waits that were given up, of their times, and of the attempts at steps in journals."""
_NOTES = ("print:", "branch:", "now:", "progress", _DEADLINE)
"""The prefixes of entries that are no progress by themselves."""

_MAX_ANSWERING_SPANS = 16
"""How many requests with answers a run links to."""


class TaskHistory:
    """Reads a task's log, entry by entry. Counts segments, but does not keep them.

    Also counts the runs that were lost: claims that ended without an entry that says so. Every entry of a
    worker names its claim (`by`, the token). A run ends in order with a question, with the end of the task,
    or with an entry that has `released`, or is released without an entry: then the next entry has the number
    of such claims. An entry with `attempt` notes a loss that was counted. Progress (a step, segments, an
    answer) starts the count again. With `group`, an entry says how many tasks that had lost a worker ran in
    the process of the run, at most; with `most`, how many suspects may from then on.

    A worker that lives on may report that it has lost a claim in an outage: that was no lost run. Versions
    without such reports read the entry (`survived`) as the release of that claim, with the count after it.
    """

    __slots__ = (
        "_claim",
        "_in_order",
        "_is_held",
        "_losses",
        "_lost",
        "_reports",
        "answered_in",
        "created",
        "group",
        "journal",
        "last",
        "last_at",
        "mismatches",
        "most",
        "noted_attempts",
        "quiet_releases",
        "refusals",
        "responses",
        "segment_entries",
        "task",
        "version",
    )

    def __init__(self) -> None:
        self.task: Task | None = None
        self.version = 0
        """The number of entries that were added."""
        self.segment_entries = EntryRanges()
        """The entries that hold segments."""
        self.created: Mapping[str, Any] = {}
        """The data of the first entry: the call that created the task."""
        self.journal: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}
        """The answers since the task last asked, or that came with the call that created it."""
        self.answered_in: tuple[str, ...] = ()
        """The spans of the requests that answered since the task last asked; only the newest few."""
        self.last: EntryKind | None = None
        self.last_at = 0
        """When the last entry was written, in milliseconds since 1970, by the clock of the store."""
        self.mismatches = 0
        """How often a worker of another version has given the task back since it last made progress."""
        self.noted_attempts = 0
        """How many attempts the log says have failed since the task last made progress."""
        self.refusals = 0
        """How many of the noted attempts failed before the function ran."""
        self.quiet_releases = 0
        """How many claims were released without an entry since the last entry of a worker."""
        self.group = 0
        """How many tasks that had lost a worker ran in the process of the last run; 0 if nobody knows."""
        self.most = 0
        """How many suspects may run in the process of the next run; 0 for any number."""
        self._lost = 0
        self._claim: int | None = 0  # the last claim that is accounted for; None if the log does not say
        self._in_order = True  # whether the last entry queued the task in order
        self._is_held = False  # whether the function waits, or has waited, in its process
        # The first and the last of the claims behind each lost run that was counted since the last progress,
        # and the entries that report that such a claim was no lost run.
        self._losses: list[tuple[int, int]] = []
        self._reports: list[int] = []

    def add(self, kind: EntryKind, at: int, data: Mapping[str, Any]) -> None:
        """Add the next entry; raises `ValueError` if the entry is invalid in this state."""
        self.last, self.last_at = kind, at
        self.version += 1
        self.journal.update(data.get("journal", {}))
        if data.get("retry"):
            forget_failures(self.journal)
        if kind == "created":
            self.created = data
            self.task = msgspec.convert(data["task"], Task)
        elif self.task is None:
            raise ValueError(f"The first entry of a task's log must be 'created', not {kind!r}.")
        else:
            self.task = self.task.after(kind, data, at)
            self._count(kind, data)
        if kind in ("emitted", "asked", "parked", "answered") or data.get("journal"):
            self.mismatches = 0
        self.mismatches = data.get("mismatches", self.mismatches)
        if kind == "emitted":
            self.segment_entries.add(self.version)
        elif kind in ("asked", "parked"):
            self.responses, self.answered_in = {}, ()
        elif kind == "answered":
            if isinstance(span := data.get(ANSWERED_IN), str):
                self.answered_in = (*self.answered_in, span)[-_MAX_ANSWERING_SPANS:]
            self.journal.update({answer_entry(key): value for key, value in data["responses"].items()})
            for key, answer in data.get("others", {}).items():
                entry = others_entry(key)
                self.journal[entry] = [*self.journal.get(entry, ()), answer]
        if kind in ("created", "answered"):
            self.responses |= data.get("responses", {})

    @property
    def names_claims(self) -> bool:
        """Whether the log says which claims were lost. Logs of early versions do not."""
        return self._claim is not None

    def lost_runs(self, token: int) -> int:
        """Return how many runs were lost since the last progress, before the claim with this token.

        Claims that wrote nothing count as one run at most. After a failed attempt, each run writes its
        beginning, so claims that wrote nothing did not run.
        """
        if self._claim is None:
            return self._lost if self._in_order else self._lost + 1
        has_run = not self._in_order or not self._lost + self.refusals
        return self._lost + (1 if has_run and self.silent_claims(token) else 0)

    def silent_claims(self, token: int) -> int:
        """Return how many claims before the one with this token wrote nothing, or did not end in order."""
        return 0 if self._claim is None else max(token - 1 - self._claim - self.quiet_releases, 0)

    def survival(self, token: int, quiet_releases: int) -> tuple[dict[str, Any], int] | None:
        """Return the entry which reports that a claim was lost in an outage, while its worker lived on.

        Also returns how many claims were released without an entry after that claim. `quiet_releases` is how
        many the worker knew of when it got the claim. Returns `None` if the claim is no lost run.
        """
        if self._claim is None or self.task is None or self.task.has_ended:
            return None
        releases = self.quiet_releases
        if token > self._claim:  # no later claim has written anything
            if self._claim == token - 1 and not self._in_order:  # the claim itself has: all came after it
                lost = self._lost
            else:
                self.quiet_releases = quiet_releases
                lost = self.lost_runs(token)
                self.quiet_releases = releases
                releases = max(releases - quiet_releases, 0)
        elif any(first <= token <= last for first, last in self._losses):
            lost = self._lost - 1
        else:
            return None
        counts = {"attempt": lost + self.refusals, "refused": self.refusals}
        return {**counts, "by": token, "released": True, "survived": True}, releases

    def _count(self, kind: EntryKind, data: Mapping[str, Any]) -> None:
        """Update the count of lost runs after an entry other than the first."""
        by = data.get("by")
        if kind == "answered" and self._is_held:
            return  # whoever lost the function that waited for the answer has lost it still
        if kind == "answered" or data.get("retry"):
            self._is_held = False
            self._forget_losses()
            self._in_order = True
            return
        if kind in ("cancelled", "woken"):
            return
        self.quiet_releases = data.get("quiet_releases", 0)
        if by is not None and data.get("survived"):
            self._count_survival(by, data)
            return
        if kind in ("emitted", "asked", "parked") or data.get("journal"):
            self._forget_losses()
        elif by is not None:
            lost = self.lost_runs(by)
            if lost > self._lost and self._claim is not None:
                self._losses.append((self._claim + 1, by - 1))
            self._lost = lost
        self._claim, self.quiet_releases = None if by is None else by - 1, 0
        self.group, self.most = data.get("group", self.group), data.get("most", self.most)
        if "attempt" in data:
            # The writer has counted what the log said when it got its claim.
            missed = sum(number > data.get("seen", self.version) for number in self._reports)
            self.refusals = data.get("refused", self.refusals)
            self._lost = max(data["attempt"] - self.refusals - missed, 0)
            self.noted_attempts = self._lost + self.refusals
        if kind == "asked":
            self._is_held = bool(data.get(HELD))
        ends_run = kind in ("asked", "parked", "ended", "faulted") and not data.get(HELD)
        self._in_order = ends_run or bool(data.get("released"))
        if self._in_order:
            self._claim = by

    def _count_survival(self, token: int, data: Mapping[str, Any]) -> None:
        """Take back the loss of a claim whose worker lives on. Its writer has seen the whole log so far."""
        if self._claim is None or token > self._claim:
            self._claim, self._in_order = token, True
        else:
            self._losses = [loss for loss in self._losses if not loss[0] <= token <= loss[1]]
        self.quiet_releases = 0
        self._reports.append(self.version)
        self.refusals = data.get("refused", self.refusals)
        self.noted_attempts = data["attempt"]
        self._lost = self.noted_attempts - self.refusals

    def _forget_losses(self) -> None:
        """Start the count again: the task has made progress."""
        self._lost = self.noted_attempts = self.refusals = self.group = self.most = 0
        self._losses, self._reports = [], []


def forget_failures(journal: dict[str, Any]) -> None:
    """Remove the waits that were given up and the steps without an attempt left that made the task fail.

    If the function itself went on after one, it has handled that one, and takes the same path again.
    """
    failed: list[str] = []
    for key in reversed(journal):
        if key.startswith((_GIVEN_UP, _ATTEMPTS)):
            failed.append(key)
        elif not key.startswith(_NOTES) and not _is_of_branch(journal, key):
            break
    for key in failed:
        del journal[key]
        if key.startswith(_GIVEN_UP):
            journal.pop(_DEADLINE + key.removeprefix(_GIVEN_UP), None)


def _is_of_branch(journal: Mapping[str, Any], key: str) -> bool:
    """Return whether something that the function started beside itself has recorded an entry."""
    return "@" in key or f"branch:{key}" in journal or "~" in str(journal.get(f"print:{key}", ""))[:3]
