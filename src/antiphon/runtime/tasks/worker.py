"""Runs tasks: claims tasks that are ready, keeps their leases, and writes their outcomes.

A process has one worker. If the process dies, the leases of its tasks expire, and another worker claims the
tasks and runs their functions again with the journals. A run whose lease was lost is stopped: it begins no
further step, question or segment, and writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from antiphon.backoff import Backoff
from antiphon.errors import (
    Busy,
    InternalError,
    LeaseLost,
    NoTask,
    NotFound,
    ReplayMismatch,
    StoreError,
    StoreUnavailable,
)
from antiphon.model.outcome import InputRequired
from antiphon.model.task import Task
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.rate_limited_log import RateLimitedLog
from antiphon.runtime.tasks.attempts import (
    SuspectGroup,
    beginning,
    check_arguments,
    check_attempts,
    fail_attempt,
    note_group,
    release_mismatched,
)
from antiphon.runtime.tasks.capacity import Capacity
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.claims import (
    claimed_task,
    give_back,
    read_history,
    release,
    report_survival,
)
from antiphon.runtime.tasks.clocks import lease_clock, now_ms
from antiphon.runtime.tasks.events import wake_due
from antiphon.runtime.tasks.expiry import delete_expired, end_overdue
from antiphon.runtime.tasks.finished_tasks import FinishedTasks
from antiphon.runtime.tasks.held_task import HeldTask, HeldTaskWork, held_bounds
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.lease_thread import LeaseThread, Outages, RunningTask, extend_leases
from antiphon.runtime.tasks.outcomes import Outcome, await_outcome, write_outcome
from antiphon.runtime.tasks.records import task_of
from antiphon.runtime.tasks.repetition import STORE_RETRY_SECONDS, repeat
from antiphon.runtime.tasks.run_again import stops_still
from antiphon.runtime.tasks.task_call import call_of, run_with_timeout
from antiphon.runtime.tasks.unwinding import cancel_run, end_unwound, unwind
from antiphon.store.contract import Claim, Record, Store

__all__ = ["Worker"]

logger = logging.getLogger("antiphon")

_EXPIRE_INTERVAL_SECONDS = 0.5
"""How often expired tasks are deleted."""
_WAKE_INTERVAL_SECONDS = 0.5
"""How often parked tasks whose time has come are queued."""
CLAIM_INTERVAL_SECONDS = 1.0
"""How often the worker tries to claim tasks although the store reported none."""
RENEWALS_PER_LEASE = 3
"""How often a lease is renewed while it lasts: two renewals may fail before it ends."""
_STOP_HELD_SECONDS = 0.25
"""How often a shutdown ends tasks that have begun to wait for an answer in this process."""
_UNWIND_SECONDS = 5.0
"""How long a shutdown waits for functions that were cancelled, before it releases their tasks."""
_REPORT_SECONDS = 600.0
"""How long a process tries to report that it has lost a task in an outage."""
REPORT_WAIT_SECONDS = 1.0
"""How long the worker waits for such reports, before it claims tasks and when it stops."""
_UNREADABLE_DELAY_SECONDS = 60.0
"""How long a task waits after a worker could not read its log: another version may be able to."""
_UNKNOWN_TOOL_DELAY_SECONDS = 10.0
"""How long a task waits after its tool vanished between the claim and the run."""
_STOPPING_DELAY_SECONDS = 0.25
"""How long a task waits while the cancelled task before it cleans up; doubles each time."""
NO_SPACE_DELAY_SECONDS = 60.0
"""How long a task waits whose owner has too many bytes in the store."""
OWN_TASK_DELAY_SECONDS = 1.0
"""How long a task waits if an earlier run of it has not ended in this process; doubles each time."""
_LONGEST_OWN_TASK_DELAY_SECONDS = 60.0
"""How long a task waits at most for an earlier run of it."""


class Worker:
    """The worker of one process, with the tasks that it runs."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        find_tool: Callable[[str], Tool],
        environment: Environment,
        *,
        tools: Callable[[], Collection[str]] = tuple,
        claims: bool = True,
        server: str | None = None,
        feed: InboxFeed | None = None,
    ) -> None:
        self.name = f"worker-{secrets.token_hex(6)}"
        self._store = store
        self._limits = limits
        self._find_tool = find_tool
        self._environment = environment
        self._tools = tools
        self._claims = claims
        self._server = server
        self._feed = feed
        self.check_growth: Callable[[Record, int], Awaitable[None]] | None = None
        """Raises `Busy` if the logs of the owner of a task are much too large for it to run."""
        self.lost_leases = 0
        """How many tasks this worker stopped because another worker claimed them or they were gone."""
        self.finished_runs: Counter[tuple[str, str]] = Counter()
        """How many runs finished in this process, by tool and by the state of the task after the run."""
        self._running: dict[str, RunningTask] = {}
        self._capacity = Capacity(limits, find_tool, self._running)
        self._log = RateLimitedLog()
        self._finished = FinishedTasks()
        self._suspects = SuspectGroup()
        self._lost: list[tuple[ClaimedTask, Tool, dict[str, Any]]] = []  # claimed, and not running yet
        self._outages = Outages(limits.lease_seconds / RENEWALS_PER_LEASE)
        self._unended = frozenset[str]()
        """The tasks whose time is over and that cannot be written, as they were logged."""
        self._reporting: set[asyncio.Task[None]] = set()
        self._vain_reports: set[asyncio.Task[None]] = set()
        """Those of them that could not write while the store did other work."""
        self._loops: list[asyncio.Task[None]] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[bool] | None = None
        self._lease_thread: LeaseThread | None = None
        self._draining = False

    @property
    def has_room(self) -> bool:
        """Whether this worker can run one more task."""
        return self._claims and not self._draining and self._capacity.room > 0

    def reserve(self, principal_id: str) -> bool:
        """Reserve room for a new task of this process; return false if the task has to wait in the queue."""
        return self._claims and not self._draining and self._capacity.reserve(principal_id)

    def unreserve(self) -> None:
        """Give back room that was reserved, because the task runs or could not be created."""
        self._capacity.unreserve()

    @property
    def running(self) -> int:
        """How many tasks this worker runs."""
        return len(self._running)

    def start(self) -> None:
        """Start to renew leases, to delete expired tasks and, if configured so, to claim tasks.

        A worker that claims no tasks still supervises the calls of this process that became tasks.
        """
        self._draining = False
        interval = self._limits.lease_seconds / RENEWALS_PER_LEASE
        keeper = self._store.lease_keeper()
        self._lease_thread = LeaseThread(
            keeper,
            lease=self._limits.lease_seconds,
            interval=interval,
            running=lambda: tuple(self._running.values()),
            on_lost=self._stop_lost,
            outages=self._outages,
        )
        if keeper is None:
            self._renewing = asyncio.create_task(repeat(self._renew, interval))
        self._loops = [
            asyncio.create_task(repeat(self._expire, _EXPIRE_INTERVAL_SECONDS)),
            asyncio.create_task(repeat(self._wake, _WAKE_INTERVAL_SECONDS)),
        ]
        if self._claims:
            self._loops.append(asyncio.create_task(repeat(self._claim_forever, STORE_RETRY_SECONDS)))

    def drain(self) -> None:
        """Claim no more tasks. A claim that is under way is given back."""
        self._draining = True

    async def stop(self, *, within: float) -> None:
        """Stop claiming, wait `within` seconds for running tasks, and release those that did not finish."""
        self.drain()
        deadline = asyncio.get_running_loop().time() + within
        for loop in self._loops:
            loop.cancel()
        if self._claiming is not None:
            await asyncio.wait({self._claiming}, timeout=within)
            self._claiming.cancel()
        while self._running and (left := deadline - asyncio.get_running_loop().time()) > 0:
            for claimed, _ in tuple(self._running.values()):
                if claimed.held is not None:  # nobody may answer within that time
                    claimed.held.stop()
            running = [task for _, task in self._running.values()]
            await asyncio.wait(running, timeout=min(left, _STOP_HELD_SECONDS))
        await self._release_running()
        await self._wait_for_reports()
        for report in self._reporting:
            report.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
            self._loops.append(self._renewing)
        if self._lease_thread is not None:
            await self._lease_thread.close()
        ended = [*self._loops, self._claiming] if self._claiming is not None else self._loops
        await asyncio.gather(*ended, return_exceptions=True)
        self._renewing = self._claiming = self._lease_thread = None

    async def _release_running(self) -> None:
        """Cancel the functions that still run, and let other workers continue their tasks at once."""
        running = list(self._running.values())
        if not running:
            return
        logger.info("The worker stops and releases %d tasks that are still running.", len(running))
        for claimed, task in running:
            is_working = not (claimed.task.has_ended or claimed.has_parked or claimed.unwinds)
            claimed.is_handed_over = claimed.resumes and is_working
            self._stop(claimed, task, LeaseLost("The worker was stopped and has released the task."))
        _, stuck = await asyncio.wait([task for _, task in running], timeout=_UNWIND_SECONDS)
        for claimed, task in running:
            if task in stuck:
                logger.warning(
                    "Releasing task %s although its function still runs: it was cancelled, and did not stop "
                    "within %g s.",
                    claimed.task.id,
                    _UNWIND_SECONDS,
                )
        await asyncio.gather(
            *(
                release(claimed, began=not claimed.task.has_ended)
                for claimed, task in running
                if (not claimed.task.has_ended and not claimed.has_parked)
                or (claimed.task.state == "cancelled" and task.cancelled())
            )
        )

    def run(self, claimed: ClaimedTask, tool: Tool, *, noted: dict[str, Any] | None = None) -> None:
        """Run a claimed task in the background, after its log says what is `noted` about its beginning."""
        self.adopt(claimed, asyncio.create_task(self._run(claimed, tool, noted)))

    def adopt(self, claimed: ClaimedTask, task: asyncio.Task[None]) -> None:
        """Supervise a claimed task whose function is already running."""
        self._running[claimed.task.id] = (claimed, task)
        self._finished.evict(claimed.task.id)
        if len(self._running) == 1 and self._lease_thread is not None:
            self._lease_thread.wake()
        task.add_done_callback(lambda _: self._forget(claimed))

    def _forget(self, claimed: ClaimedTask) -> None:
        """Forget a run that has ended. Another run of the same task stays."""
        found = self._running.get(claimed.task.id)
        if found is not None and found[0] is claimed:
            del self._running[claimed.task.id]
        self._capacity.note_end()
        self._suspects.leave(claimed)
        claimed.close_progress()
        claimed.journal.detach()  # the two refer to each other: without this, each task waits for the gc

    def cancel(self, id: str) -> bool:
        """Stop a task that was cancelled or has expired; return false if it does not run in this process.

        Its run unwinds the function. A run that unwinds it already is left alone.
        """
        found = self._running.get(id)
        if found is not None and not found[0].unwinds:
            found[0].unwinds = True
            self._stop(*found, StoreError(f"The task {id} was cancelled or has expired."))
        return found is not None

    def _stop(self, claimed: ClaimedTask, task: asyncio.Task[None], reason: StoreError) -> None:
        """Cancel a run. Once only, so that a function that cleans up is not interrupted for a while."""
        claimed.stop(reason)
        cancel_run(task, claimed.task.id, self._limits.unwind_timeout)

    def forget_finished(self, id: str) -> None:
        """Forget how a task ended: it was queued again."""
        self._finished.evict(id)

    async def find_local(self, id: str, principal: str) -> Task | None:
        """Return a task that finished in this process or is about to; `None` for others and expired ones."""
        found = self._running.get(id)
        if found is None:
            return self._finished.find(id, principal)
        task = await found[0].wait_for_write() if found[0].owner.id == principal else None
        return None if task is None or (task.expires or math.inf) <= now_ms() else task

    # Claiming

    async def _claim_forever(self) -> None:
        async with self._store.watch_ready() as ready:
            while not self._draining:
                # In a task of its own: a claim that is under way when the worker stops is still given back.
                self._claiming = asyncio.create_task(self._claim())
                if not await asyncio.shield(self._claiming):
                    await self._capacity.wait_for_tasks(ready, CLAIM_INTERVAL_SECONDS)

    async def _claim(self) -> bool:
        """Claim tasks of tools that this process has, and run them; return whether there were any."""
        await self._renew_ended()
        pending = await self._wait_for_reports()
        since, lease = lease_clock(), self._limits.lease_seconds
        async with self._capacity.claim(
            self._store, self._tools(), worker=self.name, lease=lease, server=self._server
        ) as claims:
            self._vain_reports = pending
            # Concurrently, so that the store can read their logs in one batch.
            await asyncio.gather(*(self._try_resume(claim, since) for claim in claims))
            await self._run_lost()  # after the others of the batch were started or given back
        return bool(claims)

    async def _run_lost(self) -> None:
        """Run the claimed tasks that have lost a worker, and give those back that have to be kept apart."""
        lost, self._lost = self._lost, []
        admitted = () if self._draining else self._suspects.admit([(each[0], each[1]) for each in lost])
        await note_group(self._suspects.outgrown())
        releasing = []
        for claimed, tool, noted in lost:
            if self._draining:
                releasing.append(release(claimed))
            elif claimed in admitted:
                self.run(claimed, tool, noted={**noted, "group": claimed.group})
            else:
                releasing.append(release(claimed, delay=self._suspects.refusal_delay()))
        await asyncio.gather(*releasing)

    async def _try_resume(self, claim: Claim, since: float) -> None:
        """Resume a claimed task; log a failure, so that the other tasks of the batch are resumed."""
        id = claim.record.id
        try:
            if self._draining:
                await give_back(self._store, claim)
            elif (earlier := self._running.get(id)) is not None:
                # The lease of the earlier run ended, and the claim has taken the task from it.
                earlier[0].is_handed_over = earlier[0].resumes
                self._stop(*earlier, LeaseLost(f"The lease of task {id} ended while it ran."))
                delay = OWN_TASK_DELAY_SECONDS * 2.0 ** min(earlier[0].reclaims, 32)
                earlier[0].reclaims += 1
                await give_back(self._store, claim, delay=min(delay, _LONGEST_OWN_TASK_DELAY_SECONDS))
                self._report_outage(earlier[0])  # afterwards: both count the claims that wrote nothing
            else:
                await self._resume(claim, since)
        except StoreError as error:
            logger.warning(
                "Cannot resume task %s: %s Another worker can claim it when its lease ends.", id, error
            )
            if isinstance(error, StoreUnavailable):
                await give_back(self._store, claim)
        except Exception:
            logger.exception("Cannot resume task %s: this version cannot read its log.", id)
            await give_back(self._store, claim, delay=_UNREADABLE_DELAY_SECONDS)

    async def _resume(self, claim: Claim, since: float) -> None:
        """Read the log of a claimed task and run the task, or end it if no attempt is left."""
        if not await self._has_space(claim.record):
            await give_back(self._store, claim, delay=NO_SPACE_DELAY_SECONDS)
            return
        history = await read_history(self._store, claim)
        if history is None:
            return
        try:
            tool = self._find_tool(claim.record.tool)
        except NotFound:
            logger.warning(
                "Cannot run task %s: this process no longer has the tool %r. Released for another worker.",
                claim.record.id,
                claim.record.tool,
            )
            await give_back(self._store, claim, delay=_UNKNOWN_TOOL_DELAY_SECONDS)
            return
        if await stops_still(self._store, history.created):
            delay = _STOPPING_DELAY_SECONDS * 2.0 ** min(history.quiet_releases, 8)
            await give_back(self._store, claim, delay=delay)
            return
        claimed = claimed_task(
            self._store,
            claim,
            history,
            lease=self._limits.lease_seconds,
            since=since,
            server=self._server,
        )
        if claimed.task.state == "cancelled":
            claimed.unwinds = True
            self.adopt(claimed, asyncio.create_task(self._unwind(claimed, history, tool)))
            return
        try:
            check_arguments(claimed, tool)
        except ReplayMismatch as mismatch:
            await release_mismatched(claimed, mismatch)
            return
        outcome = await check_attempts(claimed, history, tool)
        if isinstance(outcome, InternalError):
            logger.error("Task %s has failed: %s", claimed.task.id, outcome)
            claimed.is_ending = True
            self.adopt(claimed, asyncio.create_task(self._end(claimed, outcome)))
        elif outcome and self._draining:
            await release(claimed)
        elif outcome:
            noted = beginning(claimed, history, tool)
            if noted is not None and claimed.failed_attempts > claimed.refusals:
                self._lost.append((claimed, tool, noted))
            else:
                self.run(claimed, tool, noted=noted)

    async def _has_space(self, record: Record) -> bool:
        """Return whether a task may write more. One that was cancelled may: its function cleans up."""
        if self.check_growth is None:
            return True
        try:
            await self.check_growth(record, 0)
        except Busy as error:
            if task_of(record).state == "cancelled":
                return True
            self._log.warning("Task %s waits for space in the store: %s", record.id, error)
            return False
        return True

    async def _unwind(self, claimed: ClaimedTask, history: TaskHistory, tool: Tool) -> None:
        """Unwind the function of a task that was cancelled while no worker ran it."""
        try:
            await unwind(claimed, history, tool, self._environment, timeout=self._limits.unwind_timeout)
        except asyncio.CancelledError:
            if claimed.stopped is None or self._draining:
                raise
            self._log_stopped(claimed, claimed.stopped)

    # Leases

    async def _renew(self) -> None:
        """Renew the leases of all running tasks, and stop tasks whose leases were lost."""
        running, since, held = tuple(self._running.values()), lease_clock(), set[str]()
        if claims := [claimed.claim for claimed, _ in running if claimed.keeps_lease]:
            with self._outages.watch():
                held = await self._store.renew(claims, lease=self._limits.lease_seconds)
        self._stop_lost(extend_leases(running, held, since))

    async def _renew_ended(self) -> None:
        """Renew leases that have ended, if any, so that this worker does not claim its own tasks."""
        now = lease_clock()
        if any(now >= claimed.good_until for claimed, _ in self._running.values()):
            await self._renew()

    def _stop_lost(self, lost: Sequence[RunningTask]) -> None:
        """Stop runs whose leases were lost. A run that is writing finds out by itself."""
        for claimed, task in lost:
            if claimed.keeps_lease:
                self._report_outage(claimed)
            if not claimed.is_writing and not task.done():
                reason = f"The task {claimed.task.id} has ended, or another worker has claimed it."
                claimed.stop(LeaseLost(reason))
                stopping = asyncio.create_task(self._cancel_lost(claimed, task))
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)

    async def _cancel_lost(self, claimed: ClaimedTask, task: asyncio.Task[None]) -> None:
        if not claimed.unwinds:
            await claimed.find_fate()
        cancel_run(task, claimed.task.id, self._limits.unwind_timeout)

    def _report_outage(self, claimed: ClaimedTask, reason: StoreError | None = None) -> None:
        """Report in the background that a task was lost in an outage, and not because its worker died.

        Once, whichever part of the worker learns first that the run has ended.
        """
        if claimed.is_reported or claimed.unwinds:
            return
        if not isinstance(reason, StoreUnavailable) and not self._outages.explain(claimed):
            return
        if claimed.has_begun and not claimed.resumes:  # it must not run again, whoever lives
            return
        claimed.is_reported = True
        reporting = asyncio.create_task(self._report(claimed))
        self._reporting.add(reporting)
        reporting.add_done_callback(self._reporting.discard)

    async def _report(self, claimed: ClaimedTask) -> None:
        backoff = Backoff(timeout=_REPORT_SECONDS)
        try:
            while True:
                try:
                    if await report_survival(claimed):
                        logger.info("Task %s was lost in an outage, and its log says so.", claimed.task.id)
                    return
                except StoreUnavailable as error:
                    await backoff.wait(error)
        except Exception as error:
            logger.warning("Cannot report that task %s was lost in an outage: %s", claimed.task.id, error)

    async def _wait_for_reports(self) -> set[asyncio.Task[None]]:
        """Give the reports some time: a task that counts as lost too often must not be claimed before.

        Returns those that have not ended. One whose row cannot be written delays no other task from then on.
        """
        if awaited := self._reporting - self._vain_reports:
            await asyncio.wait(awaited, timeout=REPORT_WAIT_SECONDS)
        return set(self._reporting)

    async def check_times(self) -> None:
        """Wake and end the tasks whose time has come; raises `StoreUnavailable`."""
        await self._expire()
        await self._wake()

    async def _wake(self) -> None:
        await wake_due(self._store, server=self._server)

    async def _expire(self) -> None:
        """End the tasks that did not finish in time, and delete those whose lifetime is over."""
        self._unended = await end_overdue(
            self._store, self.cancel, server=self._server, publish=self._publish, failing=self._unended
        )
        await delete_expired(self._store, self._finished.evict)

    # Running

    async def _run(self, claimed: ClaimedTask, tool: Tool, noted: dict[str, Any] | None) -> None:
        try:
            await self.supervise(claimed, self._perform(claimed, tool, noted))
        except StoreError as error:
            await self.retry_later(claimed, tool, error)

    async def _end(self, claimed: ClaimedTask, outcome: InternalError) -> None:
        """End a task that is not run, beside the claims: its row may be one that cannot be written."""
        try:
            await self.finish(claimed, outcome)
        except StoreError as error:
            self._log_stopped(claimed, error)

    async def retry_later(self, claimed: ClaimedTask, tool: Tool, error: StoreError) -> None:
        """Release a task whose function met a store that failed, for example the one of its artifacts.

        Ends the task if no attempt is left.
        """
        try:
            outcome = await fail_attempt(claimed, tool, error)
            if outcome is not None:
                await self.finish(claimed, outcome)
        except StoreError as failure:
            self._log_stopped(claimed, failure)

    async def supervise(self, claimed: ClaimedTask, work: Awaitable[Outcome]) -> None:
        """Wait for the outcome of a run, and write it; log why a run was stopped.

        Raises `StoreError` if the function raised it although the task is held.
        """
        outcome: Outcome | None = None
        try:
            try:
                outcome = await await_outcome(claimed, work)
            except ReplayMismatch as mismatch:
                await release_mismatched(claimed, mismatch)
            else:
                await self.finish(claimed, outcome)
            return
        except StoreError as error:
            if claimed.stopped is None:
                raise
            self._log_stopped(claimed, error)
        except asyncio.CancelledError:
            if claimed.stopped is None or (self._draining and not claimed.unwinds):
                raise  # the event loop or the worker is stopping
            self._log_stopped(claimed, claimed.stopped)
        if claimed.unwinds:
            asking = self._find_tool(claimed.task.tool) if isinstance(outcome, InputRequired) else None
            await end_unwound(claimed, asking, self._environment, timeout=self._limits.unwind_timeout)

    def _log_stopped(self, claimed: ClaimedTask, reason: StoreError) -> None:
        if isinstance(reason, StoreUnavailable):
            self._report_outage(claimed, reason)
            logger.warning(
                "Stopped running task %s: %s Another worker can claim it when its lease ends.",
                claimed.task.id,
                reason,
            )
            return
        if isinstance(reason, LeaseLost | NoTask):
            self.lost_leases += 1
            self._report_outage(claimed)
        logger.info("Stopped running task %s: %s", claimed.task.id, reason)

    async def finish(self, claimed: ClaimedTask, outcome: Outcome) -> None:
        """Write the outcome of a run: the result, the error, or the questions that the task waits for.

        An outcome that cannot be written as JSON becomes an error. Raises `StoreError`.
        """
        before = claimed.task
        await write_outcome(claimed, outcome)
        self._publish(before, claimed.task)
        self.finished_runs[claimed.task.tool, "failed" if claimed.task.failed else claimed.task.state] += 1
        if claimed.task.has_ended:
            self._finished.add(claimed.task, claimed.owner.id)

    def _publish(self, before: Task, after: Task) -> None:
        """Tell those who listen to their inboxes that a task has changed."""
        if self._feed is not None:
            self._feed.publish(before, after)

    async def _perform(self, claimed: ClaimedTask, tool: Tool, noted: dict[str, Any] | None) -> Outcome:
        if noted is not None:
            await claimed.write("recorded", noted)
        if (confirming := claimed.confirm()) is not None:
            await confirming
        claimed.has_begun = True
        if tool.function.replays:
            return await run_with_timeout(tool, call_of(claimed), self._environment)
        held = HeldTask(claimed, HeldTaskWork.here(), held_bounds(self._environment))
        return await held.outcome(run_with_timeout(tool, call_of(claimed, held=held), self._environment))
