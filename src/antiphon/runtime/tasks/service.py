"""Creates, reads, answers, cancels and follows tasks on behalf of their owners.

Owns the rules: who may see a task, and which operations its state allows. The worker runs tasks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from antiphon.backoff import Backoff
from antiphon.errors import (
    Busy,
    InternalError,
    InvalidParams,
    MissingCapability,
    NoTask,
    RequestError,
    Stale,
    StoreUnavailable,
    TaskEnded,
    TaskNotFound,
    TaskNotWaiting,
    TooLate,
)
from antiphon.model.identity import Principal
from antiphon.model.outcome import InputRequired, Result
from antiphon.model.request import CallTool
from antiphon.model.segment import Segments
from antiphon.model.task import ANSWERED_BY, EntryKind, EntryRanges, Promise, Task, load_result
from antiphon.runtime.authoring.tool import Tool
from antiphon.runtime.execution.call import Call
from antiphon.runtime.execution.invoke import Environment
from antiphon.runtime.execution.journal import Journal
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import CANCELLED_TASKS, RETRIED_TASKS, Relay
from antiphon.runtime.tasks.admission import Admission
from antiphon.runtime.tasks.answer_or_promise import AnswerOrPromise
from antiphon.runtime.tasks.claimed_task import ClaimedTask
from antiphon.runtime.tasks.clocks import lease_clock, now_ms
from antiphon.runtime.tasks.entries import answer_deadline, append_entry, check_nesting
from antiphon.runtime.tasks.finished_content import FinishedContent
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.owners import as_stored, dump_principal, kept_principal
from antiphon.runtime.tasks.records import has_expired, head_of, new_task_id, task_of
from antiphon.runtime.tasks.requested_ttl import requested_ttl
from antiphon.runtime.tasks.responses import (
    SortedResponses,
    last_answered,
    not_waiting,
    sort_responses,
    were_given,
    without_overdue,
)
from antiphon.runtime.tasks.run_again import go_on
from antiphon.runtime.tasks.segment_reader import SegmentReader
from antiphon.runtime.tasks.summaries import summarize
from antiphon.runtime.tasks.task_trace import link_to, link_to_task, span_of, trace_of
from antiphon.runtime.tasks.worker import Worker
from antiphon.store.contract import Record, Store
from antiphon.store.unreadable import UnreadableRecords

__all__ = ["NOT_FOUND_MESSAGE", "TaskService", "result_of"]

NOT_FOUND_MESSAGE = "Failed to retrieve task: Task not found"
_MAX_WRITE_ATTEMPTS = 20
"""How often a write is attempted while other processes write to the same task."""
MAX_ENTRIES_BEFORE_PROBLEMS = 10_000
"""How long a log may be for answers that do not fit to be recorded: nothing else bounds how many come."""
_FIRST_SEGMENTS_WAIT_SECONDS = 0.05
"""How long a stream waits for first segments before it reports that the task is running."""
_STORE_OUTAGE_SECONDS = 15.0
"""How long a follower of a task waits for a store that does not respond.

Not a setting: callers reconnect by themselves.
"""
_POLL_SECONDS = 5.0
"""How often a followed task is read although the store reported no change."""
_NOTHING_SEEN = (-1, -1)
"""The state of a record that nobody has read."""


class TaskService:
    """The tasks of one server. Without a server, the tasks of all servers on the store, for operators.

    `has_tool` returns whether the server has a tool of this name. `claims` are the names of the claims of a
    principal that tasks store.
    """

    def __init__(
        self,
        store: Store,
        worker: Worker,
        limits: Limits,
        relay: Relay,
        *,
        server: str | None = None,
        has_tool: Callable[[str], bool] = lambda name: True,
        claims: Sequence[str] = (),
        feed: InboxFeed | None = None,
    ) -> None:
        self.store = store
        self._server = server
        self.worker = worker
        self._relay = relay
        self._feed = feed
        self._has_tool = has_tool
        self._claims = claims
        self._limits = limits
        self._finished_content = FinishedContent(store)
        self._admission = Admission(store, limits, server=server)
        worker.check_growth = self._admission.check_growth
        self._unreadable = UnreadableRecords(type(store).__name__)
        self._checked_capabilities: Mapping[str, Any] | None = None

    async def create(
        self,
        call: Call[CallTool],
        tool: Tool,
        journal: dict[str, Any],
        *,
        run: bool = True,
        emitted: Sequence[Any] = (),
    ) -> ClaimedTask | Task:
        """Create a task in the store; raises `Busy` if too many tasks wait, or if there is no space for it.

        If this process has room, it claims the task at once, and with `run` starts it. A task of a tool with
        `max_running` waits for the worker, which counts them. `emitted` are the segments that the call
        emitted before it became a task.
        """
        check_nesting(call.request.arguments, "arguments")
        capabilities = call.request_meta.capabilities
        if capabilities is not self._checked_capabilities:  # most clients send the same ones with each call
            check_nesting(capabilities, "capabilities")
            self._checked_capabilities = capabilities
        at = now_ms()
        trace = trace_of(call)
        task = Task(
            id=new_task_id(tool.name, at),
            tool=tool.name,
            created=at,
            updated=at,
            ttl=requested_ttl(call.request),
            poll=int(tool.poll_interval * 1000),
            keep=None if tool.task_ttl is None else int(tool.task_ttl * 1000),
            summary=summarize(call.request.arguments),
            traceparent=span_of(trace),
        )
        head = head_of(task)
        created: dict[str, Any] = {
            "v": 1,
            "task": head,
            "arguments": call.request.arguments,
            "principal": dump_principal(self.kept_principal(call.principal)),
            "capabilities": dict(capabilities),
            "journal": journal,
            "resume": tool.resume,
        }
        if tool.problems_of(call.request.arguments) is not None:
            created["fits"] = False
        if call.request_meta.wants_stream or call.request_meta.response_modes:
            created["modes"] = call.request_meta.response_modes or ("streaming",)
        if call.request_meta.client is not None:
            created["client"] = msgspec.to_builtins(call.request_meta.client)
        if trace:
            created["trace"] = trace
        if call.request.input_responses:  # answers to questions from before the call became a task
            created["responses"] = call.request.input_responses
        texts: list[tuple[EntryKind, bytes]] = [("created", msgspec.json.encode(created))]
        segment_entries = EntryRanges()
        if emitted:
            # The claim that comes with the creation has the first token.
            segments = {"first": 1, "blocks": msgspec.to_builtins(emitted), "by": 1}
            texts.append(("emitted", msgspec.json.encode(segments)))
            task = task.after("emitted", segments, at)
            head = head_of(task)
            segment_entries.add(len(texts))
        record = Record(
            id=task.id,
            principal=call.principal.id,
            tool=tool.name,
            phase="ready",
            version=len(texts),
            created=at,
            updated=at,
            expires=task.expires,
            head=head,
            server=self._server or "",
            sharer="" if call.principal.id else call.principal.share,
        )
        size = sum(len(text) for _, text in texts)
        admitted = await self._admission.reserve(record, tool, size)
        is_reserved = run and tool.max_running is None and self.worker.reserve(call.principal.id)
        worker = self.worker.name if is_reserved or not run else None
        since, lease, is_created = lease_clock(), self._limits.lease_seconds, False
        try:
            entries = [(kind, msgspec.Raw(text)) for kind, text in texts]  # encoded once, to know the size
            claim = await self.store.create(record, entries, worker=worker, lease=lease)
            is_created = True
        finally:
            self._admission.finish(admitted, size, created=is_created)
            if is_reserved:
                self.worker.unreserve()
        if claim is None:
            return task
        claimed = ClaimedTask(
            self.store,
            task,
            created,
            owner=as_stored(call.principal, created),
            version=len(texts),
            token=claim.token,
            journal=dict(journal),
            responses=call.request.input_responses,
            lease=self._limits.lease_seconds,
            since=since,
            segment_entries=segment_entries,
            server=self._server or "",
            claimed_at=claim.at,
        )
        if run:
            self.worker.run(claimed, tool)
        return claimed

    def kept_principal(self, principal: Principal) -> Principal:
        """Return a principal as a task keeps it: with the named claims only, and without an expiry."""
        return kept_principal(principal, self._claims)

    async def start(self, call: Call[CallTool], tool: Tool) -> Promise:
        """Create a task for a call, and return its promise."""
        return await self.start_from(call, tool, await call.carrier.open(call))

    async def start_from(self, call: Call[CallTool], tool: Tool, journal: Journal | None) -> Promise:
        """Create a task that continues from a journal, and return its promise."""
        if journal is None:
            journal = Journal()
        # Reading the id records it: every worker derives the same idempotency keys from the first run on.
        _ = journal.id
        created = await self.create(call, tool, journal.entries)
        return Promise(created.task if isinstance(created, ClaimedTask) else created)

    async def answer_or_promise(
        self, call: Call[CallTool], tool: Tool, environment: Environment, *, within: float | None = None
    ) -> Result | InputRequired | Promise:
        """Return the tool's answer if it is quick enough, else the promise of a task.

        With `within`, a call that has no answer after so many seconds becomes a task, and so does a call
        that asks a question.
        """
        conversion = AnswerOrPromise(self, call, tool, within=within)
        return await conversion.run(environment)

    async def get(self, id: str, principal: Principal) -> Task:
        """Return a task without its segments.

        Raises `TaskNotFound`, with the same message for every reason.
        """
        local = await self.worker.find_local(id, principal.id)
        if local is None:
            return self._explained(_task_of(await self._record(id, principal)))
        link_to(local.traceparent)
        return local

    async def list(self, principal: Principal, cursor: str | None) -> tuple[list[Task], str | None]:
        """Return a page of the caller's tasks, newest first; raises `InvalidParams` for an invalid cursor."""
        try:
            page = await self.store.list(principal.id, cursor=cursor, server=self._server)
        except ValueError:
            raise InvalidParams("Invalid cursor: start again without a cursor.") from None
        found = (self._read(record) for record in page.records)
        return [task for task in found if task is not None], page.cursor

    async def cancel(self, id: str, principal: Principal) -> Task:
        """Cancel a task; raises `TaskEnded` if the task has ended."""
        is_running = False

        def entry(task: Task) -> tuple[EntryKind, dict[str, Any]]:
            if task.has_ended:
                raise TaskEnded(f"Cannot cancel task {id}: it has ended already.")
            nonlocal is_running
            # A task that was woken may run, and the function of one that asks may wait in its process.
            is_running = task.state in ("working", "waiting") or bool(task.waits)
            return "cancelled", {"message": "The task was cancelled by request."}

        task = await self._write(id, principal, entry)
        if is_running and not self.worker.cancel(id):
            await self._relay.publish(CANCELLED_TASKS, id)
        return task

    async def retry(self, id: str, principal: Principal) -> Task:
        """Run a failed or cancelled task again with its journal, on behalf of its owner or an operator.

        A failed task is queued again. A cancelled one stays so, and the task that goes on for it is returned.
        Raises `InvalidParams` if the task has neither failed nor was cancelled, or if the task that went on
        for it has ended, and `Busy` if too many tasks wait.
        """
        record = await self._record(id, principal)
        if _task_of(record).state == "cancelled":
            return await go_on(self.store, record, self._admission.admitting)

        def entry(task: Task) -> tuple[EntryKind, dict[str, Any]]:
            if not task.failed and task.state != "faulted":
                raise InvalidParams(
                    f"Cannot retry task {id}: only a task that has failed or was cancelled can be retried."
                )
            return "recorded", {"retry": True, "message": "The task failed, and an operator retries it."}

        task = await self._write(id, principal, entry)
        self.worker.forget_finished(id)
        await self._relay.publish(RETRIED_TASKS, id)
        return task

    async def answer(
        self,
        id: str,
        principal: Principal,
        responses: Mapping[str, Any],
        *,
        by: str | None = None,
        keys_are_unique: bool = False,
    ) -> Task:
        """Answer a task's questions, and return the task.

        The first answer to a question counts. The same answer may be repeated; raises `AlreadyAnswered` for
        another one. Responses to questions that the task has not asked are ignored. A question whose response
        does not match its form stays open, and says why. Raises `InvalidParams` for a response of the wrong
        kind, `Busy` if there is no space for the responses, and `TaskNotWaiting` if the task has no open
        question. An error does not undo the other responses. `by` names the person who answers for the
        principal, for the log; then `TaskNotWaiting` is raised also if all responses are to questions that
        are not open. With `keys_are_unique`, a question that was asked again has another key than before.
        """
        check_nesting(responses, "responses")
        sorted_responses = SortedResponses({}, {}, {}, {})
        deadline = passed = 0

        def entry(task: Task) -> tuple[EntryKind, dict[str, Any]] | None:
            nonlocal sorted_responses, deadline
            if passed:
                task = without_overdue(task, passed)
            if task.state != "waiting":
                raise not_waiting(task)
            sorted_responses = sort_responses(task, responses, keys_are_unique=keys_are_unique)
            if by is not None and not sorted_responses.answers_any:
                raise not_waiting(task)
            data: dict[str, Any] = {"responses": sorted_responses.valid}
            if any(task.problems.get(key) != problem for key, problem in sorted_responses.unfit.items()):
                data["problems"] = sorted_responses.unfit
            deadline = answer_deadline(task, data) or 0
            named = {} if by is None else {ANSWERED_BY: by}
            return ("answered", {**data, **named}) if any(data.values()) else None

        while True:
            try:
                task = await self._write(id, principal, entry)
                break
            except TooLate:  # the other questions can still be answered
                passed = deadline
            except TaskNotWaiting:
                if not await self._were_given(id, principal, responses, keys_are_unique=keys_are_unique):
                    raise
                return await self.get(id, principal)
        if sorted_responses.malformed:
            raise InvalidParams(" ".join(sorted_responses.malformed.values()))
        if sorted_responses.others:
            await self._were_given(id, principal, sorted_responses.others, keys_are_unique=keys_are_unique)
        return task

    async def _were_given(
        self, id: str, principal: Principal, responses: Mapping[str, Any], *, keys_are_unique: bool
    ) -> bool:
        """Return whether a task has got these answers before; raises `AlreadyAnswered` if it got others."""
        record = await self._record(id, principal)
        return await were_given(
            self.store, record, _task_of(record), responses, keys_are_unique=keys_are_unique
        )

    async def last_answered(self, id: str, principal: Principal) -> Sequence[str]:
        """Return the keys of the questions that the owner of a task has answered last."""
        return await last_answered(self.store, await self._record(id, principal))

    async def follow(self, id: str, principal: Principal) -> AsyncIterator[Task]:
        """Yield a task now and after every change, until it has ended."""
        async with self.store.watch(id) as watch:
            seen, backoff = _NOTHING_SEEN, Backoff(timeout=0)
            while True:
                try:
                    record = await self._record(id, principal)
                except StoreUnavailable as error:
                    await backoff.wait(error)
                    continue
                backoff = Backoff(timeout=_STORE_OUTAGE_SECONDS)
                if _state_of(record) != seen:
                    seen = _state_of(record)
                    task = self._explained(_task_of(record))
                    yield task
                    if task.has_ended:
                        return
                await watch.wait(_POLL_SECONDS)

    async def stream(self, id: str, principal: Principal, after: int) -> AsyncIterator[Segments | Task]:
        """Yield the segments numbered above `after` as they come, and the task after every change.

        The content of the result that was not emitted as segments is not included. Raises `TaskNotFound`,
        also if the task expires meanwhile.
        """
        async with self.store.watch(id) as watch:
            reader, seen, nothing_sent = SegmentReader(self.store, id, after), _NOTHING_SEEN, True
            backoff = Backoff(timeout=0)
            while True:
                try:
                    record = await self._record(id, principal)
                    if _state_of(record) != seen:
                        async for first, blocks in reader.up_to(record.version):
                            nothing_sent = False
                            yield Segments(first, blocks, id)
                except StoreUnavailable as error:
                    await backoff.wait(error)
                    continue
                backoff = Backoff(timeout=_STORE_OUTAGE_SECONDS)
                if _state_of(record) != seen:
                    seen = _state_of(record)
                    task = _task_of(record)
                    if (
                        nothing_sent
                        and task.state == "working"
                        and await watch.wait(_FIRST_SEGMENTS_WAIT_SECONDS)
                    ):
                        # The log has grown: read it before reporting that the task is running.
                        seen, nothing_sent = _NOTHING_SEEN, False
                        continue
                    nothing_sent = False
                    yield task
                    if task.has_ended:
                        return
                await watch.wait(_POLL_SECONDS)

    async def segments(self, id: str, principal: Principal, after: int) -> tuple[Task, Sequence[Any]]:
        """Return a task and its segments numbered above `after`, without further content of its result."""
        record = await self._record(id, principal)
        reader = SegmentReader(self.store, id, after)
        return _task_of(record), [block async for _, some in reader.up_to(record.version) for block in some]

    async def with_content(self, task: Task) -> Task:
        """Return the task with its segments in the content of its result, if it has a result."""
        if task.result is None or not task.segments:
            return task
        content = await self._finished_content.of(task)
        return msgspec.structs.replace(task, result={**task.result, "content": content}, segments=0)

    def _explained(self, task: Task) -> Task:
        """Return the task with a message that says why it may not run, if its tool is missing here."""
        if task.state != "working" or task.message is not None or self._has_tool(task.tool):
            return task
        message = f"This server does not have the tool {task.tool!r}. A worker that has it can run the task."
        return msgspec.structs.replace(task, message=message)

    # Reading and writing records

    def _read(self, record: Record) -> Task | None:
        """Return the task of a record; `None` if it has expired, or if it is damaged, which is logged."""
        try:
            return None if has_expired(record) else task_of(record)
        except msgspec.ValidationError as error:
            self._unreadable.log(record.id, error)
            return None

    async def _record(self, id: str, principal: Principal) -> Record:
        record = await self.store.get(id)
        if (
            record is None
            or record.principal != principal.id
            or (record.server and self._server is not None and record.server != self._server)
            or has_expired(record)
        ):
            raise TaskNotFound(NOT_FOUND_MESSAGE)
        link_to_task(record)
        return record

    async def _write(self, id: str, principal: Principal, entry: Any) -> Task:
        """Append the entry that `entry` returns for the task; try again if the task changes meanwhile."""
        for _ in range(_MAX_WRITE_ATTEMPTS):
            record = await self._record(id, principal)
            task = _task_of(record)
            new_entry = entry(task)
            if new_entry is None:
                return task
            kind, data = new_entry
            if kind == "answered" and not data["responses"] and record.version > MAX_ENTRIES_BEFORE_PROBLEMS:
                raise InvalidParams(
                    f"Task {id} got too many answers that do not fit: cancel it, or answer it."
                )
            if kind == "answered":
                await self._admission.check_growth(record, len(msgspec.json.encode(data)))
            try:
                after = await append_entry(self.store, record, task, kind, data, server=self._server)
            except Stale:
                continue
            except NoTask:
                raise TaskNotFound(NOT_FOUND_MESSAGE) from None
            if self._feed is not None:
                self._feed.publish(task, after)
            return after
        raise Busy("Other processes are writing to the task: try again.")


def result_of(task: Task) -> Result:
    """Return the result of a task that has ended; raises its error if it has none."""
    if task.result is not None:
        return load_result(task.result)
    if task.fault is not None:
        fault = task.fault
        if fault.needs is not None:
            raise MissingCapability(fault.message, needs=fault.needs, data=fault.data, code=fault.code)
        raise RequestError(fault.message, code=fault.code, data=fault.data)
    raise RequestError("The task was cancelled.", code=-32603)


def _task_of(record: Record) -> Task:
    """Return the task of a record; raises `InternalError` if the record is damaged."""
    try:
        return task_of(record)
    except msgspec.ValidationError:
        raise InternalError(
            f"Cannot read task {record.id}: its record in the store is damaged, or another version wrote it."
        ) from None


def _state_of(record: Record) -> tuple[int, int]:
    """Return a value that differs after every change. Progress changes a record without an entry."""
    return record.version, record.updated
