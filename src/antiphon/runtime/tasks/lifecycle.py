"""Starts and stops the parts that serve tasks: the store, the relay, the worker and the handlers.

Owns the order in which they start and stop. It must not know which store is used.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from antiphon.errors import NotFound, StoreError
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.budget import MemoryBudget
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.waiting import Duration
from antiphon.runtime.limits import Limits
from antiphon.runtime.observability.metrics import render
from antiphon.runtime.observability.telemetry import Telemetry
from antiphon.runtime.relay import CANCELLED_TASKS, RETRIED_TASKS, ROLL_CALLS, WORKER_REPORTS, Relay
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.events import send_event
from antiphon.runtime.tasks.handlers import TaskHandlers
from antiphon.runtime.tasks.inbox import Audiences, Inbox, default_audiences
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.inbox_handlers import InboxHandlers
from antiphon.runtime.tasks.roll_call import WorkerReport
from antiphon.runtime.tasks.service import TaskService
from antiphon.runtime.tasks.worker import Worker
from antiphon.store import open_store
from antiphon.store.contract import Store
from antiphon.version import VERSION

__all__ = ["TaskLifecycle"]

logger = logging.getLogger("antiphon")

STORE_PROBE_SECONDS = 2.0
"""How long a health probe waits for the store.

Not a setting: a probe has its own timeout, which is longer.
"""
_MIN_REPORT_MILLISECONDS = 200
"""How long after a report about the worker no other one is sent."""


class TaskLifecycle:
    """The store, the worker and the handlers of one server, while the server runs."""

    def __init__(
        self,
        store: str | Store | None,
        limits: Limits,
        find: Callable[[str], Tool],
        environment: Environment,
        *,
        server: str,
        relay: Relay,
        budget: MemoryBudget,
        task_tools: Callable[[], Collection[str]],
        needed: bool = False,
        claims: Sequence[str] = (),
        audiences: Audiences = default_audiences,
    ) -> None:
        self._server = server
        self.audiences = audiences
        """Returns the names for which a principal answers questions."""
        self.needed = needed
        """Whether to open the store although no tool runs as a task now."""
        self._claims = claims
        self._relay = relay
        self._budget = budget
        self.feed = InboxFeed(relay)
        """Those who listen for questions."""
        relay.subscribe(CANCELLED_TASKS, self._cancel_task)
        relay.subscribe(RETRIED_TASKS, self._forget_task)
        relay.subscribe(ROLL_CALLS, self._report_worker)
        self._started_at = self._reported_at = 0
        self.store_setting = store if store is not None else os.environ.get("ANTIPHON_STORE") or None
        """Where tasks are kept; changes take effect at the next start."""
        self.limits = limits
        """The limits of the worker; changes take effect at the next start."""
        self._find = find
        self._task_tools = task_tools
        self._environment = environment
        self._store: Store | None = None
        self._probe: asyncio.Task[None] | None = None
        self._responds = True
        self.worker: Worker | None = None
        """The worker of this process; `None` while the server does not run."""
        self.service: TaskService | None = None
        """The tasks, for those who may see them; `None` while the server does not run."""
        self.tools: Collection[str] | None = None
        """The tools whose tasks run in this process; `None` for all of them."""
        self.run_tasks = True
        """Whether this process runs tasks, or leaves them to other processes."""

    @property
    def store(self) -> Store | None:
        """The open store; `None` while the server does not run, and without a store."""
        return self._store

    @property
    def is_needed(self) -> bool:
        """Whether a store is opened even if no tool runs as a task."""
        return self.needed or self.store_setting is not None

    @property
    def running(self) -> int:
        """The number of tasks that run in this process."""
        return 0 if self.worker is None else self.worker.running

    async def start(self) -> TaskHandlers:
        """Open the store, and start to run tasks; raises `StoreUnavailable`."""
        if self.store_setting is None:
            logger.warning(
                "No store is configured, so tasks are kept in memory and lost with this process. "
                "Set ANTIPHON_STORE, or Server(store=…), to sqlite:///tasks.db for example."
            )
        setting = "memory:" if self.store_setting is None else self.store_setting
        self._store = open_store(setting) if isinstance(setting, str) else setting
        await self._store.open()
        self.worker = Worker(
            self._store,
            self.limits,
            self._find,
            self._environment,
            tools=self._claimed_tools,
            claims=self.run_tasks,
            server=self._server,
            feed=self.feed,
        )
        self.feed.reopen()
        await self._relay.open(self._store)
        self.worker.start()
        self._started_at = now_ms()
        self.service = TaskService(
            self._store,
            self.worker,
            self.limits,
            self._relay,
            server=self._server,
            has_tool=self._has_tool,
            claims=self._claims,
            feed=self.feed,
        )
        return TaskHandlers(self.service, InboxHandlers(self.inbox, self.feed, self._budget))

    async def check_times(self) -> None:
        """Wake and end the tasks whose time has come; raises `StoreUnavailable`."""
        if self.worker is not None:
            await self.worker.check_times()

    def end_listeners(self) -> None:
        """End the streams of those who listen for questions, because the server is about to stop."""
        self.feed.close()

    def stop_claiming(self) -> None:
        """Claim no more tasks, because the server is about to stop. Running tasks continue."""
        if self.worker is not None:
            self.worker.drain()

    async def stop(self, *, within: float) -> None:
        """Wait `within` seconds for running tasks, release those that still run, and close the store."""
        if self.worker is not None:
            await self.worker.stop(within=within)
        await self._relay.close()
        if self._probe is not None:
            self._probe.cancel()
        if self._store is not None:
            await self._store.close()
        self.worker = self._store = self.service = None

    async def store_responds(self) -> bool | None:
        """Return whether the store can be written and read; `None` without a store."""
        if self._store is None:
            return None
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._store.probe())
        try:
            async with asyncio.timeout(STORE_PROBE_SECONDS):
                # Callers share one probe, so that probes do not pile up on a disk that stands still.
                await asyncio.shield(self._probe)
        except (StoreError, TimeoutError) as error:
            reason = str(error) or f"it did not respond within {STORE_PROBE_SECONDS:g} seconds."
            if self._responds:
                logger.warning("The store failed a readiness probe: %s", reason)
            self._responds = False
            return False
        if not self._responds:
            logger.info("The store passes readiness probes again.")
        self._responds = True
        return True

    async def send_event(self, name: str, key: str, data: Any, *, id: str | None, keep: Duration) -> bool:
        """Send an event to the tasks of the server; return false if the id was sent before.

        Raises `RuntimeError` if the server does not run or has no tool that runs as a task.
        """
        if self._store is None:
            raise RuntimeError(
                "Cannot send an event: the server does not run, or none of its tools can be a task."
            )
        most = self.limits.max_event_bytes
        return await send_event(self._store, self._server, name, key, data, id=id, keep=keep, max_bytes=most)

    @property
    def inbox(self) -> Inbox:
        """The questions of tasks to others than their callers; raises `NotFound` without a store."""
        if self._store is None:
            raise NotFound("This server has no tasks.")
        return Inbox(self._store, self.feed, server=self._server, audiences=self.audiences)

    async def metrics(self, telemetry: Telemetry) -> str:
        """Return metrics about calls, memory, tasks and the store, in the text format of Prometheus."""
        held = self._environment.held_runs
        return await render(
            telemetry,
            self._store,
            self.worker,
            self._budget,
            held=0 if held is None else held.bounds.waiting,
            server=self._server,
        )

    async def use_once(self, key: str, *, until: int) -> bool:
        """Record a key in the store; return false if it was recorded before."""
        return True if self._store is None else await self._store.use_once(key, until=until)

    def _claimed_tools(self) -> Collection[str]:
        """Return the tools whose tasks this process runs: those that it has now and that are not excluded."""
        return [name for name in self._task_tools() if self.tools is None or name in self.tools]

    def _has_tool(self, name: str) -> bool:
        try:
            self._find(name)
        except NotFound:
            return False
        return True

    def _cancel_task(self, id: str) -> None:
        assert self.worker is not None  # the relay closes before the worker is removed
        self.worker.cancel(id)

    def _forget_task(self, id: str) -> None:
        assert self.worker is not None
        self.worker.forget_finished(id)

    def _report_worker(self, _: Any) -> None:
        """Describe the worker to those who ask for workers. Many who ask at once get one report."""
        assert self.worker is not None
        if 0 <= now_ms() - self._reported_at < _MIN_REPORT_MILLISECONDS:
            return
        self._reported_at = now_ms()
        report = WorkerReport(
            name=self.worker.name,
            server=self._server,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=VERSION,
            tools=tuple(sorted(self._claimed_tools())),
            running=self.worker.running,
            max_running=self.limits.max_running_tasks,
            claims=self.run_tasks,
            started=self._started_at,
        )
        self._relay.publish_soon(WORKER_REPORTS, msgspec.to_builtins(report))
