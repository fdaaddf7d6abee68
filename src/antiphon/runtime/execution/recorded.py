"""Finds what earlier runs of a function have recorded: the answers to its questions, and its steps.

Stops the run if the journal does not fit the function. Which entries fit is decided in `replay.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from antiphon.errors import ReplayMismatch
from antiphon.model.question import Question
from antiphon.model.task import answer_entry
from antiphon.runtime.carriers.base import GATHER_TURNS, Check
from antiphon.runtime.execution.asking import checked_answer
from antiphon.runtime.execution.fingerprints import StepPrint
from antiphon.runtime.execution.journal import MISSING
from antiphon.runtime.execution.replay import Replay

if TYPE_CHECKING:
    from antiphon.runtime.execution.run import Run

__all__ = ["find_answer", "find_step"]


def find_answer(
    run: Run, question: Question, key: str, check: Check | None
) -> tuple[Any, str | None, tuple[str, ...]]:
    """Return the recorded answer, why the last one does not fit, and the keys under which to ask again.

    Earlier versions asked again under a new key, and their logs and request states contain it.
    """
    renamed, attempts = key, 1
    problem: str | None = None
    while (recorded := run.journal.find(answer_entry(renamed))) is not MISSING:
        answer, problem = checked_answer(question, renamed, recorded, check)
        run.note_progress()
        run.check_replayed_answer(renamed, question, is_accepted=problem is None)
        if problem is None:
            return answer, None, (key,)
        attempts += 1
        renamed = f"{key}~{attempts}"
    return None, problem, (key, renamed)


async def find_step(
    run: Run, replay: Replay, key: str, fingerprint: StepPrint, is_sequential: bool
) -> str | None:
    """Return the key of a recorded step, or `None` if the step is new; stop the run at a mismatch."""
    try:
        return replay.find_step(key, fingerprint, is_sequential=is_sequential)
    except ReplayMismatch as mismatch:
        if mismatch.found == mismatch.recorded:
            run.stop_for(mismatch)
    # A recorded step is due before this one. Something beside may be about to use it.
    with run.activity:
        for _ in range(GATHER_TURNS):
            await asyncio.sleep(0)
    try:
        return replay.find_step(key, fingerprint, is_sequential=is_sequential)
    except ReplayMismatch as mismatch:
        if not run.activity.is_idle:
            return None
        run.stop_for(mismatch)
