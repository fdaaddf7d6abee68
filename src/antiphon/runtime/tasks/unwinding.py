"""Unwinds the functions of cancelled tasks, so that their `finally` blocks run.

The function of a task that waits for an answer or for a worker does not run anywhere. If such a task is
cancelled or expires, a worker runs the function once more with its journal. Nothing new begins in this run:
at the first step, question or segment that is not in the log, the function is cancelled. If a worker runs the
function of a task that is cancelled, it unwinds the function in the same run. Owns the bounds of the
cleaning up.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from antiphon.errors import LeaseLost, ReplayMismatch, StoreError
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.execution.failures import UNSAFE_IN_TASKS, as_exception
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.tasks.attempts import release_mismatched
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.task_call import call_of

__all__ = ["cancel_run", "end_unwound", "unwind"]

logger = logging.getLogger("antiphon")

_MAX_LOST_RUNS = 3
"""How many workers may be lost while they run or unwind a task that was cancelled, before it is given up."""
_OTHER_VERSION_DELAY_SECONDS = 60.0
"""How long a task waits for a worker of another version, if its arguments do not fit the tool of this one."""
_LAST_WAIT_SECONDS = 5.0
"""How long a function that was cancelled for the second time may take."""


class _NothingBegins(StoreError):
    """The function has come to where its task stopped. An error that it raises as it unwinds is its own."""


def cancel_run(task: asyncio.Task[Any], id: str, timeout: float) -> None:
    """Cancel a run once, so that its cleaning up is not interrupted; once more after `timeout` seconds."""
    if task.done() or task.cancelling():
        return
    task.cancel()
    timer = asyncio.get_running_loop().call_later(timeout, _cancel_again, task, id, timeout)
    task.add_done_callback(lambda _: timer.cancel())


def _cancel_again(task: asyncio.Task[Any], id: str, timeout: float) -> None:
    logger.warning(
        "The function of task %s was cancelled and still cleans up after %g s. It is cancelled once more.",
        id,
        timeout,
    )
    task.cancel()


async def unwind(
    claimed: ClaimedTask, history: TaskHistory, tool: Tool, environment: Environment, *, timeout: float
) -> None:
    """Run the function of a cancelled task to its `finally` blocks, and write that this is done."""
    try:
        await _unwind(claimed, history, tool, environment, timeout=timeout)
    except StoreError as error:
        logger.warning(
            "Cannot end the cancelled task %s, whose function has unwound: %s", claimed.task.id, error
        )


async def _unwind(
    claimed: ClaimedTask, history: TaskHistory, tool: Tool, environment: Environment, *, timeout: float
) -> None:
    id, lost = claimed.task.id, history.silent_claims(claimed.token)
    if lost >= _MAX_LOST_RUNS:
        logger.error(
            "Cannot unwind the function of cancelled task %s: %d workers were lost while they ran it.",
            id,
            lost,
        )
        await claimed.write_unwound(is_complete=False)
    elif history.lost_runs(claimed.token) and not (tool.resume and claimed.resumes):
        logger.warning(
            "The function of cancelled task %s is not unwound: its worker was lost, and its tool has "
            "resume=False.",
            id,
        )
        await claimed.write_unwound(is_complete=False)
    elif (problems := tool.problems_of(claimed.created["arguments"])) is not None:
        logger.warning(
            "Cannot unwind the function of cancelled task %s: its arguments do not fit the tool %r of this "
            "version: %s Released for another worker.",
            id,
            tool.name,
            problems,
        )
        await claimed.release(delay=_OTHER_VERSION_DELAY_SECONDS)
    else:
        try:
            is_complete = await _run(claimed, tool, environment, timeout)
        except ReplayMismatch as mismatch:
            await release_mismatched(claimed, mismatch)
        else:
            await claimed.write_unwound(is_complete=is_complete)


async def _unwind_asking(
    claimed: ClaimedTask, tool: Tool, environment: Environment, *, timeout: float
) -> None:
    """Unwind a function that stopped at a question, and whose task was cancelled before that was written.

    The function took the stop for a pause, so it has to run once more.
    """
    work = asyncio.create_task(_unwind_here(claimed, tool, environment, timeout))
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        # The worker may learn of the cancellation only now. It must not interrupt the cleaning up.
        await asyncio.wait({work}, timeout=timeout)
    finally:
        work.cancel()


async def end_unwound(
    claimed: ClaimedTask, asking: Tool | None, environment: Environment, *, timeout: float
) -> None:
    """Write that the function of a task that was cancelled while it ran here has unwound.

    Unwinds it first if it stopped at a question: then `asking` is its tool.
    """
    if asking is not None:
        await _unwind_asking(claimed, asking, environment, timeout=timeout)
    try:
        await claimed.write_unwound(is_complete=True)
    except StoreError as error:
        logger.info("Task %s was cancelled, and this worker need not end it: %s", claimed.task.id, error)


async def _unwind_here(claimed: ClaimedTask, tool: Tool, environment: Environment, timeout: float) -> None:
    # A new run counts its steps from the start.
    claimed.journal = Journal(dict(claimed.journal.entries), id=claimed.task.id)
    try:
        await _run(claimed, tool, environment, timeout)
    except ReplayMismatch as mismatch:
        logger.error("Cannot unwind the function of task %s: %s", claimed.task.id, mismatch)


async def _run(claimed: ClaimedTask, tool: Tool, environment: Environment, timeout: float) -> bool:
    """Run the function until it has unwound; return whether it did so in time and without an error.

    Raises `ReplayMismatch` if another version of the function has to unwind.
    """
    id, in_time = claimed.task.id, True
    work = asyncio.create_task(_perform(claimed, tool, environment))
    try:
        await asyncio.wait({work}, timeout=timeout)
        if not work.done():
            in_time = False
            _cancel_again(work, id, timeout)
            await asyncio.wait({work}, timeout=_LAST_WAIT_SECONDS)
    finally:
        work.cancel()
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
    if not work.done():
        logger.error("The function of task %s does not stop. It goes on in this process.", id)
        return False
    if work.cancelled() or (error := work.exception()) is None:
        logger.info("The function of task %s has unwound: the task was cancelled.", id)
        return in_time
    if isinstance(error, ReplayMismatch):
        raise error
    logger.error("The function of cancelled task %s failed while it unwound.", id, exc_info=error)
    return False


async def _perform(claimed: ClaimedTask, tool: Tool, environment: Environment) -> None:
    async def refuse() -> None:
        raise _NothingBegins(f"The task {claimed.task.id} was cancelled: nothing further begins in it.")

    call = call_of(claimed, confirm=refuse, responses={})
    function = tool.function
    if function.takes_context:  # any other function has stopped nowhere
        try:
            await function.run(call, function.bind(call.request.arguments), environment)
        except (LeaseLost, _NothingBegins):  # it came to where it had stopped, and has unwound
            return
        except UNSAFE_IN_TASKS as error:
            raise as_exception(error) from error
