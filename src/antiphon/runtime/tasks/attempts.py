"""Decides whether a task whose last attempt failed is tried again, when, and how it ends if it is not.

Owns the limits and the delays. The log has the counts: an attempt failed if its worker was lost while it ran,
or if the worker could not begin. The worker runs the task or ends it, as this module decides.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Collection, Sequence
from typing import Any

from antiphon.errors import InternalError, ReplayMismatch, StoreError, StoreUnavailable
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.tasks.claimed_task import ClaimedTask

__all__ = [
    "SuspectGroup",
    "beginning",
    "check_arguments",
    "check_attempts",
    "fail_attempt",
    "note_group",
    "release_mismatched",
]

logger = logging.getLogger("antiphon")

_FIRST_RETRY_SECONDS = 1.0
"""How long a task waits after its second lost worker. After the first one, it runs again at once."""
_LONGEST_RETRY_SECONDS = 60.0
"""How long a task waits at most after a lost worker."""
FIRST_REFUSAL_SECONDS = 10.0
"""How long a task waits after a worker could not begin it. A rollout takes longer than a crash."""
_LONGEST_REFUSAL_SECONDS = 300.0
"""How long a task waits at most after a worker could not begin it."""

_FIRST_MISMATCH_SECONDS = 2.0
"""How long a task waits after a worker found that its journal does not fit the tool of this version.

A worker of the right version may be idle beside it, so the first delays are short.
"""
_LONGEST_MISMATCH_SECONDS = 60.0
"""How long a task waits at most for a worker of the right version."""
_LOST_EACH_TIME = "each time, its worker was lost while it ran the task."
_MISMATCH_MESSAGE = "The task waits for a server of the version that began it."
_SUSPECT_LOST_RUNS = 3
"""After how many lost workers a task is suspected to be the reason.

Or after fewer, if it has fewer attempts. Not after two: a rollout that goes wrong, or a machine that is
killed twice, would make suspects of every long task.
"""
_FIRST_SUSPECT_SECONDS = 0.25
"""How long a suspect waits if the process that has claimed it has no room for it."""
_LONGEST_SUSPECT_SECONDS = 5.0
"""How long it waits at most."""
_SUSPECT_CLAIMS_PER_SECOND = 50
"""How many suspects a process may claim in vain in a second."""
_NOTE_SECONDS = 1.0
"""How long a task that was lost waits until the logs of those beside it say that it begins."""
_REPORT_LEASES = 2.0
"""How many leases a task waits before it is given up: a worker that lives may report that it lost the task in
an outage."""


class SuspectGroup:
    """Keeps suspects apart in one process: tasks during which the worker was lost again and again.

    A task that kills its process also takes down the tasks that run beside it. All of them are suspects in
    the end, and may run in smaller and smaller groups: half as many after each lost worker. So the deadly one
    is soon alone, and only then it is given up. Owns who of the tasks that have lost a worker runs here. The
    log of each of them says how many there were beside it at most.
    """

    def __init__(self) -> None:
        self._members: dict[ClaimedTask, bool] = {}  # with whether it is a suspect
        self._refused = 0

    def admit(self, found: Sequence[tuple[ClaimedTask, Tool]]) -> Collection[ClaimedTask]:
        """Return which of these tasks may run now, and add them to the group; each has lost a worker.

        Only suspects wait, and only for suspects. Of these, those that may have most beside them come first,
        so that as many as possible run.
        """
        self._members = {member: suspect for member, suspect in self._members.items() if _lost(member)}
        admitted: list[ClaimedTask] = []
        suspects = {claimed: _is_suspect(claimed, tool) for claimed, tool in found}
        for claimed in sorted(suspects, key=lambda claimed: (suspects[claimed], -_most(claimed))):
            running = [_most(member) for member, suspect in self._members.items() if suspect]
            if not suspects[claimed] or len(running) < min(_most(claimed), *running, math.inf):
                self._members[claimed] = suspects[claimed]
                admitted.append(claimed)
                self._refused = 0
        for claimed in admitted:
            claimed.group = len(self._members)
        return admitted

    def outgrown(self) -> Sequence[ClaimedTask]:
        """Return the tasks whose logs say too little about who runs beside them, and count anew.

        With room for as many again, so that the logs do not grow with each task that begins.
        """
        found = [member for member in self._members if member.group < len(self._members)]
        for member in found:
            member.group = max(2 * member.group, len(self._members))
        return found

    def leave(self, claimed: ClaimedTask) -> None:
        """Note that a task runs no more."""
        self._members.pop(claimed, None)

    def refusal_delay(self) -> float:
        """Return how long a suspect waits that may not run here: another process may have room for it.

        Longer the more suspects there are, so that they do not keep the store busy.
        """
        self._refused += 1
        delay = min(
            _FIRST_SUSPECT_SECONDS + self._refused / _SUSPECT_CLAIMS_PER_SECOND, _LONGEST_SUSPECT_SECONDS
        )
        return delay * random.uniform(0.5, 1.5)  # nosec B311 # jitter: each worker has its turn


async def note_group(members: Sequence[ClaimedTask]) -> None:
    """Write into the logs of running tasks how many others that have lost a worker run beside them now."""
    if members:
        writing = [asyncio.create_task(_note_group(member)) for member in members]
        await asyncio.wait(writing, timeout=_NOTE_SECONDS)


async def _note_group(member: ClaimedTask) -> None:
    try:
        data = {"attempt": member.failed_attempts, "refused": member.refusals, "group": member.group}
        await member.write("recorded", data)
    except StoreError as error:  # the run learns of it too
        logger.debug("Cannot note who runs beside task %s: %s", member.task.id, error)


def _lost(claimed: ClaimedTask) -> int:
    """Return how many workers were lost during a task since it last made progress."""
    return claimed.failed_attempts - claimed.refusals


def _most(claimed: ClaimedTask) -> float:
    """Return how many suspects may run in the process of a task, with it."""
    return claimed.most or math.inf


def _is_suspect(claimed: ClaimedTask, tool: Tool) -> bool:
    """Return whether so many workers were lost during a task that it may be the reason."""
    return _lost(claimed) >= max(min(_SUSPECT_LOST_RUNS, tool.max_attempts - 1), 1)


async def check_attempts(claimed: ClaimedTask, history: TaskHistory, tool: Tool) -> bool | InternalError:
    """Count the runs that were lost before this claim; return whether to run the task now.

    Releases the task with a delay if it is to run later. Returns the error to end the task with if no attempt
    is left, and nobody has reported for some time that the last one was lost in an outage. Raises
    `StoreError`.
    """
    lost = history.lost_runs(claimed.token)
    failed = lost + history.refusals
    claimed.failed_attempts, claimed.refusals, claimed.most = failed, history.refusals, history.most
    is_new = failed > history.noted_attempts
    if is_new and history.group:
        claimed.most = max(history.group // 2, 1)
    must_end = bool(lost) and not _resumes(claimed, tool)
    # One that died beside others may not be the reason. It runs once more, beside fewer.
    if must_end or (failed >= tool.max_attempts and history.group <= 1):
        if not is_new:
            return _not_run_again(tool) if must_end else _given_up(failed, _LOST_EACH_TIME)
        delay = _REPORT_LEASES * claimed.lease
        logger.warning(
            "The worker of task %s was lost while it ran. The task is given up in %g s, unless the worker "
            "lives and reports an outage.",
            claimed.task.id,
            delay,
        )
        message = "The worker was lost while it ran the task. No attempt is left."
        await claimed.release(delay=delay, attempt=failed, message=message)
        return False
    if not is_new:
        return True
    delay = delay_after(failed - 1, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
    logger.warning(
        "The worker of task %s was lost while it ran. %s in %g s.",
        claimed.task.id,
        _next_attempt(failed, tool),
        delay,
    )
    if not delay:
        return True
    noted = {"most": claimed.most} if claimed.most else {}
    await claimed.release(delay=delay, attempt=failed, message=_lost_message(failed, tool), **noted)
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
    if claimed.most:
        data["most"] = claimed.most
    if failed > history.noted_attempts:
        data["message"] = _lost_message(failed, tool)
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
        delay = delay_after(claimed.quiet_releases + 1, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        delay *= random.uniform(0.5, 1.5)  # nosec B311 # jitter: an outage hits many tasks at once
        logger.warning("Task %s is run again in %.3g s: %s", claimed.task.id, delay, reason)
        # Said once: an outage may be long, and the log of the task must not grow with it.
        await claimed.release(delay=delay, **({} if claimed.task.message == reason else {"message": reason}))
        return None
    failed += 1
    if failed >= tool.max_attempts:
        return _given_up(failed, reason)
    delay = delay_after(failed, FIRST_REFUSAL_SECONDS, _LONGEST_REFUSAL_SECONDS)
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
    delay = delay_after(claimed.mismatches + 1, _FIRST_MISMATCH_SECONDS, _LONGEST_MISMATCH_SECONDS)
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


def delay_after(count: int, first: float, longest: float) -> float:
    """Return the delay after the `count`th time: none for 0, then the first one, doubling each time."""
    return 0.0 if count < 1 else min(first * 2.0 ** min(count - 1, 32), longest)


def _next_attempt(failed: int, tool: Tool) -> str:
    if failed < tool.max_attempts:
        return f"Attempt {failed + 1} of {tool.max_attempts} follows"
    return "Others that may be the reason ran beside it, so another attempt follows"


def _lost_message(failed: int, tool: Tool) -> str:
    return f"The worker was lost while it ran the task. {_next_attempt(failed, tool)}."


def _not_run_again(tool: Tool) -> InternalError:
    option = "resume" if tool.function.replays else "replay"
    return InternalError(f"The task is not run again: its worker was lost, and its tool has {option}=False.")


def _given_up(failed: int, reason: str) -> InternalError:
    times = f"{failed} attempt{'' if failed == 1 else 's'}"
    return InternalError(f"The task was given up after {times}: {reason}")
