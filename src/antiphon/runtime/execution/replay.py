"""Finds the steps and answers of a run in the journal of the runs before it.

Owns which entries the run has used, and decides whether the code has changed under a call. It must not know
what happens to such a call: the run stops, and its carrier or worker decides.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from antiphon.errors import ReplayMismatch
from antiphon.model.question import Question
from antiphon.model.request import RequestId
from antiphon.model.task import answer_entry, others_entry
from antiphon.runtime.execution.fingerprints import (
    StepPrint,
    fingerprint_key,
    is_same_question,
    question_print,
)

__all__ = ["Replay"]

logger = logging.getLogger("antiphon")

_STEP_KIND = "step:"
_USED_KINDS = (_STEP_KIND, answer_entry(""))
_MAX_CHECKED_ENTRIES = 100_000
"""Up to how many entries a journal is searched for unused ones at the end of a run.

Not a setting: a longer search would hold the event loop, for a warning.
"""


class Replay:
    """The entries that earlier runs recorded, and which of them this run has used."""

    __slots__ = ("_entries", "_has_new_steps", "_index", "_used", "diverged")

    def __init__(self, entries: dict[str, Any], *, diverged: bool = False) -> None:
        self._entries = entries
        self._used: set[str] = set()
        self._has_new_steps = False
        self._index: dict[tuple[str, str], list[str]] | None = None
        self.diverged = diverged
        """Whether the run takes another path for a good reason.

        A step that failed before has succeeded, or the function returned an `InputRequired` and looks at the
        answers to decide where it continues.
        """

    def use(self, key: str) -> None:
        """Note that this run has used or made an entry."""
        self._used.add(key)

    def find_step(self, key: str, step: StepPrint, *, is_sequential: bool) -> str | None:
        """Return the key under which the journal has a step, or `None` if the step has to run.

        `key` is the key that the step has by its count. The arguments decide where counts do not: beside
        other steps, and after a step that failed in an earlier run. Raises `ReplayMismatch` if the journal
        has another step in this place, or if a recorded step is due before this one.
        """
        recorded = self._recorded(key)
        if self.has_no_print(key):
            return key
        if recorded is not None and key not in self._used and step.matches(recorded):
            self.diverged |= recorded.is_retried
            return key
        if is_sequential and not self.diverged and recorded is None:
            self._check_order(key, step)
            return None
        found = self._find_by_arguments(key, step)
        if found is not None or recorded is None or key in self._used:
            return found
        if step.is_keyed:
            is_ambiguous = f"{key}#2" in self._entries
        else:
            is_ambiguous = not is_sequential or recorded.is_concurrent or self.diverged
        if not is_ambiguous:
            raise ReplayMismatch(_other_step(key, step, recorded), found=key, recorded=key)
        return None

    def check_question(self, key: str, question: Question, is_accepted: bool) -> None:
        """Raise `ReplayMismatch` if the answer under this key was given to another question.

        An answer that does not fit the question is no mismatch: the question is asked again.
        """
        recorded = self._entries.get(fingerprint_key(answer_entry(key)))
        asked = question_print(question)
        if recorded is None or is_same_question(recorded, asked):
            return
        if is_accepted or recorded.partition(" ")[0] != asked.partition(" ")[0]:
            raise ReplayMismatch(
                f"The journal has an answer to the question {key!r}, which was of the kind and fields "
                f"{recorded!r}. This version asks {asked!r} under the same key. Give the new question "
                "another key.",
                found=answer_entry(key),
                recorded=answer_entry(key),
            )

    def check_audience(self, key: str, audience: Sequence[str]) -> None:
        """Raise `ReplayMismatch` if the answers under this key came from others than this version asks."""
        recorded = self._entries.get(fingerprint_key(others_entry(key)))
        if recorded is not None and not set(recorded).issubset(audience):
            raise ReplayMismatch(
                f"The journal has an answer to the question {key!r} from {', '.join(recorded)}. This version "
                f"asks {', '.join(audience) or 'the caller'} under the same key. Give the new question "
                "another key.",
                found=others_entry(key),
                recorded=others_entry(key),
            )

    def has_failed(self, key: str) -> bool:
        """Return whether an earlier run tried a step without success."""
        return key not in self._entries and fingerprint_key(key) in self._entries

    def has_no_print(self, key: str) -> bool:
        """Return whether a version without fingerprints recorded an entry."""
        return key in self._entries and fingerprint_key(key) not in self._entries

    def warn_unused(self, request_id: RequestId) -> None:
        """Log the entries of earlier runs that a finished run did not use."""
        if unused := self.unused():
            logger.warning(
                "Request %r finished without using these entries of its journal: %s. Its function has "
                "changed since they were recorded, or does not take the same path in every run.",
                request_id,
                ", ".join(unused),
            )

    def unused(self) -> list[str]:
        """Return the steps that this run has not used, and the answers to questions that it has not asked."""
        if len(self._entries) > _MAX_CHECKED_ENTRIES:
            return []
        # Steps should be used, and answers that a run has asked for.
        return [
            key
            for key in self._entries
            if key not in self._used
            and key.startswith(_USED_KINDS)
            and (key.startswith(_STEP_KIND) or fingerprint_key(key) in self._entries)
        ]

    def _recorded(self, key: str) -> StepPrint | None:
        """Return the fingerprint of a recorded step; `None` if the step is not recorded, or has none."""
        if key not in self._entries:
            return None
        written = self._entries.get(fingerprint_key(key))
        return None if written is None else StepPrint.read(written, key)

    def _check_order(self, key: str, step: StepPrint) -> None:
        """Raise `ReplayMismatch` if a recorded step is due before a new one.

        Only steps count that ran one after the other and have no key of their own: the place of every other
        step in the journal means nothing. A step that failed before is not new.
        """
        if self._has_new_steps or step.is_keyed or self.has_failed(key):
            return
        expected: str | None = None
        for other in reversed(self._entries):
            if not other.startswith(_STEP_KIND):
                continue
            if other in self._used:
                break
            recorded = self._recorded(other)
            if recorded is not None and not recorded.is_keyed and not recorded.is_concurrent:
                expected = other
        if expected is not None:
            raise ReplayMismatch(_new_step(key, expected), found=key, recorded=expected)
        self._has_new_steps = True

    def _find_by_arguments(self, key: str, step: StepPrint) -> str | None:
        """Return the key of an unused entry for this name and these arguments, wherever it was recorded."""
        if self._index is None:
            self._index = self._indexed()
        same = self._index.get((_name(key), step.digest), ())
        for other in same:
            recorded = self._recorded(other)
            if recorded is not None and other not in self._used and step.matches(recorded):
                # Of several steps with these arguments, another one may have failed in the run before.
                self.diverged |= recorded.is_retried or any(map(self.has_failed, same))
                return other
        return None

    def _indexed(self) -> dict[tuple[str, str], list[str]]:
        """Return the keys of recorded and of failed steps by their names and arguments."""
        index: dict[tuple[str, str], list[str]] = {}
        prefix = fingerprint_key(_STEP_KIND)
        for entry, written in self._entries.items():
            if entry.startswith(prefix):
                key = entry.removeprefix(fingerprint_key(""))
                index.setdefault((_name(key), StepPrint.read(written, key).digest), []).append(key)
        return index


def _name(key: str) -> str:
    """Return the key of a step without its count."""
    return key.rpartition("#")[0] or key


def _new_step(key: str, expected: str) -> str:
    name = expected.removeprefix(_STEP_KIND)
    return (
        f"This version is about to run the step {key.removeprefix(_STEP_KIND)!r}, where the journal has the "
        f"step {name!r}. If it is the same step under another name, write ctx.step(…, key={name!r}). "
        "If it is a new one, give it a key of its own: ctx.step(…, key=…)."
    )


def _other_step(key: str, step: StepPrint, recorded: StepPrint) -> str:
    name = key.removeprefix(_STEP_KIND)
    if step.digest == recorded.digest:
        difference = f"a result of {recorded.function!r}. This version runs {step.function!r} there."
    else:
        difference = (
            f"a result of {recorded.function!r} with other arguments (fingerprint {recorded.digest}) than "
            f"this version passes to {step.function!r} ({step.digest})."
        )
    return (
        f"For the step {name!r}, the journal has {difference} Steps are counted by name: give a step that "
        "was inserted or moved a key of its own, ctx.step(…, key=…)."
    )
