"""Runs tasks: claims tasks that are ready, renews their leases, and writes their outcomes.

A process has one worker. If the process dies, the leases of its tasks expire, and another worker claims the
tasks and runs their functions again with the journals.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, cast

import msgspec

from antiphon.errors import (
    AntiphonError,
    LeaseLost,
    MissingCapability,
    NoTask,
    NotFound,
    RequestError,
    StoreError,
)
from antiphon.model.identity import Implementation, Principal
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool, RequestMeta
from antiphon.model.task import (
    STORED_QUESTIONS,
    EntryKind,
    Fault,
    Task,
    TaskHistory,
    dump_questions,
    dump_result,
)
from antiphon.runtime.authoring.tool import Tool, prepend_emitted
from antiphon.runtime.carriers.store import StoreCarrier
from antiphon.runtime.execution.call import Call, Caller
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.execution.output_stream import LoggedOutput, OutputStream
from antiphon.runtime.execution.supervisor import Supervised
from antiphon.runtime.limits import Limits
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.finished_tasks import FinishedTasks
from antiphon.store.contract import Claim, Store

__all__ = ["Worker"]

logger = logging.getLogger("antiphon")

_EXPIRE_BATCH_TASKS = 1000
"""How many expired tasks are deleted in one operation."""
_READ_PAGE_ENTRIES = 16
"""How many entries of a log are read at once. Each may hold a whole batch of segments."""
_STORE_RETRY_SECONDS = 1.0
"""How long the worker pauses after the store did not respond."""
_EXPIRE_INTERVAL_SECONDS = 0.5
"""How often expired tasks are deleted."""
_CLAIM_INTERVAL_SECONDS = 1.0
"""How often the worker tries to claim tasks although the store reported none."""
_CLAIM_BATCH_TASKS = 50
"""How many tasks are claimed in one operation."""


class Worker:
    """The worker of one process, with the tasks that it runs."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        find_tool: Callable[[str], Tool],
        environment: Environment,
        *,
        tools: Collection[str] | None = None,
        claims: bool = True,
    ) -> None:
        self.name = f"worker-{secrets.token_hex(6)}"
        self._store = store
        self._limits = limits
        self._find_tool = find_tool
        self._environment = environment
        self._tools = tools
        self._claims = claims
        self.lost_leases = 0
        """How many tasks this worker stopped because another worker claimed them or they were gone."""
        self.finished_runs: Counter[tuple[str, str]] = Counter()
        """How many runs finished in this process, by tool and by the state of the task after the run."""
        self._running: dict[str, tuple[ClaimedTask, asyncio.Task[None]]] = {}
        self._finished = FinishedTasks()
        self._loops: list[asyncio.Task[None]] = []
        self._draining = False

    @property
    def has_room(self) -> bool:
        """Whether this worker can run one more task."""
        return self._claims and not self._draining and len(self._running) < self._limits.max_running_tasks

    @property
    def running(self) -> int:
        """How many tasks this worker runs."""
        return len(self._running)

    def start(self) -> None:
        """Start to renew leases, to delete expired tasks and, if configured so, to claim tasks.

        A worker that claims no tasks still supervises the calls of this process that became tasks.
        """
        self._draining = False
        work = [
            # Two renewals may fail before a lease ends.
            (self._renew, self._limits.lease_seconds / 3),
            (self._expire, _EXPIRE_INTERVAL_SECONDS),
        ]
        if self._claims:
            work.append((self._claim_forever, _STORE_RETRY_SECONDS))
        self._loops = [asyncio.create_task(self._loop(do, every)) for do, every in work]

    def stop_claiming(self) -> None:
        """Claim no more tasks. Running tasks continue, and their leases are renewed."""
        self._draining = True

    async def stop(self, *, within: float) -> None:
        """Stop claiming, wait `within` seconds for running tasks, and release those that did not finish."""
        self.stop_claiming()
        running = {task: claimed for claimed, task in self._running.values()}
        unfinished: set[asyncio.Task[None]] = set()
        if running:
            _, unfinished = await asyncio.wait(running, timeout=within)
        for loop in self._loops:  # the leases of running tasks were renewed until now
            loop.cancel()
        for task in unfinished:
            task.cancel()
            await _release(running[task])
        if unfinished:
            await asyncio.wait(unfinished)
        await asyncio.gather(*self._loops, return_exceptions=True)

    def run(self, claimed: ClaimedTask) -> None:
        """Run a claimed task in the background."""
        self.adopt(claimed, asyncio.create_task(self._run(claimed)))

    def adopt(self, claimed: ClaimedTask, task: asyncio.Task[None]) -> None:
        """Supervise a claimed task whose function is already running."""
        self._running[claimed.task.id] = (claimed, task)
        task.add_done_callback(lambda _: self._forget(claimed))

    def _forget(self, claimed: ClaimedTask) -> None:
        """Forget a task that runs no more."""
        self._running.pop(claimed.task.id, None)
        claimed.journal.detach()  # the two refer to each other: without this, each task waits for the gc

    def cancel(self, id: str) -> bool:
        """Stop a task that was cancelled or has expired; return false if it does not run in this process."""
        found = self._running.get(id)
        if found is not None:
            found[1].cancel()
        return found is not None

    async def find_local(self, id: str, principal: str) -> Task | None:
        """Return a task that finished in this process or is about to; `None` for any other task."""
        found = self._running.get(id)
        if found is None:
            return self._finished.find(id, principal)
        return await found[0].wait_for_write() if found[0].principal == principal else None

    # Claiming

    async def _loop(self, work: Callable[[], Any], every: float) -> None:
        """Run `work` every so many seconds, and continue after errors."""
        while True:
            try:
                await work()
            except StoreError as error:
                logger.warning("The store does not respond; the worker tries again: %s", error)
                await asyncio.sleep(_STORE_RETRY_SECONDS)
            except Exception:
                logger.exception("Unexpected error in the worker loop; continuing.")
                await asyncio.sleep(_STORE_RETRY_SECONDS)
            await asyncio.sleep(every)

    async def _claim_forever(self) -> None:
        async with self._store.watch_ready() as ready:
            while True:
                room = self._limits.max_running_tasks - len(self._running)
                if room > 0 and not self._draining:
                    claims = await self._store.claim(
                        self.name,
                        lease=self._limits.lease_seconds,
                        limit=min(room, _CLAIM_BATCH_TASKS),
                        tools=self._tools,
                    )
                    if claims:  # concurrently, so that the store can read their logs in one batch
                        await asyncio.gather(*map(self._try_resume, claims))
                        continue
                await ready.wait(_CLAIM_INTERVAL_SECONDS)

    async def _try_resume(self, claim: Claim) -> None:
        """Resume a claimed task; log a failure, so that the other tasks of the batch are resumed."""
        try:
            await self._resume(claim)
        except StoreError as error:
            logger.warning(
                "Cannot resume task %s: %s Another worker can claim it when its lease ends.",
                claim.record.id,
                error,
            )
        except Exception:
            logger.exception("Cannot resume task %s: this version cannot read its log.", claim.record.id)

    async def _resume(self, claim: Claim) -> None:
        """Read the log of a claimed task and run the task, or fail it if its tool does not resume."""
        history, number, version = TaskHistory(), 0, claim.record.version
        while number < version:
            entries = await self._store.read(claim.record.id, after=number, limit=_READ_PAGE_ENTRIES)
            if not entries:
                return
            for entry in entries[: version - number]:
                history.add(cast(EntryKind, entry.kind), entry.at, entry.data)
            number = entries[-1].number
        assert history.task is not None
        claimed = ClaimedTask(
            self._store,
            history.task,
            dict(history.created),
            version=version,
            token=claim.token,
            journal=history.journal,
            responses=history.responses,
        )
        # A task that was parked and answered has an answer as its last entry. Otherwise its worker was lost.
        was_lost = claim.token > 1 and history.last != "answered"
        if history.created.get("resume", True) or not was_lost:
            self.run(claimed)
        else:
            await claimed.write("faulted", {"fault": {"code": -32603, "message": "its worker was lost"}})

    async def _renew(self) -> None:
        """Renew the leases of all running tasks, and stop tasks whose leases were lost."""
        claims = [(id, claimed.token) for id, (claimed, _) in self._running.items()]
        if not claims:
            return
        renewed = await self._store.renew(claims, lease=self._limits.lease_seconds)
        for id, _ in claims:
            if id not in renewed and self.cancel(id):
                self.lost_leases += 1

    async def _expire(self) -> None:
        while True:
            expired = await self._store.expire(limit=_EXPIRE_BATCH_TASKS)
            for record in expired:
                self.cancel(record.id)
                self._finished.evict(record.id)
            if len(expired) < _EXPIRE_BATCH_TASKS:
                return

    # Running

    async def _run(self, claimed: ClaimedTask) -> None:
        try:
            await self.finish(claimed, await self._perform(claimed))
        except (LeaseLost, NoTask) as error:
            self.lost_leases += 1
            logger.info("Stopped running task %s: %s", claimed.task.id, error)
        except StoreError as error:
            logger.warning(
                "Stopped running task %s: %s Another worker can claim it when its lease ends.",
                claimed.task.id,
                error,
            )
        except asyncio.CancelledError:
            if self._draining:
                raise
            logger.info(
                "Stopped running task %s: it was cancelled, has expired or lost its lease.", claimed.task.id
            )

    async def finish(self, claimed: ClaimedTask, outcome: Result | InputRequired | RequestError) -> None:
        """Write the outcome of a run: the result, the error, or the questions that the task waits for."""
        new = claimed.journal.take_unwritten()
        data: dict[str, Any] = {"journal": new} if new else {}
        if isinstance(outcome, InputRequired):
            await claimed.write("asked", {**data, STORED_QUESTIONS: dump_questions(outcome.questions)})
        elif isinstance(outcome, RequestError):
            needs = outcome.needs if isinstance(outcome, MissingCapability) else None
            fault = Fault(outcome.code, outcome.message, outcome.data, needs)
            await claimed.write("faulted", {**data, "fault": msgspec.to_builtins(fault)})
        else:
            await claimed.write("ended", {**data, "result": dump_result(outcome)})
        self.finished_runs[claimed.task.tool, "failed" if claimed.task.failed else claimed.task.state] += 1
        if claimed.task.has_ended:
            self._finished.add(claimed.task, claimed.principal)

    async def _perform(self, claimed: ClaimedTask) -> Result | InputRequired | RequestError:
        try:
            tool = self._find_tool(claimed.task.tool)
            return await self._run_with_timeout(tool, _call_of(claimed))
        except NotFound:
            return NotFound(f"Cannot run the task: this server no longer has the tool {claimed.task.tool!r}.")
        except RequestError as error:
            return error

    async def _run_with_timeout(self, tool: Tool, call: Call[CallTool]) -> Result | InputRequired:
        """Run a tool with its `timeout`, if it has one. Waiting for an answer does not count."""
        if tool.timeout is None:
            return await tool.run(call, self._environment)
        try:
            async with asyncio.timeout(tool.timeout):
                return await tool.run(call, self._environment)
        except TimeoutError:
            message = f"The tool {tool.name!r} did not finish within {tool.timeout:g} seconds."
            return await prepend_emitted(call, Result(message, is_error=True))


def _call_of(claimed: ClaimedTask) -> Call[CallTool]:
    """Return the call that runs a claimed task, from the request that its log recorded."""
    created = claimed.created
    client = created.get("client")
    return Call(
        CallTool(
            name=claimed.task.tool, arguments=created["arguments"], input_responses=dict(claimed.responses)
        ),
        id=claimed.task.id,
        request_meta=RequestMeta(
            client=None if client is None else msgspec.convert(client, Implementation),
            capabilities=created.get("capabilities", {}),
            response_modes=tuple(created.get("modes", ())),
            raw=created.get("trace", {}),
        ),
        principal=msgspec.convert(created["principal"], Principal),
        carrier=StoreCarrier(claimed.journal),
        caller=_TaskCaller(claimed),
        work=Supervised.here(),
    )


class _TaskCaller(Caller):
    """The caller of a task is not connected: it reads the task's log."""

    def __init__(self, claimed: ClaimedTask) -> None:
        self._claimed = claimed
        self.task_id = claimed.task.id

    def open_output(self, call: Call[Any], journal: Journal, limits: Limits) -> OutputStream:
        """Write segments into the log, after those of earlier runs."""
        return LoggedOutput(self._claimed.emit, logged=self._claimed.task.segments)


async def _release(claimed: ClaimedTask) -> None:
    """Release a claim; log a failure, because the claim ends with its lease anyway."""
    try:
        await claimed.release()
    except AntiphonError as error:
        logger.info(
            "Cannot release task %s: %s Another worker can claim it when its lease ends.",
            claimed.task.id,
            error,
        )
