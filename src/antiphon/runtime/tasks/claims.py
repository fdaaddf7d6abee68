"""Turns claims into claimed tasks, by reading their logs, or gives the claims back.

Must not know which tools there are. A claim that is given back does not count as a run that was lost: the log
or the record of the task says so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import msgspec

from antiphon.errors import AntiphonError, Stale
from antiphon.model.identity import Principal
from antiphon.model.task import EntryKind
from antiphon.model.task_history import TaskHistory
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.clocks import now_ms
from antiphon.runtime.tasks.owners import stored_principal
from antiphon.runtime.tasks.records import head_of, task_of
from antiphon.store.contract import Claim, Store

__all__ = ["claimed_task", "give_back", "read_history", "release", "report_survival"]

logger = logging.getLogger("antiphon")

_READ_PAGE_ENTRIES = 16
"""How many entries of a log are read at once. Each may hold a whole batch of segments."""


async def read_history(store: Store, claim: Claim) -> TaskHistory | None:
    """Read the log of a task up to the claim; return `None` if the task is gone.

    Raises `StoreError`, and `ValueError` for a log that this version cannot read.
    """
    history, number, version = TaskHistory(), 0, claim.record.version
    while number < version:
        if number:
            await asyncio.sleep(0)  # a long log must not hold the event loop
        entries = await store.read(claim.record.id, after=number, limit=_READ_PAGE_ENTRIES)
        if not entries:
            return None
        for entry in entries[: version - number]:
            history.add(cast(EntryKind, entry.kind), entry.at, entry.data)
        number = entries[-1].number
    history.quiet_releases = claim.record.head.get("quiet_releases", 0)
    return history


def claimed_task(
    store: Store,
    claim: Claim,
    history: TaskHistory,
    *,
    lease: float,
    since: float,
    server: str | None = None,
) -> ClaimedTask:
    """Return the task of a claim whose request was sent at `since`, by the lease clock.

    `server` is the server that runs the task; by default the one that the task belongs to.
    """
    assert history.task is not None
    claimed = ClaimedTask(
        store,
        msgspec.structs.replace(history.task, quiet_releases=history.quiet_releases),
        dict(history.created),
        owner=stored_principal(history.created, claim.record.sharer),
        version=claim.record.version,
        token=claim.token,
        journal=history.journal,
        responses=history.responses,
        segment_entries=history.segment_entries,
        lease=lease,
        since=since,
        server=claim.record.server if server is None else server,
        claimed_at=claim.at,
        last_entry_at=history.last_at,
    )
    claimed.mismatches, claimed.quiet_releases = history.mismatches, history.quiet_releases
    claimed.has_begun = False
    claimed.answered_in = history.answered_in
    reported = claim.record.head.get("progress")
    if reported is not None and reported["progress"] > claimed.journal.progress:
        # The run before did not live to write it into the log.
        claimed.journal.progress = reported["progress"]
    return claimed


async def give_back(store: Store, claim: Claim, *, delay: float = 0.0, requeue: bool = False) -> None:
    """Release a claim whose task did not run; other workers can claim the task after `delay` seconds.

    With `requeue`, the task goes behind the other tasks that its principal has queued.
    """
    record = claim.record
    try:
        task = task_of(record)
    except msgspec.ValidationError:  # another version wrote it
        await store.release(record.id, claim.token, delay=delay, requeue=requeue)
        return
    claimed = ClaimedTask(
        store,
        task,
        {},
        owner=Principal(record.principal),
        version=record.version,
        token=claim.token,
        journal={},
        responses={},
    )
    claimed.quiet_releases = task.quiet_releases
    claimed.requeues = requeue
    await release(claimed, delay=delay)


async def release(claimed: ClaimedTask, *, delay: float = 0.0, began: bool = False) -> None:
    """Release a claim; log a failure, because the claim ends with its lease anyway.

    A task that began to run and must not run again counts as lost: the next worker ends it.
    """
    try:
        if began and not claimed.resumes:
            await claimed.release(attempt=claimed.failed_attempts + 1)
        else:
            await claimed.release(delay=delay)
    except AntiphonError as error:
        logger.info(
            "Cannot release task %s: %s Another worker can claim it when its lease ends.",
            claimed.task.id,
            error,
        )


async def report_survival(claimed: ClaimedTask) -> bool:
    """Write that this process has lost a task in an outage: the task was not the reason, and is no suspect.

    Returns false if there is nothing to write: the task has ended, has made progress, or was given back in
    order. Raises `StoreError`, and `ValueError` for a log that this version cannot read.
    """
    store, id = claimed.store, claimed.task.id
    while (record := await store.get(id)) is not None and record.phase == "ready":
        history = await read_history(store, Claim(record, claimed.token))
        found = None if history is None else history.survival(claimed.token, claimed.quiet_releases)
        if found is None:
            return False
        data, quiet_releases = found
        # The record has the progress, which the log does not have.
        task = task_of(record).after("recorded", data, now_ms())
        head = head_of(msgspec.structs.replace(task, quiet_releases=quiet_releases))
        try:
            await store.append(id, [("recorded", data)], expect=record.version, phase="ready", head=head)
        except Stale:
            continue
        return True
    return False
