"""All tasks of a store, with their logs, as the operator of the store sees them.

Answers and cancellations follow the same rules as on a server, and are made as the principal of the task. A
question to others is answered as the operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any

from antiphon.cli.call.questions import ElicitationHandler
from antiphon.cli.exit_codes import CommandError
from antiphon.cli.operator_name import operator_name
from antiphon.cli.stores import named_store, open_named_store
from antiphon.cli.tasks.questions import answer_questions
from antiphon.cli.tasks.report import TaskView
from antiphon.errors import InvalidParams, TaskEnded, TaskNotFound
from antiphon.model.identity import Principal
from antiphon.model.question import Question
from antiphon.runtime.limits import Limits
from antiphon.runtime.relay import Relay
from antiphon.runtime.tasks.events import KEEP_EVENTS_SECONDS, send_event
from antiphon.runtime.tasks.expiry import end_overdue
from antiphon.runtime.tasks.inbox import OPERATOR_PREFIX, Inbox, is_same_person
from antiphon.runtime.tasks.inbox_feed import InboxFeed
from antiphon.runtime.tasks.operating import operating_service
from antiphon.runtime.tasks.records import task_of
from antiphon.store.contract import Entry, Record, TaskFilter

__all__ = ["StoreTasks"]

PAGE_SIZE = 100


class StoreTasks:
    """The tasks of a store. Enter it to open the store."""

    target = None

    def __init__(self, url: str) -> None:
        self.store = named_store(url)
        self.relay = Relay("")
        self._feed = InboxFeed(self.relay)

    async def __aenter__(self) -> StoreTasks:
        await open_named_store(self.store)
        await self.relay.open(self.store)
        self.service = operating_service(self.store, self.relay, self._feed)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.relay.close()
        await self.store.close()

    async def list(self, limit: int, filter: TaskFilter, principal: str | None) -> Sequence[TaskView]:
        """Return tasks that match a filter, newest first, of all principals or of one."""
        found: list[TaskView] = []
        cursor: str | None = None
        while len(found) < limit:
            wanted = min(limit - len(found), PAGE_SIZE)
            page = await self.store.list(principal, cursor=cursor, limit=wanted, filter=filter)
            found += map(TaskView.from_record, page.records)
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def show(self, id: str) -> tuple[TaskView, Sequence[Entry]]:
        """Return a task and its whole log."""
        record = await self.record(id)
        log: list[Entry] = []
        while more := await self.store.read(id, after=len(log)):
            log += more
        return await self._view(record), log

    async def follow(self, id: str) -> AsyncIterator[TaskView]:
        """Yield a task, then each visible change until the task ends."""
        record = await self.record(id)
        before: Any = None
        async for _ in self.service.follow(id, Principal(record.principal)):
            task = await self._view(await self.record(id))
            visible = (task.status, task.message, tuple(task.questions))
            if visible != before:
                before = visible
                yield task

    async def answer(self, id: str, handler: ElicitationHandler, key: str | None) -> Sequence[str]:
        """Answer the open questions of a task. Return their keys.

        The questions to its principal are answered as the principal, and those to others as the operator. The
        log names the operator in both cases.
        """
        record = await self.record(id)
        task, operator = TaskView.from_record(record), Principal(f"{OPERATOR_PREFIX}{operator_name()}")
        inbox = Inbox(self.store, self._feed, server=record.server, for_operator=True)
        others = {asked.key: asked.question for asked in await inbox.questions_of(operator, id, ())}
        questions: dict[str, Question] = {**task.questions, **others}
        if not questions and task.asks_others and is_same_person(operator.id, record.principal):
            raise CommandError(
                f"Task {id} belongs to {record.principal}, and your login has that name. Nobody answers a "
                "question of their own task to others: somebody else has to."
            )
        if not questions and task.asks_others:
            raise CommandError(
                f"Task {id} has an answer of an operator, or of somebody with your name. All operators count "
                "as one person, so the other answers have to come from others."
            )
        if not questions:
            raise CommandError(f"Task {id} has no open question: its status is {task.status}.")
        handler.server_name = task.tool or handler.server_name
        responses = await answer_questions(handler, questions, key)
        own = {name: response for name, response in responses.items() if name not in others}
        if own:
            await self.service.answer(id, Principal(record.principal), own, by=operator.id)
        for name in responses.keys() - own.keys():
            await inbox.answer(operator, id, name, responses[name])
        return list(responses)

    async def send_event(
        self, name: str, key: str, data: Any, *, id: str | None, server: str | None
    ) -> tuple[str, bool]:
        """Send an event to the tasks of a server. Return the server, and whether the event is new."""
        if server is None:
            server = await self._only_server()
        try:
            is_new = await send_event(
                self.store,
                server,
                name,
                key,
                data,
                id=id,
                keep=KEEP_EVENTS_SECONDS,
                max_bytes=Limits().max_event_bytes,
            )
        except ValueError as error:
            raise CommandError(str(error)) from None
        return server, is_new

    async def _only_server(self) -> str:
        """Return the server of the newest tasks, if it is the same for all. Raises `CommandError`."""
        page = await self.store.list(None, limit=PAGE_SIZE)
        names = sorted({record.server for record in page.records if record.server})
        if len(names) == 1:
            return names[0]
        found = f"The store has tasks of {', '.join(names)}." if names else "The store has no tasks."
        raise CommandError(f"{found} Name the server that waits for the event: --server NAME.")

    async def cancel(self, id: str) -> str:
        """Cancel a task as its principal. Return its status afterwards."""
        record = await self.record(id)
        with contextlib.suppress(TaskEnded):
            await self.service.cancel(id, Principal(record.principal))
        return TaskView.from_record(await self.record(id)).status

    async def retry(self, id: str) -> TaskView:
        """Queue a failed task again, or go on for a cancelled one. Return the task that runs."""
        record = await self.record(id)
        try:
            task = await self.service.retry(id, Principal(record.principal))
        except TaskNotFound:
            raise
        except InvalidParams as error:
            status = TaskView.from_record(record).status
            raise CommandError(
                str(error) if status == "cancelled" else f"{error} Its status is {status}."
            ) from None
        return TaskView.from_record(await self.record(task.id))

    async def remove_expired(self) -> int:
        """Remove the expired tasks. Return how many there were.

        A task that waits for an answer is cancelled first, and stays until a worker has unwound its function.
        """
        await end_overdue(self.store, lambda _: None, publish=self._feed.publish)
        count = 0
        while removed := await self.store.expire():
            count += len(removed)
        return count

    async def record(self, id: str) -> Record:
        """Return the record of a task. Raises `TaskNotFound`."""
        record = await self.store.get(id)
        if record is None:
            raise TaskNotFound(f"There is no task {id} in this store. It may have expired.")
        return record

    async def _view(self, record: Record) -> TaskView:
        """Return a task with its whole result: the log holds a streamed result as segments."""
        return TaskView.from_record(record, await self.service.with_content(task_of(record)))
