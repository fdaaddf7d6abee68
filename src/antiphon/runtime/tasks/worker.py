"""Runs tasks: claims those that are ready, keeps their leases, and writes down how they end.

One worker a process. What it holds is lost to another worker when the process dies; what that one does
then is a replay of the journal.
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
"""Tasks that are forgotten in one go."""
_READ_PAGE_ENTRIES = 16
"""How many entries of a log are read at once; each may hold a whole batch of segments."""
_STORE_RETRY_SECONDS = 1.0
"""How long to wait after a store did not answer."""


class Worker:
    """Everything that one process has taken upon itself."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        find: Callable[[str], Tool],
        environment: Environment,
        *,
        tools: Collection[str] | None = None,
        claims: bool = True,
    ) -> None:
        self.name = f"worker-{secrets.token_hex(6)}"
        self._store = store
        self._limits = limits
        self._find = find
        self._environment = environment
        self._tools = tools
        self._claims = claims
        self.lost_leases = 0
        """Tasks that were another's, or gone, before they had ended here."""
        self.finished_runs: Counter[tuple[str, str]] = Counter()
        """Runs that were written down here, by tool and by the state that the task has since."""
        self._running: dict[str, tuple[ClaimedTask, asyncio.Task[None]]] = {}
        self._finished = FinishedTasks()
        self._loops: list[asyncio.Task[None]] = []
        self._draining = False

    @property
    def has_room(self) -> bool:
        """Whether it can take one more."""
        return self._claims and not self._draining and len(self._running) < self._limits.max_running_tasks

    @property
    def running(self) -> int:
        """How many tasks run here."""
        return len(self._running)

    def start(self) -> None:
        """Begin to claim tasks, if it is to, and to forget those whose time is over.

        One that claims none still looks after those that calls here have turned into.
        """
        self._draining = False
        work = [(self._renew, self._limits.lease_seconds / 3), (self._expire, 0.5)]
        if self._claims:
            work.append((self._claim_forever, _STORE_RETRY_SECONDS))
        self._loops = [asyncio.create_task(self._loop(do, every)) for do, every in work]

    async def stop(self, *, within: float) -> None:
        """Claim nothing more, let what runs end, and hand over what does not."""
        self._draining = True
        for loop in self._loops:
            loop.cancel()
        running = {task: claimed for claimed, task in self._running.values()}
        if running:
            _, unfinished = await asyncio.wait(running, timeout=within)
            for task in unfinished:
                task.cancel()
                await _release(running[task].release())
            if unfinished:
                await asyncio.wait(unfinished)
        await asyncio.gather(*self._loops, return_exceptions=True)

    def run(self, claimed: ClaimedTask) -> None:
        """Run a task that this worker holds."""
        self.adopt(claimed, asyncio.create_task(self._run(claimed)))

    def adopt(self, claimed: ClaimedTask, task: asyncio.Task[None]) -> None:
        """Look after a task whose function is already under way."""
        self._running[claimed.task.id] = (claimed, task)
        task.add_done_callback(lambda _: self._running.pop(claimed.task.id, None))

    def cancel(self, id: str) -> bool:
        """Stop a task that runs here, because it was cancelled or has expired; false if it runs elsewhere."""
        found = self._running.get(id)
        if found is not None:
            found[1].cancel()
        return found is not None

    async def find_local(self, id: str, principal: str) -> Task | None:
        """A task that ended here lately, or is just about to; `None` if only the store knows."""
        found = self._running.get(id)
        if found is None:
            return self._finished.find(id, principal)
        return await found[0].wait_for_write() if found[0].principal == principal else None

    # Claiming

    async def _loop(self, work: Callable[[], Any], every: float) -> None:
        while True:
            try:
                await work()
            except StoreError as error:
                logger.warning("The worker goes on when the store is back: %s", error)
                await asyncio.sleep(_STORE_RETRY_SECONDS)
            except Exception:
                logger.exception("The worker stumbled, and goes on.")
                await asyncio.sleep(_STORE_RETRY_SECONDS)
            await asyncio.sleep(every)

    async def _claim_forever(self) -> None:
        async with self._store.watch_ready() as ready:
            while True:
                room = self._limits.max_running_tasks - len(self._running)
                if room > 0:
                    claims = await self._store.claim(
                        self.name, lease=self._limits.lease_seconds, limit=min(room, 50), tools=self._tools
                    )
                    if claims:  # together: their logs are read together
                        await asyncio.gather(*map(self._try_resume, claims))
                        continue
                await ready.wait(1.0)

    async def _try_resume(self, claim: Claim) -> None:
        """One task that cannot be taken up is no reason to leave the others that were claimed with it."""
        try:
            await self._resume(claim)
        except StoreError as error:
            logger.warning("The task %s is left to another worker: %s", claim.record.id, error)
        except Exception:
            logger.exception("The task %s cannot be taken up: its log makes no sense here.", claim.record.id)

    async def _resume(self, claim: Claim) -> None:
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
        # Whoever claimed it before has parked it, and been answered; or else was lost.
        was_lost = claim.token > 1 and history.last != "answered"
        if history.created.get("resume", True) or not was_lost:
            self.run(claimed)
        else:
            await claimed.write("faulted", {"fault": {"code": -32603, "message": "its worker was lost"}})

    async def _renew(self) -> None:
        claims = [(id, claimed.token) for id, (claimed, _) in self._running.items()]
        if not claims:
            return
        kept = await self._store.renew(claims, lease=self._limits.lease_seconds)
        for id, _ in claims:
            if id not in kept and self.cancel(id):
                self.lost_leases += 1

    async def _expire(self) -> None:
        gone = await self._store.expire(limit=_EXPIRE_BATCH_TASKS)
        while gone:
            for record in gone:
                self.cancel(record.id)
                self._finished.evict(record.id)
            gone = (
                await self._store.expire(limit=_EXPIRE_BATCH_TASKS)
                if len(gone) == _EXPIRE_BATCH_TASKS
                else ()
            )

    # Running

    async def _run(self, claimed: ClaimedTask) -> None:
        try:
            await self.finish(claimed, await self._perform(claimed))
        except (LeaseLost, NoTask) as error:
            self.lost_leases += 1
            logger.info("A task was let go: %s", error)
        except StoreError as error:
            logger.warning("A task is left to another worker: %s", error)
        except asyncio.CancelledError:
            if self._draining:
                raise
            logger.info("The task %s was stopped.", claimed.task.id)

    async def finish(self, claimed: ClaimedTask, outcome: Result | InputRequired | RequestError) -> None:
        """Write down how a run ended, or what it waits for."""
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
            tool = self._find(claimed.task.tool)
            return await self._run_with_timeout(tool, _call_of(claimed))
        except NotFound:
            return NotFound(f"This server no longer has the tool {claimed.task.tool!r}.")
        except RequestError as error:
            return error

    async def _run_with_timeout(self, tool: Tool, call: Call[CallTool]) -> Result | InputRequired:
        """One run, for which a tool that says so has only so much time. What a person takes is not in it."""
        if tool.timeout is None:
            return await tool.run(call, self._environment)
        try:
            async with asyncio.timeout(tool.timeout):
                return await tool.run(call, self._environment)
        except TimeoutError:
            message = f"The tool {tool.name!r} did not finish within {tool.timeout:g} seconds."
            return await prepend_emitted(call, Result(message, is_error=True))


def _call_of(claimed: ClaimedTask) -> Call[CallTool]:
    """Return the call that runs a claimed task, from what its log says of the request that made it."""
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


async def _release(work: Any) -> None:
    try:
        await work
    except AntiphonError as error:
        logger.info("A task is handed over when its lease ends: %s", error)
