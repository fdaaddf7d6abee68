"""Decides whether a task whose last attempt failed is tried again, when, and how it ends if it is not.

Owns the limits and the delays. The log has the counts: an attempt failed if its worker was lost while it ran,
or if the worker could not begin. The worker runs the task or ends it, as this module decides.
"""

from __future__ import annotations

import logging
import random
from typing import Any

from antiphon.errors import InternalError, ReplayMismatch, StoreError, StoreUnavailable
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.clocks import lease_clock

__all__ = [
    "SuspectSlot",
    "beginning",
    "check_arguments",
    "check_attempts",
    "fail_attempt",
    "release_mismatched",
]

logger = logging.getLogger("antiphon")

_FIRST_RETRY_SECONDS = 1.0
"""How long a task waits after its second lost worker. After the first one, it runs again at once."""
_LONGEST_RETRY_SECONDS = 60.0
"""How long a task waits at most after a lost worker."""
_FIRST_REFUSAL_SECONDS = 10.0
"""How long a task waits after a worker could not begin it. A rollout takes longer than a crash."""
_LONGEST_REFUSAL_SECONDS = 300.0
"""How long a task waits at most after a worker could not begin it."""

_FIRST_MISMATCH_SECONDS = 2.0
"""How long a task waits after a worker found that its journal does not fit the tool of this version.

A worker of the right version may be idle beside it, so the first delays are short.
"""
_LONGEST_MISMATCH_SECONDS = 60.0
"""How long a task waits at most for a worker of the right version."""
_MISMATCH_MESSAGE = "The task waits for a server of the version that began it."
_SUSPECT_LOST_RUNS = 3
"""After how many lost workers a task is suspected to be the reason.

Or after fewer, if it has fewer attempts. Not after two: a rollout that goes wrong, or a machine that is
killed twice, would make suspects of every long task, and a fleet would run them one at a time.
"""
_FIRST_SUSPECT_SECONDS = 0.25
"""How long a suspect waits if another one runs in the process that has claimed it."""
_LONGEST_SUSPECT_SECONDS = 5.0
"""How long it waits at most."""
_SUSPECT_CLAIMS_PER_SECOND = 50
"""How many suspects a process may claim in vain in a second."""
_SUSPECT_SECONDS = 30.0
"""How long a suspect has to run before it is trusted again."""


class SuspectSlot:
    """Keeps suspects apart in one process: tasks during which the worker was lost again and again.

    A task that kills its process also takes down the tasks that run beside it. All of them are suspects in
    the end. Because only one suspect runs at a time in a process, the healthy ones end, and only the deadly
    one is given up.
    """

    def __init__(self) -> None:
        self._held_by: ClaimedTask | None = None
        self._since = 0.0
        self._refused = 0

    @staticmethod
    def is_suspect(claimed: ClaimedTask, tool: Tool) -> bool:
        """Return whether so many workers were lost during a task that it may be the reason."""
        most = max(min(_SUSPECT_LOST_RUNS, tool.max_attempts - 1), 1)
        return claimed.failed_attempts - claimed.refusals >= most

    def take(self, claimed: ClaimedTask) -> bool:
        """Return whether a suspect may run now. Give one that may not back to the store."""
        if self._held_by is not None and lease_clock() - self._since < _SUSPECT_SECONDS:
            return False
        self._held_by, self._since, self._refused = claimed, lease_clock(), 0
        return True

    def leave(self, claimed: ClaimedTask) -> None:
        """Note that a task runs no more."""
        if self._held_by is claimed:
            self._held_by = None

    def refusal_delay(self) -> float:
        """Return how long a suspect waits that may not run here: another process may have room for it.

        Longer the more suspects there are, so that they do not keep the store busy.
        """
        self._refused += 1
        delay = min(
            _FIRST_SUSPECT_SECONDS + self._refused / _SUSPECT_CLAIMS_PER_SECOND, _LONGEST_SUSPECT_SECONDS
        )
        return delay * random.uniform(0.5, 1.5)  # nosec B311 # jitter: each worker has its turn


async def check_attempts(claimed: ClaimedTask, history: TaskHistory, tool: Tool) -> bool | InternalError:
    """Count the runs that were lost before this claim; return whether to run the task now.

    Releases the task with a delay if it is to run later. Returns the error to end the task with if no attempt
    is left. Raises `StoreError`.
    """
    lost = history.lost_runs(claimed.token)
    failed = lost + history.refusals
    claimed.failed_attempts, claimed.refusals = failed, history.refusals
    if lost and not _resumes(claimed, tool):
        option = "resume" if tool.function.replays else "replay"
        return InternalError(
            f"The task is not run again: its worker was lost, and its tool has {option}=False."
        )
    if failed >= tool.max_attempts:
        return _given_up(failed, "each time, its worker was lost while it ran the task.")
    if failed <= history.noted_attempts:
        return True
    delay = _delay(failed - 1, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
    logger.warning(
        "The worker of task %s was lost while it ran. Attempt %d of %d follows in %g s.",
        claimed.task.id,
        failed + 1,
        tool.max_attempts,
        delay,
    )
    if not delay:
        return True
    await claimed.release(delay=delay, attempt=failed, message=_next_attempt(failed, tool))
    return False


def beginning(claimed: ClaimedTask, history: TaskHistory, tool: Tool) -> dict[str, Any] | None:
    """Return what the log has to say before the function begins; `None` if nothing.

    After a failed attempt, a run counts as lost only if the log says that its function began. A claim that
    ends before, because the store was away or the process stalled, is no attempt. The first run of a task
    writes nothing, so that a task which does not fail costs nothing.
    """
    failed = claimed.failed_attempts
    # The log of an early version does not name the claims. From here on it does.
    if not failed and (claimed.token == 1 or history.names_claims):
        return None
    data: dict[str, Any] = {"attempt": failed, "refused": claimed.refusals}
    if failed > history.noted_attempts:
        data["message"] = _next_attempt(failed, tool)
    return data


def check_arguments(claimed: ClaimedTask, tool: Tool) -> None:
    """Raise `ReplayMismatch` if the arguments of a task do not fit the tool of this version.

    Another version of the server may have created the task. Arguments that did not fit there either make the
    task fail as they make a call fail.
    """
    problems = tool.problems_of(claimed.created["arguments"])
    if problems is None or not claimed.created.get("fits", True):
        return
    listed = "; ".join(line.removeprefix("- ") for line in problems.splitlines())
    raise ReplayMismatch(
        f"Its arguments do not fit the tool {tool.name!r} of this version ({listed}). Give a new parameter a "
        "default.",
        found="arguments",
        recorded="arguments",
    )


async def fail_attempt(claimed: ClaimedTask, tool: Tool, error: StoreError) -> InternalError | None:
    """Release a task whose function met a store that failed, with a delay. An outage is no failed attempt.

    Returns the error to end the task with if no attempt is left. Raises `StoreError`.
    """
    reason, failed = str(error), claimed.failed_attempts
    if not _resumes(claimed, tool):
        return _given_up(failed + 1, reason)
    if isinstance(error, StoreUnavailable):
        delay = _delay(claimed.quiet_releases + 1, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        delay *= random.uniform(0.5, 1.5)  # nosec B311 # jitter: an outage hits many tasks at once
        logger.warning("Task %s is run again in %.3g s: %s", claimed.task.id, delay, reason)
        # Said once: an outage may be long, and the log of the task must not grow with it.
        await claimed.release(delay=delay, **({} if claimed.task.message == reason else {"message": reason}))
        return None
    failed += 1
    if failed >= tool.max_attempts:
        return _given_up(failed, reason)
    delay = _delay(failed, _FIRST_REFUSAL_SECONDS, _LONGEST_REFUSAL_SECONDS)
    logger.warning(
        "Cannot run task %s: %s Released for another worker. Attempt %d of %d follows in %g s.",
        claimed.task.id,
        reason,
        failed + 1,
        tool.max_attempts,
        delay,
    )
    await claimed.release(delay=delay, attempt=failed, refused=claimed.refusals, message=reason)
    return None


async def release_mismatched(claimed: ClaimedTask, mismatch: ReplayMismatch) -> None:
    """Release a task that another version of its tool began, for a worker that has that version.

    This is no failed attempt: the worker of the right version may come much later. Raises `StoreError`.
    """
    delay = _delay(claimed.mismatches + 1, _FIRST_MISMATCH_SECONDS, _LONGEST_MISMATCH_SECONDS)
    delay *= random.uniform(0.5, 1.5)  # nosec B311 # jitter: another worker may come first
    logger.error(
        "Cannot continue task %s: %s Released for a worker that has the version which began the task. "
        "The next attempt follows in %.3g s.",
        claimed.task.id,
        mismatch,
        delay,
    )
    message = {} if claimed.task.has_ended else {"message": _MISMATCH_MESSAGE}
    await claimed.release(delay=delay, mismatches=claimed.mismatches + 1, **message)


def _resumes(claimed: ClaimedTask, tool: Tool) -> bool:
    """Return whether the function may run again after a run that did not finish."""
    return tool.resume and claimed.resumes


def _delay(count: int, first: float, longest: float) -> float:
    """Return the delay after the `count`th time: none for 0, then the first one, doubling each time."""
    return 0.0 if count < 1 else min(first * 2.0 ** min(count - 1, 32), longest)


def _next_attempt(failed: int, tool: Tool) -> str:
    return f"The worker was lost while it ran the task. Attempt {failed + 1} of {tool.max_attempts} follows."


def _given_up(failed: int, reason: str) -> InternalError:
    times = f"{failed} attempt{'' if failed == 1 else 's'}"
    return InternalError(f"The task was given up after {times}: {reason}")
