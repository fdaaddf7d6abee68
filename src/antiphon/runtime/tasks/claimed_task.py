"""A task that this process has claimed: only this process writes the task's log while the lease lasts.

Owns the version and the token of the claim, and the time until which the lease is surely good. `write`
appends every entry and updates the task's record. The store refuses an entry after another worker has claimed
the task, or after the task has ended. From then on the claim is stopped: the run must begin nothing more.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from antiphon import wall_clock
from antiphon.backoff import Backoff
from antiphon.errors import LeaseLost, NoTask, Stale, StoreError, StoreUnavailable
from antiphon.model.identity import Principal
from antiphon.model.notification import Progress
from antiphon.model.segment import CallerMessage
from antiphon.model.task import (
    HELD,
    SEGMENT_ENTRIES,
    TRANSITIONS,
    EntryKind,
    EntryRanges,
    Task,
    TaskProgress,
)
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.tasks.clocks import lease_clock, now_ms
from antiphon.runtime.tasks.progress import ProgressWriter, log_message
from antiphon.runtime.tasks.records import expiry_after, head_of, parked_fields, phase_of, task_of
from antiphon.store.contract import UNSET, Event, Phase, Record, Store, UnsetType

if TYPE_CHECKING:
    from antiphon.runtime.tasks.held_task import HeldTask

__all__ = ["ClaimedTask"]

_MAX_WRITE_ATTEMPTS = 20
"""How often a write is attempted while other processes write to the same task."""
STORE_OUTAGE_SECONDS = 600.0
"""How long a run waits for a store that does not respond, before another worker may take it over.

Not a setting: the lease decides when another worker takes over; this only bounds a run that cannot.
"""
_FATE_SECONDS = 2.0
"""How long a run that has lost its task waits to learn whether the task goes on."""
_MAX_NOTED_MISMATCHES = 6
"""How many times the log says that a worker of another version gave the task back. From then on, the delays
are the same."""
PENDING_WRITE_WAIT_SECONDS = 0.05
"""How long a request for a task waits for a change of the task that is being written.

Not a setting: it saves callers a second poll of a quick task, and is shorter than any poll interval.
"""


class ClaimedTask:
    """A claim on one task, with the journal of the task."""

    __slots__ = (
        "_claimed_at",
        "_lock",
        "_progress",
        "_segment_entries",
        "_since",
        "_version",
        "_waiting",
        "answered_in",
        "created",
        "failed_attempts",
        "good_until",
        "group",
        "has_begun",
        "has_parked",
        "held",
        "is_ending",
        "is_handed_over",
        "is_reported",
        "journal",
        "last_entry_at",
        "lease",
        "mismatches",
        "most",
        "owner",
        "quiet_releases",
        "reclaims",
        "refusals",
        "requeues",
        "responses",
        "seen",
        "server",
        "stopped",
        "store",
        "task",
        "token",
        "unwinds",
    )

    def __init__(
        self,
        store: Store,
        task: Task,
        created: dict[str, Any],
        *,
        owner: Principal,
        version: int,
        token: int,
        journal: dict[str, Any],
        responses: Mapping[str, Any],
        lease: float = math.inf,
        since: float = 0.0,
        segment_entries: EntryRanges | None = None,
        server: str = "",
        claimed_at: int = 0,
        last_entry_at: int = 0,
    ) -> None:
        self.store = store
        self.server = server
        """The name of the server that runs the task."""
        # The time of the claim by the clock of the store, and by a clock that does not jump.
        self._claimed_at, self._since = claimed_at, since + wall_clock.ahead
        self.last_entry_at = last_entry_at
        """When the last entry was written that the run knows, by the clock of the store; 0 if not known."""
        self.owner = owner
        # The entries of the log that hold segments; `None` if they are not known.
        self._segment_entries = segment_entries
        self._version = self.seen = version
        """The length of the log when the task was claimed: what is counted in `failed_attempts`."""
        self.is_reported = False
        """Whether this process reports that it has lost the task in an outage."""
        self.lease = lease
        """How long a lease lasts, in seconds."""
        self.good_until = since + lease
        """Until when no other worker can have claimed the task, by `lease_clock`."""
        self.has_begun = True
        """Whether the function has begun in this run."""
        self.has_parked = False
        """Whether the run has ended because the task waits for something."""
        self.held: HeldTask | None = None
        """The function, while it waits for an answer in this process; `None` while it runs."""
        self.is_ending = False
        """Whether the task is only being ended, and its function does not run."""
        self.is_handed_over = False
        """Whether the task goes on in another run, after this one was stopped."""
        self.stopped: StoreError | None = None
        """Why the run must not go on, or `None` if it may."""
        self.unwinds = False
        """Whether the task was cancelled or has expired, and this run unwinds its function."""
        self.failed_attempts = 0
        """How many attempts have failed since the task last made progress."""
        self.mismatches = 0
        """How often a worker of another version has given the task back since it last made progress."""
        self.refusals = 0
        """How many of these attempts failed before the function ran."""
        self.most = 0
        """How many suspects may run in this process, with this task; 0 for any number."""
        self.group = 0
        """How many tasks that have lost a worker run in this process at most, as the log says."""
        self.quiet_releases = 0
        self.requeues = False  # whether a release puts the task behind the others of its principal
        """How many claims were released without an entry since the last entry of a worker."""
        self.reclaims = 0
        """How often this process has claimed the task again while this run has not ended."""
        self.task = task
        self.created = created
        self.token = token
        self.responses = responses
        """The answers that arrived since the last run."""
        self.answered_in: tuple[str, ...] = ()
        """The spans of the requests that brought the answers, if they were traced."""
        self.journal = Journal(journal, write=self._record, id=task.id)
        self._waiting: list[asyncio.Future[Task | None]] | None = None
        self._lock = asyncio.Lock()
        self._progress: ProgressWriter | None = None

    @property
    def claim(self) -> tuple[str, int]:
        """The id of the task and the token of the claim, as stores identify a claim."""
        return self.task.id, self.token

    @property
    def renewed_at(self) -> float:
        """When the last request was sent that renewed the lease, by `lease_clock`."""
        return self.good_until - self.lease

    @property
    def resumes(self) -> bool:
        """Whether the function may run again after a run that did not finish."""
        return bool(self.created.get("resume", True))

    @property
    def is_writing(self) -> bool:
        """Whether an entry is being written. Its write finds out by itself if the claim was lost."""
        return self._lock.locked()

    @property
    def keeps_lease(self) -> bool:
        """Whether the lease is renewed: the run goes on, or cleans up after its task was cancelled."""
        return self.stopped is None or self.unwinds

    def now(self) -> int:
        """Return the time in milliseconds since 1970, as the store has it: its clock wakes the task."""
        if not self._claimed_at:
            return now_ms()
        return self._claimed_at + int((lease_clock() + wall_clock.ahead - self._since) * 1000)

    async def read_events(self, topic: str, *, after: int) -> Sequence[Event]:
        """Return the next event of a topic that is numbered above `after`; raises `StoreUnavailable`."""
        return await self.store.read_events(topic, after=after, limit=1)

    def extend(self, since: float) -> None:
        """Extend the lease: it was renewed by a request that was sent at `since`. Safe in any thread."""
        self.good_until = max(self.good_until, since + self.lease)

    def stop(self, reason: StoreError) -> None:
        """Let the run begin nothing more, and write nothing more. The first reason counts."""
        if self.stopped is None:
            self.stopped = reason

    async def find_fate(self) -> None:
        """Find out whether the task goes on elsewhere, after this run has lost it.

        The function cleans up after a task that was cancelled, and leaves everything to the next run of one
        that goes on. If the store does not respond, the task is taken to go on.
        """
        goes_on = self.resumes
        try:
            async with asyncio.timeout(_FATE_SECONDS):
                record = await self.store.get(self.task.id)
                if record is not None and task_of(record).state == "cancelled":
                    # Another worker may unwind the function by now, or have done so.
                    self.unwinds = self.unwinds or await self._is_held_as(record)
                    goes_on = self.resumes and not self.unwinds
                elif record is None or record.phase == "ended":
                    goes_on = False
        except (StoreError, TimeoutError):
            pass
        self.is_handed_over = goes_on and not self.unwinds

    async def _is_held_as(self, record: Record) -> bool:
        """Return whether no other worker has claimed a cancelled task. Raises `StoreUnavailable`."""
        if record.phase == "ended":
            return record.version <= self._version + 1
        try:
            # So that no other worker claims it from now on. A task that was cancelled does not count as held.
            await self.store.renew([self.claim], lease=self.lease)
            await self.store.append(
                record.id, [], expect=record.version, phase="ready", head=record.head, token=self.token
            )
        except (LeaseLost, Stale, NoTask):
            return False
        return True

    def confirm(self) -> Awaitable[None] | None:
        """Return `None` if this process surely holds the task, else an awaitable that asks the store.

        The awaitable raises `LeaseLost` if another worker has the task or the run was stopped, and
        `StoreUnavailable` if the store does not respond for a long time.
        """
        if self.stopped is None and lease_clock() < self.good_until:
            return None
        return self._confirm()

    async def write(self, kind: EntryKind, data: dict[str, Any]) -> None:
        """Append an entry; raises `LeaseLost` if another worker has the task, or the task has ended."""
        if self.stopped is not None:
            raise self.stopped
        data = self._signed(data)
        state = self.task.state
        try:
            if TRANSITIONS.get((state, kind), state) == state:
                await self._write(kind, data)
            else:
                await self._write_change(kind, data)
        except StoreError as error:
            self.stop(error)
            await self.find_fate()
            raise
        if kind == "emitted" or "journal" in data:
            self.failed_attempts = self.refusals = 0
        if kind in ("asked", "parked") and not data.get(HELD):
            self.has_parked = True
            if phase_of(self.task) == "ready":  # an answer came during the run
                await self.store.release(self.task.id, self.token)

    async def _write_change(self, kind: EntryKind, data: dict[str, Any]) -> None:
        """Append an entry that changes the state, and tell those who wait for the change."""
        self._waiting, written = [], None
        try:
            await self._write(kind, data)
            written = self.task
        finally:
            waiting, self._waiting = self._waiting, None
            for future in waiting:
                _set(future, written)

    @property
    def version(self) -> int:
        """The number of the last entry that this claim has written or loaded."""
        return self._version

    async def emit(self, first: int, blocks: Sequence[Any]) -> None:
        """Append segments; `first` is the number of the first one."""
        await self.write("emitted", {"first": first, "blocks": msgspec.to_builtins(blocks)})

    def notify(self, message: CallerMessage) -> None:
        """Store progress as the status message of the task, and write a log message into the server's log."""
        if isinstance(message, Progress):
            if self._progress is None:
                self._progress = ProgressWriter(self._write_progress)
            self._progress.report(message)
        else:
            log_message(self.task.id, message)

    def close_progress(self) -> dict[str, Any] | None:
        """Stop storing progress; return the last report as JSON, or `None` if there was none."""
        return None if self._progress is None else self._progress.close()

    async def wait_for_write(self) -> Task | None:
        """Wait for a change of state that is being written, and return the task after it.

        Returns `None` if no change of state is being written, or if the write takes too long. This saves
        callers who poll a quick task a second request.
        """
        if self._waiting is None:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Task | None] = loop.create_future()
        self._waiting.append(future)
        timer = loop.call_later(PENDING_WRITE_WAIT_SECONDS, _set, future, None)
        try:
            return await future
        finally:
            timer.cancel()

    async def _write(self, kind: EntryKind, data: dict[str, Any]) -> None:
        async with self._lock:
            entries = self._segment_entries
            if kind == "ended" and entries is not None and entries.ranges:
                # So that readers of the content do not have to read the whole log.
                data = {**data, SEGMENT_ENTRIES: entries.ranges}
            await self._append(kind, data)
            if kind == "emitted" and entries is not None:
                entries.add(self._version)

    async def _append(self, kind: EntryKind, data: dict[str, Any]) -> None:
        backoff: Backoff | None = None
        attempts = _MAX_WRITE_ATTEMPTS
        while attempts:
            try:
                if await self._try(kind, data, is_uncertain=backoff is not None):
                    return
                attempts -= 1
            except StoreUnavailable as error:
                # The run waits. The lease may still be valid when the store responds again, and the store
                # may have written the entry before it failed.
                backoff = backoff or Backoff(timeout=STORE_OUTAGE_SECONDS)
                await backoff.wait(error)
        raise LeaseLost(f"Cannot write to task {self.task.id}: other processes keep writing to it.")

    async def _try(self, kind: EntryKind, data: dict[str, Any], *, is_uncertain: bool) -> bool:
        """Append an entry, unless it is in the log already; return false if another process wrote first."""
        if self.task.has_ended:
            raise LeaseLost(f"Cannot write to task {self.task.id}: the task has ended.")
        task = self.task.after(kind, data, now_ms())
        try:
            # A task that was woken goes on waiting for the rest while this worker runs it.
            keeps_claim = kind in ("recorded", "emitted") or data.get(HELD)
            phase: Phase = "ready" if keeps_claim else phase_of(task)
            await self._store_task(task, [(kind, data)], phase, expires=expiry_after(self.task, task))
        except (Stale, LeaseLost) as refusal:
            if is_uncertain and await self._is_written(kind, data):
                self._version += 1
                self.task = msgspec.structs.replace(task, quiet_releases=0)
            elif isinstance(refusal, LeaseLost):
                raise
            else:
                await self._reload()
                return False
        return True

    async def _store_task(
        self,
        task: Task,
        entries: Sequence[tuple[EntryKind, dict[str, Any]]],
        phase: Phase,
        *,
        expires: int | UnsetType | None = UNSET,
    ) -> None:
        """Store the task as it is after some entries, together with the entries. Raises `StoreError`."""
        if entries and task.quiet_releases:  # the entry has the number
            task = msgspec.structs.replace(task, quiet_releases=0)
        self._version = await self.store.append(
            task.id,
            entries,
            expect=self._version,
            phase=phase,
            head=head_of(task),
            token=self.token,
            expires=expires,
            **parked_fields(task, phase, self.server),
        )
        self.task = task

    async def _is_written(self, kind: EntryKind, data: dict[str, Any]) -> bool:
        """Return whether the entry is in the log: the store may have written it before it failed."""
        entries = await self.store.read(self.task.id, after=self._version, limit=1)
        written = msgspec.json.decode(msgspec.json.encode(data))
        return any(entry.kind == kind and entry.data == written for entry in entries)

    async def release(self, *, delay: float = 0.0, **data: Any) -> None:
        """Release the claim, so that another worker can take the task after `delay` seconds.

        Writes an entry first, with `data`, so that the run does not count as lost. A release that may be one
        of many for the same reason is only counted in the record. Raises `StoreError`.
        """
        is_quiet = delay > 0 and (not data or data.get("mismatches", 0) > _MAX_NOTED_MISMATCHES)
        async with self._lock:
            await self._append_release(None if is_quiet else self._signed({**data, "released": True}))
        self.stop(LeaseLost(f"Cannot write to task {self.task.id}: this worker has released it."))
        await self.store.release(self.task.id, self.token, delay=delay, requeue=self.requeues)

    def _signed(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the data of an entry with the claim that it belongs to."""
        if "attempt" in data:
            data = {**data, "seen": self.seen}
        if self.quiet_releases:
            return {**data, "by": self.token, "quiet_releases": self.quiet_releases}
        return {**data, "by": self.token}

    async def write_unwound(self, *, is_complete: bool) -> None:
        """End a cancelled task whose function was unwound; raises `StoreError`.

        `is_complete` is whether the function has cleaned up without an error.
        """
        data, backoff = self._signed({"unwound": is_complete}), Backoff(timeout=STORE_OUTAGE_SECONDS)
        async with self._lock:
            while True:
                try:
                    if self.task.state != "cancelled":  # it was cancelled while this run held it
                        await self._reload()
                    task = self.task.after("recorded", data, now_ms())
                    await self._store_task(task, [("recorded", data)], "ended", expires=task.expires)
                    return
                except StoreUnavailable as error:
                    await backoff.wait(error)

    async def _append_release(self, data: dict[str, Any] | None) -> None:
        """Append the entry of a release, or count it in the record if there is no data.

        Unlike other entries, it does not wait for a store that is away.
        """
        for _ in range(_MAX_WRITE_ATTEMPTS):
            try:
                if data is None:
                    task = msgspec.structs.replace(self.task, quiet_releases=self.task.quiet_releases + 1)
                    await self._store_task(task, [], "ready")
                else:
                    task = self.task.after("recorded", data, now_ms())
                    await self._store_task(task, [("recorded", data)], "ready")
                return
            except Stale:
                await self._reload()

    async def _confirm(self) -> None:
        backoff = Backoff(timeout=STORE_OUTAGE_SECONDS)
        while self.stopped is None:
            since = lease_clock()
            try:
                held = await self.store.renew([self.claim], lease=self.lease)
            except StoreUnavailable as error:
                try:
                    await backoff.wait(error)
                except StoreUnavailable:
                    self.stop(error)
                continue
            if self.task.id in held:
                self.extend(since)
                return
            self.stop(LeaseLost(f"The lease of task {self.task.id} is over, and another worker may run it."))
            await self.find_fate()
        raise self.stopped

    async def _record(self, new: dict[str, Any]) -> None:
        await self.write("recorded", {"journal": new})

    async def _write_progress(self, progress: TaskProgress) -> None:
        """Store the progress in the task's record. The log does not grow."""
        async with self._lock:
            for _ in range(_MAX_WRITE_ATTEMPTS):
                if self.task.has_ended or self.stopped is not None:
                    return
                task = msgspec.structs.replace(
                    self.task,
                    message=progress.text,
                    progress=progress,
                    updated=max(now_ms(), self.task.updated),
                )
                try:
                    await self._store_task(task, [], "ready")
                    return
                except Stale:
                    await self._reload()

    async def _reload(self) -> None:
        """Load the task again, because another process has appended entries."""
        record = await self.store.get(self.task.id)
        if record is None:
            raise LeaseLost(f"Cannot write to task {self.task.id}: the store no longer has it.")
        self.task = task_of(record)
        self._version = record.version


def _set(future: asyncio.Future[Task | None], task: Task | None) -> None:
    if not future.done():
        future.set_result(task)
