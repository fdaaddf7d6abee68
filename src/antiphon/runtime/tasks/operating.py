"""Tasks of a store for somebody who operates them, in a process that runs none of them."""

from __future__ import annotations

from typing import Any

from antiphon.runtime.execution.executor import ThreadExecutor
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.service import TaskService
from antiphon.runtime.tasks.worker import Worker
from antiphon.store.contract import Store

__all__ = ["operating_service"]


def operating_service(
    store: Store, relay: Relay, feed: InboxFeed, *, server: str | None = None
) -> TaskService:
    """Return a service that reads, answers, cancels and retries tasks, and claims none."""
    limits = Limits()
    # The service notifies its worker when a task stops. This worker claims no tasks.
    worker = Worker(store, limits, _unused, Environment(ThreadExecutor(1)), claims=False)
    return TaskService(store, worker, limits, relay, server=server, feed=feed)


def _unused(*_: Any) -> Any:
    raise NotImplementedError
