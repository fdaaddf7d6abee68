"""Finds what earlier runs of a function have recorded: the answers to its questions, its steps and events.

Stops the run if the journal does not fit the function. Which entries fit is decided in `replay.py`, and which
values fit by the types of this version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pydantic

from antiphon.errors import ReplayMismatch
from antiphon.model.question import Question
from antiphon.model.task import answer_entry
from antiphon.runtime.carriers.base import GATHER_TURNS, Check
from antiphon.runtime.execution.asking import checked_answer
from antiphon.runtime.execution.fingerprints import StepPrint, unfit_key, used_key
from antiphon.runtime.execution.journal import MISSING
from antiphon.runtime.execution.replay import Replay

if TYPE_CHECKING:
    from antiphon.runtime.execution.run import Run

__all__ = ["check_recorded", "find_answer", "find_step", "read_new", "read_recorded", "refuse_used"]


def find_answer(
    run: Run, question: Question, key: str, check: Check | None
) -> tuple[Any, str | None, tuple[str, ...]]:
    """Return the recorded answer, why the last one does not fit, and the keys under which to ask again.

    An answer with which an earlier run has gone on must fit: what followed depends on it. For any other one,
    the question is asked again. Earlier versions asked again under a new key, and their logs and request
    states contain it.
    """
    renamed, attempts = key, 1
    problem: str | None = None
    while (recorded := run.journal.find(answer_entry(renamed))) is not MISSING:
        answer, problem = check_recorded(run, question, answer_entry(key), recorded, check)
        run.note_progress()
        run.check_replayed_answer(renamed, question, is_accepted=problem is None)
        if problem is None:
            return answer, None, (key,)
        attempts += 1
        renamed = f"{key}~{attempts}"
    refuse_used(run, answer_entry(key))
    return None, problem, (key, renamed)


def check_recorded(
    run: Run, question: Question, entry: str, response: Any, check: Check | None
) -> tuple[Any, str | None]:
    """Return the answer in a recorded response, and why it does not fit; `None` if it fits."""
    try:
        return checked_answer(question, entry.partition(":")[2], response, check)
    except Exception:  # a validator of the author's can raise anything
        refuse_used(run, entry)
        raise


def refuse_used(run: Run, entry: str) -> None:
    """Stop the run if an earlier one has gone on with an answer that does not fit the question any more."""
    if used_key(entry) in run.journal.entries:
        run.stop_for(
            ReplayMismatch(
                f"The journal has an answer to the question {entry.partition(':')[2]!r} that this version "
                "does not accept, and an earlier run has gone on with it. Let the form accept it, or give "
                "the question another key.",
                found=entry,
                recorded=entry,
            )
        )


def read_recorded(run: Run, entry: str, data: Any, load: Callable[[Any], Any], what: str) -> Any:
    """Return what an earlier run has recorded as the type of this version.

    Raises the error of `load` if the run that recorded it had the same error. Stops the run if only one of
    the two could read it: the function would take another path.
    """
    was_unfit = unfit_key(entry) in run.journal.entries
    try:
        value = load(data)
    except Exception as error:
        if was_unfit:
            raise
        problem = _problem(error.__cause__ or error)
        message = (
            f"The journal has {what} that this version cannot read: {problem}. Let its type accept what "
            "the other version recorded, for example with a default for a new field."
        )
        run.stop_for(ReplayMismatch(message, found=entry, recorded=entry))
    if was_unfit:
        message = (
            f"The journal has {what} that the version which recorded it could not read, and this version "
            "can: the function went on with an error. Keep the old type until the calls under way have ended."
        )
        run.stop_for(ReplayMismatch(message, found=entry, recorded=entry))
    return value


def read_new(run: Run, entry: str, data: Any, load: Callable[[Any], Any]) -> tuple[Any, Exception | None]:
    """Return what this run is about to record as its type, or the error, which later runs have too."""
    try:
        return load(data), None
    except Exception as error:
        run.journal.note(unfit_key(entry), True)
        return None, error


def _problem(error: BaseException) -> str:
    """Return what is wrong with a recorded value, without the value, which no log of the server may have."""
    if isinstance(error, pydantic.ValidationError):
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'value'}: {each['msg']}" for each in problems)
    return type(error).__name__


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
